/* Draws the playground from playground-data.js: a timeline of event time, and what leaves when, and why. */
(function () {
  "use strict";
  const root = document.getElementById("play");
  if (!root || !window.PLAYGROUND) return;
  const { choices, runs } = window.PLAYGROUND;
  const picked = { example: 0, windows: 0, grace: 1, suppression: 1, step: 0 };
  const names = { example: "Records", windows: "Windows", grace: "Grace", suppression: "Which rows leave" };

  function element(tag, attributes, ...children) {
    const svg = ["svg", "line", "rect", "circle", "text", "title", "g"].includes(tag);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  function steps() {
    const name = [choices.example[picked.example], choices.windows[picked.windows], choices.grace[picked.grace]];
    return runs[name.join("/")];
  }

  const grace = () => choices.grace[picked.grace];
  const sessions = () => choices.windows[picked.windows].startsWith("Sessions");
  const shown = (bounds) => (sessions() ? `[${bounds[0]}, ${bounds[1]}]` : `[${bounds[0]}, ${bounds[1]})`);

  function why(step, row) {
    const [key, start, end, count] = row;
    const window_ = `window ${shown([start, end])} of ${key}`;
    if (count === null) return `The ${window_} is gone: it became a part of a longer session.`;
    if (picked.suppression === 0) return `The ${window_} has ${count}: the record changed it, and every update leaves.`;
    if (picked.suppression === 1) {
      const parts = sessions() ? `its end ${end}, the gap 5 and the grace ${grace()}` : `its end ${end} plus the grace ${grace()}`;
      const reached = sessions() ? "has passed" : "has reached";
      return `The ${window_} leaves with ${count}, once: stream time ${step.stream} ${reached} ${parts}.`;
    }
    return `The ${window_} leaves with ${count}: its first update has waited for 10 s of stream time, now ${step.stream}.`;
  }

  function story(step) {
    const lines = step.left[picked.suppression].map((row) => why(step, row));
    for (const bounds of step.late) {
      lines.push(`Late: window ${shown(bounds)} was closed when the record came, at stream time ${step.stream}. It is dropped and counted.`);
    }
    return lines.length ? lines : ["Nothing leaves."];
  }

  function timeline() {
    const all = steps(), step = all[picked.step], left = 60, width = 720, last = 45;
    const x = (second) => left + (Math.min(second, last) * (width - left - 10)) / last;
    const lanes = step.windows, height = 92 + lanes.length * 30;
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "playground-timeline" });
    svg.append(element("title", {}, `Event time in seconds, with ${picked.step + 1} records, at stream time ${step.stream}`));
    for (let second = 0; second <= last; second += 5) {
      svg.append(element("line", { x1: x(second), x2: x(second), y1: 20, y2: height - 10, class: "grid" }));
      svg.append(element("text", { x: x(second), y: 14, class: "label", "text-anchor": "middle" }, String(second)));
    }
    svg.append(element("line", { x1: x(step.stream), x2: x(step.stream), y1: 20, y2: height - 4, class: "stream" }));
    svg.append(element("text", { x: x(step.stream) + 4, y: 30, class: "label" }, "stream time"));
    svg.append(element("text", { x: 4, y: 50, class: "label" }, "records"));
    all.slice(0, picked.step + 1).forEach((one, number) => {
      const late = one.late.length > 0, now = number === picked.step;
      svg.append(element("circle", { cx: x(one.at), cy: 46, r: now ? 11 : 9, class: `record ${late ? "late" : one.key} ${now ? "now" : ""}` }));
      svg.append(element("text", { x: x(one.at), y: 50, class: "number", "text-anchor": "middle" }, String(number + 1)));
    });
    lanes.forEach(([key, start, end, count, close], lane) => {
      const y = 76 + lane * 30, closed = step.stream >= close;
      const leaving = step.left[picked.suppression].some((row) => row[0] === key && row[1] === start && row[2] === end);
      svg.append(element("rect", { x: x(end), y: y, width: Math.max(x(close) - x(end), 0), height: 22, class: "waits" }));
      svg.append(element("rect", { x: x(start), y: y, width: Math.max(x(end) - x(start), 4), height: 22, class: `window ${closed ? "closed" : key} ${leaving ? "leaving" : ""}` }));
      svg.append(element("text", { x: x(start) + 5, y: y + 15, class: "number start" }, `${key}: ${count}${leaving ? " leaves" : closed ? " closed" : ""}`));
    });
    const inSight = () => { holder.scrollLeft = (x(step.stream) / width) * holder.scrollWidth - holder.clientWidth / 2; };
    const holder = element("div", { class: "playground-holder" }, svg);
    requestAnimationFrame(inSight);
    return holder;
  }

  function table() {
    const body = element("tbody", {});
    steps().slice(0, picked.step + 1).forEach((step, number) => {
      const cells = [String(number + 1), `${step.key} at ${step.at} s`, String(step.stream)].map((text) => element("td", {}, text));
      const lines = element("td", {}, ...story(step).map((line) => element("div", {}, line)));
      body.append(element("tr", number === picked.step ? { class: "now" } : {}, ...cells, lines));
    });
    const head = ["", "record", "stream time", "what leaves, and why"].map((text) => element("th", { scope: "col" }, text));
    return element("table", { class: "playground-table" }, element("thead", {}, element("tr", {}, ...head)), body);
  }

  const view = element("div", { "aria-live": "polite" });
  const back = element("button", { type: "button", onclick: () => move(-1) }, "Back");
  const next = element("button", { type: "button", onclick: () => move(1) }, "Next record");
  const allOfThem = element("button", { type: "button", onclick: () => move(99) }, "All records");

  function draw() {
    view.replaceChildren(timeline(), table());
    back.disabled = picked.step === 0;
    next.disabled = allOfThem.disabled = picked.step === steps().length - 1;
  }

  function move(by) {
    picked.step = Math.max(0, Math.min(picked.step + by, steps().length - 1));
    draw();
  }

  const controls = element("div", { class: "playground-controls" });
  for (const [name, label] of Object.entries(names)) {
    const options = choices[name].map((choice, number) => {
      const attributes = { value: number };
      if (picked[name] === number) attributes.selected = "";
      return element("option", attributes, name === "grace" ? `${choice} s` : choice);
    });
    const changed = (event) => { picked[name] = Number(event.target.value); if (name === "example") picked.step = 0; draw(); };
    controls.append(element("label", {}, `${label} `, element("select", { name: name, onchange: changed }, ...options)));
  }
  root.replaceChildren(controls, element("div", { class: "playground-controls" }, back, next, allOfThem), view);
  draw();
})();

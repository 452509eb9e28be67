"use strict";
// Draws the data of the endpoint: /queries.json is now, /history.json the last hours. Nothing is sent, nothing is stored.
const EVERY_MS = 2000;
const $ = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const SVG = "http://www.w3.org/2000/svg";
const svg = (name, attributes = {}, ...children) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const UNITS = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]];
function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 0) return `−${duration(-ms)}`;
  for (let place = 0; place < UNITS.length; place++) {
    const [unit, size] = UNITS[place];
    if (ms < size) continue;
    const whole = Math.floor(ms / size);
    const next = UNITS[place + 1];
    const rest = next ? Math.round((ms - whole * size) / next[1]) : Math.round((ms - whole * size) / 100);
    if (!next) return whole < 10 && rest > 0 && rest < 10 ? `${whole}.${rest} s` : `${Math.round(ms / size)} s`;
    return rest && rest * next[1] < size ? `${whole} ${unit} ${rest} ${next[0]}` : `${Math.round(ms / size)} ${unit}`;
  }
  return `${Math.round(ms)} ms`;
}
// The day and the time of day, in UTC; null beyond the year 275760, where a Date ends.
const utc = (ms) => {
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? null : at.toISOString().slice(0, -5).split("T");
};
function instant(ms) {
  if (ms === null || ms < 0) return "not begun";
  const at = utc(ms);
  return at === null ? `${ms} ms` : `${at[0]} ${at[1]} UTC`;
}
function count(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value < 100 && !Number.isInteger(value)) return value.toFixed(1);
  return value >= 1e5 ? `${Math.round(value / 1e3)} k` : Math.round(value).toLocaleString("en");
}
function bytes(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 2 ** 30) return `${(value / 2 ** 30).toFixed(1)} GiB`;
  if (value >= 2 ** 20) return `${(value / 2 ** 20).toFixed(1)} MiB`;
  return value >= 1024 ? `${(value / 1024).toFixed(0)} KiB` : `${value} B`;
}
const share = (value) => value === null || value === undefined ? "–" : value === 0 ? "0 %" : value < 0.0001 ? "< 0.01 %" : `${(100 * value).toFixed(value < 0.01 ? 2 : 1)} %`;

// --- charts over the wall clock, by uPlot; one stays for as long as its operator is shown -----------------------------
const plots = new Map();
const hour = (at) => { const day = new Date(at * 1000); return `${String(day.getHours()).padStart(2, "0")}:${String(day.getMinutes()).padStart(2, "0")}`; };
function chart(host, key, title, columns, series, shown, quiet) {
  let known = plots.get(key);
  const data = [columns.at.map((ms) => ms / 1000), ...series.map(([name]) => columns[name] || columns.at.map(() => null))];
  if (!known) {
    const place = $("div", {class: "plot"});
    const note = $("p", {class: "quiet"});
    const box = $("div", {class: "chart", role: "img"}, $("h3", {}, title), place, note);
    host.append(box);
    const axis = {stroke: color("quiet"), grid: {stroke: color("line"), width: 1}, ticks: {stroke: color("line"), width: 1}, font: "11px system-ui, sans-serif"};
    const options = {
      width: Math.max(place.clientWidth, 200), height: 170, cursor: {y: false, points: {size: 5}}, legend: {live: true},
      scales: {x: {time: true}},
      axes: [{...axis, space: 60, size: 30, values: (_, values) => values.map((at, i) => i && hour(at) === hour(values[i - 1]) ? "" : hour(at))}, {...axis, size: 72, values: (_, values) => values.map(shown)}],
      series: [{value: (_, at) => at === null ? "" : new Date(at * 1000).toLocaleTimeString()},
        ...series.map(([, label, name, dash]) => ({label, stroke: color(name), width: 1.5, dash, spanGaps: false, points: {show: data[0].length < 3}, value: (_, value) => value === null ? "" : shown(value)}))],
    };
    known = {plot: new uPlot(options, data, place), place, box, note, host};
    plots.set(key, known);
  } else {
    known.plot.setData(data);
  }
  if (known.place.clientWidth && known.place.clientWidth !== known.plot.width) known.plot.setSize({width: known.place.clientWidth, height: 170});
  const last = series.map(([name, label]) => `${label} ${shown((columns[name] || [null]).at(-1) ?? null)}`).join(", ");
  known.box.setAttribute("aria-label", `${title} over time; now ${last}`);
  known.note.textContent = quiet || "";
}

// --- numbers that grow, per second between two points ----------------------------------------------------------------------
function rate(columns, name) {
  const values = columns[name];
  return values.map((value, i) => {
    if (i === 0 || value === null || values[i - 1] === null) return null;
    const seconds = (columns.at[i] - columns.at[i - 1]) / 1000;
    return seconds > 0 ? Math.max(0, value - values[i - 1]) / seconds : null;
  });
}

const hatched = () => svg("defs", {}, svg("pattern", {id: "grace", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"},
  svg("rect", {width: 6, height: 6, class: "paper"}), svg("line", {x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch"})));

// The endpoint gives the first window that closes; later ones follow from size and advance, at most as many as are open.
function timeline(one) {
  const next = one.pending.waiting.find((wait) => wait.leaves_at !== null);
  if (!one.windows || !next || one.pending.stream_time === null) return null;
  const [size, advance, grace] = one.windows;
  const now = one.pending.stream_time;
  const known = Math.max(1, Math.min(one.pending.open_windows || 1, 8));
  const rows = Array.from({length: known}, (_, i) => next.leaves_at - grace - size + i * advance);
  const low = Math.min(rows[0], now);
  const high = Math.max(rows[rows.length - 1] + size + grace, now);
  const wide = 400, left = 4, right = 4, x = (ms) => left + (wide - left - right) * (ms - low) / Math.max(high - low, 1);
  const high_ = rows.length * 18 + 24;
  const picture = svg("svg", {viewBox: `0 0 ${wide} ${high_}`, role: "img", "aria-label":
    `Open windows: the next one ends at ${instant(rows[0] + size)} and closes at ${instant(next.leaves_at)}; stream time is ${instant(now)}`}, hatched());
  rows.forEach((start, i) => {
    const y = 6 + i * 18;
    picture.append(svg("rect", {class: i === 0 ? "window" : "guess", x: x(start), y, width: Math.max(x(start + size) - x(start), 2), height: 12}));
    if (grace) picture.append(svg("rect", {class: "grace", x: x(start + size), y, width: Math.max(x(start + size + grace) - x(start + size), 2), height: 12}));
  });
  const bottom = 6 + rows.length * 18;
  picture.append(svg("line", {class: "now", x1: x(now), x2: x(now), y1: 0, y2: bottom + 4}));
  const end = x(now) > 0.4 * wide;
  picture.append(svg("text", {x: x(now) + (end ? -4 : 4), y: bottom + 14, "text-anchor": end ? "end" : "start"}, `stream time ${instant(now)}`));
  const more = (one.pending.open_windows || 0) - known;
  return $("div", {class: "chart"}, $("h3", {}, "Open windows"), picture, $("p", {class: "quiet"},
    `From ${instant(low)} to ${instant(high)}. Filled: the next one that closes. Dashed: windows behind it, of which ${count(one.pending.open_windows)} are open.${more > 0 ? ` ${count(more)} more follow.` : ""} Hatched: grace.`));
}

const COUNTED = {
  time: "Counted are (record, window) pairs.",
  sliding: "Counted are records; late is one that misses a window.",
  join: "Counted are records; late is one that nothing can join any more.",
  sessions: "Counted are records. Those later than today's grace were late; the others needed what is said or less, because a session that is open takes records that are too old by themselves.",
};
const KINDS = {sliding: "sliding windows", sessions: "sessions", join: "join"};

// Bars of classes that grow by their logarithm; the grace is a line between what was in time and what was late.
function histogram(one) {
  const graces = one.graces;
  if (!graces || !graces.total) return null;
  const late = graces.needed.reduce((sum, [, n]) => sum + n, 0);
  const bars = [[0, graces.total - late], ...graces.needed];
  const edges = [0, 1000, 10000, 60000, 300000, 900000, 3600000, 4 * 3600000, 86400000, 7 * 86400000, Infinity];
  const cut = [...new Set([...edges, graces.today])].sort((a, b) => a - b);
  const groups = cut.map((edge, i) => [i ? cut[i - 1] : -1, edge, 0]);
  for (const [needed, n] of bars) groups.find(([low, high]) => needed > low && needed <= high)[2] += n;
  const used = groups.filter(([, , n], i) => n || groups.slice(i).some(([, , m]) => m));
  const wide = 400, left = 104, step = 20, most = Math.max(...used.map(([, , n]) => Math.log10(n + 1)), 1);
  const picture = svg("svg", {viewBox: `0 0 ${wide} ${used.length * step + 14}`, role: "img", "aria-label":
    `Which grace records needed: with ${duration(graces.today)} ${share(graces.needed.reduce((sum, [needed, n]) => sum + (needed > graces.today ? n : 0), 0) / graces.total)} are late; ${duration(graces.enough)} would have been enough`}, hatched());
  used.forEach(([low, high, n], i) => {
    const y = i * step, isLate = low >= graces.today;
    const label = high === 0 ? "in time" : high === Infinity ? `more than ${duration(low)}` : `up to ${duration(high)}`;
    picture.append(svg("text", {x: left - 8, y: y + 13, "text-anchor": "end"}, label));
    picture.append(svg("rect", {class: isLate ? "bar late" : "bar", x: left, y: y + 3, width: Math.max(Math.log10(n + 1) / most * (wide - left - 130), n ? 2 : 0), height: 12}));
    picture.append(svg("text", {x: left + Math.log10(n + 1) / most * (wide - left - 130) + 6, y: y + 13, class: "quiet"}, n ? `${count(n)} (${share(n / graces.total)})` : "none"));
    if (high === graces.today && i < used.length - 1) picture.append(svg("line", {class: "now", x1: left - 4, x2: wide - 4, y1: y + step - 1, y2: y + step - 1}));
  });
  return $("div", {class: "chart"}, $("h3", {}, `Which grace records needed${graces.at_most ? " at most" : ""}, last 24 hours`), picture, $("p", {class: "quiet"},
    `Line and hatching: later than today's grace of ${duration(graces.today)}. ${duration(graces.enough)} would have left at most 0.1 % late. ${COUNTED[graces.windows]} Bars by their logarithm.`));
}

function partitions(one, now) {
  if (one.partitions.length < 1) return null;
  const most = Math.max(...one.partitions.map(([, time]) => time));
  const sorted = [...one.partitions].sort((a, b) => a[1] - b[1]);
  const rows = sorted.slice(0, 16).map(([name, time, heard]) => {
    const behind = most - time, silent = now - heard;
    return $("tr", {}, $("td", {}, name), $("td", {class: behind && behind === most - sorted[0][1] ? "number tail" : "number"}, behind ? duration(behind) : "first"),
      $("td", {class: silent > 60000 ? "number tail" : "number"}, silent > 60000 ? `idle ${duration(silent)}` : duration(Math.max(silent, 0))));
  });
  const more = one.partitions.length > 16 ? `${one.partitions.length - 16} more are further.` : "";
  return $("div", {class: "chart"}, $("h3", {}, "Partitions"), $("table", {},
    $("thead", {}, $("tr", {}, $("th", {}, "partition"), $("th", {class: "number"}, "behind the first"), $("th", {class: "number"}, "last record"))),
    $("tbody", {}, ...rows)), $("p", {class: "quiet"}, more));
}

function numbers(one) {
  const metrics = one.metrics, records = metrics.records || 0;
  const item = (value, label, warn = false) => $("li", warn ? {class: "warn"} : {}, $("b", {}, value), $("span", {}, label));
  const listed = [
    item(instant(one.pending.stream_time), "stream time"),
    item(duration(metrics.stream_time_lag), "behind the wall clock"),
    item(count(records), "records"),
    item(`${count(metrics.late || 0)}${records ? ` (${share((metrics.late || 0) / records)})` : ""}`, "late", metrics.late > records / 100),
    ...["null_key", "null_value", "bad_timestamp", "future"].filter((reason) => metrics[reason]).map((reason) => item(count(metrics[reason]), `skipped: ${reason.replace("_", " ")}`, true)),
    item(count(metrics.emitted), "rows out"),
    ...(metrics.open_left_records === undefined ? [item(count(metrics.open_windows), "open windows")]
      : [item(count(metrics.open_left_records), "open left records"), item(count(metrics.open_right_records), "open right records")]),
  ];
  if (metrics.suppression_buffer_count_current !== undefined) listed.push(item(count(metrics.suppression_buffer_count_current), "rows wait"));
  if (metrics.suppression_buffer_fill !== undefined) listed.push(item(share(metrics.suppression_buffer_fill), "of the buffer", metrics.suppression_buffer_fill > 0.8));
  if (metrics.grace_enough !== undefined && metrics.grace_enough !== null) listed.push(item(duration(metrics.grace_enough), `grace enough, of ${duration(metrics.grace)}`, metrics.grace_enough > metrics.grace));
  return $("ul", {class: "numbers"}, ...listed);
}

// --- the page: a section for the batches of the chosen query, and one for each of its operators ---------------------------
let chosen = null, shape = "";
const hosts = new Map();
function host(key, name, build) {
  if (!hosts.has(key)) {
    const made = build();
    hosts.set(key, made);
    document.getElementById("main").append(made.section);
  }
  return hosts.get(key);
}
function clear() {
  for (const {plot} of plots.values()) plot.destroy();
  plots.clear();
  hosts.clear();
  document.getElementById("main").replaceChildren();
}

let tabbed = "";
function tabs(names) {
  const now = JSON.stringify([names, chosen]);
  if (now === tabbed) return; // the buttons stay, and so does the focus of the keyboard
  tabbed = now;
  const nav = document.getElementById("queries"), focused = nav.contains(document.activeElement);
  nav.replaceChildren(...names.map(([name, active]) => {
    const button = $("button", {type: "button", "aria-pressed": String(name === chosen)}, active ? name : `${name} (ended)`);
    button.addEventListener("click", () => { chosen = name; location.hash = encodeURIComponent(name); update(); });
    return button;
  }));
  if (focused) nav.querySelector("[aria-pressed=true]")?.focus();
}

function batches(query) {
  const made = host("batches", query.query, () => {
    const grid = $("div", {class: "grid"});
    return {grid, section: $("section", {"aria-label": "batches"}, $("div", {class: "head"}, $("h2", {}, "Batches")), grid)};
  });
  const table = query.batches;
  table.total = table.triggerExecution;
  chart(made.grid, "batches time", "Time per batch, and where it goes", table, [["total", "whole", "one"], ["addBatch", "operators and sink", "two", [6, 3]], ["queryPlanning", "planning", "three", [2, 3]], ["walCommit", "log", "four", [8, 3, 2, 3]]], duration);
  chart(made.grid, "batches rows", "Rows read per batch", table, [["rows", "rows", "one"]], count);
  chart(made.grid, "batches state", "State in memory", table, [["state_bytes", "bytes", "one"]], bytes, "As Spark reports it, of all operators of the query.");
}

function operator(one, points, now) {
  const made = host(`operator ${one.operator}`, one.operator, () => {
    const head = $("div", {class: "head"}, $("h2", {}, one.operator), $("p", {}));
    const changing = $("div", {}), grid = $("div", {class: "grid"}), drawn = $("div", {class: "grid"});
    return {head, changing, grid, drawn, section: $("section", {class: "operator", "aria-label": `operator ${one.operator}`}, head, changing, drawn, grid)};
  });
  made.head.lastChild.textContent = one.windows ? `windows of ${duration(one.windows[0])}${one.windows[1] !== one.windows[0] ? `, one every ${duration(one.windows[1])}` : ""}, grace ${duration(one.windows[2])}`
    : one.graces && one.graces.total ? `${KINDS[one.graces.windows]}, grace ${duration(one.graces.today)}` : "";
  made.changing.replaceChildren(numbers(one), $("p", {class: "pending"}, one.text));
  made.drawn.replaceChildren(...[timeline(one), histogram(one), partitions(one, now)].filter((part) => part !== null));
  if (!points) return;
  const lag = points.at.map((at, i) => points.stream_time[i] === null || points.stream_time[i] < 0 ? null : points.stream_time[i]);
  const key = (name) => `operator ${one.operator} ${name}`;
  const known = lag.filter((value) => value !== null);
  const days = known.length && known[known.length - 1] - known[0] > 2 * 86400000;
  // One day is named below the chart; on the axis there is room for the hour.
  const moment = (value) => {
    const at = value === null ? null : utc(value);
    return at === null ? "–" : days ? at[0].replace(/^\d\d(?=\d\d-)/, "") : at[1].slice(0, 5);
  };
  chart(made.grid, key("time"), "Stream time against the wall clock", {...points, lag}, [["lag", "stream time", "one"]], moment, known.length ? `${instant(known[0])} to ${instant(known[known.length - 1])}.` : "");
  chart(made.grid, key("flow"), "Records and rows per second", {at: points.at, records: rate(points, "records"), emitted: rate(points, "emitted")}, [["records", "records in", "one"], ["emitted", "rows out", "two", [6, 3]]], count);
  chart(made.grid, key("late"), "Late and skipped per second", {at: points.at, late: rate(points, "late"), skipped: rate(points, "skipped")}, [["late", "late", "two"], ["skipped", "skipped", "three", [2, 3]]], (value) => value === null ? "–" : value < 10 ? value.toFixed(1) : count(value));
  if (points.open_left_records.some((value) => value !== null)) chart(made.grid, key("open"), "Open records of the join", points, [["open_left_records", "left", "one"], ["open_right_records", "right", "two", [6, 3]]], count);
  else chart(made.grid, key("open"), "Open windows", points, [["open_windows", "windows", "one"]], count);
  if (points.buffered.some((value) => value !== null)) chart(made.grid, key("held"), "Rows that wait", points, [["buffered", "rows", "one"]], count);
  if (points.fill.some((value) => value)) chart(made.grid, key("fill"), "How full the buffer is", points, [["fill", "of its bound", "two"]], share);
}

// The name in an address; somebody may have written it.
function named(hash) {
  try {
    return decodeURIComponent(hash);
  } catch {
    return hash;
  }
}

let latest = null;
function update() {
  if (!latest) return;
  const {queries, history} = latest;
  const names = history.queries.map(({query, active}) => [query, active]);
  if (!names.some(([name]) => name === chosen)) {
    const asked = named(location.hash.slice(1));
    const running = names.find(([, active]) => active) || names[names.length - 1];
    chosen = names.some(([name]) => name === asked) ? asked : running ? running[0] : null;
  }
  tabs(names);
  const query = history.queries.find((one) => one.query === chosen);
  if (!query) return;
  const mine = queries.operators.filter((one) => one.query === chosen);
  const now = JSON.stringify([chosen, mine.map((one) => one.operator)]);
  if (now !== shape) { clear(); shape = now; }
  for (const one of mine) operator(one, query.operators[one.operator], queries.time_ms);
  batches(query);
}

async function poll() {
  const state = document.getElementById("state");
  const say = (text, lost) => { state.className = lost ? "lost" : ""; state.textContent = text; };
  try {
    const [queries, history] = await Promise.all(["queries.json", "history.json"].map(async (name) => {
      const answer = await fetch(name, {cache: "no-store"});
      if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
      return answer.json();
    }));
    latest = {queries, history};
    say(history.queries.length ? `as of ${new Date(queries.time_ms).toLocaleTimeString()}` : "Waiting for the first batch.", false);
    try {
      update();
    } catch (error) {
      say(`What came cannot be drawn: ${error.message}`, true);
    }
  } catch (error) {
    say(latest ? `No answer since ${new Date(latest.queries.time_ms).toLocaleTimeString()}: the process has ended, or the page is cut off.` : `No answer: ${error.message}`, true);
  }
  setTimeout(poll, document.hidden ? 5 * EVERY_MS : EVERY_MS);
}

const redraw = () => { shape = ""; update(); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("resize", () => update());
poll();

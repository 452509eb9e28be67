// The texts of the page whose contrast is below WCAG AA: 4.5, or 3 where they are large. At most five are listed.
() => {
  const numbers = (color) => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 1;
    const drawn = canvas.getContext("2d", { willReadFrequently: true });
    drawn.fillStyle = color;
    drawn.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = drawn.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const known = new Map();
  const color = (text) => { if (!known.has(text)) known.set(text, numbers(text)); return known.get(text); };
  const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3]));
  const ground = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.push(color(getComputedStyle(one).backgroundColor));
    const dark = document.body.dataset.mdColorScheme === "slate";
    return layers.reverse().reduce((below, top) => over(top, below), dark ? [0, 0, 0] : [255, 255, 255]);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((one) => (one / 255 <= 0.03928 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const found = new Map();
  const walker = document.createTreeWalker(document.querySelector("article, main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || element.closest("svg, script, style, .headerlink, [hidden]")) continue;
    const style = getComputedStyle(element), box = element.getBoundingClientRect();
    if (!box.width || style.visibility === "hidden" || style.opacity === "0") continue;
    const behind = ground(element), front = over(color(style.color), behind);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    const found_ = ratio(front, behind);
    if (found_ < (large ? 3 : 4.5)) {
      const name = `${element.tagName.toLowerCase()}.${element.className}`;
      if (!found.has(name)) found.set(name, `${found_.toFixed(2)} ${name} ${style.color}: ${text.slice(0, 30)}`);
    }
  }
  return [...found.values()].slice(0, 5);
}

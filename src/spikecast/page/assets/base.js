// The data, the state that all parts share, and small helpers. Text from the data only ever becomes text nodes.
const report = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const COSTS = report.page.costs;
const metricName = report.page.metric;
const KINDS = {
  spiking: "spiking neurons", synapse: "fed by spikes", graded: "graded unit", analog: "analog", affine: "affine", shape: "moves or averages",
};

const listeners = [];
const state = { network: 0, costs: report.page.shown, hidden: new Set(), site: null, sample: 0, step: null };
/** Change some of the state and tell the parts that depend on it. */
function change(values) {
  Object.assign(state, values);
  for (const [keys, draw] of listeners) if (keys.some((key) => key in values)) draw();
}
/** Draw now, and whenever one of the keys changes. */
function follow(keys, draw) { listeners.push([keys, draw]); draw(); }

const byId = (id) => document.getElementById(id);
const current = () => report.networks[state.network];
const colour = (i) => `var(--s${i % 8})`;
// Curves that lie on each other are told apart by their lines and marks, not by colour alone.
const DASHES = [null, "8 5", "2 4", "11 4 2 4"];
const dash = (i) => DASHES[i % DASHES.length];

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (key === "c") node.style.setProperty("--c", value);
    else if (key === "width%") node.style.width = `${value}%`;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Numbers are rounded as numbers.py has it: one rounding for the whole page.
const minus = (text) => text.replace(/^-/, "−");
const share = (x) => minus((100 * x).toFixed(1));
const percent = (x) => `${share(x)}\u00a0%`;
function significant(x, digits = 3) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  return minus(size >= 1e5 || size < 1e-3 ? x.toExponential(digits - 1) : String(Number(x.toPrecision(digits))));
}
function si(x, unit) {
  const prefixes = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]];
  if (!x) return `0\u00a0${unit}`.trim();
  const rounded = Number(x.toPrecision(3));
  const [size, prefix] = prefixes.find(([size]) => Math.abs(rounded) >= size) || prefixes[prefixes.length - 1];
  return `${minus(String(Number((rounded / size).toPrecision(3))))}\u00a0${prefix}${unit}`.trim();
}
/** A figure of the task: a share in per cent, or a number. */
const figureText = (x, isShare) => (isShare ? percent(x) : significant(x, 4));
/** Sentences of the library have 0.4% where the page has 0.4 %; a number and its unit stay together. */
const spaced = (text) => text.replace(/(\d)%/g, "$1\u00a0%").replace(/(\d) ([kMGT]) /g, "$1\u00a0$2\u00a0");
const count = (n) => n.toLocaleString("en");
const className = (k) => (k === null ? "–" : report.classes[k] !== undefined ? report.classes[k] : String(k));

/** From low to high at least so far apart, within bounds: a difference of one sample must not look like a mountain. */
function widened(low, high, least, floor, ceiling) {
  const more = Math.max(0, least - (high - low)) / 2;
  let from = low - more, to = high + more;
  if (to > ceiling) { from -= to - ceiling; to = ceiling; }
  if (from < floor) { to += floor - from; from = floor; }
  return [from, Math.min(to, ceiling)];
}
/** Round ticks from low to high, about so many. */
function ticks(low, high, about) {
  const raw = (high - low) / Math.max(about, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k * step);
  return found;
}

/** The end of a long name, which is where names differ; from the beginning of one of its parts, if it has some. */
function tail(name, most) {
  if (name.length <= most) return name;
  const end = name.slice(1 - Math.max(most, 4)), dot = end.indexOf(".");
  return `…${dot >= 0 && dot < end.length - 1 ? end.slice(dot + 1) : end}`;
}
const narrow = () => innerWidth <= 760;

let serial = 0;
/** Radio buttons that look like one control. */
function segments(name, options, chosen, pick) {
  const group = `group${++serial}`;
  const set = options.map(([value, label, swatch]) => {
    const id = `choice${++serial}`;
    const input = h("input", { type: "radio", name: group, id, value, checked: value === chosen, on: { change: () => pick(value) } });
    return h("span", {}, input, h("label", { for: id }, swatch ? h("span", { class: "swatch", c: swatch }) : null, label));
  });
  return h("fieldset", { class: "segments" }, h("legend", {}, name), h("span", { class: "set" }, set));
}
function field(name, control, extra) {
  control.id = control.id || `field${++serial}`;
  return h("span", { class: `field ${extra || ""}` }, h("label", { for: control.id }, name), control);
}
function select(name, options, chosen, pick) {
  const control = h("select", { on: { change: () => pick(control.value) } }, options.map(([value, label]) => h("option", { value, selected: value === chosen }, label)));
  return field(name, control);
}
/** The choice of costs; wherever it is made, it holds everywhere. */
function costs() {
  const holder = h("span", { class: "field" });
  follow(["costs"], () => {
    const focused = holder.contains(document.activeElement);
    holder.replaceChildren(segments("Costs", COSTS.map((p) => [p, p]), state.costs, (costs) => change({ costs })));
    if (focused) holder.querySelector("input:checked").focus();
  });
  return holder;
}
/** What the page says at its head is written for each of the costs; one is shown. */
function showCosts() {
  for (const node of document.querySelectorAll("[data-costs]")) node.hidden = node.dataset.costs !== state.costs;
}

/** A picture of an op's kind: its shape says what its colour says. */
function shapeOf(kind, r) {
  if (kind === "spiking") return s("circle", { r });
  if (kind === "graded") return s("path", { d: `M0 ${-r * 1.2}L${r * 1.2} 0L0 ${r * 1.2}L${-r * 1.2} 0Z` });
  if (kind === "analog") return s("path", { d: `M0 ${-r * 1.1}L${r * 1.15} ${r * 0.95}L${-r * 1.15} ${r * 0.95}Z` });
  if (kind === "synapse") return s("rect", { x: -r * 0.9, y: -r * 0.9, width: r * 1.8, height: r * 1.8, rx: 1.5 });
  return s("circle", { r: r * 0.7 });
}
const kindColour = (kind) => `var(--${kind === "affine" || kind === "shape" ? "plain" : kind})`;
const mark = (kind) => s("svg", { class: "mark", viewBox: "-8 -8 16 16", "aria-hidden": "true", c: kindColour(kind) }, shapeOf(kind, 6));

/** A tooltip inside a positioned box. */
function tip(box) {
  const node = h("div", { class: "tip", role: "status", hidden: true });
  box.append(node);
  return {
    node,
    hide: () => { node.hidden = true; },
    show(x, y, ...children) {
      node.replaceChildren(...children);
      node.hidden = false;
      const width = box.clientWidth, own = node.offsetWidth;
      const left = x + 16 + own > width ? x - 16 - own : x + 16;
      node.style.left = `${Math.max(0, Math.min(left, width - own))}px`;
      node.style.top = `${Math.max(0, y - node.offsetHeight / 2)}px`;
    },
  };
}
/** Draw again when a box gets another width. */
function onWidth(box, draw) {
  let width = 0;
  new ResizeObserver(() => { if (Math.round(box.clientWidth) !== width) { width = Math.round(box.clientWidth); draw(); } }).observe(box);
}
/** Note at which edges a box has more to scroll to. */
function watchScroll(box) {
  const note = () => {
    box.toggleAttribute("data-right", box.scrollWidth - box.clientWidth - box.scrollLeft > 2);
    box.toggleAttribute("data-below", box.scrollHeight - box.clientHeight - box.scrollTop > 2);
  };
  box.addEventListener("scroll", note, { passive: true });
  const sizes = new ResizeObserver(note);
  for (const node of [box, ...box.children]) sizes.observe(node);
  new MutationObserver(note).observe(box, { childList: true, subtree: true });
  note();
}

// The network as rows with wires: an op sits in a lane, its value runs down that lane to its last reader.
const ROW = 28, LANE = 18, EDGE = 20;
const KIND_WORDS = [
  ["spiking", "Neurons", "send spikes"], ["synapse", "Synapse", "fed by spikes"], ["graded", "Graded", "sends graded changes"],
  ["analog", "Analog", "not fed by spikes"], ["affine", "Affine or moving", "no state of its own"],
];

function wire(nodes, from, to) {
  const x1 = EDGE + nodes[from].lane * LANE, x2 = EDGE + nodes[to].lane * LANE;
  const y1 = (from + 0.5) * ROW, y2 = (to + 0.5) * ROW;
  if (x1 === x2) return `M${x1} ${y1}V${y2}`;
  if (nodes[to].lane > nodes[from].lane && to > from + 1 && nodes[from].until > to) {
    return `M${x1} ${y2 - ROW}C${x1} ${y2 - ROW / 2} ${x2} ${y2 - ROW / 2} ${x2} ${y2}`; // leaves a wire that goes on
  }
  return `M${x1} ${y1}V${y2 - ROW}C${x1} ${y2 - ROW / 2} ${x2} ${y2 - ROW / 2} ${x2} ${y2}`;
}
function drawGraph() {
  const nodes = current().graph, box = byId("graph-box");
  if (!nodes.length) { box.replaceChildren(h("p", { class: "note" }, "This network was converted by region, or is too large to draw.")); return; }
  const lanes = Math.max(...nodes.map((n) => n.lane)) + 1, left = EDGE + lanes * LANE + 4;
  const room = Math.floor((box.clientWidth - left - (narrow() ? 112 : 400)) / 8);
  const layers = new Map(current().layers.map((layer) => [layer.node, layer]));
  const traced = new Set(current().traces.map((trace) => trace.site));
  const joules = (layer) => sum(layer.joules[state.costs], Infinity);
  const total = [...layers.values()].reduce((a, layer) => a + joules(layer), 0) || 1;
  const drawing = s("svg", { width: left, height: nodes.length * ROW, viewBox: `0 0 ${left} ${nodes.length * ROW}`, role: "img", "aria-label": `Graph of ${nodes.length} ops` });
  nodes.forEach((node, to) => node.inputs.forEach((from) => {
    drawing.append(s("path", { class: `wire ${nodes[from].kind === "spiking" ? "spikes" : ""}`, d: wire(nodes, from, to) }));
  }));
  const rows = nodes.map((node, i) => {
    const hollow = node.kind === "affine" || node.kind === "shape";
    const where = node.op === "neurons" ? node.name : node.scope;
    drawing.append(s("g", { class: `node ${hollow ? "hollow" : ""}`, c: kindColour(node.kind), transform: `translate(${EDGE + node.lane * LANE} ${(i + 0.5) * ROW})` },
      s("title", {}, `${node.op} ${where}: ${node.role}`), shapeOf(node.kind, 7)));
    const layer = layers.get(node.name);
    const name = traced.has(node.name) ? h("button", { type: "button", title: "Show its neurons over time", on: { click: () => showSite(node.name) } }, tail(where, room)) : tail(where, room);
    const row = h("li", { title: `${node.op} ${where}: ${node.role}` }, h("span", { class: "op" }, node.op), h("span", { class: "where" }, name),
      h("span", { class: "role" }, node.role), h("span", { class: "share" }, layer && joules(layer) ? percent(joules(layer) / total) : ""));
    row.style.paddingLeft = `${left}px`;
    return row;
  });
  box.replaceChildren(h("div", { class: "rows" }, drawing, h("ol", {}, rows)));
  const counted = (kind) => nodes.filter((n) => (n.kind === "shape" ? "affine" : n.kind) === kind).length;
  byId("graph-legend").replaceChildren(...KIND_WORDS.filter(([kind]) => counted(kind)).map(([kind, name, what]) =>
    h("li", {}, mark(kind), h("b", {}, name), ` ${what}, ${counted(kind)}`)), h("li", {}, "Figures: share of energy"));
}
function showSite(site) {
  change({ site });
  byId("neurons").scrollIntoView();
  byId("site-select").focus({ preventScroll: true });
}
function startGraph() {
  follow(["network", "costs"], drawGraph);
  onWidth(byId("graph-box"), drawGraph);
}

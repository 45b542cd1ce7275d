// Error and spikes of each layer of neurons, in the order they run.
const LAYER_PLOTS = [
  { key: "error", title: "Error by layer", axis: "Error, %", unit: 100, least: 0.02, of: (layer, t) => last(layer.error, t), inner: (layer, t) => last(layer.own, t), text: "Of the estimate against the ANN’s activation. The strong part is what the layer adds itself." },
  { key: "firing", title: "Spikes by layer", axis: "Spikes of a neuron", unit: 1, least: 0.1, of: (layer, t) => mean(layer.firing, t), text: "In a step, mean over the steps so far. With bursts it can be more than one." },
];
const sitesShown = () => current().layers.filter((layer) => layer.firing);

function layerPlot(plot, layers, t, width) {
  const height = 220, box = { left: 44, right: 8, top: 22, bottom: 40 };
  const values = layers.map((layer) => plot.of(layer, t));
  const top = Math.max(plot.least, ...values.filter((x) => x !== null)) * 1.05;
  const column = (width - box.left - box.right) / Math.max(layers.length, 1), thick = Math.max(1, Math.min(28, column * 0.72));
  const y = (v) => height - box.bottom - (v / top) * (height - box.top - box.bottom), base = y(0);
  const x = (k) => box.left + (k + 0.5) * column;
  const chart = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${plot.title} after step ${t}` });
  for (const value of ticks(0, top, 4)) {
    chart.append(s("line", { class: "axis", x1: box.left, x2: width - box.right, y1: y(value), y2: y(value) }),
      s("text", { x: box.left - 8, y: y(value) + 4, "text-anchor": "end" }, String(Number((plot.unit * value).toPrecision(3)))));
  }
  const bar = (k, value, kind) => s("rect", { class: kind, x: x(k) - thick / 2, width: thick, y: y(value), height: Math.max(0, base - y(value)) });
  layers.forEach((layer, k) => {
    if (values[k] === null) return;
    chart.append(bar(k, values[k], plot.inner ? "whole" : "part"));
    if (plot.inner) chart.append(bar(k, Math.min(plot.inner(layer, t), values[k]), "part"));
  });
  layers.forEach((layer, k) => chart.append(s("rect", { class: "hit", "data-k": k, x: box.left + k * column, width: column, y: box.top, height: base - box.top })));
  chart.append(s("line", { class: "axis base", x1: box.left, x2: width - box.right, y1: base, y2: base }));
  for (const k of ticks(1, layers.length, Math.min(layers.length, width / 44)).filter(Number.isInteger)) {
    chart.append(s("text", { x: x(k - 1), y: base + 18, "text-anchor": "middle" }, String(k)));
  }
  chart.append(s("text", { class: "strong", x: 0, y: 10 }, plot.axis), s("text", { class: "strong", x: width - box.right, y: height - 4, "text-anchor": "end" }, "Layer of neurons"));
  return chart;
}
/** Mark one layer in both plots and say its numbers. */
function markLayer(box, layers, k) {
  const t = Math.min(table.step || Infinity, current().agreement.length), layer = layers[k];
  for (const node of box.querySelectorAll("[data-k]")) node.classList.toggle("on", Number(node.dataset.k) === k);
  byId("layer-plot-note").textContent = layer
    ? `Layer ${k + 1}, ${layer.name}: ${layer.error ? `error ${percent(last(layer.error, t))}, own error ${percent(last(layer.own, t))}, ` : ""}${significant(mean(layer.firing, t))} spikes of a neuron in a step, after step ${t}.`
    : "Point at a layer to read its name and values, click to see its neurons. Layers are counted as they run.";
}
function drawLayerPlots() {
  const box = byId("layer-plots"), layers = sitesShown(), t = Math.min(table.step || Infinity, current().agreement.length);
  const plots = LAYER_PLOTS.filter((plot) => layers.some((layer) => plot.of(layer, t) !== null));
  if (!plots.length) { box.replaceChildren(); byId("layer-plot-note").textContent = ""; return; }
  const pair = box.clientWidth > 700, width = Math.max(240, Math.floor(pair ? (box.clientWidth - 40) / 2 : box.clientWidth));
  box.replaceChildren(...plots.map((plot) => h("figure", {}, h("figcaption", {}, h("b", {}, plot.title), plot.text), layerPlot(plot, layers, t, width))));
  markLayer(box, layers, -1);
  box.onpointermove = (event) => markLayer(box, layers, event.target.dataset && event.target.dataset.k !== undefined ? Number(event.target.dataset.k) : -1);
  box.onpointerleave = () => markLayer(box, layers, -1);
  box.onclick = (event) => {
    const layer = event.target.dataset && event.target.dataset.k !== undefined ? layers[Number(event.target.dataset.k)] : null;
    if (layer && current().traces.some(({ site }) => site === layer.name)) showSite(layer.name);
  };
}
function startLayerPlots() { onWidth(byId("layer-plots"), drawLayerPlots); }

// The table of layers.
const last = (list, t) => (list ? list[Math.min(t, list.length) - 1] : null);
const sum = (list, upTo) => list.slice(0, upTo).reduce((a, b) => a + b, 0);
const mean = (list, upTo) => sum(list, upTo) / Math.min(upTo, list.length);
const table = { sort: null, descending: false, filter: "", step: null };

const COLUMNS = [
  { key: "name", title: "Layer", text: true, of: (row) => row.layer.name },
  { key: "role", title: "Role", text: true, of: (row) => row.layer.role },
  { key: "theta", title: "θ", hint: "Base threshold: median over channels", of: (row) => (row.layer.theta ? row.layer.theta[1] : null), show: (x) => significant(x) },
  { key: "firing", title: "Spikes", hint: "Of a neuron in a step, mean over the steps so far", of: (row) => (row.layer.firing ? mean(row.layer.firing, row.t) : null), show: (x) => significant(x) },
  { key: "error", title: "Error", hint: "Of the estimate against the ANN’s activation, relative", of: (row) => last(row.layer.error, row.t), show: (x) => percent(x) },
  { key: "own", title: "Own error", hint: "What the layer adds itself, against an exact neuron with the same input", of: (row) => last(row.layer.own, row.t), show: (x) => percent(x) },
  { key: "macs", title: "MACs", hint: "Multiply-accumulates of the ANN", of: (row) => row.layer.macs || null, show: (x) => si(x, "") },
  { key: "share", title: "Energy", hint: "Share of the energy up to this step", of: (row) => row.share, show: (x) => percent(x) },
];

function layerRows() {
  const t = Math.min(table.step || Infinity, current().agreement.length);
  const joules = current().layers.map((layer) => sum(layer.joules[state.costs], t));
  const total = sum(joules, joules.length) || 1, most = Math.max(...joules, 0) / total || 1;
  return current().layers.map((layer, order) => ({ layer, order, t, share: joules[order] / total, most }));
}
function compareRows(column, descending) {
  return (a, b) => {
    const x = column.of(a), y = column.of(b);
    if (x === null || y === null) return x === y ? a.order - b.order : x === null ? 1 : -1; // what has no value comes last
    const found = column.text ? x.localeCompare(y, "en", { numeric: true }) : x - y;
    return (descending ? -found : found) || a.order - b.order;
  };
}
function layerCell(column, row) {
  const value = column.of(row), cell = { role: "cell", "data-label": column.title, "data-key": column.key };
  if (column.key === "role") return h("td", { ...cell, class: "text" }, mark(row.layer.kind), value);
  if (column.key === "name") return h("th", { scope: "row", role: "rowheader", title: `${value} (${row.layer.op})` }, tail(value, narrow() ? 26 : 30), h("span", {}, row.layer.op === "neurons" ? "" : row.layer.op));
  if (value === null) return h("td", { ...cell, class: "nothing" }, "–");
  if (column.key === "theta") return h("td", { ...cell, title: `from ${significant(row.layer.theta[0])} to ${significant(row.layer.theta[2])}` }, column.show(value));
  // The bar of the dearest layer is full: shares of many layers are all small.
  if (column.key === "share") return h("td", cell, column.show(value), h("span", { class: "bar", "aria-hidden": "true" }, h("i", { "width%": value ? Math.max(2, 100 * value / row.most) : 0 })));
  return h("td", cell, column.show(value));
}
function drawLayers() {
  const words = table.filter.toLowerCase().split(/\s+/).filter(Boolean);
  let rows = layerRows();
  const all = rows.length;
  rows = rows.filter(({ layer }) => words.every((word) => `${layer.name} ${layer.op} ${layer.role} ${layer.kind}`.toLowerCase().includes(word)));
  const column = COLUMNS.find(({ key }) => key === table.sort);
  if (column) rows.sort(compareRows(column, table.descending));
  byId("layer-table").tBodies[0].replaceChildren(...rows.map((row) => h("tr", { role: "row" }, COLUMNS.map((c) => layerCell(c, row)))));
  for (const head of byId("layer-table").tHead.rows[0].cells) {
    head.setAttribute("aria-sort", head.dataset.key !== table.sort ? "none" : table.descending ? "descending" : "ascending");
  }
  byId("layer-count").textContent = `${rows.length} of ${all} layers. Errors are of ${report.layer_samples} samples, rates and energy of ${count(report.samples)}.`;
  byId("layer-summary").textContent = spaced([current().summary, ...current().notes].join(". ") + ".");
  drawAdvice();
}
/** Names of layers may break behind their dots, not inside a word; numbers may not. */
const softened = (text) => text.split(/(?<=[a-z_]\.)(?=\w)|(?<=\w\.)(?=[a-z_])/i).flatMap((part, i) => (i ? [h("wbr", {}), part] : [part]));
/** What `spikecast explain` says of this network. */
function drawAdvice() {
  const { advice } = current(), good = report.page.from[state.network];
  byId("advice").hidden = !advice.length;
  byId("advice-title").textContent = good ? "The answers are as good as the ANN’s. An energy_budget asks for less energy. To come still closer:" : "What would help";
  byId("advice-list").replaceChildren(...advice.map((line) => h("li", {}, ...softened(spaced(line)))));
}
function sortLayers(key) {
  const text = COLUMNS.find((c) => c.key === key).text;
  if (table.sort !== key) Object.assign(table, { sort: key, descending: !text });
  else if (table.descending === !text) table.descending = !table.descending;
  else table.sort = null; // third press: the order they run in
  drawLayers();
}
function startLayers() {
  const head = COLUMNS.map(({ key, title, hint, text }) =>
    h("th", { scope: "col", role: "columnheader", class: text ? "text" : "", "data-key": key, "aria-sort": "none" }, h("button", { type: "button", title: hint, on: { click: () => sortLayers(key) } }, title)));
  byId("layer-table").append(h("caption", {}, h("span", {}, "Layers of neurons, and ops that cost energy, in the order they run unless sorted")), h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)), h("tbody", { role: "rowgroup" }));
  const search = h("input", { type: "search", placeholder: "Name, op or role", autocomplete: "off", spellcheck: "false", id: "layer-filter", on: { input: () => { table.filter = search.value; drawLayers(); } } });
  const after = h("span", { class: "field" });
  follow(["network"], () => {
    const steps = current().agreement.length;
    table.step = steps;
    after.replaceChildren(select("After step", Array.from({ length: steps }, (_, i) => [String(i + 1), String(i + 1)]), String(steps), (t) => { table.step = Number(t); drawLayers(); drawLayerPlots(); }));
    drawLayerPlots();
  });
  byId("layer-controls").append(after, costs(), savers("layers", { svg: () => svgText([...document.querySelectorAll("#layer-plots svg")], LAYER_PLOTS.map(({ title }) => title)), csv: () => csvText(layerCsv()) }));
  byId("filter-controls").append(field("Filter", search, "grow"));
  follow(["network", "costs"], drawLayers);
  onWidth(byId("layer-table").parentNode, drawLayers);
}

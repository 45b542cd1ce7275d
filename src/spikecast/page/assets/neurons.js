// Spikes of a few neurons over time, and their estimates against the activations they stand for.
const neurons = { over: null };
const trace = () => current().traces.find(({ site }) => site === state.site) || current().traces[0];

/** The neurons of the trace in the order they are drawn, largest activation first. */
function neuronRows() {
  const found = trace(), sample = Math.min(state.sample, found.activations.length - 1);
  const rows = found.shown.map((number, k) => ({
    number, activation: found.activations[sample][k],
    estimates: found.estimates[sample].map((step) => step[k]), levels: found.levels[sample].map((step) => step[k]),
  }));
  return rows.sort((a, b) => b.activation - a.activation);
}
const stepShown = (rows) => Math.min(state.step || Infinity, rows[0].estimates.length);

/** The largest and the smallest level of these neurons' spikes, by number: 1 is the largest of all. */
function levelsUsed(rows) {
  const used = rows.flatMap((row) => row.levels.flat().filter(Boolean).map(Math.abs));
  return used.length ? [Math.min(...used), Math.max(...used)] : [1, 1];
}
/** How many spikes each neuron sends in a step at most, of those that are shown. */
const longestBurst = (rows) => Math.max(1, ...rows.flatMap((row) => row.levels.map((pulses) => pulses.filter(Boolean).length)));

/** The spikes of one neuron in one step: a bar for each, and a line under a burst that holds its spikes together. */
function burstMarks(pulses, start, slot, middle, half, [largest, smallest]) {
  const sent = pulses.map((level, j) => ({ level, x: start + (j + 0.5) * slot })).filter(({ level }) => level);
  const thick = Math.max(1.5, Math.min(4, slot * 0.5));
  const marks = sent.map(({ level, x }) => {
    const size = half * (1 - (0.45 * (Math.abs(level) - largest)) / Math.max(1, smallest - largest));
    return s("line", { class: level > 0 ? "plus" : "minus", "stroke-width": thick, x1: x, x2: x, y1: middle, y2: level > 0 ? middle - size : middle + size });
  });
  if (sent.length > 1) marks.push(s("line", { class: "burst", x1: sent[0].x - thick / 2, x2: sent[sent.length - 1].x + thick / 2, y1: middle, y2: middle }));
  return marks;
}
function raster(rows, width) {
  const steps = rows[0].levels.length, high = 20, left = 4, bottom = 34, used = levelsUsed(rows);
  const burst = rows[0].levels[0].length, bodies = rows.length * high, height = bodies + bottom;
  const column = (width - left) / steps, t = stepShown(rows), slot = (column * (burst === 1 ? 1 : 0.8)) / burst;
  const chart = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Spike raster" });
  chart.append(s("rect", { class: "band", x: left + (t - 1) * column, y: 0, width: column, height: bodies }));
  for (let i = 1; i < steps && column > 8; i++) chart.append(s("line", { class: "stepline", x1: left + i * column, x2: left + i * column, y1: 0, y2: bodies }));
  rows.forEach((row, k) => {
    const middle = (k + 0.5) * high;
    chart.append(s("line", { class: "rowline", x1: left, x2: width, y1: middle, y2: middle }));
    row.levels.forEach((pulses, i) => chart.append(...burstMarks(pulses, left + i * column + (column - burst * slot) / 2, slot, middle, high / 2 - 1, used)));
    chart.append(s("rect", { class: "hit", x: 0, y: k * high, width, height: high, "data-k": k }));
  });
  for (const i of ticks(1, steps, Math.min(steps, width / 36)).filter(Number.isInteger)) {
    chart.append(s("text", { x: left + (i - 0.5) * column, y: bodies + 16, "text-anchor": "middle", class: i === t ? "strong" : "" }, String(i)));
  }
  chart.append(s("text", { class: "strong", x: width, y: height - 2, "text-anchor": "end" }, burst > 1 ? `Time-step (${burst} pulse slots each)` : "Time-step"));
  return chart;
}
function scatter(rows, width, height) {
  const t = stepShown(rows), values = rows.flatMap((row) => [row.activation, ...row.estimates]);
  let low = Math.min(0, ...values), high = Math.max(0, ...values);
  if (low === high) high = low + 1;
  const room = (high - low) * 0.05, left = 44, bottom = 46, top = 20;
  low -= room; high += room;
  const x = (v) => left + ((v - low) / (high - low)) * (width - left - 8);
  const y = (v) => height - bottom - ((v - low) / (high - low)) * (height - top - bottom);
  const chart = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Estimates after step ${t} against activations` });
  for (const value of ticks(low, high, 5)) {
    chart.append(s("line", { class: "axis", x1: left, x2: width - 8, y1: y(value), y2: y(value) }), s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, significant(value)),
      s("text", { x: x(value), y: height - bottom + 18, "text-anchor": "middle" }, significant(value)));
  }
  chart.append(s("line", { class: "ann", x1: x(low), y1: y(low), x2: x(high), y2: y(high) }));
  chart.append(s("text", { class: "strong", x: 0, y: 10 }, "Estimate"), s("text", { class: "strong", x: width - 8, y: height - 6, "text-anchor": "end" }, "Activation of the ANN"));
  rows.forEach((row) => {
    const seen = row.estimates.slice(0, t);
    chart.append(s("line", { class: "trail", x1: x(row.activation), x2: x(row.activation), y1: y(Math.min(...seen)), y2: y(Math.max(...seen)) }));
  });
  rows.forEach((row, k) => chart.append(s("circle", { class: "point", cx: x(row.activation), cy: y(row.estimates[t - 1]), r: 4.5, "data-k": k })));
  return chart;
}
function relativeError(rows, t) {
  const square = (f) => rows.reduce((a, row) => a + f(row) ** 2, 0);
  return Math.sqrt(square((row) => row.estimates[t - 1] - row.activation) / (square((row) => row.activation) || 1));
}
/** Mark one neuron in both charts and say its numbers. */
function markNeuron(box, rows, k) {
  for (const node of box.querySelectorAll("[data-k]")) node.classList.toggle("on", Number(node.dataset.k) === k);
  const row = rows[k], t = stepShown(rows);
  const fired = (pulses) => pulses.filter(Boolean).length;
  byId("neuron-note").textContent = row
    ? `Neuron ${count(row.number)}: activation ${significant(row.activation)}, estimate ${significant(row.estimates[t - 1])} after step ${t}; spikes in step ${t}: ${fired(row.levels[t - 1])}, in all ${row.levels.length} steps: ${fired(row.levels.flat())}.`
    : "Point at a neuron to find it in both charts.";
}
function drawNeurons() {
  const box = byId("neuron-charts");
  if (!trace()) { box.replaceChildren(h("p", { class: "note" }, "Neurons are shown for networks that were converted whole.")); return; }
  const rows = neuronRows(), t = stepShown(rows), [largest, smallest] = levelsUsed(rows);
  const pair = box.clientWidth > 700, width = Math.max(240, Math.floor(pair ? (box.clientWidth - 40) / 2 : box.clientWidth));
  const left = raster(rows, width);
  const right = scatter(rows, width, Math.min(width, Number(left.getAttribute("height"))));
  box.replaceChildren(
    h("figure", {}, h("figcaption", {}, h("b", {}, "Spikes"), `${rows.length} of ${count(trace().neurons)} neurons, largest activation on top. Up is a positive spike, down a negative one; longer is a larger level, here ${largest === smallest ? `all level ${largest}` : `from level ${largest} down to ${smallest}`}.${rows[0].levels[0].length > 1 ? ` Spikes of one burst stand side by side on one line; the longest here has ${longestBurst(rows)}.` : ""}`), left),
    h("figure", {}, h("figcaption", {}, h("b", {}, `Estimate after step ${t}`), `On the dashed line it equals the activation; pale lines show where it has been. Relative error of these neurons ${percent(relativeError(rows, t))}.`), right));
  markNeuron(box, rows, -1);
  box.onpointermove = (event) => markNeuron(box, rows, event.target.dataset && event.target.dataset.k !== undefined ? Number(event.target.dataset.k) : -1);
  box.onpointerleave = () => markNeuron(box, rows, -1);
}
function neuronControls() {
  const holder = byId("neuron-controls"), traces = current().traces;
  if (!traces.length) { holder.replaceChildren(); return; }
  if (!traces.some(({ site }) => site === state.site)) state.site = traces[Math.floor(traces.length / 2)].site;
  const steps = traces[0].levels[0].length;
  state.step = Math.min(state.step || steps, steps);
  const layer = h("select", { id: "site-select", on: { change: () => change({ site: layer.value }) } }, traces.map(({ site }) => h("option", { value: site, selected: site === state.site }, site)));
  const said = h("output", {}, String(state.step));
  const step = h("input", { type: "range", min: 1, max: steps, value: state.step, id: "step-range", on: { input: () => { said.textContent = step.value; change({ step: Number(step.value) }); } } });
  step.value = state.step;
  const thumbs = report.traced.map((sample, i) => {
    const name = `Sample ${sample.number + 1}${sample.label === null ? "" : `, class ${className(sample.label)}`}`;
    return h("button", { type: "button", "aria-pressed": String(i === state.sample), title: name, "aria-label": name, on: { click: (event) => {
      for (const other of event.currentTarget.parentNode.children) other.setAttribute("aria-pressed", String(other === event.currentTarget));
      change({ sample: i });
    } } }, sample.image ? image(sample.image, "") : String(sample.number + 1));
  });
  holder.replaceChildren(field("Layer", layer), h("span", { class: "field", role: "group", "aria-label": "Sample" }, h("label", {}, "Sample"), h("span", { class: "thumbs" }, thumbs)), h("span", { class: "field" }, h("label", { for: "step-range" }, "Step"), step, said),
    savers("neurons", { svg: () => svgText([...document.querySelectorAll("#neuron-charts svg")], ["Spikes", "Estimate"].map((name) => `${name}: ${trace().site}`)) }));
}
function startNeurons() {
  follow(["network"], neuronControls);
  listeners.push([["site"], () => { const found = byId("site-select"); if (found) found.value = state.site; }]);
  follow(["network", "site", "sample", "step"], drawNeurons);
  onWidth(byId("neuron-charts"), drawNeurons);
}

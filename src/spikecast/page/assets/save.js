// Figures as SVG and figures as CSV, made here and saved by the reader's own browser: nothing is asked of anywhere.
const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "stroke-linejoin", "font-family", "font-size", "font-weight", "text-anchor"];

function save(name, type, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
const fileName = (...parts) => parts.join("-").replace(/[^\w.-]+/g, "_").slice(0, 80);

/** A drawing with its looks written into it, as other programs have no style sheet of ours. */
function plain(drawing) {
  const copy = drawing.cloneNode(true);
  const originals = [drawing, ...drawing.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  originals.forEach((node, i) => {
    const look = getComputedStyle(node);
    for (const key of DRAWN) copies[i].setAttribute(key, look.getPropertyValue(key));
    for (const key of ["style", "class", "data-k"]) copies[i].removeAttribute(key);
  });
  return copy;
}
/** Drawings side by side in one file, in the light colours: it is for paper. */
function svgText(drawings, captions = []) {
  const root = document.documentElement, theme = root.dataset.theme, gap = 32, top = captions.length ? 24 : 8;
  root.dataset.theme = "light";
  try {
    const size = (key) => drawings.map((drawing) => Number(drawing.getAttribute(key)));
    const width = size("width").reduce((a, b) => a + b + gap, gap), height = Math.max(...size("height")) + top + 8;
    const whole = s("svg", { xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}` }, s("rect", { width, height, fill: "#fff" }));
    let x = gap;
    drawings.forEach((drawing, i) => {
      const part = plain(drawing);
      part.setAttribute("x", x);
      part.setAttribute("y", top);
      part.setAttribute("overflow", "visible");
      if (captions[i]) whole.append(s("text", { x, y: 14, "font-family": "sans-serif", "font-size": "13px", "font-weight": "600" }, captions[i]));
      whole.append(part);
      x += size("width")[i] + gap;
    });
    return new XMLSerializer().serializeToString(whole);
  } finally {
    if (theme === undefined) delete root.dataset.theme; else root.dataset.theme = theme;
  }
}
/** Rows as comma-separated values, in full precision; the first row names the columns. */
function csvText(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined || Math.abs(value) > 1e300 ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  const names = Object.keys(rows[0] || {});
  return [names, ...rows.map((row) => names.map((name) => row[name]))].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}
function saver(what, kind, text) {
  const type = { svg: "image/svg+xml", csv: "text/csv" }[kind];
  return h("button", { type: "button", class: "quiet save", "aria-label": `Save ${what} as ${kind.toUpperCase()}`, on: { click: () => save(fileName("spikecast", report.title, what, "").slice(0, -1) + `.${kind}`, type, text()) } }, kind.toUpperCase());
}
/** Buttons that save a part of the page. */
const savers = (what, texts) => h("span", { class: "field saves" }, h("span", {}, "Save"), Object.entries(texts).map(([kind, text]) => saver(what, kind, text)));

/** What is known of every network after each step. */
function curveRows() {
  const name = report.metric, ann = report.ann[name];
  return report.networks.flatMap((network) => network.agreement.map((agreement, t) => {
    const row = { network: network.name, step: t + 1, slots: network.slots[t], samples: report.samples, calibrated: network.calibrated };
    const put = (key, value, ends) => Object.assign(row, { [key]: value, [`${key}_low`]: ends[0], [`${key}_high`]: ends[1] });
    put(name, network.steps[name][t], network.intervals[name][t]);
    row[`${name}_ann`] = ann;
    put(`${name}_less_ann`, network.steps[name][t] - ann, network.less_ann[t]);
    put("agreement", agreement, network.intervals.agreement[t]);
    for (const costs of COSTS) {
      const { snn, ratio } = network.energy[costs];
      row[`joules_${costs}`] = snn[t];
      row[`energy_ratio_${costs}`] = ratio && ratio[t];
    }
    return row;
  }));
}
/** Every layer of the network at hand after each step. */
function layerCsv() {
  const network = current();
  return network.layers.flatMap((layer) => network.agreement.map((_, t) => {
    const at = (list) => (list ? list[t] : null);
    const row = { network: network.name, layer: layer.name, op: layer.op, role: layer.role, step: t + 1, macs: layer.macs, neurons: layer.neurons, theta: layer.theta && layer.theta[1], spikes: at(layer.firing), error: at(layer.error), own_error: at(layer.own) };
    for (const costs of COSTS) row[`joules_${costs}`] = layer.joules[costs][t];
    return row;
  }));
}

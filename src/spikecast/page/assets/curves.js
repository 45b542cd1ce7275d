// Accuracy against time or energy.
const curves = { y: "metric", x: "steps", at: null };

const isShare = () => curves.y !== "metric" || report.how[0] === "%";
const figure = (x) => figureText(x, isShare());
const known = (x) => Math.abs(x) < 1e300; // one sample says nothing of a number

function curvePoints(network) {
  const values = curves.y === "metric" ? network.steps[report.metric] : network.agreement;
  const intervals = network.intervals[curves.y === "metric" ? report.metric : "agreement"];
  const ratio = network.energy[state.costs].ratio;
  if (!ratio && curves.x !== "steps") return []; // the products of some op are not counted
  return values.map((value, i) => ({ t: i + 1, value, low: intervals[i][0], high: intervals[i][1], energy: ratio && ratio[i], x: curves.x === "steps" ? i + 1 : ratio[i] }));
}
const shownNetworks = () => report.networks.map((network, i) => ({ network, i })).filter(({ i }) => !state.hidden.has(i));

function curveScale(series, width, height) {
  const all = series.flatMap(({ points }) => points);
  const reference = curves.y === "metric" ? report.ann[report.metric] : 1;
  const values = all.flatMap((p) => [p.value, p.low, p.high]).concat(reference).filter(known);
  let low = Math.min(...values), high = Math.max(...values);
  const room = (high - low) * 0.08;
  // At least five points, and ten samples; of other figures a tenth of the ANN's.
  const least = isShare() ? Math.max(0.05, 10 / report.samples) : Math.abs(reference) * 0.1 || 1;
  [low, high] = widened(low < 0 ? low - room : Math.max(0, low - room), high + room, Math.min(least, isShare() ? 1 : Infinity), low < 0 ? -Infinity : 0, isShare() ? 1 : Infinity);
  const xs = all.map((p) => p.x);
  let first = 0, last = Math.max(...xs, 0.01) * 1.03;
  if (curves.x === "steps") [first, last] = Math.max(...xs) > 1 ? [1, Math.max(...xs)] : [0.5, 1.5]; // one step is in the middle
  const box = { left: isShare() ? 48 : 64, right: 14, top: 22, bottom: 46 };
  return {
    box, low, high, first, last, reference, width, height,
    x: (x) => box.left + ((x - first) / (last - first)) * (width - box.left - box.right),
    y: (y) => height - box.bottom - ((Math.min(Math.max(y, low), high) - low) / (high - low)) * (height - box.top - box.bottom),
  };
}

function curveAxes(scale) {
  const { box, width, height } = scale;
  const parts = [];
  const rough = ticks(scale.low, scale.high, Math.max(3, height / 55));
  const digits = rough.length > 1 && rough[1] - rough[0] < 0.0099 ? (rough[1] - rough[0] < 0.00099 ? 2 : 1) : 0;
  for (const value of rough) {
    parts.push(s("line", { class: "axis", x1: box.left, x2: width - box.right, y1: scale.y(value), y2: scale.y(value) }));
    parts.push(s("text", { x: box.left - 10, y: scale.y(value) + 4, "text-anchor": "end" }, isShare() ? (100 * value).toFixed(digits) : significant(value)));
  }
  const base = height - box.bottom;
  parts.push(s("line", { class: "axis base", x1: box.left, x2: width - box.right, y1: base, y2: base }));
  const along = ticks(scale.first, scale.last, Math.max(3, width / 90)).filter((x) => curves.x !== "steps" || Number.isInteger(x));
  for (const x of along) {
    parts.push(s("text", { x: scale.x(x), y: base + 20, "text-anchor": "middle" }, curves.x === "steps" ? String(x) : `${Math.round(100 * x)}`));
  }
  const yName = curves.y === "metric" ? `${metricName}${isShare() ? ", %" : ""}` : "Agreement with the ANN, %";
  const xName = curves.x === "steps" ? "Time-steps" : `Energy, % of the ANN’s (${state.costs} costs)`;
  parts.push(s("text", { class: "strong", x: 0, y: 10 }, yName));
  parts.push(s("text", { class: "strong", x: width - box.right, y: height - 6, "text-anchor": "end" }, xName));
  return parts;
}

function drawCurves() {
  const box = byId("curve-chart");
  const width = Math.max(box.clientWidth, 280), height = Math.round(Math.min(440, Math.max(280, width * 0.42)));
  const series = shownNetworks().map(({ network, i }) => ({ network, i, points: curvePoints(network) }));
  const scale = curveScale(series, width, height);
  const single = curves.x === "steps" ? series.filter(({ points }) => points.length === 1) : [];
  for (const [k, { points }] of single.entries()) points[0].shift = 16 * (k - (single.length - 1) / 2); // side by side
  scale.at = (p) => scale.x(p.x) + (p.shift || 0);
  const chart = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${curves.y === "metric" ? metricName : "Agreement"} against ${curves.x}` }, curveAxes(scale));
  if (curves.y === "metric") {
    const y = scale.y(scale.reference);
    chart.append(s("line", { class: "ann", x1: scale.box.left, x2: width - scale.box.right, y1: y, y2: y }));
    const name = `ANN ${figure(scale.reference)}`, right = width - scale.box.right; // above the curves, where none can hide it
    chart.append(s("text", { class: "strong", x: right, y: 10, "text-anchor": "end" }, name), s("line", { class: "ann", x1: right - 7 * name.length - 34, x2: right - 7 * name.length - 6, y1: 6, y2: 6 }));
  }
  for (const { i, points } of series) {
    const line = (part, of) => part.map((p, k) => `${k ? "L" : "M"}${scale.at(p)} ${scale.y(of(p))}`).join("");
    if (points.length > 1) chart.append(s("path", { class: "range", c: colour(i), d: `${line(points, (p) => p.high)}${line([...points].reverse(), (p) => p.low).replace("M", "L")}Z` }));
    else for (const p of points) {
      const x = scale.at(p), ends = [scale.y(p.high), scale.y(p.low)];
      chart.append(s("path", { class: "whisker", c: colour(i), d: `M${x} ${ends[0]}V${ends[1]}${ends.map((y) => `M${x - 5} ${y}h10`).join("")}` }));
    }
  }
  for (const { i, points } of series) {
    const line = points.map((p, k) => `${k ? "L" : "M"}${scale.at(p)} ${scale.y(p.value)}`).join("");
    chart.append(s("path", { class: "line", c: colour(i), "stroke-dasharray": dash(i), d: line }));
  }
  for (const { i, points } of series) {
    const good = report.page.from[i], r = series.length > 1 ? Math.max(3, 6 - 1.5 * i) : 3.5; // one in the other where they meet
    for (const p of points) {
      if (points.length > 32 && p.t !== good) continue;
      chart.append(s("circle", { class: `dot ${p.t === good ? "good" : ""}`, c: colour(i), cx: scale.at(p), cy: scale.y(p.value), r: p.t === good ? r + 1 : r }));
    }
  }
  const over = s("g", {});
  chart.append(over);
  const old = box.querySelector("svg");
  if (old) old.replaceWith(chart); else box.prepend(chart);
  curves.scale = scale;
  curves.series = series;
  curves.over = over;
  if (curves.at !== null) readCurves(curves.at); else curves.tip.hide();
}

/** Show the values at a step: of all networks, or of the one that is nearest where energies differ. */
function readCurves(at) {
  const { scale, series, over } = curves;
  over.replaceChildren();
  const rows = series.map((entry) => ({ ...entry, point: entry.points[at.t - 1] })).filter(({ point, i }) => point && (at.i === undefined || at.i === i));
  if (!rows.length) { curves.at = null; curves.tip.hide(); return; }
  curves.at = at;
  const x = scale.x(rows[0].point.x), y = rows.reduce((sum, { point }) => sum + scale.y(point.value), 0) / rows.length;
  over.append(s("line", { class: "cursor", x1: x, x2: x, y1: scale.box.top, y2: scale.height - scale.box.bottom }));
  for (const { point, i } of rows) over.append(s("circle", { class: "dot on", c: colour(i), cx: scale.at(point), cy: scale.y(point.value), r: 5 }));
  curves.tip.show(x, y, h("b", {}, `After ${at.t} ${at.t === 1 ? "step" : "steps"}`), ...rows.map(({ network, point, i }) =>
    h("div", { class: "row" }, h("span", { class: "swatch", c: colour(i) }), h("span", {}, network.name), h("b", {}, figure(point.value)), h("span", { class: "dim" }, known(point.high) ? `(${figure(point.low)} to ${figure(point.high)}), ` : "", `${network.slots[at.t - 1]} slots, `, point.energy === null ? "energy not counted" : `${percent(point.energy)} energy`))));
}
function pointCurves(event) {
  const bounds = byId("curve-chart").getBoundingClientRect(), { scale, series } = curves;
  const x = event.clientX - bounds.left, y = event.clientY - bounds.top;
  let best = null;
  for (const { i, points } of series) {
    for (const p of points) {
      const distance = (scale.x(p.x) - x) ** 2 + (curves.x === "steps" ? 0 : (scale.y(p.value) - y) ** 2);
      if (!best || distance < best.distance) best = { distance, t: p.t, i };
    }
  }
  if (best) readCurves(curves.x === "steps" ? { t: best.t } : { t: best.t, i: best.i });
}
function leaveCurves() { curves.at = null; curves.over.replaceChildren(); curves.tip.hide(); }
function keyCurves(event) {
  const longest = Math.max(...curves.series.map(({ points }) => points.length), 0);
  const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
  if (event.key === "Escape") leaveCurves();
  if (move === undefined || !longest) return;
  event.preventDefault();
  const t = curves.at ? curves.at.t + move : move < 0 ? longest : 1;
  const i = curves.x === "steps" ? undefined : curves.at && curves.at.i !== undefined ? curves.at.i : curves.series[0].i;
  readCurves({ t: Math.max(1, Math.min(longest, t)), i });
}

function startCurves() {
  const box = byId("curve-chart");
  box.setAttribute("aria-label", `${metricName}, agreement and energy of each network`);
  curves.tip = tip(box);
  const redraw = (values) => { Object.assign(curves, values, { at: null }); drawCurves(); };
  byId("curve-controls").append(
    segments("Show", [["metric", metricName], ["agreement", "Agreement"]], "metric", (y) => redraw({ y })),
    segments("against", [["steps", "Steps"], ["energy", "Energy"]], "steps", (x) => redraw({ x })), costs(),
    savers("curves", { svg: () => { leaveCurves(); return svgText([box.querySelector("svg")]); }, csv: () => csvText(curveRows()) }));
  report.networks.forEach((network, i) => {
    const button = h("button", { type: "button", "aria-pressed": "true", on: { click() {
      const hidden = new Set(state.hidden);
      if (!hidden.delete(i)) hidden.add(i);
      button.setAttribute("aria-pressed", String(!hidden.has(i)));
      curves.at = null;
      change({ hidden });
    } } }, s("svg", { class: "key", viewBox: "0 0 30 12", "aria-hidden": "true", c: colour(i) }, s("path", { class: "line", d: "M0 6H30", "stroke-dasharray": dash(i) }), s("circle", { class: "dot", cx: 15, cy: 6, r: 3.5 })), network.name);
    byId("curve-legend").append(button);
  });
  box.addEventListener("pointermove", pointCurves);
  box.addEventListener("pointerdown", pointCurves);
  box.addEventListener("pointerleave", leaveCurves);
  box.addEventListener("blur", leaveCurves);
  box.addEventListener("keydown", keyCurves);
  follow(["hidden", "costs"], drawCurves);
  onWidth(box, drawCurves);
}

// Samples the ANN and the spiking network see differently, and the start of everything.
function image(source, text) {
  const found = h("img", { src: source, alt: text, decoding: "async" });
  found.addEventListener("load", () => { if (found.naturalWidth <= 64) found.classList.add("pixels"); });
  return found;
}
/** Equal answers in a row as one: [from, to, class]. */
function runs(answers) {
  const found = [];
  answers.forEach((answer, i) => {
    const previous = found[found.length - 1];
    if (previous && previous[2] === answer) previous[1] = i + 1; else found.push([i + 1, i + 1, answer]);
  });
  return found;
}
function exampleCard({ sample, answers }) {
  const name = `Sample ${sample.number + 1}`;
  const all = runs(answers), told = all.length > 5 ? [...all.slice(0, 2), null, ...all.slice(-2)] : all;
  const lines = told.flatMap((run) => {
    if (!run) return [h("dt", {}, "…"), h("dd", {}, "")];
    const [from, to, answer] = run;
    return [h("dt", {}, from === to ? `Step ${from}` : `Steps ${from}–${to}`), h("dd", { class: answer === sample.ann ? "" : "differs" }, className(answer))];
  });
  return h("li", {}, sample.image ? image(sample.image, `${name}, class ${className(sample.label)}`) : h("div", { class: "blank" }, name),
    h("dl", {}, h("dt", {}, "Right"), h("dd", {}, className(sample.label)), h("dt", {}, "ANN"), h("dd", {}, className(sample.ann)), lines));
}
function drawExamples() {
  const { examples, disagree, agreement } = current(), steps = agreement.length, all = count(report.samples);
  let text = "Examples are shown for classification.";
  if (disagree === 0) text = `After ${steps} steps the spiking network gives the ANN’s class for all ${all} samples.${examples.length ? " These took longest to get there:" : ""}`;
  else if (disagree) text = `After ${steps} steps it gives another class than the ANN for ${count(disagree)} of ${all} samples. ${disagree > examples.length ? "Some of them" : examples.length > disagree ? "They come first, then those that took longest to agree" : "These are they"}:`;
  byId("example-summary").textContent = text;
  byId("example-list").replaceChildren(...examples.map(exampleCard));
}

function startTheme() {
  const button = byId("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
  let kept = null;
  try { kept = localStorage.getItem("spikecast-theme"); } catch { /* a page from a file may have no storage */ }
  const apply = () => {
    if (kept) document.documentElement.dataset.theme = kept;
    const now = kept || (dark.matches ? "dark" : "light");
    button.textContent = now === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${now === "dark" ? "light" : "dark"} colours`);
    button.onclick = () => {
      kept = now === "dark" ? "light" : "dark";
      try { localStorage.setItem("spikecast-theme", kept); } catch { /* then only until it is closed */ }
      apply();
    };
  };
  dark.addEventListener("change", apply);
  button.hidden = false;
  apply();
}
function start() {
  startTheme();
  byId("live").hidden = false;
  if (report.networks.length > 1) {
    const options = report.networks.map((network, i) => [i, network.name, colour(i)]);
    const pick = (network) => change({ network: Number(network) });
    byId("network-chooser").append((options.length > 4 ? select : segments)("Inside the network", options, 0, pick));
  }
  startCurves();
  startLayers();
  startGraph();
  startNeurons();
  follow(["network"], drawExamples);
  document.documentElement.dataset.ready = "true";
}
start();

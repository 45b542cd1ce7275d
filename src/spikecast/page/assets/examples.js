// Samples the ANN and the spiking network see differently.
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
  const line = (name, value, look) => h("div", {}, h("dt", {}, name), h("dd", { class: look }, value));
  const lines = told.map((run) => {
    if (!run) return line("…", "");
    const [from, to, answer] = run;
    return line(from === to ? `Step ${from}` : `Steps ${from}–${to}`, className(answer), answer === sample.ann ? "" : "differs");
  });
  return h("li", {}, sample.image ? image(sample.image, `${name}, class ${className(sample.label)}`) : h("div", { class: "blank" }, name),
    h("dl", {}, line("Right", className(sample.label)), line("ANN", className(sample.ann)), lines));
}
function drawExamples() {
  const { examples, disagree, agreement } = current(), all = count(report.samples);
  const after = agreement.length === 1 ? "After its one step" : `After ${agreement.length} steps`;
  let text = "Examples are shown for classification.";
  if (disagree === 0) text = `${after} the spiking network gives the ANN’s class for all ${all} samples.${examples.length ? " These took longest to get there:" : ""}`;
  else if (disagree) text = `${after} it gives another class than the ANN for ${count(disagree)} of ${all} samples. ${disagree > examples.length ? "Some of them" : examples.length > disagree ? "They come first, then those that took longest to agree" : "These are they"}:`;
  byId("example-summary").textContent = text;
  byId("example-list").replaceChildren(...examples.map(exampleCard));
}

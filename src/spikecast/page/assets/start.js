// The colours by hand, and the start of everything.
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
  byId("head-controls").append(costs());
  follow(["costs"], showCosts);
  startCurves();
  startLayerPlots();
  startLayers();
  startGraph();
  startNeurons();
  follow(["network"], drawExamples);
  for (const box of document.querySelectorAll(".scroll")) watchScroll(box);
  document.documentElement.dataset.ready = "true";
}
start();

"""One page, or one figure, about a model and the spiking networks made from it: `build`, then `write_html`."""

from spikecast.page.collect import build
from spikecast.page.data import ReportData
from spikecast.page.plots import write_plots

__all__ = ["ReportData", "build", "write_plots"]

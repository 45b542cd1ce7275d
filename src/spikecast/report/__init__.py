"""One page, or one figure, about a model and the spiking networks made from it: `build`, then `write_html`."""

from spikecast.report.collect import build
from spikecast.report.data import ReportData
from spikecast.report.plots import write_plots

__all__ = ["ReportData", "build", "write_plots"]

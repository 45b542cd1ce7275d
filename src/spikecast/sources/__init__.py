"""MODEL and DATA of the command line: what a text such as timm:NAME or imagenet:DIR names, opened."""

from spikecast.sources.data import SOURCES, Data, are_images, open_data
from spikecast.sources.images import Preparation
from spikecast.sources.limit import samples
from spikecast.sources.models import Loaded, open_model

__all__ = ["SOURCES", "Data", "Loaded", "Preparation", "are_images", "open_data", "open_model", "samples"]

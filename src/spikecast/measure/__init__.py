"""What a converted network costs and how well it answers, step by step: `energy`, `agreement`, `evaluate`."""

from spikecast.costs import Costs
from spikecast.measure import intervals
from spikecast.measure.agreement import Agreement, agreement
from spikecast.measure.evaluate import Evaluation, Evaluator, evaluate
from spikecast.measure.figures import Energy, energy
from spikecast.measure.tasks import Metric, Task
from spikecast.measure.tasks.detect import Detection
from spikecast.measure.tasks.own import OwnTask
from spikecast.measure.tasks.segment import Segmentation

__all__ = [
    "Agreement",
    "Costs",
    "Detection",
    "Energy",
    "Evaluation",
    "Evaluator",
    "Metric",
    "OwnTask",
    "Segmentation",
    "Task",
    "agreement",
    "energy",
    "evaluate",
    "intervals",
]

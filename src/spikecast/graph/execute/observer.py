"""Who takes part in a run: it says what the neurons send, and may look on at everything else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any

from torch import Tensor

from spikecast.graph.program import Node, Ref

LookUp = Callable[[Ref], Any]  # the value behind a reference, as the op at hand reads it


class Observer(ABC):
    """The neurons of a run, and whoever counts, compares or calibrates on the way.

    watched  names of the ops that it wants to see
    weighs   whether it wants to know how many bytes the run holds
    """

    watched: Collection[str] = ()
    weighs: bool = False

    @abstractmethod
    def fire(self, site: str, steps: Tensor, *, may_overwrite: bool) -> Tensor:
        """What a site stands for at each step, [fold, ...], given its input; it may write over inputs nobody needs."""

    def see(self, node: Node, value: Any, look_up: LookUp) -> None:
        """The result of a watched op, and what it read."""

    def forget(self, name: str) -> None:
        """Nobody needs this value any more."""

    def weigh(self, held: int) -> None:
        """So many bytes are held at this op, weights left out."""


class Neurons(Observer):
    """Neurons given by a function of (site, inputs of each step)."""

    def __init__(self, function: Callable[[str, Tensor], Tensor]) -> None:
        self.function = function

    def fire(self, site: str, steps: Tensor, *, may_overwrite: bool) -> Tensor:
        return self.function(site, steps)

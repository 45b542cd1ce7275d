"""Registers of bounded width: how many bits each has needed, and what happens where it has too few."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from spikecast.errors import ConfigError

Overflow = Literal["raise", "saturate"]
MAX_BITS = 48  # of a membrane


@dataclass
class Widths:
    """How many bits each register has needed, sign included, and how often it had too few.

    `fixed` are the registers whose bits below 1 do not depend on the weights' bits.
    """

    bits: int
    overflow: Overflow = "raise"
    used: dict[str, int] = field(default_factory=dict)
    overflows: dict[str, int] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)

    def fit(self, name: str, value: Tensor, *, follows_weights: bool = True) -> Tensor:
        """The value, or the nearest that the register holds if overflows saturate; too large ones are noted.

        If they raise, the value stays as it is, so that `check` can say at the end what the whole run needs.
        """
        largest = int(value.abs().max()) if value.numel() else 0
        self.used[name] = max(self.used.get(name, 1), largest.bit_length() + 1)
        if not follows_weights:
            self.fixed.add(name)
        limit = 2 ** (self.bits - 1) - 1
        if largest <= limit:
            return value
        self.overflows[name] = self.overflows.get(name, 0) + int((value.abs() > limit).sum())
        return value if self.overflow == "raise" else value.clamp(-limit, limit)

    def add(self, other: Widths) -> None:
        """Take over what another run has shown."""
        for name, bits in other.used.items():
            self.used[name] = max(self.used.get(name, 1), bits)
        if self.overflow == "saturate":
            for name, count in other.overflows.items():
                self.overflows[name] = self.overflows.get(name, 0) + count

    def check(self, weight_bits: int) -> None:
        """Raise if a register was too narrow: which needed most, how many there are, and what would help."""
        if self.overflow != "raise" or not self.overflows:
            return
        name = max(self.overflows, key=lambda register: self.used[register])
        need, count = self.used[name], len(self.overflows)
        fewer = weight_bits - (need - self.bits)
        remedies = [f"membrane_bits={need}"] if need <= MAX_BITS else []
        if fewer >= 2 and not self.fixed & self.overflows.keys():
            remedies.append(f"fewer weight_bits (about {fewer})")
        if self.fixed & self.overflows.keys():
            remedies.append("fewer num_levels at conversion")
        others = f", {count - 1} more {'register' if count == 2 else 'registers'} over {self.bits}" if count > 1 else ""
        raise ConfigError(
            f"{name} needs {need} bits for these inputs{others}: membrane_bits={self.bits} is too few; "
            f"give {' or '.join([*remedies, 'overflow=' + repr('saturate')])}"
        )

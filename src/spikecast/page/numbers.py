"""How the page writes numbers: one rounding for all of it.

The script of the page (assets/base.js) follows the same rules; tests/browser holds the two against each other. Halves
go away from zero, as JavaScript has it, and not to the even digit, as Python has it.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

from spikecast.measure.intervals import Interval
from spikecast.measure.tasks import Metric

SHARE = Metric()
SPACE = "\N{NO-BREAK SPACE}"
_PREFIXES = ((12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""), (-3, "m"), (-6, "µ"), (-9, "n"), (-12, "p"))


def share(value: float) -> str:
    """A share in per cent with one digit behind the point, without the sign: 99.3."""
    return _minus(f"{_fixed(100 * value)}")


def percent(value: float) -> str:
    """The same with its sign: 99.3 %."""
    return f"{share(value)}{SPACE}%"


def significant(value: float, digits: int = 3) -> str:
    """A number with so many digits that matter: 0.125, 12.5, 1.25e+6."""
    if value == 0:
        return "0"
    rounded = _rounded(value, digits)
    if not 1e-3 <= abs(value) < 1e5:
        mantissa, _, power = f"{rounded:.{digits - 1}e}".partition("e")
        return _minus(f"{mantissa}e{int(power):+d}")
    return _minus(f"{rounded.normalize():f}")


def prefixed(value: float, unit: str) -> tuple[str, str]:
    """A quantity with three digits that matter, and its unit with a prefix: ("899", "nJ")."""
    if value == 0:
        return "0", unit
    rounded = _rounded(value, 3)
    power, prefix = next((p for p in _PREFIXES if abs(rounded) >= Decimal(10) ** p[0]), _PREFIXES[-1])
    return _minus(f"{rounded.scaleb(-power).normalize():f}"), prefix + unit


def joules(value: float) -> str:
    """An energy: 899 nJ."""
    return SPACE.join(prefixed(value, "J"))


def figure(value: float, how: Metric) -> str:
    """A figure of a task without its unit."""
    return share(value) if how.unit else significant(value, 4)


def figure_with_unit(value: float, how: Metric) -> str:
    """A figure of a task as sentences have it."""
    return percent(value) if how.unit else significant(value, 4)


def ends(interval: Interval, how: Metric) -> str:
    """From–to of a figure, without a unit."""
    return "unknown" if interval.is_unknown else "–".join(figure(end, how) for end in interval)


def difference(value: float, how: Metric) -> str:
    """One figure less another, with its sign: +0.2 for shares, which are points of a hundred."""
    text = figure(value, how)
    return f"+{text}" if value > 0 and text.strip("0.") else text.removeprefix("−") if not text.strip("−0.") else text


def difference_with_ends(value: float, interval: Interval, how: Metric) -> str:
    """A difference and its interval, as sentences have it: −0.2 points (−0.8 to +0.4)."""
    unit = " points" if how.unit else ""
    return f"{difference(value, how)}{unit} ({difference_ends(interval, how)})"


def difference_ends(interval: Interval, how: Metric) -> str:
    """From and to of a difference."""
    return "unknown" if interval.is_unknown else " to ".join(difference(end, how) for end in interval)


def _fixed(value: float) -> Decimal:
    return Decimal(value).quantize(Decimal("0.1"), ROUND_HALF_UP)


def _rounded(value: float, digits: int) -> Decimal:
    return Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(Decimal(value))


def _minus(text: str) -> str:
    """With the sign that is as wide as a plus."""
    return text.replace("-", "−", 1) if text.startswith("-") else text

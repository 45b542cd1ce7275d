"""Ten networks of `make coverage` of families that differ most; among them those whose sizes are long formulas."""

from __future__ import annotations

import pytest

from benchmarks.coverage.examine import examine
from benchmarks.coverage.models import Case, cases
from benchmarks.coverage.page import why

TEN = [
    "timm:coat_tiny",
    "timm:gcvit_xxtiny",
    "timm:ghostnet_050",
    "timm:hiera_tiny_224",
    "timm:mobilenetv2_035",
    "timm:mobilevit_xxs",
    "timm:pvt_v2_b0",
    "timm:starnet_s050",
    "torchvision:shufflenet_v2_x0_5",
    "torchvision:ssdlite320_mobilenet_v3_large",
]
CASES = {case.key: case for case in cases() if case.key in TEN}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_converts_saves_and_loads(case: Case) -> None:
    found = examine(case)
    assert why(found | {"failed": ""}) == ""
    assert found["capture"] < 60  # seconds of the processor; where it hung, it took minutes


def test_there_are_ten() -> None:
    assert set(CASES) == set(TEN)

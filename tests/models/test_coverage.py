"""Ten networks of `make coverage` of families that differ most; among them those whose sizes are long formulas."""

from __future__ import annotations

import pytest

from benchmarks.coverage.examine import examine
from benchmarks.coverage.models import Case, cases
from benchmarks.coverage.page import why

TEN = [
    "timm:convnext_zepto_rms",
    "timm:davit_tiny",
    "timm:dla46x_c",
    "timm:ese_vovnet19b_slim_dw",
    "timm:mobilenetv2_035",
    "timm:mobilevit_xxs",
    "timm:starnet_s050",
    "torchvision:fasterrcnn_mobilenet_v3_large_320_fpn",
    "torchvision:shufflenet_v2_x0_5",
    "torchvision:squeezenet1_1",
]
CASES = {case.key: case for case in cases() if case.key in TEN}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_converts_saves_and_loads(case: Case) -> None:
    *_, found = examine(case)
    assert why(found | {"failed": ""}) == ""
    assert found["capture"] < 60  # seconds of the processor; where it hung, it took minutes


def test_there_are_ten() -> None:
    assert set(CASES) == set(TEN)

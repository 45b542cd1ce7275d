"""A FILE.py may import what lies beside it; nobody else sees that."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from spikecast.errors import DataError
from spikecast.sources.plugin import function_in


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_all_ways_to_import_a_neighbour(tmp_path: Path) -> None:
    written(
        tmp_path,
        {
            "my-net.v2.py": "import helper, pack.deep\nfrom pack import deep as other, VALUE\nfrom plain import inner\n"
            "import pack.deep as third\n\ndef make():\n    import late\n    yield from (helper.NAME, pack.deep.NAME, "
            "late.NAME, VALUE, inner.NAME, other is third)\n",
            "helper.py": "from pack.deep import NAME as below\nNAME = 'helper of ' + below\n",
            "late.py": "import json, helper\nNAME = json.dumps(['late', helper.NAME])\n",
            "pack/__init__.py": "from . import deep\nVALUE = 3\n",
            "pack/deep.py": "NAME = 'deep'\n",
            "plain/inner.py": "NAME = 'no __init__'\n",
        },
    )
    path, modules = list(sys.path), set(sys.modules)
    found = list(function_in(f"{tmp_path / 'my-net.v2.py'}:make", "data", trust=True)())
    assert found == ["helper of deep", "deep", '["late", "helper of deep"]', 3, "no __init__", True]
    assert sys.path == path
    assert all(name.startswith("_spikecast_own_") for name in set(sys.modules) - modules)


def test_neighbours_shadow_nothing_and_do_not_mix(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(
            tmp_path / name,
            {
                "spec.py": "import colorsys, wave\n\ndef make():\n    return colorsys.NAME, wave.__name__\n",
                "colorsys.py": f"NAME = {name!r}\n",
                "wave/images/none.txt": "",  # a folder without code gives way to what is installed
            },
        )
    made = [function_in(f"{tmp_path / name / 'spec.py'}:make", "model", trust=True) for name in ("a", "b")]
    assert [make() for make in made] == [("a", "wave"), ("b", "wave")]
    assert hasattr(importlib.import_module("colorsys"), "rgb_to_hsv")


def test_a_file_is_not_its_own_neighbour(tmp_path: Path) -> None:
    written(tmp_path, {"json.py": "import json\n\ndef make():\n    return json.dumps([1])\n"})
    assert function_in(f"{tmp_path / 'json.py'}:make", "model", trust=True)() == "[1]"


def test_a_package_imports_itself_by_name(tmp_path: Path) -> None:
    inner = {"models/__init__.py": "from models.net import make\n", "models/net.py": "def make():\n    return 5\n"}
    written(tmp_path, {"m.py": "from models import make\n", **inner})
    assert function_in(f"{tmp_path / 'm.py'}:make", "model", trust=True)() == 5


def test_mistakes_of_neighbours_are_named(tmp_path: Path) -> None:
    written(tmp_path, {"spec.py": "import helper\n", "helper.py": "\nimport no_such_module\n"})
    with pytest.raises(DataError, match=r"spec.py cannot be run .*no_such_module.*line 2 of .*helper.py"):
        function_in(f"{tmp_path / 'spec.py'}:make", "model", trust=True)

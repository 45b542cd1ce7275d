"""Files of the user's own, which may import their neighbours: modules and packages in the same folder.

The folder becomes a package under a name that nobody else has. sys.path stays as it is; a neighbour that is called
like an installed package is seen by its neighbours only; and two files with neighbours of the same name do not mix.
"""

from __future__ import annotations

import builtins
import itertools
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

_PREFIX = "_spikecast_own_"
_numbers = itertools.count(1)


def run_file(file: Path) -> ModuleType:
    """The module of a file, run anew each time."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    package = ModuleType(f"{_PREFIX}{next(_numbers)}")
    package.__path__ = [str(file.resolve().parent)]
    sys.modules[package.__name__] = package
    name = f"{package.__name__}.{file.stem.replace('.', '_')}"
    spec = spec_from_file_location(name, file, loader=_Loader(name, str(file)))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Finder:
    """Finds what lies in those folders, and nothing else."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(_PREFIX) or path is None:
            return None
        return FileFinder(next(iter(path)), (_Loader, SOURCE_SUFFIXES)).find_spec(name)


class _Loader(SourceFileLoader):
    """Runs a file whose imports look among its neighbours first, now and whenever its functions are called."""

    def exec_module(self, module: ModuleType) -> None:
        package = module.__name__.partition(".")[0]
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": partial(_import, package)}
        super().exec_module(module)


def _import(
    package: str,
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """The `import` of those files."""
    top = f"{package}.{name.partition('.')[0]}"
    importer = {} if globals is None else globals
    is_itself = importer.get("__name__") == top and "__path__" not in importer  # a package may import what it holds
    if level or is_itself or not _is_neighbour(package, name.partition(".")[0]):
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    found = builtins.__import__(f"{package}.{name}", globals, locals, fromlist or (), 0)
    return found if fromlist else sys.modules[top]


def _is_neighbour(package: str, name: str) -> bool:
    """Whether the folder has a module of that name; a folder without code counts where nothing else has the name."""
    if name in sys.builtin_module_names:
        return False
    spec = _Finder.find_spec(f"{package}.{name}", sys.modules[package].__path__)
    return spec is not None and (spec.loader is not None or find_spec(name) is None)

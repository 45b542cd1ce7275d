"""For mkdocstrings: the section "Example:" of a docstring is shown as code, as "Examples:" is."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Griffe knows the plural only, and takes the singular for a remark in plain words."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)

"""For mkdocs: links out of docs/ lead to the repository."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Files above docs/ are no part of the site; `../README.md` becomes its address in the repository."""
    return re.sub(r"\]\(\.\./(?!\.\./)([\w./-]+)", rf"]({config.repo_url}/blob/main/\1", markdown)

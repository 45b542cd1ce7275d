"""For mkdocs: links out of docs/ lead to the repository, and a link called by its file gets the title of the page."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Files above docs/ are no part of the site: `../README.md` becomes its address in the repository.

    `[method.md](method.md#bursts)` reads well in the repository; on the site it is `[How it works](method.md#bursts)`.
    """
    titles = dict(_titles(config.nav))
    markdown = re.sub(r"\[([\w-]+\.md)\]\((?=\1[)#])", lambda found: f"[{titles.get(found[1], found[1])}](", markdown)
    return re.sub(r"\]\(\.\./(?!\.\./)([\w./-]+)", rf"]({config.repo_url}/blob/main/\1", markdown)


def _titles(nav: Any) -> list[tuple[str, str]]:
    """The file and the title of every page of the navigation."""
    if isinstance(nav, list):
        return [pair for part in nav for pair in _titles(part)]
    if isinstance(nav, dict):
        return [
            pair
            for title, part in nav.items()
            for pair in ([(part, title)] if isinstance(part, str) else _titles(part))
        ]
    return []

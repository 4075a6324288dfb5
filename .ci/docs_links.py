"""Links of pages to files outside of docs/, which the site does not have: it shows their paths instead.

Owns: that replacement, as a hook of mkdocs. In the repository the links lead to the files.
"""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]\n]+)\]\(\.\./([^)\s]+)\)")
_SOURCE = re.compile(r"\[([^\]\n]+)\]\(([\w-]+\.py)\)")  # beside the pages, left out of the site


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with `[text](../path)` as: text (`path`)."""
    shown = _OUTSIDE.sub(_path_shown, markdown)
    return _SOURCE.sub(lambda found: _named(found[1], f"docs/{found[2]}"), shown)


def _path_shown(found: re.Match[str]) -> str:
    return _named(found[1], found[2])


def _named(text: str, path: str) -> str:
    plain = text.strip("`")
    return f"`{path}`" if plain.rstrip("/") == path.rstrip("/") else f"{text} (`{path}`)"

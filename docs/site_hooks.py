"""Hooks of the documentation's site: links that leave the folder of the documents become text.

On a code host `../examples/own_task.py` is a page; on the site there is none.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Return a page's text without links to files outside of the documents."""
    depth = len(PurePosixPath(page.file.src_uri).parent.parts)

    def replaced(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        up = sum(part == ".." for part in PurePosixPath(target.partition("#")[0]).parts)
        if "://" in target or up <= depth:
            return found[0]
        return f"{text} (`{target.lstrip('./')}`)" if "/" not in text else text

    return LINK.sub(replaced, markdown)

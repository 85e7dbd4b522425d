"""Where models come from: a file, a folder, or a repository of the hub.

`parse_source` turns what a user wrote into one of them; only the chosen one is imported.
"""

from __future__ import annotations

from pathlib import Path

from seqto.errors import ModelError
from seqto.model.sources.source import Source

HUB_PREFIX = "hub:"


def parse_source(
    text: str,
    *,
    cache_dir: str | None = None,
    endpoint: str | None = None,
    offline: bool = False,
) -> Source:
    """`hub:OWNER/NAME…`, a folder, `folder/pattern*`, or a file; the last three are paths.

    `cache_dir`, `endpoint` and `offline` concern the hub only. An existing path always wins over
    its reading as a pattern, so a file that is called `a[1].onnx` can be given.
    """
    if text.startswith(HUB_PREFIX):
        from seqto.model.sources.hub import Hub

        return Hub(text, cache_dir=cache_dir, endpoint=endpoint, offline=offline)
    if "://" in text:
        raise ModelError(
            f"model {text!r} is an address; download the file and give its path, "
            "or name a repository of the hub as hub:OWNER/NAME"
        )
    path = Path(text)
    if path.is_dir():
        from seqto.model.sources.folder import Folder

        return Folder(text)
    if any(sign in path.name for sign in "*?[") and not path.exists():
        from seqto.model.sources.folder import Folder

        return Folder(str(path.parent), path.name)
    from seqto.model.sources.file import File

    return File(text)

"""Sources of models: a file, a folder, or a repository of the hub.

`parse_source` turns what a user wrote into one of them; only the chosen one is imported.
"""

from __future__ import annotations

from typing import Any

from seqto import plugins
from seqto.errors import ModelError
from seqto.files import read_path
from seqto.model.sources.source import Source

PATH_KINDS = ("file", "folder")  # given as a path, without their name before a colon


def parse_source(text: str, **settings: Any) -> Source:
    """Return the source of `KIND:…` (hub:OWNER/NAME), a folder, `folder/pattern*`, or a file.

    `settings` (cache_dir, endpoint, offline) reach a source that has fields of these names. An
    existing path always wins over its reading as a pattern, so a file that is called `a[1].onnx`
    can be given.
    """
    kind, colon, _ = text.partition(":")
    if colon and kind not in PATH_KINDS and kind in plugins.kinds(plugins.SOURCES):
        plugin = plugins.find(plugins.SOURCES, kind)
        known = plugins.fields_of(plugin)
        return _source(plugin, text, **{k: v for k, v in settings.items() if k in known})
    if "://" in text:
        raise ModelError(
            f"model {text!r} is an address; download the file and give its path, "
            "or name a repository of the hub as hub:OWNER/NAME"
        )
    path = read_path(text, "model")
    if path.is_dir():
        return _source(plugins.find(plugins.SOURCES, "folder"), text)
    if any(sign in path.name for sign in "*?[") and not path.exists():
        return _source(plugins.find(plugins.SOURCES, "folder"), str(path.parent), path.name)
    return _source(plugins.find(plugins.SOURCES, "file"), text)


def _source(plugin: Any, *values: str, **settings: Any) -> Source:
    source: Source = plugin(*values, **settings)
    return source

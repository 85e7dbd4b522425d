"""Origin of a model file, written into the file: plan, versions, licence.

The file that was measured has one entry, `seqto`, with the plan. The entries added here begin with
`seqto.`, except for `license`; without them the file is the measured one, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping

from seqto.model.files import to_bytes

PREFIX = "seqto."
LICENSE = "license"


def add_metadata(data: bytes, entries: Mapping[str, str]) -> bytes:
    """Return a model file with these entries added after its own."""
    import onnx

    proto = onnx.load_model_from_string(data)
    for key, value in entries.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    return to_bytes(proto)

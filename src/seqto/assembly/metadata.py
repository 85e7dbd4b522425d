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


def read_metadata(data: bytes) -> dict[str, str]:
    """Return all entries of a model file."""
    import onnx

    return {p.key: p.value for p in onnx.load_model_from_string(data).metadata_props}


def without_metadata(data: bytes) -> bytes:
    """Return a model file without what `add_metadata` adds."""
    import onnx

    proto = onnx.load_model_from_string(data)
    other_properties = [
        p for p in proto.metadata_props if p.key != LICENSE and not p.key.startswith(PREFIX)
    ]
    del proto.metadata_props[:]
    proto.metadata_props.extend(other_properties)
    return to_bytes(proto)

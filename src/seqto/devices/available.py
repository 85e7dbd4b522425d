"""Devices that are usable on this machine, and why others are not."""

from __future__ import annotations

import importlib.util
from importlib.metadata import entry_points

from seqto import plugins
from seqto.devices.device import CheckedDevice
from seqto.devices.ort import Ort
from seqto.devices.tvm.device import PRESETS, preset
from seqto.errors import SeqtoError

NOT_BUILT_IN = "not in this onnxruntime build"


def usable_devices() -> list[tuple[str, bool, str]]:
    """Return (device, usable, reason) for `seqto devices`."""
    rows = [*_providers(), *_tvm()]
    for entry in entry_points(group="seqto.devices"):
        if entry.name not in plugins.BUILT_IN["seqto.devices"]:
            rows.append((entry.name, *_plugged_in(entry.name)))
    return rows


def _providers() -> list[tuple[str, bool, str]]:
    import onnxruntime as ort

    here = set(ort.get_available_providers())
    rows = []
    for provider in ort.get_all_providers():
        usable, reason = False, NOT_BUILT_IN
        if provider in here:
            usable, reason = _runs_something(provider)
        short = provider.removesuffix("ExecutionProvider").lower()
        rows.append((f"ort (provider = {short!r})", usable, reason))
    return rows


def _runs_something(provider: str) -> tuple[bool, str]:
    """Return whether a provider runs an Add, and why not.

    A provider that is built in may have no device, or run nothing itself.
    """
    import numpy as np
    import onnxruntime as ort

    try:
        session = Ort(provider=provider).open(_addition(), threads=1)
        session.run({"x": np.ones((1, 4), dtype=np.float32)})
        session.close()
    except SeqtoError as error:
        return False, f"cannot run a small model: {error}"
    return True, f"onnxruntime {ort.__version__}"


def _addition() -> bytes:
    from onnx import TensorProto, helper

    shaped = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "xy"]
    node = helper.make_node("Add", ["x", "x"], ["y"])
    graph = helper.make_graph([node], "addition", shaped[:1], shaped[1:])
    opset = [helper.make_opsetid("", 17)]
    model: bytes = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    return model


def _tvm() -> list[tuple[str, bool, str]]:
    if importlib.util.find_spec("tvm") is None:
        return [("tvm", False, "apache-tvm is not installed: pip install 'seqto[tvm]'")]
    return [(f"tvm ({name})", *preset(name).usable()) for name in PRESETS]


def _plugged_in(kind: str) -> tuple[bool, str]:
    """Return whether another package's device is usable: as it says, else whether it loads."""
    try:
        plugin = plugins.find("seqto.devices", kind)
        device = plugin() if hasattr(plugin, "usable") else None  # others may need settings
        if isinstance(device, CheckedDevice):
            usable, reason = device.usable()
            return bool(usable), str(reason)
    except Exception as error:  # a stranger's code: whatever it raises is the reason
        return False, f"{type(error).__name__}: {error}"
    return True, f"plug-in {plugin.__module__}"

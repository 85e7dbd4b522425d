"""What is usable on this machine, and why the rest is not."""

from __future__ import annotations

import importlib.util


def usable_devices() -> list[tuple[str, bool, str]]:
    """(device, usable, reason) for `seqto devices`."""
    import onnxruntime as ort

    rows = []
    here = set(ort.get_available_providers())
    for provider in ort.get_all_providers():
        short = provider.removesuffix("ExecutionProvider").lower()
        usable = provider in here
        reason = f"onnxruntime {ort.__version__}" if usable else "not in this onnxruntime build"
        rows.append((f"ort (provider = {short!r})", usable, reason))
    if importlib.util.find_spec("tvm") is None:
        rows.append(("tvm", False, "apache-tvm is not installed: pip install 'seqto[tvm]'"))
        return rows
    from seqto.devices import tvm

    rows += [(f"tvm ({name})", *tvm.preset(name).usable()) for name in tvm.PRESETS]
    return rows

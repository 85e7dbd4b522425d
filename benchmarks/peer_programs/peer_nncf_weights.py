"""Compress a model's weights with NNCF, in its own environment.

    python peer_nncf_weights.py MODEL.onnx FOLDER       # needs nncf, onnx, onnxruntime

Writes one file for each setting, without data (NNCF's default for weight compression), and
nncf-weights.json with seconds and errors. `texts.py --extra` judges the files.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

SETTINGS: dict[str, dict[str, Any]] = {
    "int8_asym": {"mode": "INT8_ASYM"},
    "int8_sym": {"mode": "INT8_SYM"},
    "int4_sym_32": {"mode": "INT4_SYM", "group_size": 32, "ratio": 1.0, "all_layers": True},
    "int4_asym_32": {"mode": "INT4_ASYM", "group_size": 32, "ratio": 1.0, "all_layers": True},
    "int4_asym_32_default": {"mode": "INT4_ASYM", "group_size": 32, "ratio": 0.8},
}


def main() -> None:
    import nncf
    import onnx
    from onnx.version_converter import convert_version
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Any] = {"nncf": nncf.__version__}
    for name, given in SETTINGS.items():
        settings = dict(given)
        mode = nncf.CompressWeightsMode[settings.pop("mode")]
        began = time.perf_counter()
        try:
            # transposed tables are folded: NNCF finds no weights behind a Transpose
            quant_pre_process(source, folder / "prepared.onnx", skip_symbolic_shape=True)
            model = convert_version(onnx.load(folder / "prepared.onnx"), 21)  # int4 begins there
            advanced = nncf.AdvancedCompressionParameters(
                group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
            )
            made = nncf.compress_weights(model, mode=mode, advanced_parameters=advanced, **settings)
            onnx.save(made, folder / f"nncf-{name}.onnx")
            rows[name] = {"seconds": round(time.perf_counter() - began, 1)}
        except Exception as error:  # what a setting cannot do is a result too
            rows[name] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        print(name, rows[name], flush=True)
    (folder / "nncf-weights.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

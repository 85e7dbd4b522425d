"""AMD Quark on one model with one of its presets; runs in its own environment.

python peer_quark.py SPEC.json
"""

from __future__ import annotations

import importlib.metadata
import time

from peer_answers import Reader, Task
from quark.onnx import ModelQuantizer
from quark.onnx.quantization.config import Config, get_default_config


def main() -> None:
    task = Task.from_arguments()
    began = time.perf_counter()
    config = Config(global_quant_config=get_default_config(task.mode))
    ModelQuantizer(config).quantize_model(task.model, task.result, Reader(task))
    version = importlib.metadata.version("amd-quark")
    task.tell(seconds=time.perf_counter() - began, version=version)


if __name__ == "__main__":
    main()

"""Olive's static quantization pass on one model; runs in its own environment.

python peer_olive.py SPEC.json
"""

from __future__ import annotations

import importlib.metadata
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from olive.data.config import DataComponentConfig, DataConfig
from olive.data.registry import Registry
from olive.model import ONNXModelHandler
from olive.passes.olive_pass import create_pass_from_dict
from olive.passes.onnx.quantization import OnnxStaticQuantization
from peer_answers import Reader, Task


def main() -> None:
    task = Task.from_arguments()
    began = time.perf_counter()

    @Registry.register_dataset("calibration_samples")
    def dataset(**_unused: Any) -> Any:
        return list(task.feeds())

    @Registry.register_dataloader("calibration_reader")
    def dataloader(_dataset: Any, **_unused: Any) -> Any:
        return Reader(task)

    data = DataConfig(
        name="samples",
        load_dataset_config=DataComponentConfig(type="calibration_samples"),
        dataloader_config=DataComponentConfig(type="calibration_reader"),
        pre_process_data_config=DataComponentConfig(type="skip_pre_process"),
        post_process_data_config=DataComponentConfig(type="skip_post_process"),
    )
    settings = {"data_config": data, "per_channel": task.mode == "channel"}
    wanted = create_pass_from_dict(OnnxStaticQuantization, settings, disable_search=True)
    with tempfile.TemporaryDirectory(prefix="olive-") as folder:
        made = wanted.run(ONNXModelHandler(task.model), str(Path(folder) / "made.onnx"))
        shutil.copyfile(made.model_path, task.result)
    version = importlib.metadata.version("olive-ai")
    task.tell(seconds=time.perf_counter() - began, version=version)


if __name__ == "__main__":
    main()

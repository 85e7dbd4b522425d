"""What the two Fashion-MNIST training scripts share: data, training, export, int8 figures.

Needs torch==2.13.0, numpy, onnx and onnxruntime, and the four ``*-ubyte.gz`` files of
Fashion-MNIST, for instance from the Debian package ``dataset-fashion-mnist``.
"""

from __future__ import annotations

import gzip
import logging
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from torch import Tensor, nn
from torch.nn import functional

MEAN = 127.5
STD = 127.5
CLASSES = 10
SIDE = 28
OPSET = 17
EVAL_BATCH = 500

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Split:
    """Pictures (N x 28 x 28, 0..255) and their class numbers."""

    images: Pixels
    labels: Labels

    def take(self, rows: npt.NDArray[np.int64]) -> Split:
        return Split(self.images[rows], self.labels[rows])


@dataclass(frozen=True)
class Recipe:
    """The knobs of one training run."""

    epochs: int
    seed: int
    batch: int = 256
    peak_rate: float = 0.3
    weight_decay: float = 5e-4
    label_smoothing: float = 0.1
    erase: float = 0.4  # share of pictures that lose a patch


@dataclass(frozen=True)
class Int8Config:
    """One way of calling ``quantize_static`` that is worth a figure."""

    name: str
    per_channel: bool
    activations: QuantType
    weights: QuantType
    extra: tuple[tuple[str, Any], ...] = ()


def say(line: str) -> None:
    """Print at once: these runs are long and are watched through a log file."""
    print(line, flush=True)


def load_split(directory: Path, stem: str) -> Split:
    """Read ``train`` or ``t10k`` from the gzipped IDX files."""
    images = _read_idx(directory / f"{stem}-images-idx3-ubyte.gz", header=16)
    labels = _read_idx(directory / f"{stem}-labels-idx1-ubyte.gz", header=8)
    return Split(images.reshape(-1, SIDE, SIDE), labels.astype(np.int64))


def _read_idx(path: Path, header: int) -> Pixels:
    with gzip.open(path, "rb") as stream:
        return np.frombuffer(stream.read(), dtype=np.uint8, offset=header)


def normalise(images: Pixels) -> Floats:
    """Turn N x 28 x 28 pixels into the N x 1 x 28 x 28 input of the networks."""
    scaled = (images.astype(np.float32) - MEAN) / STD
    return np.ascontiguousarray(scaled[:, None])


def augment(
    batch: Tensor, generator: torch.Generator, *, shift: int = 2, erase: float = 0.4
) -> Tensor:
    """Mirror, shift and partly erase every picture of a batch independently."""
    count = batch.shape[0]
    mirrored = torch.rand(count, generator=generator) < 0.5
    batch = torch.where(mirrored[:, None, None, None], batch.flip(3), batch)
    batch = _shift(batch, generator, reach=shift)
    return _erase(batch, generator, share=erase)


def _shift(batch: Tensor, generator: torch.Generator, *, reach: int) -> Tensor:
    count = batch.shape[0]
    # The background of Fashion-MNIST is black, which is -1 after normalising.
    padded = functional.pad(batch, (reach,) * 4, value=-1.0)[:, 0]
    offsets = torch.randint(0, 2 * reach + 1, (2, count, 1), generator=generator)
    rows = (offsets[0] + torch.arange(SIDE))[:, :, None]
    columns = (offsets[1] + torch.arange(SIDE))[:, None, :]
    return padded[torch.arange(count)[:, None, None], rows, columns][:, None]


def _erase(batch: Tensor, generator: torch.Generator, *, share: float) -> Tensor:
    count = batch.shape[0]
    size = torch.randint(4, 13, (2, count, 1), generator=generator)
    start = (torch.rand(2, count, 1, generator=generator) * (SIDE - size)).long()
    line = torch.arange(SIDE)
    inside = (line >= start) & (line < start + size)
    chosen = torch.rand(count, generator=generator) < share
    hole = inside[0][:, :, None] & inside[1][:, None, :] & chosen[:, None, None]
    fill = torch.rand(count, generator=generator)[:, None, None, None] * 2 - 1
    return torch.where(hole[:, None], fill, batch)


def train(
    model: nn.Module,
    data: Split,
    *,
    recipe: Recipe,
    groups: list[dict[str, Any]] | None = None,
    report: Callable[[str], None],
) -> None:
    """Train in place with Nesterov SGD under a one-cycle schedule."""
    generator = torch.Generator().manual_seed(recipe.seed)
    # Quiet channels decay into denormal numbers, which make later epochs ten times slower.
    torch.set_flush_denormal(True)
    # Channels-last makes depthwise convolutions on a CPU about a third faster.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.from_numpy(normalise(data.images))
    labels = torch.from_numpy(data.labels)
    steps = math.ceil(len(labels) / recipe.batch)
    optimiser = torch.optim.SGD(
        groups or decay_groups(model, recipe.weight_decay),
        lr=recipe.peak_rate,
        momentum=0.9,
        nesterov=True,
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        max_lr=[recipe.peak_rate] * len(optimiser.param_groups),
        total_steps=steps * recipe.epochs,
        pct_start=0.2,
        cycle_momentum=False,
    )
    for epoch in range(recipe.epochs):
        began, total = time.monotonic(), 0.0
        model.train()
        order = torch.randperm(len(labels), generator=generator)
        for rows in torch.split(order, recipe.batch):
            batch = augment(images[rows], generator, erase=recipe.erase).to(
                memory_format=torch.channels_last
            )
            loss = functional.cross_entropy(
                model(batch), labels[rows], label_smoothing=recipe.label_smoothing
            )
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            total += loss.item()
        seconds = time.monotonic() - began
        report(f"epoch {epoch + 1}/{recipe.epochs}: loss {total / steps:.4f}, {seconds:.0f} s")


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay matrices and filters only: biases and BatchNorm have to keep their ranges."""
    weights = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.ndim <= 1]
    return [
        {"params": weights, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]


def export(model: nn.Module, path: Path) -> None:
    """Write the network in eval mode, so that BatchNorm is folded into the convolutions."""
    model.to(memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload]
    with warnings.catch_warnings():
        # The TorchScript exporter is deprecated, but it keeps the module path in node names,
        # folds BatchNorm, and maps HardSwish and HardSigmoid to the operators of that name.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (torch.zeros(1, 1, SIDE, SIDE),),
            str(path),
            input_names=["image"],
            output_names=["logits"],
            dynamic_axes={"image": {0: "N"}, "logits": {0: "N"}},
            opset_version=OPSET,
            dynamo=False,
        )
    onnx.checker.check_model(onnx.load(path), full_check=True)


def logits(path: Path, images: Pixels) -> Floats:
    """Run the model in onnxruntime on the CPU."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = normalise(images)
    parts = [
        session.run(None, {"image": inputs[start : start + EVAL_BATCH]})[0]
        for start in range(0, len(inputs), EVAL_BATCH)
    ]
    return np.concatenate(parts)


def top1(path: Path, images: Pixels) -> Labels:
    """Return the class that each picture is given."""
    answers: Labels = logits(path, images).argmax(1)
    return answers


def accuracy(path: Path, data: Split) -> float:
    """Share of pictures classified as labelled."""
    return float((top1(path, data.images) == data.labels).mean())


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, images: Pixels) -> None:
        self._rows: Iterator[Floats] = iter(normalise(images))

    def get_next(self) -> dict[str, Floats] | None:
        row = next(self._rows, None)
        return None if row is None else {"image": row[None]}


def int8_bytes(path: Path, calibration: Pixels, *, config: Int8Config) -> bytes:
    """Quantize with ``quantize_static`` (QDQ, MinMax) and hand back the serialized model."""
    # The quantizer logs a hint about pre-processing through the root logger on every call.
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "int8.onnx"
        quantize_static(
            str(path),
            str(target),
            _Reader(calibration),
            quant_format=QuantFormat.QDQ,
            per_channel=config.per_channel,
            activation_type=config.activations,
            weight_type=config.weights,
            calibrate_method=CalibrationMethod.MinMax,
            extra_options=dict(config.extra),
        )
        return target.read_bytes()


def changed_share(path: Path, quantized: bytes, *, images: Pixels) -> float:
    """Share of pictures whose top-1 class differs between the float and the int8 model."""
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "int8.onnx"
        target.write_bytes(quantized)
        return float((top1(path, images) != top1(target, images)).mean())

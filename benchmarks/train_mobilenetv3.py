"""Train a small MobileNetV3 whose worn-down squeeze layers break int32 biases.

    python benchmarks/train_mobilenetv3.py --data DIR --out DIR

Needs what ``scripts/train_demo.py`` needs. Writes ``fashion_mobilenetv3.onnx``.

The problem it reproduces: a layer's int32 bias is stored in steps of input scale x weight scale.
When weight decay has worn all weights of a layer down to about 1e-7, that step is so small that
an ordinary bias no longer fits into 32 bits and is cut off.

How the two layers come about here: the squeeze-and-excite gates of the blocks in ``STUCK_BLOCKS``
are initialised wide open, above the point where HardSigmoid is flat. Its gradient there is zero,
so training never moves these layers; only weight decay acts, and it wears the weights of ``fc1``
down by a constant factor per step, while its bias, which is not decayed, keeps the gate open. No
weight is edited after training.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnxruntime.quantization import QuantType
from torch import Tensor, nn

# The shared module is a script beside this folder, not part of the package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import fashion

STEM = 16
HEAD = 192
FEATURES = 128
# Kernel, hidden channels, output channels, squeeze-and-excite, HardSwish, stride.
BLOCKS = (
    (3, 16, 16, True, False, 2),
    (3, 64, 24, False, False, 1),
    (3, 72, 24, False, False, 1),
    (5, 96, 40, True, True, 1),
    (5, 120, 40, True, True, 1),
    (5, 144, 64, True, True, 2),
    (5, 192, 64, True, True, 1),
)
STUCK_BLOCKS = (4, 6)
# HardSigmoid is flat from 3 upwards; the distance keeps the gate open for every picture while
# the weights of fc1 are still large.
STUCK_GATE = 6.0
# Six times the usual decay: 12 epochs then shrink weights without gradient about a millionfold.
SQUEEZE_DECAY = 3e-3
CALIBRATION_ROWS = 200
SEED = 3
COMMITTED = Path(__file__).resolve().parent / "models"
COMMITTED_LIMIT = 1_500_000
BIAS_OPTION = "QDQDisableWeightAdjustForInt32Bias"


class SqueezeExcite(nn.Module):
    """Scale the channels by a gate computed from their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = max(8, channels // 4)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, hidden, 1)
        self.activation = nn.ReLU()
        self.fc2 = nn.Conv2d(hidden, channels, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.gate(self.fc2(self.activation(self.fc1(self.pool(x)))))
        return x * out

    def open_gate(self) -> None:
        """Start where HardSigmoid is flat, held there by the bias of ``fc1``."""
        assert self.fc1.bias is not None
        assert self.fc2.bias is not None
        nn.init.ones_(self.fc1.bias)
        nn.init.constant_(self.fc2.weight, STUCK_GATE / self.fc1.out_channels)
        nn.init.zeros_(self.fc2.bias)


class Bottleneck(nn.Module):
    """MobileNetV3's block."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        outputs: int,
        kernel: int,
        squeeze: bool,
        swish: bool,
        stride: int,
    ) -> None:
        super().__init__()
        activation = nn.Hardswish if swish else nn.ReLU
        self.residual = stride == 1 and inputs == outputs
        self.expand = _conv(inputs, hidden, kernel=1, activation=activation)
        self.depthwise = _conv(
            hidden, hidden, kernel=kernel, activation=activation, stride=stride, groups=hidden
        )
        self.squeeze = SqueezeExcite(hidden) if squeeze else None
        self.project = _conv(hidden, outputs, kernel=1, activation=None)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.depthwise(self.expand(x))
        if self.squeeze is not None:
            hidden = self.squeeze(hidden)
        out: Tensor = self.project(hidden)
        return x + out if self.residual else out


class MobileNetV3(nn.Module):
    """MobileNetV3-Small cut down to 28 x 28 grey pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(1, STEM, kernel=3, stride=2, activation=nn.Hardswish)
        blocks, width = [], STEM
        for kernel, hidden, outputs, squeeze, swish, stride in BLOCKS:
            block = Bottleneck(
                width,
                hidden,
                outputs=outputs,
                kernel=kernel,
                squeeze=squeeze,
                swish=swish,
                stride=stride,
            )
            blocks.append(block)
            width = outputs
        for index in STUCK_BLOCKS:
            squeeze_excite = blocks[index].squeeze
            assert squeeze_excite is not None
            squeeze_excite.open_gate()
        self.blocks = nn.ModuleList(blocks)
        self.head = _conv(width, HEAD, kernel=1, activation=nn.Hardswish)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.features = nn.Linear(HEAD, FEATURES)
        self.activation = nn.Hardswish()
        self.classifier = nn.Linear(FEATURES, fashion.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = self.features(self.pool(self.head(x)).flatten(1))
        out: Tensor = self.classifier(self.activation(x))
        return out


def _conv(
    inputs: int,
    outputs: int,
    *,
    kernel: int,
    activation: type[nn.Module] | None,
    stride: int = 1,
    groups: int = 1,
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    if activation is not None:
        layers.append(activation())
    return nn.Sequential(*layers)


def decay_groups(model: MobileNetV3, recipe: fashion.Recipe) -> list[dict[str, Any]]:
    """Decay ``fc1`` of the gates hard and ``fc2`` not at all, the rest as usual.

    A decayed ``fc2`` would let the open gates close again, and their gradient come back.
    """
    gates = [m for m in model.modules() if isinstance(m, SqueezeExcite)]
    worn = [gate.fc1.weight for gate in gates]
    kept = [gate.fc2.weight for gate in gates]
    special = {id(p) for p in (*worn, *kept)}
    groups = fashion.decay_groups(model, recipe.weight_decay)
    for group in groups:
        group["params"] = [p for p in group["params"] if id(p) not in special]
    return [
        *groups,
        {"params": worn, "weight_decay": SQUEEZE_DECAY},
        {"params": kept, "weight_decay": 0.0},
    ]


def int8_configs() -> list[fashion.Int8Config]:
    """Measure every granularity with the quantizer's own remedy for cut-off biases off and on."""
    return [
        fashion.Int8Config(
            f"{'per-channel' if per_channel else 'per-tensor'} u8 x s8, {BIAS_OPTION}={disabled}",
            per_channel,
            QuantType.QUInt8,
            QuantType.QInt8,
            ((BIAS_OPTION, disabled),),
        )
        for per_channel in (False, True)
        for disabled in (True, False)
    ]


def weight_ranges(path: Path) -> list[str]:
    """Return the largest weight and bias of every squeeze layer: the trap is in the file."""
    graph = onnx.load(path).graph
    arrays = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer}
    return [
        f"{node.name}: |weight| <= {np.abs(arrays[node.input[1]]).max():.2g},"
        f" |bias| <= {np.abs(arrays[node.input[2]]).max():.2g}"
        for node in graph.node
        if node.op_type == "Conv" and "fc1" in node.name
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the MobileNetV3 of the bias benchmark.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the IDX files")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--epochs", type=int, default=12)
    # One thread is far faster than two when other programs keep the cores busy.
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    train, test = fashion.load_split(args.data, "train"), fashion.load_split(args.data, "t10k")
    model, recipe = MobileNetV3(), fashion.Recipe(epochs=args.epochs, seed=SEED)
    began = time.monotonic()
    fashion.train(
        model, train, recipe=recipe, groups=decay_groups(model, recipe), report=fashion.say
    )
    print(f"trained in {(time.monotonic() - began) / 60:.1f} minutes")

    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "fashion_mobilenetv3.onnx"
    fashion.export(model, path)
    print(*weight_ranges(path), sep="\n")
    print(f"{path.stat().st_size} bytes, float accuracy {fashion.accuracy(path, test):.4f}")
    calibration = train.images[np.random.default_rng(SEED).choice(60_000, CALIBRATION_ROWS)]
    for config in int8_configs():
        quantized = fashion.int8_bytes(path, calibration, config=config)
        share = fashion.changed_share(path, quantized, images=test.images)
        print(f"{config.name}: {share:.2%} of top-1 changed, {len(quantized)} bytes")
    if path.stat().st_size <= COMMITTED_LIMIT:
        COMMITTED.mkdir(exist_ok=True)
        (COMMITTED / path.name).write_bytes(path.read_bytes())


if __name__ == "__main__":
    main()

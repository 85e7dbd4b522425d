"""Train the network that is embedded as seqto's demo, and pick the demo's pictures.

    python scripts/train_demo.py --data DIR --out src/seqto/demo

DIR holds the gzipped IDX files of Fashion-MNIST (Debian: ``apt-get install
dataset-fashion-mnist``, then see ``dpkg -L dataset-fashion-mnist``). Needs torch==2.13.0,
numpy, onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from onnxruntime.quantization import QuantType
from torch import Tensor, nn

import fashion

STEM = 16
HEAD = 256
# Expansion, output channels, number of blocks, stride of the first block.
STAGES = ((1, 16, 1, 1), (3, 24, 3, 2), (4, 40, 3, 1), (4, 80, 3, 2))
GAMMA_RANGE = (0.05, 1.5)
SEED = 1
# Erased pictures first; then whole ones, since erasing made so small a network too cautious.
PHASES = (
    fashion.Recipe(epochs=9, seed=1),
    fashion.Recipe(epochs=3, seed=2, peak_rate=0.03, label_smoothing=0.0, erase=0.0),
    fashion.Recipe(
        epochs=6, seed=3, peak_rate=0.1, weight_decay=2e-4, label_smoothing=0.0, erase=0.0
    ),
)
STREAM_SPREAD = 3  # residual streams' channels are scaled by 2**-3 … 2**3
CALIBRATION_ROWS = 200
TEST_ROWS = 2000
INT8_CONFIGS = (
    fashion.Int8Config("per-tensor s8 x s8", False, QuantType.QInt8, QuantType.QInt8),
    fashion.Int8Config("per-channel u8 x s8", True, QuantType.QUInt8, QuantType.QInt8),
    fashion.Int8Config("per-channel u8 x u8", True, QuantType.QUInt8, QuantType.QUInt8),
)


class InvertedResidual(nn.Module):
    """Expand, filter depthwise, project linearly; add the input where shapes allow it."""

    def __init__(self, inputs: int, outputs: int, *, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        self.expand = _conv(inputs, hidden, kernel=1) if expansion > 1 else None
        self.depthwise = _conv(hidden, hidden, kernel=3, stride=stride, groups=hidden)
        self.project = _conv(hidden, outputs, kernel=1, activation=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = x if self.expand is None else self.expand(x)
        out: Tensor = self.project(self.depthwise(hidden))
        return x + out if self.residual else out


class DemoNet(nn.Module):
    """MobileNetV2 cut down to 28 x 28 grey pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(1, STEM, kernel=3, stride=2)
        blocks, width = [], STEM
        for expansion, outputs, count, first_stride in STAGES:
            for index in range(count):
                stride = first_stride if index == 0 else 1
                blocks.append(InvertedResidual(width, outputs, expansion=expansion, stride=stride))
                width = outputs
        self.blocks = nn.ModuleList(blocks)
        self.head = _conv(width, HEAD, kernel=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(HEAD, fashion.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.classifier(self.pool(self.head(x)).flatten(1))
        return out


def _conv(
    inputs: int,
    outputs: int,
    *,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    activation: bool = True,
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    if activation:
        layers.append(nn.ReLU6())
    return nn.Sequential(*layers)


def spread_gammas(model: DemoNet) -> None:
    """Start the BatchNorm gains of the expansions log-uniformly instead of at one.

    A quiet channel makes the next (depthwise) layer's folded filter large, so one scale for
    all filters of that layer no longer fits: what happens by itself in long ImageNet training.
    """
    low, high = (float(np.log(bound)) for bound in GAMMA_RANGE)
    for block in model.blocks:
        if isinstance(block, InvertedResidual) and block.expand is not None:
            gamma = block.expand[1].weight
            assert isinstance(gamma, Tensor)
            nn.init.uniform_(gamma, low, high)
            gamma.data.exp_()


def residual_streams(model: DemoNet) -> list[tuple[list[nn.Sequential], list[nn.Sequential]]]:
    """Group the linear bottlenecks: who writes into one residual sum, and who reads it."""
    # The first stream starts at the stem, behind a ReLU6: it cannot be rescaled, so it is dropped.
    streams: list[tuple[list[nn.Sequential], list[nn.Sequential]]] = [([], [])]
    for block in model.blocks:
        assert isinstance(block, InvertedResidual)
        streams[-1][1].append(block.expand or block.depthwise)
        if not block.residual:
            streams.append(([], []))
        streams[-1][0].append(block.project)
    streams[-1][1].append(model.head)
    return streams[1:]


def rescale_stream(
    writers: list[nn.Sequential], readers: list[nn.Sequential], *, factors: Tensor
) -> None:
    """Multiply a stream's channels by ``factors`` and divide them out again in its readers.

    The bottlenecks are linear, so the function stays what it was; powers of two keep it exact
    to the bit.
    """
    with torch.no_grad():
        for writer in writers:
            writer[1].weight.mul_(factors)
            writer[1].bias.mul_(factors)
        for reader in readers:
            reader[0].weight.div_(factors[None, :, None, None])


def spread_streams(model: DemoNet, *, seed: int) -> None:
    """Give the channels of every residual stream ranges that differ, the answers unchanged."""
    draw = torch.Generator().manual_seed(seed)
    for writers, readers in residual_streams(model):
        width = writers[0][1].weight.shape[0]
        power = torch.randint(-STREAM_SPREAD, STREAM_SPREAD + 1, (width,), generator=draw)
        rescale_stream(writers, readers, factors=2.0 ** power.float())


def choose_pictures(train: fashion.Split, test: fashion.Split, *, seed: int) -> fashion.Split:
    """Calibration pictures of the train set first, then the pictures to measure on."""
    draw = np.random.default_rng(seed)
    first = train.take(draw.choice(len(train.labels), CALIBRATION_ROWS, replace=False))
    rest = test.take(draw.choice(len(test.labels), TEST_ROWS, replace=False))
    return fashion.Split(
        np.concatenate([first.images, rest.images]), np.concatenate([first.labels, rest.labels])
    )


def save_pictures(path: Path, chosen: fashion.Split) -> None:
    np.savez_compressed(
        path,
        images=chosen.images[..., None],
        labels=chosen.labels,
        calibration_rows=np.int64(CALIBRATION_ROWS),
    )


def report_figures(path: Path, chosen: fashion.Split, *, test: fashion.Split) -> None:
    """Print what the model card states."""
    measured = fashion.Split(chosen.images[CALIBRATION_ROWS:], chosen.labels[CALIBRATION_ROWS:])
    print(f"float: {path.stat().st_size} bytes", end=", ")
    print(f"accuracy {fashion.accuracy(path, test):.4f} of 10,000", end=", ")
    print(f"{fashion.accuracy(path, measured):.4f} of {TEST_ROWS}")
    for config in INT8_CONFIGS:
        quantized = fashion.int8_bytes(path, chosen.images[:CALIBRATION_ROWS], config=config)
        everything = fashion.changed_share(path, quantized, images=test.images)
        subset = fashion.changed_share(path, quantized, images=measured.images)
        print(f"{config.name}: {len(quantized)} bytes", end=", ")
        print(f"top-1 changed {everything:.2%} of 10,000, {subset:.2%} of {TEST_ROWS}")


def trained(train: fashion.Split, *, state: Path | None) -> DemoNet:
    """Train, or take the parameters of an earlier run, because training is the long part."""
    torch.manual_seed(SEED)
    model = DemoNet()
    if state is not None and state.exists():
        model.load_state_dict(torch.load(state, weights_only=True))
        return model
    spread_gammas(model)
    began = time.monotonic()
    for recipe in PHASES:
        fashion.train(model, train, recipe=recipe, report=fashion.say)
    print(f"trained in {(time.monotonic() - began) / 60:.1f} minutes")
    if state is not None:
        torch.save(model.state_dict(), state)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description="Train seqto's demo network.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the IDX files")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--state", type=Path, help="keep the parameters here, or reuse them")
    # One thread is far faster than two when other programs keep the cores busy.
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    train, test = fashion.load_split(args.data, "train"), fashion.load_split(args.data, "t10k")
    model = trained(train, state=args.state)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "fashion_mobilenet.onnx"
    spread_streams(model, seed=SEED)
    fashion.export(model, path)
    chosen = choose_pictures(train, test, seed=SEED)
    save_pictures(args.out / "fashion_mnist.npz", chosen)
    report_figures(path, chosen, test=test)


if __name__ == "__main__":
    main()

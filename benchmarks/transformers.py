"""Uniform plans of transformer schemes beside stock dynamic quantization, on the same samples.

    python benchmarks/transformers.py --zoo PATH minilm sentiment stories15m stories260k

One row a plan: bytes, share of changed answers, perplexity or cosine, and time relative to float
(interleaved runs, median of ratios). Weights are rounded to the nearest, nothing is searched: this
is what the forms are worth by themselves. `stock` is onnxruntime's quantize_dynamic, s8 per
channel.

embedding           an answer is the nearest of the other side's texts (mean over tokens)
text-classification an answer is the class
language-model      an answer is the most likely token at each position
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.statistics import Statistics
from seqto.model.files import load
from seqto.model.prepare import Prepared, prepare
from seqto.schemes.scheme import Scheme, unfit

Feeds = dict[str, NDArray[np.int64]]
TABLE8, TABLE4 = "weight-s8-channel", "weight-s4-block32"
PLANS: dict[str, tuple[str, ...]] = {  # the first of the codes that fits a layer
    "dynamic s8": ("dynamic-s8-channel", TABLE8),
    "n-bit s8": ("nbit-s8-channel", TABLE8),
    "weight s8": (TABLE8,),
    "n-bit s8, tables s4": ("nbit-s8-channel", TABLE4, TABLE8),
    "n-bit s4 block 32": ("nbit-s4-block32", TABLE4, TABLE8),
    "n-bit u4 block 32": ("nbit-u4-block32", "nbit-s4-block32", TABLE4, TABLE8),
}
NARROWING = "dynamic s8, n-bit s8 where inputs outnumber outputs"  # the MLPs' second product
PLANS[NARROWING] = PLANS["dynamic s8"]
STOCK = "stock dynamic s8"
ROUNDS = 15


def samples(config: dict[str, Any], folder: Path, count: int) -> tuple[list[Feeds], int]:
    """Return feeds, and how many texts a sample has (pairs: two)."""
    from tokenizers import Tokenizer

    data = config["data"]
    table = data["tokenizer"]
    tokenizer = Tokenizer.from_file(str(folder / table["file"]))
    tokenizer.no_padding()
    tokenizer.enable_truncation(int(table["max_length"]))
    path = folder / (data.get("texts") or data["pairs"])
    with path.open(encoding="utf8") as stream:
        if path.suffix == ".jsonl":
            rows = [[json.loads(line)[data["columns"][0]]] for line in stream]
        else:
            rows = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    sides = 2 if "pairs" in data else 1
    chosen = np.random.default_rng(int(data.get("seed", 0))).permutation(len(rows))[:count]
    feeds = []
    for row in (rows[i] for i in chosen):
        for text in row[:sides]:
            ids = np.array([tokenizer.encode(text).ids], np.int64)
            made = {"ids": ids, "mask": np.ones_like(ids), "zeros": np.zeros_like(ids)}
            feeds.append({name: made[what] for name, what in table["inputs"].items()})
    return feeds, sides


def session(model: bytes) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def answers(kind: str, running: Any, feeds: Sequence[Feeds], sides: int) -> dict[str, Any]:
    """Return the answers of a model, and the figure that goes with its task."""
    outputs = [running.run(None, f)[0][0] for f in feeds]
    if kind == "embedding":
        means = np.array([o.mean(axis=0) for o in outputs])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        left, right = means[::sides], means[sides - 1 :: sides]
        return {"answers": (left @ right.T).argmax(axis=1), "signal": means}
    if kind == "text-classification":
        return {"answers": np.array([o.argmax() for o in outputs])}
    loss, count, tops = 0.0, 0, []
    for logits, feed in zip(outputs, feeds, strict=True):
        (ids,) = next(iter(feed.values()))
        wide = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        chances = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
        loss -= chances[np.arange(len(ids) - 1), ids[1:]].sum()
        count += len(ids) - 1
        tops.append(wide.argmax(axis=1)[:-1])
    return {"answers": np.concatenate(tops), "perplexity": float(np.exp(loss / count))}


def time_ratio(one: Any, other: Any, feeds: Sequence[Feeds]) -> float:
    ratios = []
    for _ in range(ROUNDS):
        for feed in feeds:
            begin = time.perf_counter()
            one.run(None, feed)
            middle = time.perf_counter()
            other.run(None, feed)
            ratios.append((time.perf_counter() - middle) / (middle - begin))
    return float(np.median(ratios))


def stock_model(path: Path) -> bytes:
    from onnxruntime.quantization import quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "stock.onnx"
        quantize_dynamic(path, target, per_channel=True)
        return target.read_bytes()


def planned(prepared: Prepared, title: str) -> Plan:
    chosen = {}
    for layer in prepared.layers:
        narrow = len(layer.weight_shape) == 2 and layer.weight_shape[0] > layer.weight_shape[1]
        narrow = narrow and title == NARROWING and layer.op_type == "MatMul"
        schemes = [Scheme.parse(c) for c in PLANS["n-bit s8" if narrow else title]]
        fitting = [s for s in schemes if layer.weight and not unfit(layer, s)]
        if fitting:
            chosen[layer.name] = fitting[0]
    return Plan.of(chosen)


def rows(name: str, folder: Path, count: int, plans: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield one row a plan of a model."""
    config = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf8"))
    path = folder / config["model"]["path"]
    kind = config["task"]["kind"]
    feeds, sides = samples(config, folder, count)
    floats = session(path.read_bytes())
    want = answers(kind, floats, feeds, sides)
    prepared = prepare(load(path))
    assembler = Assembler(prepared, Statistics({}, {}))
    timed = feeds[:3]
    for title in plans:
        if title in PLANS:
            model = assembler.assemble(planned(prepared, title)).data
        else:
            model = stock_model(path)
        running = session(model)
        got = answers(kind, running, feeds, sides)
        row: dict[str, Any] = {"model": name, "plan": title, "bytes": len(model)}
        row["changed"] = float(np.mean(got["answers"] != want["answers"]))
        if "perplexity" in got:
            row["perplexity rise"] = got["perplexity"] / want["perplexity"] - 1
        if "signal" in got:
            row["cosine"] = float((got["signal"] * want["signal"]).sum(axis=1).mean())
        row["time"] = time_ratio(floats, running, timed)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="names of configs in the zoo")
    parser.add_argument("--zoo", type=Path, default=Path("../shared/zoo"))
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/transformers.json"))
    parser.add_argument("--plans", nargs="+", default=[STOCK, *PLANS], choices=[STOCK, *PLANS])
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    for name in options.models:
        print(f"\n{name}, {options.samples} samples\n\n| plan | MB | changed | | time |")
        print("|---|---|---|---|---|")
        for row in rows(name, options.zoo, options.samples, options.plans):
            found.append(row)
            more = f"{row['perplexity rise']:+.2%}" if "perplexity rise" in row else ""
            more = f"cosine {row['cosine']:.4f}" if "cosine" in row else more
            print(
                f"| {row['plan']} | {row['bytes'] / 1e6:.2f} | {row['changed']:.1%} | {more} | "
                f"{row['time']:.2f} |",
                flush=True,
            )
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()

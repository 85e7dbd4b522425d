"""Text models beside the stock settings of onnxruntime, on the same samples, in the same rounds.

    python benchmarks/texts.py CONFIG RUN --models FOLDER            # make the models, judge them
    python benchmarks/texts.py CONFIG RUN --models FOLDER --times    # time them, on quiet cores

CONFIG is that of a run, RUN its folder. The recommended models of the run (and trials by number:
`--trials`) and what onnxruntime's own tools write (quantize_dynamic, per channel, with 8 and 7
bits, with and without quant_pre_process; quantize_static; MatMulNBitsQuantizer, which needs the
package onnx_ir, and torch for HQQ) are judged on the run's report split, one text at a time. Times
are taken by turns at the median and the 95 % length of the data: medians of ratios to float, and
to the stock model that changes fewest answers, with a 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import logging
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seqto.errors import SeqtoError

SECONDS = 25.0  # of timing for each length
STOCK_WORDS = ("dynamic", "pre-processed", "static", "n-bit")  # names of onnxruntime's settings


def stock_models(
    model: Path, folder: Path, feeds: list[dict[str, Any]], *, wanted: list[str]
) -> Iterator[tuple[str, Path]]:
    """Yield (name, file) of what onnxruntime.quantization writes with its own settings."""
    from onnxruntime import quantization as stock
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(stock.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(feeds)

        def get_next(self) -> dict[str, Any] | None:
            return next(self.left, None)

    prepared = folder / "prepared.onnx"
    makers: dict[str, Callable[[Path], None]] = {}
    for bits in (8, 7):
        for channel in (False, True):
            name = f"dynamic, {bits} bits, {'per channel' if channel else 'per tensor'}"
            more = {"per_channel": channel, "reduce_range": bits == 7}
            makers[name] = functools.partial(stock.quantize_dynamic, model, **more)
    makers["pre-processed, dynamic, 7 bits, per channel"] = lambda out: stock.quantize_dynamic(
        prepared, out, per_channel=True, reduce_range=True
    )
    makers["pre-processed, dynamic, 8 bits, per channel"] = lambda out: stock.quantize_dynamic(
        prepared, out, per_channel=True
    )
    makers |= n_bit_makers(model)
    makers["static u8/s8, 7 bits"] = lambda out: stock.quantize_static(
        model,
        out,
        Reader(),
        activation_type=stock.QuantType.QUInt8,
        weight_type=stock.QuantType.QInt8,
        reduce_range=True,
    )
    for name, make in makers.items():
        path = folder / f"stock-{'-'.join(re.findall('[a-z0-9]+', name))}.onnx"
        if not is_wanted(name, wanted):
            continue
        began = time.perf_counter()
        try:
            if "pre-processed" in name:
                quant_pre_process(model, prepared, skip_symbolic_shape=True)
            make(path)
            print(f"{name}: made in {time.perf_counter() - began:.1f} s", flush=True)
        except Exception as error:  # the tools raise many types; a setting that fails is said
            print(f"{name}: {type(error).__name__}: {str(error)[:120]}", flush=True)
            continue
        yield name, path


def n_bit_makers(model: Path) -> dict[str, Callable[[Path], None]]:
    """Return what onnxruntime's n-bit quantizer writes, by name of the algorithm."""

    def make(out: Path, **more: Any) -> None:
        import onnx
        from onnxruntime.quantization import matmul_nbits_quantizer as n_bit

        algorithm = more.pop("algorithm", None)
        made = n_bit.MatMulNBitsQuantizer(
            onnx.load(model),
            accuracy_level=4,
            algo_config=getattr(n_bit, algorithm)() if algorithm else None,
            **more,
        )
        made.process()
        made.model.save_model_to_file(str(out))

    return {
        "n-bit, 4 bits, symmetric": lambda out: make(out, block_size=32, is_symmetric=True),
        "n-bit, 4 bits, zero points": lambda out: make(out, block_size=32, is_symmetric=False),
        "n-bit, 4 bits, k-quant": lambda out: make(out, algorithm="KQuantWeightOnlyQuantConfig"),
        "n-bit, 4 bits, HQQ": lambda out: make(out, algorithm="HQQWeightOnlyQuantConfig"),
    }


def decoded_rows(setup: Any, store: Any, split: str, path: Path, reference: Any) -> list[Any]:
    """Return the decoded answers of a model, one text at a time."""
    from seqto.tasks import scoring

    parts = []
    with contextlib.closing(setup.device.open(path, threads=2)) as session:
        for row in range(store.rows(split)):
            answers = None if reference is None else reference.decoded.answers
            want = None if answers is None else answers.take(np.array([row]))
            sides = []
            for run in store.runs(split, [row]):
                outputs = [np.asarray(session.run(run.batch)[0])]
                sides.append(scoring.decode(setup.task, outputs, batch=run.batch, reference=want))
            parts.append(scoring.beside(sides))
    return parts


def judged(setup: Any, store: Any, split: str, models: dict[str, Path]) -> dict[str, Any]:
    """Return measurements of models by name; the first is float."""
    from seqto.tasks import scoring

    rows, reference, found = store.rows(split), None, {}
    about: dict[str, Any] = {"output": {}, "caution": None}
    for name, path in models.items():
        try:
            parts = decoded_rows(setup, store, split, path, reference)
        except SeqtoError as error:  # files of other tools need not run; ours must
            if name == "float" or name.startswith("seqto"):
                raise
            print(f"{name}: {error}", flush=True)
            continue
        if reference is None:
            labels = store.labels(split)
            reference = scoring.reference_from(setup.task, split, parts, labels=labels, about=about)
            found[name] = {"scores": dict(reference.scores)}
            continue
        scorer = scoring.Scorer(
            setup.task, reference, device="ort", rows=rows, labels=store.labels(split)
        )
        for part in parts:
            scorer.add(part)
        measured = scorer.measurement()
        found[name] = {
            "loss": measured.loss.to_json() | {"agreement": ""},
            "scores": dict(measured.scores),
            "figures": dict(measured.figures),
        }
        print(f"{name}: {measured.loss.value:.4f} {dict(measured.scores)}", flush=True)
    return found


def timed(setup: Any, store: Any, models: dict[str, Path], *, stock: str) -> dict[str, Any]:
    """Return ratios to float, and to a stock model with their intervals, at two lengths."""
    from seqto.execution.latency import in_turn
    from seqto.records import CALIBRATION

    found: dict[str, Any] = {name: {"ratios": [], "over_stock": []} for name in models}
    for row in store.usual_and_long(CALIBRATION):
        feeds = store.pick(CALIBRATION, [row])
        with contextlib.ExitStack() as stack:
            sessions = [
                stack.enter_context(contextlib.closing(setup.device.open(p, threads=2)))
                for p in models.values()
            ]
            for session in sessions:
                session.time_ms(feeds)
            times = in_turn(sessions, feeds, seconds=SECONDS, rounds=(12, 400))
        rows = dict(zip(models, map(np.array, times), strict=True))
        for name, own in rows.items():
            ratio = float(np.median(own / rows["float"]))
            found[name]["ratios"].append(round(ratio, 3))
            found[name]["over_stock"].append(_interval(own / rows[stock]))
        found["float"]["ratios"][-1] = round(float(np.median(rows["float"])), 3)  # ms of float
    return found


def _interval(ratios: Any) -> list[float]:
    """Return the median and its 95 % bootstrap interval."""
    chosen = np.random.default_rng(0).integers(0, len(ratios), (400, len(ratios)))
    low, high = np.percentile(np.median(ratios[chosen], axis=1), (2.5, 97.5))
    return [round(float(x), 3) for x in (np.median(ratios), low, high)]


def main() -> None:
    from seqto import config
    from seqto.study import workspace
    from seqto.study.setup import make_setups

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--models", type=Path, required=True, help="folder for the models")
    parser.add_argument("--times", action="store_true", help="time what an earlier call has made")
    parser.add_argument("--trials", type=int, nargs="*", default=[], help="beside the picks")
    parser.add_argument(
        "--extra", nargs="*", default=[], metavar="NAME=FILE", help="files of other tools"
    )
    parser.add_argument(
        "--only", nargs="*", default=[], help="judge models with these words, keep other rows"
    )
    parser.add_argument("--set", action="append", default=[], help="as for seqto tune")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/texts.json"))
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    overrides = dict(config.parse_assignment(text) for text in given.set)
    settings = config.make(config.read_toml(given.config), overrides)
    (setup,) = make_setups(settings, out=given.run)
    known = json.loads(given.out.read_text()) if given.out.is_file() else {}
    with tempfile.TemporaryDirectory(prefix="texts-") as name:
        prepared = workspace.prepare_model(setup, given.run)
        store = workspace.build_store(setup, prepared, Path(name) / "samples")
        if given.times:
            add_times(setup, store, known[given.config.stem], given.models)
        else:
            given.models.mkdir(parents=True, exist_ok=True)
            found = judge_models(setup, store, given)
            if given.only and given.config.stem in known:
                found = joined(known[given.config.stem], found)
            known[given.config.stem] = found
    given.out.write_text(json.dumps(known, indent=1) + "\n")
    print(table(given.config.stem, known[given.config.stem]))


def judge_models(setup: Any, store: Any, given: argparse.Namespace) -> dict[str, Any]:
    """Make all models in a folder, and judge them on the report split."""
    from seqto.records import CALIBRATION, REPORT

    report = json.loads((given.run / "report.json").read_text())
    feeds = [dict(batch) for batch in store.calibration()][:32]
    float_model = Path(setup.fetched.path)
    wanted = [word.lower() for word in given.only]
    made = stock_models(float_model, given.models, feeds, wanted=wanted)
    extra = {name: Path(file) for name, _, file in (x.partition("=") for x in given.extra)}
    own = trial_models(report, given, wanted=wanted)
    models = {"float": float_model, **dict(made), **extra, **own}
    found = judged(setup, store, REPORT, models)
    lengths = store.lengths(CALIBRATION)
    return {
        "samples": store.rows(REPORT),
        "tokens": [int(np.median(lengths)), int(np.percentile(lengths, 95))],
        "cpu": report["environment"].get("cpu"),
        "rows": [
            {"name": n, "file": p.name, "size_bytes": p.stat().st_size, **found[n]}
            for n, p in models.items()
            if n in found
        ],
    }


def joined(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return rows of an earlier call, those of the same name replaced by this one's."""
    rows = {row["name"]: row for row in before["rows"]}
    for row in found["rows"]:
        rows[row["name"]] = {**rows.get(row["name"], {}), **row}
    order = sorted(rows.values(), key=lambda r: (r["name"] != "float", "seqto" in r["name"]))
    return {**before, **found, "rows": order}


def is_wanted(name: str, wanted: list[str]) -> bool:
    return not wanted or any(word in name.lower() for word in wanted)


def trial_models(
    report: dict[str, Any], given: argparse.Namespace, *, wanted: list[str]
) -> dict[str, Path]:
    """Export the recommended trials, the fully quantized one and those asked for."""
    from seqto import export
    from seqto.selection.recommend import title_of

    names: dict[int, list[str]] = {}
    picks = {**report["recommended"], "fully quantized": report["fully_quantized"]}
    for pick, number in picks.items():
        if number is not None:
            names.setdefault(number, []).append(title_of(pick))
    for number in given.trials:
        names.setdefault(number, ["of the front"])
    made = {}
    for number, titles in names.items():
        name = f"seqto, {', '.join(titles)} (#{number})"
        path = given.models / f"trial-{number}.onnx"
        if not is_wanted(name, wanted):
            continue
        if not path.is_file():
            export(given.run, path, trial=number)
        made[name] = path
    return made


def add_times(setup: Any, store: Any, known: dict[str, Any], folder: Path) -> None:
    """Time the models of an earlier call, in turn, and put the ratios into its rows."""
    paths = {row["name"]: folder / row["file"] for row in known["rows"]}
    paths["float"] = Path(setup.fetched.path)
    stock = [r for r in known["rows"] if "loss" in r and r["name"].startswith(STOCK_WORDS)]
    known["stock"] = min(stock, key=lambda r: (r["loss"]["value"], r["name"]))["name"]
    times = timed(setup, store, paths, stock=known["stock"])
    for row in known["rows"]:
        row.update(times[row["name"]])
    known["load"] = round(os.getloadavg()[0], 1)


def table(name: str, found: dict[str, Any]) -> str:
    """Return the Markdown table of one model."""
    score = next(iter(found["rows"][0]["scores"]))
    usual, long = found["tokens"]
    lines = [
        f"| {name}, {found['samples']} samples | MB | changed | {score} | time, {usual} tokens | "
        f"{long} tokens | / stock |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        loss = row.get("loss")
        share = "" if loss is None else f"{100 * loss['value']:.1f} %"
        unit = " ms" if loss is None else ""
        times = [f"{r:.3g}{unit}" for r in row["ratios"]] if "ratios" in row else ["", ""]
        over = ", ".join(f"{m} ({a}–{b})" for m, a, b in row.get("over_stock", ()))
        lines.append(
            f"| {row['name']} | {row['size_bytes'] / 1e6:.2f} | {share} | "
            f"{row['scores'][score]:.4g} | {times[0]} | {times[1]} | {over} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()

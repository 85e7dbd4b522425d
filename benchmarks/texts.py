"""Text models beside the stock settings of onnxruntime, on the same samples, in the same rounds.

    python benchmarks/texts.py CONFIG RUN [--out benchmarks/results/texts.json]

CONFIG is that of a finished run, RUN its folder. The recommended models of the run and what
onnxruntime's own tools write (quantize_dynamic, per channel, with 8 and 7 bits, with and without
quant_pre_process; quantize_static) are judged on the run's report split, one text at a time, and
timed by turns beside float at the median and the 95 % length of the data.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

SECONDS = 6.0  # of timing for each length


def stock_models(
    model: Path, folder: Path, feeds: list[dict[str, Any]]
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
            makers[name] = lambda out, more=more: stock.quantize_dynamic(model, out, **more)
    makers["pre-processed, dynamic, 7 bits, per channel"] = lambda out: stock.quantize_dynamic(
        prepared, out, per_channel=True, reduce_range=True
    )
    makers["static u8/s8, 7 bits"] = lambda out: stock.quantize_static(
        model,
        out,
        Reader(),
        activation_type=stock.QuantType.QUInt8,
        weight_type=stock.QuantType.QInt8,
        reduce_range=True,
    )
    for name, make in makers.items():
        path = folder / f"stock-{len(name)}-{abs(hash(name)) % 9999}.onnx"
        try:
            if "pre-processed" in name:
                quant_pre_process(model, prepared, skip_symbolic_shape=True)
            make(path)
        except Exception as error:  # the tools raise many types; a setting that fails is said
            print(f"{name}: {type(error).__name__}: {str(error)[:120]}", flush=True)
            continue
        yield name, path


def judged(setup: Any, store: Any, split: str, models: dict[str, Path]) -> dict[str, Any]:
    """Return measurements of models by name; the first is float."""
    from seqto.tasks import scoring

    rows, reference, found = store.rows(split), None, {}
    about = {"output": {}, "caution": None}
    for name, path in models.items():
        with contextlib.closing(setup.device.open(path, threads=2)) as session:
            parts = []
            for row in range(rows):
                want = (
                    None if reference is None else reference.decoded.answers.take(np.array([row]))
                )
                sides = []
                for run in store.runs(split, [row]):
                    outputs = [np.asarray(session.run(run.batch)[0])]
                    sides.append(
                        scoring.decode(setup.task, outputs, batch=run.batch, reference=want)
                    )
                parts.append(scoring.beside(sides))
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


def timed(setup: Any, store: Any, models: dict[str, Path]) -> dict[str, list[float]]:
    """Return the medians of ratios to float at median and long length."""
    from seqto.execution.latency import in_turn
    from seqto.records import CALIBRATION

    found: dict[str, list[float]] = {name: [] for name in models}
    for row in store.usual_and_long(CALIBRATION):
        feeds = store.pick(CALIBRATION, [row])
        with contextlib.ExitStack() as stack:
            sessions = [
                stack.enter_context(contextlib.closing(setup.device.open(p, threads=2)))
                for p in models.values()
            ]
            for session in sessions:
                session.time_ms(feeds)
            times = in_turn(sessions, feeds, seconds=SECONDS, rounds=(12, 200))
        base = np.array(times[0])
        for name, own in zip(models, times, strict=True):
            found[name].append(round(float(np.median(np.array(own) / base)), 3))
        found[next(iter(models))][-1] = round(float(np.median(base)), 3)  # ms of float
    return found


def main() -> None:
    from seqto import config, export
    from seqto.data.store import SampleStore
    from seqto.records import CALIBRATION, REPORT
    from seqto.selection.recommend import title_of
    from seqto.study import workspace
    from seqto.study.setup import make_setups

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--set", action="append", default=[], help="as for seqto tune")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/texts.json"))
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    overrides = dict(config.parse_assignment(text) for text in given.set)
    settings = config.make(config.read_toml(given.config), overrides)
    (setup,) = make_setups(settings, out=given.run)
    with tempfile.TemporaryDirectory(prefix="texts-") as name:
        folder = Path(name)
        prepared = workspace.prepare_model(setup, given.run)
        store: SampleStore = workspace.build_store(setup, prepared, folder / "samples")
        feeds = [dict(batch) for batch in store.calibration()][:32]
        float_model = Path(setup.fetched.path)
        models = {"float": float_model, **dict(stock_models(float_model, folder, feeds))}
        report = json.loads((given.run / "report.json").read_text())
        seen: dict[int, str] = {}
        full = {"fully quantized": report["fully_quantized"]}
        for pick, number in {**report["recommended"], **full}.items():
            title = title_of(pick)
            if number is None:
                continue
            if number in seen:
                seen[number] += f", {title}"
                continue
            seen[number] = title
            models[f"#{number}"] = folder / f"trial-{number}.onnx"
            export(given.run, models[f"#{number}"], trial=number)
        found = judged(setup, store, REPORT, models)
        ratios = timed(setup, store, models)
        lengths = store.lengths(CALIBRATION)
        rows = [
            {
                "name": f"seqto, {seen[int(n[1:])]} ({n})" if n.startswith("#") else n,
                "size_bytes": path.stat().st_size,
                "ratios": ratios[n],
                **found[n],
            }
            for n, path in models.items()
        ]
        tokens = [int(np.median(lengths)), int(np.percentile(lengths, 95))]
    known = json.loads(given.out.read_text()) if given.out.is_file() else {}
    known[given.config.stem] = {
        "samples": report["data"]["splits"][REPORT],
        "tokens": tokens,
        "cpu": report["environment"].get("cpu"),
        "rows": rows,
    }
    given.out.write_text(json.dumps(known, indent=1) + "\n")
    print(table(given.config.stem, known[given.config.stem]))


def table(name: str, found: dict[str, Any]) -> str:
    """Return the Markdown table of one model."""
    score = next(iter(found["rows"][0]["scores"]))
    usual, long = found["tokens"]
    lines = [
        f"| {name}, {found['samples']} samples | MB | changed | {score} | time, {usual} tokens | "
        f"{long} tokens |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        loss = row.get("loss")
        share = "" if loss is None else f"{100 * loss['value']:.1f} %"
        first, second = row["ratios"]
        unit = " ms" if loss is None else ""
        lines.append(
            f"| {row['name']} | {row['size_bytes'] / 1e6:.2f} | {share} | "
            f"{row['scores'][score]:.4g} | {first:.3g}{unit} | {second:.3g}{unit} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()

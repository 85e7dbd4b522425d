"""Encoder–decoder models: the recommended models beside ONNX Runtime's stock settings.

    python benchmarks/generation.py aren arabizi --zoo FOLDER --runs FOLDER

Tunes each model with its zoo config (a run folder that is there is resumed), quantizes both files
with the stock tools, then generates with all of them on the report split, one text at a time, and
times them by turns on one text. Needs the extra `text`.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqto import api, config
from seqto.calibration.feeds import GenerationFeeds
from seqto.data.store import SampleStore
from seqto.devices.bundle import FOLLOWED, BundleDevice
from seqto.devices.environment import environment
from seqto.devices.ort import Ort
from seqto.execution.latency import in_turn
from seqto.files import write_file
from seqto.model import bundle
from seqto.records import CALIBRATION, REPORT
from seqto.selection.recommend import recommend
from seqto.study.setup import RunSetup, make_setups
from seqto.study.timing import latency_from
from seqto.study.workspace import build_store, prepare_model
from seqto.tasks.intervals import mean_interval
from seqto.tasks.seq2seq import CHOICES, sketch_probabilities
from seqto.tasks.task import FigureTask
from zoo import DEFAULT_ZOO, HERE

Files = Mapping[str, Path]
RESULTS = HERE / "results" / "generation.json"
TIMED_S = 1.5  # for each model


def stock(setup: RunSetup, feeds: GenerationFeeds, folder: Path) -> Iterator[tuple[str, Files]]:
    """Yield the names and files of models that the stock tools write."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

    given = {name: Path(path) for name, path in setup.fetched.components.items()}

    def made(name: str, write: Callable[[str, Path, Path], None]) -> tuple[str, Files]:
        files = {part: folder / f"{name}-{part}.onnx" for part in given}
        for part, path in given.items():
            write(part, path, files[part])
        return name, files

    def dynamic(part: str, path: Path, out: Path, *, reduced: bool, per_channel: bool) -> None:
        del part
        quantize_dynamic(str(path), str(out), per_channel=per_channel, reduce_range=reduced)

    for name, reduced, per_channel in (
        ("dynamic s8", False, False),
        ("dynamic s8 per channel", False, True),
        ("dynamic s7 per channel", True, True),
    ):
        yield made(name, functools.partial(dynamic, reduced=reduced, per_channel=per_channel))

    def static(part: str, path: Path, out: Path) -> None:
        quantize_static(
            str(path),
            str(out),
            _Reader(feeds, part),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            reduce_range=True,
        )

    yield made("static u8 s7", static)


class _Reader:
    """The feeds of one component while the float model generates, as onnxruntime wants them."""

    def __init__(self, feeds: GenerationFeeds, part: str) -> None:
        prefix = f"{part}/"
        self._feeds = (
            {n.removeprefix(prefix): x for n, x in batch.items() if n.startswith(prefix)}
            for batch in feeds.calibration()
        )

    def get_next(self) -> Any:
        return next(self._feeds, None)


def measure(setup: RunSetup, store: SampleStore, contenders: Mapping[str, Files]) -> list[Any]:
    """Generate with every contender on the report split, and time it beside float."""
    task, wiring = setup.task, setup.wiring
    assert wiring is not None
    assert isinstance(task, FigureTask)
    device = BundleDevice(Ort(), wiring, sketch_probabilities(wiring.max_length))
    names = list(contenders)
    labels = store.labels(REPORT)
    sources = [store.batch(REPORT, row, row + 1) for row in range(store.rows(REPORT))]
    decoded: list[Any] = []
    for name in names:
        with device.open(contenders[name], threads=1) as session:
            outputs = []
            for row, source in enumerate(sources):
                along = {FOLLOWED: decoded[0].details[CHOICES][row : row + 1]} if decoded else {}
                outputs.append(session.run(source.with_feeds(along)))
        decoded.append(task.decode([np.concatenate(x) for x in zip(*outputs, strict=True)]))
    times = _times(device, contenders, store)
    rows = []
    for place, name in enumerate(names):
        want, got = decoded[0], decoded[place]
        distances = task.distance(want, got)
        low, high = mean_interval(distances)
        figures = {n: round(float(v.mean()), 5) for n, v in task.figures(want, got).items()}
        scores = {n: round(v, 5) for n, v in task.scores(got, labels).items()}
        latency = latency_from(times[0], times[place])
        rows.append(
            {
                "name": name,
                "size_bytes": sum(path.stat().st_size for path in contenders[name].values()),
                "loss": round(float(distances.mean()), 5),
                "loss_interval": [round(low, 5), round(high, 5)],
                **figures,
                "scores": scores,
                "ratio": latency.ratio,
                "ratio_interval": [latency.ratio_low, latency.ratio_high],
                "median_ms": latency.median,
            }
        )
    return rows


def _times(device: BundleDevice, contenders: Mapping[str, Files], store: SampleStore) -> Any:
    usual, _ = store.usual_and_long(CALIBRATION)
    feeds = store.pick(CALIBRATION, [usual])
    sessions = [device.open(files, threads=0) for files in contenders.values()]
    feeds = feeds.with_feeds({FOLLOWED: sessions[0].run(feeds)[0]})
    seconds = TIMED_S * len(sessions)
    found = in_turn(sessions, feeds, seconds=seconds, rounds=(30, 2000))
    for session in sessions:
        session.close()
    return found


def picked(run: Path, folder: Path) -> dict[str, Files]:
    """Return the models that a run recommends; a trial with several names once."""
    by_trial: dict[int, list[str]] = {}
    for name, number in recommend(api.state_of(run)).picks.items():
        by_trial.setdefault(number, []).append(name)
    found: dict[str, Files] = {}
    for number, names in by_trial.items():
        saved = api.export(run, folder / f"trial-{number}.onnx", trial=number)
        found["seqto " + ", ".join(names)] = {n: Path(p) for n, p in saved.components.items()}
    return found


def benchmark(model: str, zoo: Path, runs: Path, overrides: Mapping[str, Any]) -> Any:
    settings = config.make(config.read_toml(zoo / f"{model}.toml"), overrides)
    (setup,) = make_setups(settings, out=runs / model)
    assert setup.wiring is not None
    result = api.run_tune(setup)
    with tempfile.TemporaryDirectory(prefix="seqto-generation-") as name:
        folder = Path(name)
        prepared = prepare_model(setup, folder)
        store = build_store(setup, prepared, folder / "samples")
        feeds = GenerationFeeds(store, prepared.proto, setup.wiring)
        given = {n: Path(path) for n, path in setup.fetched.components.items()}
        contenders: dict[str, Files] = {"float": given}
        for stock_name, files in stock(setup, feeds, folder):
            contenders[stock_name] = files
        contenders |= picked(setup.out, folder)
        rows = measure(setup, store, contenders)
    return {
        "model": model,
        "trials": len(result.trials),
        "seconds": result.report["seconds"],
        "report_rows": store.rows(REPORT),
        "float_bytes": setup.fetched.size_bytes(),
        "components": list(bundle.components_of(prepared.proto)),
        "rows": rows,
    }


def table(result: Any) -> str:
    """Return the rows as Markdown; best of loss in bold is left to the reader's question."""
    lines = [
        f"| {result['model']} | MB | tokens changed | texts changed | exact | CER | time |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        low, high = row["loss_interval"]
        a, b = row["ratio_interval"]
        scores = row["scores"]
        changed = f"{row['loss']:.2%} ({low:.2%}–{high:.2%})" if row["name"] != "float" else "0"
        lines.append(
            f"| {row['name']} | {row['size_bytes'] / 1e6:.2f} | {changed} | "
            f"{row['sequences_changed']:.1%} | {scores['exact']:.3f} | {scores['CER']:.4f} | "
            f"{row['ratio']:.2f} ({a:.2f}–{b:.2f}) |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", default=["aren", "arabizi"])
    parser.add_argument("--zoo", type=Path, default=DEFAULT_ZOO)
    parser.add_argument("--runs", type=Path, required=True, help="folder for the run folders")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    known = json.loads(options.results.read_text()) if options.results.is_file() else {}
    overrides = dict(config.parse_assignment(text) for text in options.set)
    for model in options.models:
        found = benchmark(model, options.zoo, options.runs, overrides)
        about = {"environment": environment(), "overrides": overrides}
        known[model] = {**found, **about}
        write_file(options.results, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())
        print(table(found), end="\n\n")


if __name__ == "__main__":
    main()

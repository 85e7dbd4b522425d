"""Detectors and a segmentation net: stock quantization against what a run recommends.

    python benchmarks/pictures.py --zoo ../shared/zoo --models yolov8n fastestdet u2netp

For every model one run of `frontier` with the zoo's settings (a run folder in --runs that is there
already is taken as it is), then the stock models of onnxruntime.quantization, made on the same
calibration pictures and judged by the same task on the same report split and labelled set:

    static per tensor    s8 activations, s8 weights (the papers')
    static per channel   u8 activations, s8 weights
    dynamic              u8 weights

Latency is the median of ratios to float, run in turn with it. `--parts time` times the stock files
and the recommended models of a finished run again, all in the same rounds: a few seconds a file, on
a machine that does nothing else. The other parts may run beside other work.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo
from measure import PREPARED, float_bytes, interleaved, samples_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from seqto.data.store import SampleStore
    from seqto.records import Measurement
    from seqto.study.setup import RunSetup
    from seqto.tasks.scoring import Decoded, Reference
    from seqto.tasks.task import Task

Json = dict[str, Any]
MODELS = ("yolov8n", "fastestdet", "u2netp")
PARTS = ("run", "stock", "time")
CHUNK = 8  # pictures whose raw outputs are held
STOCK = {
    "stock static per tensor, s8/s8": {"per_channel": False, "activation": "QInt8"},
    "stock static per channel, u8/s8": {"per_channel": True, "activation": "QUInt8"},
    "stock dynamic, u8 weights": None,
}


def main() -> None:
    parser = zoo.parser("pictures", __doc__, models=MODELS, seeds=None)
    parser.add_argument("--max-minutes", type=float, default=60.0, help="of a run")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    results = zoo.Results(options.out, name="pictures", options={"set": options.set})
    for case in zoo.cases(options):
        job = case.job(options.runs / case.name, {"search.max_minutes": options.max_minutes})
        if "run" in options.parts and case.name not in results.rows:
            results.put(case.name, run_row(job))
        if "stock" in options.parts:
            add_stock(job, results, case.name)
        if "time" in options.parts:
            add_times(job, results, case.name)
    for name in MODELS:
        if name in results.rows:
            found = [results.rows[key] for x in STOCK if (key := f"{name}: {x}") in results.rows]
            print(f"### {name}\n\n{markdown(results.rows[name], found)}")


def run_row(job: RunSetup) -> Json:
    """Return the recommended trials of one run."""
    from seqto.api import read_report, run_tune

    if not (job.out / "report.json").is_file():
        zoo.note(f"{job.out.name}: run")
        run_tune(job)
    report = read_report(job.out)
    return {
        "float": {"size_bytes": float_bytes(job), "scores": float_scores(report)},
        "recommended": picks(report),
        "minutes": minutes_of(job.out),
        "trials": report["counts"]["trials"],
        "probes": report["counts"]["probes"],
    }


def minutes_of(out: Path) -> float:
    """Return minutes of all calls on a run folder."""
    lines = (out / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    ends = [event for line in lines if (event := json.loads(line))["event"] == "end"]
    return round(sum(event["seconds"] for event in ends) / 60, 1)


def add_stock(job: RunSetup, results: zoo.Results, name: str) -> None:
    """Make the stock models that are not there yet."""
    from seqto.records import LABELLED, REPORT
    from seqto.study.setup import labelled_task
    from seqto.study.workspace import prepare_model

    missing = [x for x in STOCK if f"{name}: {x}" not in results.rows]
    if not missing:
        return
    prepare_model(job, job.out)
    with samples_of(job) as store:
        judges = {REPORT: Judge(job, store, REPORT, told_of_model(job, job.out))}
        scored = labelled_task(job)
        if scored is not None and store.splits().get(LABELLED):
            judges[LABELLED] = Judge(job, store, LABELLED, told_of_model(job, job.out, scored))
        for kind in missing:
            zoo.note(f"{name}: {kind}")
            found = stock_row(job, store, judges, STOCK[kind])
            results.put(f"{name}: {kind}", {"model": kind, **found})


def stock_file(job: RunSetup, settings: Json | None) -> Path:
    """Return where a stock model is kept until it is timed."""
    kind = next(i for i, known in enumerate(STOCK.values()) if known == settings)
    return job.out / f"stock-{kind}.onnx"


def add_times(job: RunSetup, results: zoo.Results, name: str) -> None:
    """Time the stock files and the recommended models in the same rounds as float."""
    rows = {kind: results.rows.get(f"{name}: {kind}") for kind in STOCK}
    models = {
        kind: stock_file(job, STOCK[kind]).read_bytes()
        for kind, row in rows.items()
        if row is not None and stock_file(job, STOCK[kind]).is_file()
    }
    run = results.rows.get(name)
    picked = {row["model"]: row for row in run["recommended"]} if run else {}
    models |= {model: exported(job.out, row["trial"]) for model, row in picked.items()}
    if not models:
        return
    with samples_of(job) as store:
        found = interleaved(job, store, models, seconds=6.0)
    for model, latency in found.items():
        times = [latency.ratio, latency.ratio_low, latency.ratio_high]
        if model in picked:
            picked[model]["latency"] = times
        else:
            results.put(f"{name}: {model}", {**(rows[model] or {}), "latency": times})
    if run:
        results.put(name, run)


def exported(out: Path, number: int) -> bytes:
    """Return the file of one trial of a finished run."""
    from seqto.api import export

    with tempfile.TemporaryDirectory(prefix="picked-") as folder:
        target = Path(folder) / "model.onnx"
        export(out, target, trial=number)
        return target.read_bytes()


def stock_row(
    job: RunSetup, store: SampleStore, judges: Mapping[str, Judge], settings: Json | None
) -> Json:
    from seqto.records import LABELLED, REPORT

    began = time.monotonic()
    model = stock_model(job.out / PREPARED, zoo.calibration_feeds(store), settings)
    minutes = (time.monotonic() - began) / 60
    on_report = judges[REPORT].measure(model)
    row: Json = {
        "size_bytes": len(model),
        "loss": {k: getattr(on_report.loss, k) for k in ("value", "low", "high", "samples")},
        "figures": dict(on_report.figures),
        "minutes": round(minutes, 2),
    }
    if LABELLED in judges:
        row |= score_json(judges[LABELLED].measure(model, intervals=True))
    stock_file(job, settings).write_bytes(model)
    row["latency"] = [None, None, None]  # until it is timed
    return row


def stock_model(prepared: Path, feeds: Iterable[Mapping[str, Any]], settings: Json | None) -> bytes:
    """Return stock quantization as onnxruntime writes it; None: dynamic."""
    from onnxruntime import quantization as stock

    with tempfile.TemporaryDirectory(prefix="stock-") as folder:
        target = Path(folder) / "model.onnx"
        if settings is None:
            stock.quantize_dynamic(str(prepared), str(target), weight_type=stock.QuantType.QUInt8)
            return target.read_bytes()
        stock.quantize_static(
            str(prepared),
            str(target),
            zoo._Reader(feeds),
            quant_format=stock.QuantFormat.QDQ,
            per_channel=settings["per_channel"],
            activation_type=stock.QuantType[settings["activation"]],
            weight_type=stock.QuantType.QInt8,
        )
        return target.read_bytes()


def told_of_model(job: RunSetup, out: Path, task: Task | None = None) -> Task:
    """Return the task as a run has it: it knows its outputs' names and its picture's size."""
    from seqto.model import prepare as model_prepare
    from seqto.tasks.task import ModelTask, judges_one_output

    chosen = task or job.task
    if not isinstance(chosen, ModelTask):
        return chosen
    prepared = model_prepare.open_prepared(out / PREPARED)
    names = prepared.outputs
    if judges_one_output(chosen):
        names = names[:1]
    shape = next(spec.shape for spec in prepared.inputs if len(spec.shape) == 4)
    height, width = shape[2:]
    size = None if height is None or width is None else (height, width)
    return chosen.for_model(outputs=list(names), size=size)


class Judge:
    """The float model's answers on one split; judges other models against them, in chunks."""

    def __init__(self, job: RunSetup, store: SampleStore, split: str, task: Task) -> None:
        from seqto.tasks import scoring

        self.job, self.store, self.split, self.task = job, store, split, task
        parts = list(self._decoded(Path(job.fetched.path)))
        self.reference: Reference = scoring.reference_from(
            task,
            split,
            parts,
            labels=store.labels(split),
            about={"output": {}, "caution": None},
        )

    def measure(self, model: bytes, *, intervals: bool = False) -> Measurement:
        from seqto.tasks.scoring import Scorer

        scorer = Scorer(
            self.task,
            self.reference,
            device=self.job.device.name,
            rows=self.reference.rows,
            labels=self.store.labels(self.split),
        )
        for part in self._decoded(model):
            scorer.add(part)
        return scorer.measurement(intervals=intervals)

    def _decoded(self, model: bytes | Path) -> Iterable[Decoded]:
        import numpy as np

        from seqto.model import outputs
        from seqto.model import prepare as model_prepare
        from seqto.tasks import scoring
        from seqto.tasks.task import judges_one_output

        prepared = model_prepare.open_prepared(self.job.out / PREPARED)
        wanted = self.job.settings.task.output
        judged = outputs.choose(prepared.proto, prepared.layers, output_name=wanted)
        sent = (judged.position,) if judges_one_output(self.task) else judged.numeric
        session = self.job.device.open(model)
        rows = self.store.rows(self.split)
        for first in range(0, rows, CHUNK):
            parts = []
            for row in range(first, min(first + CHUNK, rows)):
                found = session.run(self.store.batch(self.split, row, row + 1))
                parts.append([np.asarray(found[place]) for place in sent])
            yield scoring.decode(self.task, [np.concatenate(p) for p in zip(*parts, strict=True)])
        session.close()


# -------------------------------------------------------------------------------------- the table


def score_json(found: Measurement) -> Json:
    return {
        "scores": dict(found.scores),
        "float_scores": dict(found.baseline_scores),
        "drops": {name: list(ends) for name, ends in found.score_drops.items()},
    }


def float_scores(report: Mapping[str, Any]) -> Json:
    labelled = [t["labelled"] for t in report["trials"] if t["labelled"]]
    return dict(labelled[0]["baseline_scores"]) if labelled else {}


def picks(report: Mapping[str, Any]) -> list[Json]:
    """Return the recommended trials as they are on the report split.

    Trials that an earlier call on the folder recommended are there too.
    """
    titles: dict[int, list[str]] = {}
    if report["fully_quantized"] is not None:
        titles[report["fully_quantized"]] = ["papers' setting"]
    for pick, number in report["recommended"].items():
        titles.setdefault(number, []).append(pick)
    for trial in report["trials"]:
        if trial["report_split"]:
            titles.setdefault(trial["number"], ["earlier call"])
    rows = []
    for number, names in titles.items():
        trial = next(t for t in report["trials"] if t["number"] == number)
        found = trial["report_split"] or {"loss": trial["loss"]}  # else on the evaluation split
        labelled = trial["labelled"] or {}
        latency = trial["latency_ms"] or {}
        rows.append(
            {
                "model": f"seqto: {', '.join(names)} (trial {number})",
                "size_bytes": trial["size_bytes"],
                "loss": found.get("loss"),
                "scores": labelled.get("scores", {}),
                "drops": labelled.get("score_drops", {}),
                "latency": [latency.get(k) for k in ("ratio", "ratio_low", "ratio_high")],
                "kept_float": len(trial["excluded"]),
                "trial": number,
            }
        )
    return sorted(rows, key=lambda row: row["size_bytes"])


def markdown(row: Mapping[str, Any], stock: Sequence[Json]) -> str:
    head = ("model", "changed (95 %)", "score (interval of the drop)", "MB", "time / float", "min")
    scores = row["float"]["scores"]
    name = next(iter(scores), "")
    shown = f"{name} {scores[name]:.3f}" if name else "–"
    lines: list[tuple[str, ...]] = [
        ("float", "–", shown, zoo.megabytes(row["float"]["size_bytes"]), "1", "–")
    ]
    for found in [*stock, *row["recommended"]]:
        minutes = found.get("minutes", row["minutes"])
        ratio = found["latency"][0]
        lines.append(
            (
                found["model"],
                zoo.bounded(found["loss"]),
                _score(found, name),
                zoo.megabytes(found["size_bytes"]),
                "–" if ratio is None else f"{ratio:.2f}",
                "–" if minutes is None else f"{minutes:.1f}",
            )
        )
    return zoo.table(head, lines)


def _score(found: Mapping[str, Any], name: str) -> str:
    value = found.get("scores", {}).get(name)
    if value is None:
        return "–"
    low, high = found.get("drops", {}).get(name, (0.0, 0.0))
    return f"{value:.3f} ({low:+.3f} to {high:+.3f})"


if __name__ == "__main__":
    main()

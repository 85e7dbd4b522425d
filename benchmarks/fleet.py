"""The same files on two kinds of kernels: of this CPU, and of one with AVX2 and without VNNI.

    python benchmarks/fleet.py --kernels FOLDER/run --models lite0           # losses and bytes
    python benchmarks/fleet.py --kernels FOLDER/run --models lite0 --time    # times: alone

FOLDER is what scripts/avx2_onnxruntime.py makes. Each model is tuned once on this CPU (a finished
run folder in --runs is taken as it is; benchmarks/fronts.py leaves such folders). The files of all
its picks, the papers' setting and the stock quantizer's settings are then run on the report split
under both kinds of kernels, each kind in a process of its own. --time measures times.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zoo

Json = dict[str, Any]
KINDS = ("native", "avx2")
PAPERS = "papers"
STOCK = {  # name → (activation, weight, reduced range), per channel
    "stock u8 s8": ("u8", "s8", False),
    "stock u8 s7": ("u8", "s8", True),
    "stock u8 u8": ("u8", "u8", False),
    "stock s8 s8": ("s8", "s8", False),
}


def main() -> None:
    parser = zoo.parser("fleet", __doc__, models=zoo.MODELS)
    parser.add_argument("--kernels", type=Path, required=True, help="FOLDER/run")
    parser.add_argument("--time", action="store_true", help="measure times too")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        _work(options)
        return
    results = zoo.Results(options.out, name="fleet", options={"set": options.set})
    for case in zoo.cases(options):
        for seed in options.seeds:
            key = f"{case.name} {seed}"
            row = dict(results.rows.get(key, {}))
            if not row:
                row = _searched(case, seed, options)
                for kind in KINDS:
                    row[kind] = _under(kind, case, seed, options, what="losses")
                row["differing"] = differing(row)
                results.put(key, row)
            if options.time:
                for kind in KINDS:
                    row[f"{kind} times"] = _under(kind, case, seed, options, what="times")
                results.put(key, row)
            zoo.note(f"{key} is done")


def _folder(case: zoo.Case, seed: int, options: argparse.Namespace) -> Path:
    found: Path = options.runs / case.name / f"frontier-{seed}"  # as benchmarks/fronts.py has it
    return found


def _job(case: zoo.Case, seed: int, folder: Path) -> Any:
    return case.job(folder, {"data.seed": seed})


def _searched(case: zoo.Case, seed: int, options: argparse.Namespace) -> Json:
    """Tune, unless that is done; write all files beside the run; bytes of each."""
    import measure
    from seqto import api

    folder = _folder(case, seed, options)
    if not (folder / "report.json").is_file():
        api.run_tune(_job(case, seed, folder))
    report = api.read_report(folder)
    job = _job(case, seed, folder)
    made = folder / "fleet"
    made.mkdir(exist_ok=True)
    with measure.samples_of(job) as store:
        prepared = folder / measure.PREPARED
        (made / f"{PAPERS}.onnx").write_bytes(zoo.fully_quantized(prepared, store))
        for name, (activation, weight, reduced) in STOCK.items():
            feeds = zoo.calibration_feeds(store)
            data = stock(prepared, feeds, activation=activation, weight=weight, reduced=reduced)
            (made / f"{name}.onnx").write_bytes(zoo.cleaned(data, prepared))
    trials = {t["number"]: t for t in report["trials"]}
    named: dict[int, list[str]] = {}
    for pick, number in report["recommended"].items():
        named.setdefault(number, []).append(pick)
    for number in named:
        api.export(folder, made / f"{number}.onnx", pick=named[number][0])
    files = {path.stem: path.stat().st_size for path in sorted(made.glob("*.onnx"))}
    return {
        "bytes": files,
        "float_bytes": report["baseline"]["size_bytes"],
        "picks": {str(number): picks for number, picks in named.items()},
        "may_saturate": {str(n): len(trials[n]["may_saturate"] or ()) for n in named},
        "int8_products": report["int8_products"]["result"],
        "searched": {"trials": len(trials), "status": report["status"]},
    }


def stock(prepared: Path, feeds: Any, *, activation: str, weight: str, reduced: bool) -> bytes:
    """Return stock quantize_static by channel, MinMax, QDQ."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    types = {"s8": QuantType.QInt8, "u8": QuantType.QUInt8}
    with tempfile.TemporaryDirectory(prefix="stock-") as folder:
        target = Path(folder) / "model.onnx"
        quantize_static(
            str(prepared),
            str(target),
            zoo._Reader(feeds),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=reduced,
            activation_type=types[activation],
            weight_type=types[weight],
        )
        return target.read_bytes()


def _under(kind: str, case: zoo.Case, seed: int, options: argparse.Namespace, *, what: str) -> Json:
    """Run this program again under a kind of kernels; what it has measured."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, __file__, "--kernels", options.kernels, "--models", case.name]
        command += ["--seeds", str(seed), "--zoo", options.zoo, "--runs", options.runs]
        command += ["--worker", answer, *(["--time"] if what == "times" else [])]
        launcher = [options.kernels] if kind == "avx2" else []
        subprocess.run([str(word) for word in (*launcher, *command)], check=True)
        found: Json = json.loads(answer.read_text())
        return found


def _work(options: argparse.Namespace) -> None:
    """In a process of its own: losses on the report split, or times, of all files of a model."""
    import measure
    from seqto.devices import saturation
    from seqto.devices.ort import Ort
    from seqto.records import REPORT

    (case,), (seed,) = zoo.cases(options), options.seeds
    folder = _folder(case, seed, options)
    job = _job(case, seed, folder)
    files = {p.stem: p.read_bytes() for p in sorted((folder / "fleet").glob("*.onnx"))}
    found: Json = {}
    with measure.samples_of(job) as store:
        if options.time:
            times = measure.interleaved(job, store, files, seconds=1.0)
            found = {name: latency.to_json() for name, latency in times.items()}
        else:
            referee = measure.Referee(job, store, REPORT)
            for name, data in files.items():
                outputs = referee.run(data)
                found[name] = measure.loss_json(referee.judge(outputs))
                found[name]["answers"] = answers(outputs)
            found["int8_products"] = saturation.probe(Ort())["result"]
    options.worker.write_text(json.dumps(found))


def answers(outputs: list[Any]) -> list[int]:
    """Return the first answer of every sample, to compare two kinds of kernels."""
    return [int(row) for row in outputs[0].reshape(len(outputs[0]), -1).argmax(axis=1)]


def differing(row: Mapping[str, Any]) -> dict[str, int]:
    """Return by file the samples whose answer differs between the kinds of kernels.

    The answers are taken out of the rows.
    """
    native, avx2 = (
        {name: loss.pop("answers") for name, loss in row[kind].items() if isinstance(loss, dict)}
        for kind in KINDS
    )
    return {
        name: sum(a != b for a, b in zip(answers, avx2[name], strict=True))
        for name, answers in native.items()
    }


if __name__ == "__main__":
    main()

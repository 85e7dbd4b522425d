"""The same models on ONNX Runtime's CPU and on TVM over RPC: what carries over, what does not.

    .venv-tvm/bin/python benchmarks/devices.py        (scripts/test-tvm makes that environment)

1. lite0 by `stepwise` and by `frontier` on TVM's llvm target, and the same plans on ONNX Runtime.
2. resnet20 on OpenCL (PoCL, a CPU that stands in for a GPU), and on ONNX Runtime.
3. resnet20 quantized dynamically on TVM, which has no ConvInteger: those layers go back to float.

TVM's kernels are not tuned here and PoCL is no GPU: answers count, milliseconds say nothing about
a phone. Few samples and few trials, so that it fits: TVM takes 6 s to compile lite0 and to run a
picture for one probe, and frontier wants a hundred of them.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo

if TYPE_CHECKING:
    import argparse

    from seqto.api import Result

Json = dict[str, Any]
BUILD = zoo.ROOT / "tests" / "devices" / "tvm_opencl" / "build.py"
FEW = {
    "data.calibration": 20,
    "device.latency_s": 1.0,
    "analysis.diagnose": False,
    "search.jobs": 1,
}
STEPWISE = {"search.strategy": "stepwise", "search.objectives": ["loss", "size"]}
# a menu that TVM compiles: one float, one integer, one that is only stored in integers
FRONTIER = {
    "search.strategy": "frontier",
    "search.objectives": ["loss", "size"],
    "search.menu": ["weight-s8-channel", "static-s8-u8-channel-bias-float"],
    "search.treatments": [],
    "search.probes": 1,
}
SIZES = {
    "efficientnet-lite0": {"data.evaluation": 24, "data.report": 24},
    "resnet20-cifar10": {"data.evaluation": 100, "data.report": 100},
}


def main() -> None:
    parser = zoo.parser("devices", __doc__, models=list(SIZES), seeds=None)
    parser.add_argument("--trials", type=int, default=6, help="of a stepwise run; frontier: twice")
    options = parser.parse_args()
    if importlib.util.find_spec("tvm") is None:
        sys.exit("apache-tvm is not installed here: scripts/test-tvm makes .venv-tvm with it")
    results = zoo.Results(options.out, name="devices", options={"trials": options.trials})
    for case in zoo.cases(options):
        for key, settings in runs_of(case.name, options).items():
            if key not in results.rows:
                zoo.note(key)
                results.put(key, measured(case, key, settings, options))
                print(table({key: results.rows[key]}), flush=True)
    print(table(results.rows))


def runs_of(model: str, options: argparse.Namespace) -> dict[str, Json]:
    """Return key → settings. TVM first: ONNX Runtime then runs what TVM was able to."""
    llvm = {"device.kind": "tvm", "device.preset": "llvm", "device.timeout_s": 1200}
    common = {**FEW, **SIZES.get(model, {}), "search.max_trials": options.trials}
    more = {"search.max_trials": 2 * options.trials}  # its first four are uniform plans
    if model == "efficientnet-lite0":
        return {
            f"{model}/stepwise/tvm llvm": {**common, **STEPWISE, **llvm},
            f"{model}/stepwise/ort": {**common, **STEPWISE},
            f"{model}/frontier/tvm llvm": {**common, **FRONTIER, **more, **llvm},
            f"{model}/frontier/ort": {**common, **FRONTIER, **more},
        }
    library = opencl_runtime(options.runs)
    opencl = {**llvm, "device.preset": "opencl", "device.load_library": str(library)}
    dynamic = {"quantize.mode": "dynamic"}
    return {
        f"{model}/stepwise/tvm opencl": {**common, **STEPWISE, **opencl},
        f"{model}/stepwise/ort": {**common, **STEPWISE},
        f"{model}/stepwise, dynamic/tvm llvm": {**common, **STEPWISE, **dynamic, **llvm},
    }


def opencl_runtime(folder: Path) -> Path:
    """Return the small OpenCL runtime of the tests."""
    library = folder / "libseqto_opencl.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    made = subprocess.run([sys.executable, str(BUILD), str(library)], check=False)
    if made.returncode:
        sys.exit("the OpenCL runtime could not be compiled")
    return library


def measured(case: zoo.Case, key: str, settings: Json, options: argparse.Namespace) -> Json:
    from seqto.api import run_tune

    result = run_tune(case.job(options.runs / key.replace("/", "-").replace(" ", "-"), settings))
    report = result.report
    return {
        "float": {**report["baseline"], "layers": len(report["model"]["layers"])},
        "trials": [_trial(t) for t in report["trials"] if t["same_as"] is None],
        "recommended": report["recommended"],
        "fully_quantized": report["fully_quantized"],
        "refused": refused(result),
        "seconds": report["seconds"],
    }


def _trial(trial: Mapping[str, Any]) -> Json:
    kept = ("number", "key", "note", "loss", "size_bytes", "latency_ms", "report_split", "error")
    return {**{k: trial.get(k) for k in kept}, "excluded": len(trial["excluded"])}


def refused(result: Result) -> list[str]:
    """Return what the device could not run, in the report's own words."""
    return [f["message"] for f in result.report["findings"] if f["kind"] == "unsupported"]


def table(rows: Mapping[str, Json]) -> str:
    lines = []
    for key, row in rows.items():
        base = row["float"]["latency_ms"]
        shown = f"{base['median']:.3g} ms" if base else "–"
        size = zoo.megabytes(row["float"]["size_bytes"])
        lines.append((key, "float", "–", size, shown, f"{row['seconds'] / 60:.1f} min"))
        picks: dict[int, list[str]] = {}
        for pick, number in row["recommended"].items():
            picks.setdefault(number, []).append(pick)
        for trial in row["trials"]:
            number, latency = trial["number"], trial["latency_ms"]
            names = picks.get(number, [])
            if number == row["fully_quantized"]:
                names = ["fully quantized", *names]
            if not names:
                continue
            ratio = f"×{latency['ratio']:.2f}" if latency else "–"
            note = f"#{number} {', '.join(names)}"
            size = zoo.megabytes(trial["size_bytes"])
            lines.append(("", note, zoo.bounded(trial["loss"]), size, ratio, ""))
        lines += [("", f"refused: {text}", "", "", "", "") for text in row["refused"]]
    head = ("model / search / device", "", "loss", "MB", "latency", "")
    return zoo.table(head, lines)


if __name__ == "__main__":
    main()

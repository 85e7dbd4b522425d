"""Default runs of two versions, in turn on the same machine: time, work done, and what came out.

    python benchmarks/old_and_new.py --old OTHER_CHECKOUT/src --models efficientnet-lite0

Both versions run the same command. Seconds of trials and timings are taken from outside, by looking
at the journal while it grows, so that a version which records no seconds can be compared too. CPU
seconds hold on a busy machine, wall seconds do not: the load is kept with each run.
Hypervolume is that of (loss, size) in the box of four times the tolerated loss and float's bytes:
both figures are exact under any load. With latency it is kept too (`hypervolume_timed`).
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo
from measure import run_metered

if TYPE_CHECKING:
    import argparse

Json = dict[str, Any]
VERSIONS = ("old", "new")
MOST_LOSS = 0.1
TOLERATED_LOSS = 0.025
# the command line was one module once
MAIN = """
import sys
try:
    from seqto.cli.main import main
except ImportError:
    from seqto.cli import main
sys.exit(main())
"""
POLL_S = 0.2
COLUMNS = 3  # panels of the plot beside each other


def main() -> None:
    parser = zoo.parser("old_and_new", __doc__, models=["efficientnet-lite0", "mobilenetv1"])
    parser.add_argument("--old", type=Path, required=True, help="src folder of the other version")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--versions", nargs="+", choices=VERSIONS, default=list(VERSIONS))
    parser.add_argument("--jobs", type=int, help="workers; default: as many as cores")
    options = parser.parse_args()
    kept = {"set": options.set, "jobs": options.jobs}
    results = zoo.Results(options.out, name="old_and_new", options=kept)
    trees = {"old": options.old.resolve(), "new": zoo.ROOT / "src"}
    for model in options.models:
        for seed in options.seeds:
            for repeat in range(options.repeats):
                for name in list(trees)[:: 1 if repeat % 2 == 0 else -1]:
                    key = f"{model}/{seed}/{repeat}/{name}"
                    if key in results.rows or name not in options.versions:
                        continue
                    zoo.note(key)
                    head = {"model": model, "seed": seed, "repeat": repeat, "version": name}
                    results.put(key, {**head, **one_run(trees[name], model, seed, options)})
    print(tables(results.rows))
    plot(results.rows, options.out.with_suffix(".png"))


# --------------------------------------------------------------------------------------- one run


def one_run(tree: Path, model: str, seed: int, options: argparse.Namespace) -> Json:
    """Run the command with one version; what it took and what its journal says."""
    folder = options.runs / f"{model}-{seed}-{tree.parent.name}-{time.time_ns()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", MAIN, "tune", "--config", str(options.zoo / f"{model}.toml")]
    command += ["--out", str(folder), "--set", f"data.seed={seed}"]
    for setting in options.set:
        command += ["--set", setting]
    if options.jobs:
        command += ["--set", f"search.jobs={options.jobs}"]
    before, busy_before = os.getloadavg()[0], machine_busy_s()
    watch = Watch(folder / "journal.jsonl")
    os.environ["PYTHONPATH"] = str(tree)
    try:
        metered = run_metered(command, log=folder.with_suffix(".log"))
    finally:
        del os.environ["PYTHONPATH"]
        watch.close()
    if metered["returncode"] != 0:
        sys.exit(f"{' '.join(command)} ended with code {metered['returncode']}")
    load = [round(before, 1), round(os.getloadavg()[0], 1)]
    others_s = round(machine_busy_s() - busy_before - metered["cpu_s"], 1)
    told = {"metered": metered, "load": load, "others_cpu_s": others_s}
    return {**told, **figures(folder, watch.stamps)}


def machine_busy_s() -> float:
    """Return the CPU seconds that all processes of this machine have used (Linux)."""
    times = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(times) - times[3] - times[4]) / os.sysconf("SC_CLK_TCK")  # idle and waiting


class Watch:
    """Notes when a journal's lines appear."""

    def __init__(self, path: Path) -> None:
        self.path, self.stamps = path, dict[int, float]()
        self._began, self._ended = time.monotonic(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(POLL_S):
            self._stamp()

    def _stamp(self) -> None:
        if self.path.is_file():
            now = time.monotonic() - self._began
            for line in range(len(self.stamps), self.path.read_bytes().count(b"\n")):
                self.stamps[line] = now

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._stamp()


def figures(folder: Path, stamps: Mapping[int, float]) -> Json:
    """Return what a journal says, with the second at which each line appeared."""
    from seqto.record.replay import read_state
    from seqto.selection.racing import saw_all_samples

    lines = (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    trial_at: dict[int, float] = {}
    timed_at: dict[int, float] = {}
    for number, line in enumerate(lines):
        event = json.loads(line)
        if event["event"] == "trial":
            trial_at[event["trial"]["number"]] = stamps[number]
        if event["event"] == "latency":
            timed_at.setdefault(event["number"], stamps[number])
    state = read_state(folder / "journal.jsonl")
    assert state.baseline is not None
    size = state.baseline.size_bytes
    whole = [t for t in state.numbered if saw_all_samples(t) and t.loss is not None]
    points = [
        (trial_at[t.number], t.loss.value / MOST_LOSS, t.size_bytes / size)
        for t in whole
        if t.loss is not None
    ]
    timed = [
        (t.loss.value / MOST_LOSS, t.size_bytes / size, t.latency.ratio)
        for t in whole
        if t.loss is not None and t.latency is not None
    ]
    return {
        "trials": len(state.trials),
        "stopped_early": len(state.trials) - len(whole),
        "rows": sum(t.loss.samples for t in state.numbered if t.loss),
        "probes": len(state.probes),
        "layers": len(state.header.layers) if state.header else None,
        "timings": sum(map(len, state.timings.values())),
        "curve": curve(points),
        "drop_in_after_s": drop_in_after_s(state, whole, timed_at),
        "hypervolume_timed": volume(timed),
        "spent": getattr(state.ended, "spent", None),
    }


def drop_in_after_s(
    state: Any, whole: Sequence[Any], timed_at: Mapping[int, float]
) -> float | None:
    """Return when a trial within the tolerated loss, no larger than int8, no slower was known."""
    from seqto.selection.recommend import fully_quantized

    full = fully_quantized(state)
    found = [
        timed_at[t.number]
        for t in whole
        if full is not None
        and t.number in timed_at
        and t.loss.value <= TOLERATED_LOSS
        and t.size_bytes <= full.size_bytes
        and t.latency.ratio <= 1.0
    ]
    return round(min(found), 1) if found else None


def curve(points: Sequence[tuple[float, float, float]]) -> list[tuple[float, float]]:
    """Return (seconds, hypervolume) after each trial that has enlarged it."""
    found: list[tuple[float, float]] = []
    known: list[tuple[float, ...]] = []
    for at_s, *figure in sorted(points):
        known.append(tuple(figure))
        value = volume(known)
        if not found or value > found[-1][1]:
            found.append((round(at_s, 2), round(value, 6)))
    return found


def volume(points: Sequence[tuple[float, ...]]) -> float:
    from seqto.selection.pareto import hypervolume

    return hypervolume(points, reference=(1.0,) * len(points[0])) if points else 0.0


# --------------------------------------------------------------------------------------- figures


def tables(rows: Mapping[str, Json]) -> str:
    head = ("run", "wall s", "CPU s", "load", "samples run", "stopped early", "probes per layer")
    more = ("timings", "hypervolume", "99 % of it after s")
    lines = []
    for key, row in rows.items():
        last = row["curve"][-1][1] if row["curve"] else 0.0
        nearly = next((at for at, v in row["curve"] if v >= 0.99 * last), None)
        metered = row["metered"]
        lines.append(
            (
                key,
                f"{metered['wall_s']:.0f}",
                "–" if metered.get("cpu_s") is None else f"{metered['cpu_s']:.0f}",
                "–".join(str(x) for x in row["load"]),
                row["rows"],
                row["stopped_early"],
                f"{row['probes'] / row['layers']:.2f}" if row["layers"] else "–",
                row["timings"],
                f"{last:.4f}",
                "–" if nearly is None else f"{nearly:.0f}",
            )
        )
    return zoo.table((*head, *more), lines)


def plot(rows: Mapping[str, Json], path: Path) -> None:
    """Hypervolume against time, one panel a model."""
    models = list(dict.fromkeys(row["model"] for row in rows.values()))
    if not models:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(COLUMNS, len(models))
    rows_of_panels = math.ceil(len(models) / columns)
    size = (5 * columns, 3.4 * rows_of_panels)
    figure, axes = plt.subplots(rows_of_panels, columns, figsize=size, squeeze=False)
    for axis in axes.flat[len(models) :]:
        axis.set_visible(False)
    colours = {"old": "C1", "new": "C0"}
    for axis, model in zip(axes.flat, models, strict=False):
        for row in rows.values():
            if row["model"] == model and row["curve"]:
                end = (row["metered"]["wall_s"], row["curve"][-1][1])
                x, y = zip(*row["curve"], end, strict=True)
                version = row["version"]
                label = version if version not in axis.get_legend_handles_labels()[1] else None
                axis.step(x, y, where="post", color=colours[version], label=label)
        axis.set(title=model, xlabel="seconds since the process began")
        axis.set_ylabel("hypervolume (loss, size)")
        axis.grid(alpha=0.3)
        axis.legend()
    zoo.save(figure, path)


if __name__ == "__main__":
    main()

"""Tables about the speed of tuning, growth, devices and the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pages.common import Json, bounded, cpu_kind, megabytes, named, origin, read, table

VERSIONS = {"old": "before", "new": "now"}
KINDS = ("published", "ours", "racing", "frontier")


@named("speed sweep")
def sweep() -> str:
    """Return the same list of candidates by the published loop and by ours."""
    rows = [r for k, r in read("speed")["rows"].items() if k.startswith("sweep/")]
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        for kind in KINDS:
            row = next((r for r in rows if r["model"] == model and r["kind"] == kind), None)
            if row is not None:
                lines.append((model if kind == KINDS[0] else "", kind, *_sweep_cells(row)))
    head = ("model", "", "candidates", "wall s", "CPU s", "peak MB", "running models")
    return table(head, lines) + origin("speed")


def _sweep_cells(row: Json) -> tuple[str, ...]:
    metered = row["metered"]
    wall = metered["wall_s"]
    workers = 1 if row["kind"] == "published" else 2
    running = sum(s["run"] for s in row["seconds"]) / workers
    return (
        str(len(row["events"])),
        f"{wall:.0f}",
        f"{metered['cpu_s']:.0f}",
        f"{metered['peak_rss_bytes'] / 1e6:.0f}",
        f"{running / wall:.0%}",
    )


@named("old and new")
def old_and_new() -> str:
    """Return default runs of this version and the one before, in turn."""
    rows = list(read("old_and_new")["rows"].values())
    rows.sort(key=lambda r: (r["model"], r["seed"], r["repeat"], r["version"] == "new"))
    lines = []
    for row in rows:
        name = f"{row['model']}, seed {row['seed']}" if row["version"] == "old" else ""
        name += ", again" if name and row["repeat"] else ""
        lines.append((name, VERSIONS[row["version"]], *_version_cells(row)))
    head = (
        *("model", "", "wall s", "CPU s", "others' CPU s", "hypervolume", "99 % of it after"),
        *("with latency", "drop-in after", "trials; stopped early", "samples", "probes", "timings"),
        "workers busy",
    )
    return table(head, lines) + origin("old_and_new")


def _version_cells(row: Json) -> tuple[str, ...]:
    metered, curve, spent = row["metered"], row["curve"], row["spent"]
    last = curve[-1][1]
    nearly = next(at for at, value in curve if value >= 0.99 * last)
    drop_in = row["drop_in_after_s"]
    return (
        f"{metered['wall_s']:.0f}",
        f"{metered['cpu_s']:.0f}",
        f"{max(0.0, row['others_cpu_s']):.0f}",
        f"{last:.4f}",
        f"{nearly:.0f} s",
        f"{row['hypervolume_timed']:.3f}",
        "–" if drop_in is None else f"{drop_in:.0f} s",
        f"{row['trials']}; {row['stopped_early']}",
        f"{row['rows']:,}",
        str(row["probes"]),
        str(row["timings"]),
        "–" if spent is None else f"{1 - spent['idle_share']:.0%}",
    )


@named("time spent")
def time_spent() -> str:
    """Return where the seconds of this version's runs went."""
    rows = [r for r in read("old_and_new")["rows"].values() if r["version"] == "new"]
    lines = []
    for row in sorted(rows, key=lambda r: (r["model"], r["seed"], r["repeat"])):
        for place, (phase, spent) in enumerate(row["spent"]["phases"].items()):
            model = f"{row['model']}, seed {row['seed']}" if place == 0 else ""
            seconds = [f"{spent[key]:.1f}" for key in ("wall_s", "busy_s", "exclusive_s")]
            lines.append((model, phase, *seconds))
    head = ("model", "phase", "wall s", "workers' s", "alone s")
    return table(head, lines)


@named("growth")
def growth() -> str:
    rows = [r for k, r in read("growth")["rows"].items() if not k.startswith("frontier/")]
    lines = []
    for row in sorted(rows, key=lambda r: (r["samples"], r["layers"])):
        seconds = row["seconds"]
        cells = [f"{seconds[k]:.2f}" for k in ("total", "assemble", "load", "run")]
        lines.append((row["layers"], row["samples"], *cells, f"{row['worker_bytes'] / 1e6:.0f}"))
    head = ("layers", "samples", "candidate s", "assemble", "load", "run", "worker MB")
    return table(head, lines) + origin("growth")


@named("devices")
def devices() -> str:
    """Return float and the balanced pick of each run on each device."""
    lines: list[Sequence[Any]] = []
    for key, row in read("devices")["rows"].items():
        model, search, device = key.split("/")
        size, latency = row["float"]["size_bytes"], row["float"]["latency_ms"]
        milliseconds = "–" if latency is None else f"{latency['median']:.3g} ms"
        lines.append((f"{model}, {search}", device, "float", "", megabytes(size), milliseconds))
        number = row["recommended"].get("balanced")
        trial = next((t for t in row["trials"] if t["number"] == number), None)
        if trial is not None:
            time = trial["latency_ms"]
            shown = "–" if time is None else f"{time['ratio']:.2f}"
            size_mb = megabytes(trial["size_bytes"])
            lines.append(("", "", "balanced", bounded(trial["loss"]), size_mb, shown))
    head = ("model, search", "device", "", "loss", "MB", "time (float: ms)")
    return table(head, lines) + origin("devices")


@named("cluster scale")
def cluster() -> str:
    """Return jobs that sleep on 1 to 64 actors."""
    content = read("cluster")
    lines = [_cluster_line(row) for row in sorted(content["rows"], key=lambda r: r["actors"])]
    head = (
        "actors",
        "jobs",
        "speed-up",
        "of the ideal",
        "jobs/s",
        "main CPU/job",
        "broker CPU/job",
        "journal/job",
        "start-up",
        "load before",
    )
    return table(head, lines) + f"\nCPU: {cpu_kind(content['environment'])}.\n"


def _cluster_line(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(row["actors"]),
        str(row["jobs"]),
        f"{row['speedup']:.1f}",
        f"{row['share_of_ideal']:.0%}",
        f"{row['jobs_a_second']:.1f}",
        f"{row['main_cpu_ms_a_job']:.2f} ms",
        f"{row['broker_cpu_ms_a_job']:.2f} ms",
        f"{row['journal_ms_a_job']:.2f} ms",
        f"{row['start_s']:.0f} s",
        f"{row['load'][0]:.0f}",
    )


@named("asks")
def asks() -> str:
    """Return the same search with asks of several sizes."""
    lines = [
        (
            row["ask"],
            row["trials"],
            f"{row['first']['16']:.4f}",
            f"{row['hypervolume']:.4f}",
        )
        for row in read("asks")["rows"].values()
    ]
    head = ("`search.ask`", "trials", "hypervolume after 16 trials", "at the end")
    return table(head, lines) + origin("asks")

"""What all tables share: reading results, figures as words, the kind of CPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo import table

Json = dict[str, Any]
RESULTS = Path(__file__).resolve().parents[1] / "results"
TABLES: dict[str, Callable[[], str]] = {}
TITLES = {
    "efficientnet-lite0": "EfficientNet-Lite0",
    "mobilenetv1": "MobileNetV1",
    "mobilenetv2": "MobileNetV2",
    "squeezenet1.1": "SqueezeNet 1.1",
    "resnet20-cifar10": "ResNet20 (CIFAR-10)",
    "fashion-mobilenetv3": "MobileNetV3, small (Fashion-MNIST)",
}
__all__ = ["RESULTS", "TABLES", "TITLES", "Json", "named", "read", "table"]


def named(name: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Register a table under the name that a page's marker has."""

    def register(make: Callable[[], str]) -> Callable[[], str]:
        TABLES[name] = make
        return make

    return register


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def cpu_kind(environment: Mapping[str, Any]) -> str:
    """Return the kind of CPU by what decides integer arithmetic."""
    flags = environment["cpu_flags"]
    if any("vnni" in flag for flag in flags):
        kind = "AVX-512 with VNNI" if any("avx512" in f for f in flags) else "AVX2 with VNNI"
    elif "avx2" in flags:
        kind = "AVX2 without VNNI"
    else:
        kind = str(environment["cpu"])
    return f"{kind}, {environment['cores']} cores"


def origin(name: str) -> str:
    """Return the line under a table: CPU, date, commit where it is known, command, file."""
    content = read(name)
    parts = [cpu_kind(content["environment"]), content.get("load"), content["date"][:10]]
    if content.get("commit"):
        parts.append(f"commit {content['commit'][:7]}")
    shown = ", ".join(part for part in parts if part)
    return f"\n{shown}: `{content['command']}`, `benchmarks/results/{name}.json`\n"


def percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def bounded(loss: Mapping[str, Any]) -> str:
    """Return a loss with its 95 % interval."""
    low, high = 100 * loss["low"], 100 * loss["high"]
    return f"{percent(loss['value'])} ({low:.1f}–{high:.1f})"


def megabytes(size_bytes: float) -> str:
    """Return three significant digits for small files, two decimals for the rest."""
    size = size_bytes / 1e6
    return f"{size:.3f}" if size < 1 else f"{size:.2f}"


def ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def best_in_bold(rows: Sequence[Sequence[str]], column: int, values: Sequence[float | None]) -> Any:
    """Return the rows with the lowest value of a column in bold."""
    known = [v for v in values if v is not None]
    lowest = min(known, default=None)
    return [
        tuple(
            f"**{cell}**" if i == column and value is not None and value == lowest else cell
            for i, cell in enumerate(row)
        )
        for row, value in zip(rows, values, strict=True)
    ]

"""The practitioners' chain of cures, one after the other, then the full search.

    python benchmarks/blog.py

After Chiwoong Lee, "How to Enhance Model Performance in ONNX Quantization" (2025): per-tensor →
per-channel → + smoothing (α from 0 to 1) or equalization → repair of vanished weights and of
int32 biases → skip rules (depthwise, first and last, both) → `frontier`. Figures are those of the
report split; the blog's own table is printed beside them. Writes a plot of the α sweeps.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo
from measure import Referee, float_bytes, interleaved, loss_json, rebuilt, samples_of

if TYPE_CHECKING:
    import argparse

    from seqto.assembly.plan import Plan
    from seqto.schemes.scheme import Scheme
    from seqto.search.space import Space
    from seqto.search.strategy import Answers, Ask, Need

Json = dict[str, Any]
ALPHAS = tuple(round(0.1 * i, 1) for i in range(11))
VANILLA = "smooth-0.5"  # what the blog builds its skip rules on
SWEPT = {f"tensor, smooth {a}": (False, a) for a in ALPHAS} | {
    f"channel, smooth {a}": (True, a) for a in ALPHAS
}
# top-1 on ImageNet-1K, in percent, as the blog prints it
BLOG = {
    "float": {"ResNet18": 69.76, "MobileNetV2": 72.15, "MobileNetV3": 75.26},
    "per-tensor": {"ResNet18": 69.36, "MobileNetV2": 67.12, "MobileNetV3": 42.29},
    "per-channel": {"ResNet18": 69.58, "MobileNetV2": 71.61, "MobileNetV3": 66.05},
    "per-tensor + smooth 0.5": {"MobileNetV3": 68.92},
    "per-channel + smooth 0.5": {"MobileNetV3": 70.27},
    "per-channel + vanished weights zeroed": {"MobileNetV3": 69.2},
    "… + skip depthwise": {"MobileNetV3": 71.39},
    "… + skip first and last": {"MobileNetV3": 70.74},
    "… + skip both": {"MobileNetV3": 72.01},
}
LIKE = {"resnet20-cifar10": "ResNet18", "mobilenetv2": "MobileNetV2", zoo.FASHION: "MobileNetV3"}
SETTINGS = {
    # a search over schemes makes the treated variants; four bits are no part of the chain
    "search.treatments": ["equalize", "denormals", *(f"smooth-{a}" for a in ALPHAS)],
    "quantize.transforms": ["denormals", VANILLA],
    "constraints.bits": [8, 16, 32],
    "search.objectives": ["loss", "size", "latency"],  # else integer kernels are not offered
    "search.racing": False,
    "analysis.diagnose": False,
    "device.latency_s": 0.02,  # timed at the end, all in turn
}


def main() -> None:
    models = ("mobilenetv2", "resnet20-cifar10", zoo.FASHION)
    parser = zoo.parser("blog", __doc__, models=models)
    options = parser.parse_args()
    chosen = zoo.cases(options)
    results = zoo.Results(options.out, name="blog", options={"set": options.set})
    for case in chosen:
        for seed in options.seeds:
            key = f"{case.name}/{seed}"
            if key not in results.rows:
                zoo.note(f"blog {key}")
                results.put(key, measured(case, seed, options))
    print(tables(results.rows))
    plot(results.rows, options.out.with_suffix(".png"))


# ------------------------------------------------------------------------------------- the chain


@dataclass
class Chain:
    """Asks for every link of the chain; `plans` says afterwards which plan was which."""

    plans: dict[str, Plan] = field(default_factory=dict)

    @property
    def needs(self) -> frozenset[Need]:
        from seqto.search.strategy import Need

        return frozenset(Need)

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        from seqto.search.strategy import Ask

        self.plans = links(space)
        unique = list({p.key: p for p in self.plans.values()}.values())
        for start in range(0, len(unique), 8):
            yield Ask(tuple(unique[start : start + 8]))


def links(space: Space) -> dict[str, Plan]:
    """Return name → plan, in the order of the table."""
    from seqto.assembly.plan import Plan
    from seqto.search.choices import skipped

    def treated(schemes: Mapping[str, Scheme], *transforms: str) -> Plan:
        """Return a plan on the treated float model, or on the plain one if nothing was changed."""
        return Plan.of(schemes, transforms if transforms in space.transforms else ())

    tensor, channel = uniform(space, granularity="tensor"), uniform(space, granularity="channel")
    found = {"per-tensor": Plan.of(tensor), "per-channel": Plan.of(channel)}
    for name, (is_channel, alpha) in SWEPT.items():
        found[name] = treated(channel if is_channel else tensor, f"smooth-{alpha}")
    found["per-tensor + smooth 0.5"] = treated(tensor, VANILLA)
    found["per-channel + smooth 0.5"] = treated(channel, VANILLA)
    found["per-tensor + equalize"] = treated(tensor, "equalize")
    found["per-channel + equalize"] = treated(channel, "equalize")
    found["per-channel + vanished weights zeroed"] = treated(channel, "denormals")
    free = uniform(space, granularity="channel", bias="float")
    found["per-channel + float bias"] = Plan.of(free)
    both = ("denormals", VANILLA)
    found["vanilla: per-channel + both repairs"] = Plan.of(channel, both)
    for name, rules in {
        "… + skip depthwise": ("depthwise",),
        "… + skip first and last": ("first", "last"),
        "… + skip both": ("depthwise", "first", "last"),
    }.items():
        skip = set(skipped(space.layers, rules))
        found[name] = Plan.of({n: c for n, c in channel.items() if n not in skip}, both)
    exact = uniform(space, granularity="channel", bias="float", weight="u8", activation="u8")
    found["per-channel, u8 × u8 (exact on this CPU)"] = Plan.of(exact)
    corrected = (*both, "bias-correction")
    found["per-channel, u8 × u8 + repairs + bias correction"] = Plan.of(exact, corrected)
    return found


def uniform(
    space: Space,
    *,
    granularity: str,
    weight: str = "s8",
    activation: str = "s8",
    bias: str = "s32",
) -> dict[str, Scheme]:
    from seqto.schemes.types import INT_TYPES
    from seqto.search.choices import default_schemes

    return default_schemes(
        space.layers,
        mode="static",
        weight=INT_TYPES[weight],
        activation=INT_TYPES[activation],
        per_channel=granularity == "channel",
        float_bias=bias == "float",
    )


def measured(case: zoo.Case, seed: int, options: argparse.Namespace) -> Json:
    from seqto.api import run_tune
    from seqto.records import REPORT

    chain = Chain()
    folder = options.runs / case.name
    job = case.job(folder / f"chain-{seed}", {**SETTINGS, "data.seed": seed}, strategy=chain)
    trials = {t.plan.key: t for t in run_tune(job).trials}
    search = case.job(folder / f"frontier-{seed}", {"data.seed": seed})
    found = run_tune(search)
    zoo.note(f"{len(chain.plans)} links; the report split")
    by_number = {t.number: t for t in found.trials}
    rows: Json = {}
    with samples_of(job) as store:
        referee = Referee(job, store, REPORT)
        models: dict[str, bytes] = {}
        for name, plan in chain.plans.items():
            trial = trials[plan.key]
            if trial.error is not None:
                rows[name] = {"error": f"{trial.error.stage}: {trial.error.message}"}
                continue
            models[name] = rebuilt(job.out, trial)
            rows[name] = {"saturated_biases": saturated(job.out, plan)}
        for pick, number in found.recommended.items():
            name = f"search: {pick}"
            models[name], rows[name] = rebuilt(search.out, by_number[number]), {}
        known: dict[bytes, Json] = {}  # equal models are run once
        for name, model in models.items():
            if model not in known:
                known[model] = loss_json(referee.measure(model))
            rows[name] |= {"loss": known[model], "size_bytes": len(model)}
        timed = {n: m for n, m in models.items() if n not in SWEPT}
        for names in _groups(list(timed), 6):
            latency = interleaved(job, store, {n: timed[n] for n in names}, seconds=0.7)
            for name in names:
                rows[name]["ratio"] = latency[name].ratio
        accuracy = referee.reference.scores.get("accuracy")
    head = {"model": case.name, "seed": seed, "float_bytes": float_bytes(job)}
    return {**head, "float_accuracy": accuracy, "links": rows}


def _groups(names: Sequence[str], size: int) -> list[Sequence[str]]:
    return [names[i : i + size] for i in range(0, len(names), size)]


def saturated(folder: Path, plan: Plan) -> int:
    """Return biases that do not fit into 32 bits in this plan's model."""
    from seqto.assembly.assembler import open_assembler
    from seqto.transforms.variants import variant_folder

    made = open_assembler(variant_folder(folder, plan.transforms)).assemble(plan)
    return sum(made.saturated_biases.values())


# ---------------------------------------------------------------------------------------- tables


def tables(rows: Mapping[str, Json]) -> str:
    parts = []
    for row in rows.values():
        like = LIKE.get(row["model"])
        parts.append(f"### {row['model']}, seed {row['seed']}\n")
        head = ("", "loss", "top-1", "MB", "latency", "saturated biases")
        blog = f"the blog, {like}" if like else "the blog"
        lines: list[Sequence[str]] = [
            (
                "float",
                "0 %",
                zoo.percent(row["float_accuracy"], 2),
                zoo.megabytes(row["float_bytes"]),
                "×1.00",
                "",
                _blog("float", like),
            )
        ]
        for name, link in row["links"].items():
            if name not in SWEPT:
                lines.append(_line(name, link, like))
        best = _best_alpha(row)
        lines += [_line(f"best of the sweep: {n}", row["links"][n], None) for n in best]
        parts.append(zoo.table((*head, blog), lines))
    return "\n".join(parts)


def _line(name: str, link: Json, like: str | None) -> tuple[str, ...]:
    if "error" in link:
        return (name, link["error"], "", "", "", "", _blog(name, like))
    ratio = f"×{link['ratio']:.2f}" if "ratio" in link else "–"
    return (
        name,
        zoo.bounded(link["loss"]),
        zoo.percent(link["loss"]["accuracy"], 2),
        zoo.megabytes(link["size_bytes"]),
        ratio,
        str(link.get("saturated_biases", "")),
        _blog(name, like),
    )


def _blog(name: str, like: str | None) -> str:
    value = BLOG.get(name, {}).get(like or "")
    return "" if value is None else f"{value:.2f} %"


def _best_alpha(row: Json) -> list[str]:
    """Return the α with the least loss, for both granularities.

    Chosen on the report split, so a bound.
    """
    found = []
    for is_channel in (False, True):
        names = [n for n, (c, _) in SWEPT.items() if c == is_channel and "loss" in row["links"][n]]
        if names:
            found.append(min(names, key=lambda n: row["links"][n]["loss"]["value"]))
    return found


def plot(rows: Mapping[str, Json], path: Path) -> None:
    """Loss against α, one panel a model."""
    if not rows:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(rows), figsize=(5 * len(rows), 4), squeeze=False)
    for axis, row in zip(axes[0], rows.values(), strict=True):
        for is_channel, label in ((False, "per-tensor"), (True, "per-channel")):
            points = [
                (alpha, row["links"][name]["loss"])
                for name, (channel, alpha) in SWEPT.items()
                if channel == is_channel and "loss" in row["links"][name]
            ]
            x, y = [a for a, _ in points], [100 * loss["value"] for _, loss in points]
            low = [max(0.0, 100 * (loss["value"] - loss["low"])) for _, loss in points]
            high = [max(0.0, 100 * (loss["high"] - loss["value"])) for _, loss in points]
            axis.errorbar(x, y, yerr=[low, high], marker="o", capsize=2, label=label)
        axis.set(title=row["model"], xlabel="α of smoothing", ylabel="loss, %")
        axis.grid(alpha=0.3)
        axis.legend()
    zoo.save(figure, path)


if __name__ == "__main__":
    main()

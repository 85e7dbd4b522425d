"""The few layers that must stay float, found where a uniform plan loses nearly everything.

A node that joins tensors of unlike ranges (a detector's boxes of 0 to 640 with scores of 0 to 1)
destroys the answers of every plan that quantizes it. Nothing can be learnt from such plans: all
transforms and all schemes look equally bad on them. The culprits are found on a few samples:

1. Every layer is quantized alone (groups first, taken apart where they hurt). Those that hurt most
   are kept float together: 1, 2, 4, … of them, until the damage of the uniform plan breaks down.
2. Layers that hurt only together with others do not show alone. So windows of neighbours in graph
   order are kept float, with all else quantized, and the best window is made as small as it can be.
3. Of what is found, each layer is quantized again: what does no harm does not stay float.

Damage that is spread over many layers has no culprits: then nothing is returned, and the search
goes on with the uniform plan.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from seqto.assembly.plan import Plan
from seqto.records import Layer
from seqto.schemes.scheme import Scheme
from seqto.search.strategies.probing import damages, probe_groups
from seqto.search.strategy import Answers, Ask

BREAKDOWN = 1 / 3  # of the uniform plan's damage: what is left when the culprits are float
FEW_SHARE = 0.1  # of the layers: more than that are no culprits, the damage is spread
FEW = 4  # layers that may always be culprits
WINDOWS = 16  # that the graph is cut into; each overlaps the next by half
SHARE = 0.05  # of the uniform plan's damage: groups that do less hold no culprit
SAME = 1.25  # damage that is larger by less is the same: few samples were seen

Schemes = dict[str, Scheme]


def culprits(
    layers: Sequence[Layer], uniform: Schemes, float_model: Plan
) -> Generator[Ask, Answers, tuple[str, ...]]:
    """Return the layers that must stay float in a plan that else quantizes all, in graph order."""
    names = [x.name for x in layers if x.name in uniform and not uniform[x.name].is_float]
    if len(names) < 2:
        return ()
    most = max(FEW, int(FEW_SHARE * len(names)))
    (whole,) = yield from damages([float_model.with_schemes(uniform)])
    alone = yield from probe_groups(
        float_model, {n: uniform[n] for n in names}, resolution=SHARE * whole
    )
    ranked = sorted(names, key=lambda n: -alone[n])
    kept_float, left = yield from _worst_alone(uniform, float_model, ranked, most=most)
    if left > BREAKDOWN * whole:
        kept_float, left = yield from _best_window(uniform, float_model, names, most=most)
    if left > BREAKDOWN * whole:
        return ()
    needed = yield from _needed(uniform, float_model, kept_float, left=left)
    return tuple(n for n in names if n in needed)


def without(uniform: Schemes, names: Sequence[str]) -> Schemes:
    """Return the schemes of the other layers: these stay float."""
    return {n: s for n, s in uniform.items() if n not in names}


def _worst_alone(
    uniform: Schemes, float_model: Plan, ranked: Sequence[str], *, most: int
) -> Generator[Ask, Answers, tuple[list[str], float]]:
    """Return the fewest of the worst layers that leave about the least damage if kept float."""
    counts = [1]
    while counts[-1] * 2 <= min(most, len(ranked) - 1):
        counts.append(counts[-1] * 2)
    groups = [list(ranked[:count]) for count in counts]
    return (yield from _smallest(uniform, float_model, groups))


def _best_window(
    uniform: Schemes, float_model: Plan, names: Sequence[str], *, most: int
) -> Generator[Ask, Answers, tuple[list[str], float]]:
    """Return the smallest window of neighbours whose layers leave about the least damage."""
    width = max(2, min(most, -(-len(names) // WINDOWS)))
    starts = range(0, max(1, len(names) - width + 1), max(1, width // 2))
    windows = [list(names[i : i + width]) for i in [*starts, max(0, len(names) - width)]]
    losses = yield from damages(
        [float_model.with_schemes(without(uniform, window)) for window in windows]
    )
    best = min(range(len(windows)), key=lambda i: losses[i])
    window, left = windows[best], losses[best]
    while len(window) > 1:
        half = max(1, len(window) // 2)
        parts = [window[:-half], window[half:]]
        smaller = yield from damages(
            [float_model.with_schemes(without(uniform, part)) for part in parts]
        )
        side = min(range(2), key=lambda i: smaller[i])
        if smaller[side] > SAME * left:
            break
        window, left = parts[side], smaller[side]
    return window, left


def _smallest(
    uniform: Schemes, float_model: Plan, groups: Sequence[list[str]]
) -> Generator[Ask, Answers, tuple[list[str], float]]:
    """Return the first group that leaves at most twice the least damage, and that damage."""
    losses = yield from damages(
        [float_model.with_schemes(without(uniform, group)) for group in groups]
    )
    enough = 2 * min(losses)
    first = next(i for i, damage in enumerate(losses) if damage <= enough)
    return groups[first], losses[first]


def _needed(
    uniform: Schemes, float_model: Plan, kept_float: Sequence[str], *, left: float
) -> Generator[Ask, Answers, list[str]]:
    """Return the layers that do harm when only the others are kept float."""
    if len(kept_float) == 1:
        return list(kept_float)
    losses = yield from damages(
        [
            float_model.with_schemes(without(uniform, [x for x in kept_float if x != name]))
            for name in kept_float
        ]
    )
    harmful = [n for n, damage in zip(kept_float, losses, strict=True) if damage > SAME * left]
    if not harmful or len(harmful) == len(kept_float):
        return list(kept_float)
    # several that do no harm one by one may do harm together
    (checked,) = yield from damages([float_model.with_schemes(without(uniform, harmful))])
    return harmful if checked <= 2 * left else list(kept_float)

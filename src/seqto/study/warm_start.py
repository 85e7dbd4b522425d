"""Start from an earlier run's knowledge where it holds; what does not is said.

The graph must be the same, else the run is refused. Sensitivities of a layer hold where the ranges
of its tensors are near; those of kernels that saturate only where products add up as before; and
all of them only if a few, probed again, agree. Times hold on the same machine and device. Plans
hold where their schemes are offered; what a menu has no more is replaced by the like of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from seqto.assembly.plan import Plan
from seqto.record.events import WARM_START, Finding, KnowledgeTaken
from seqto.records import Layer
from seqto.schemes.scheme import Scheme
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import P8, S8, U8
from seqto.search.prior import Prior
from seqto.search.space import Space
from seqto.search.strategies.targets import damage_of
from seqto.search.strategy import Ask, Need
from seqto.study.apply import refuse_other_graph
from seqto.study.knowledge import Knowledge, machine_json, read_knowledge
from seqto.study.setup import RunSetup
from seqto.study.study import Study
from seqto.study.workspace import Workspace

NEAR = 0.25  # of its span: how far the end of a range may have moved
CHECKED = 12  # sensitivities that are probed again
AGREE = math.log(3.0)  # how far most of them may be off, once their common factor is out
MOST = 0.8  # share that must agree


def check_graph(setup: RunSetup, layers: Sequence[Layer]) -> None:
    """Refuse a warm start from another graph, before anything is measured."""
    path = setup.settings.search.warm_start
    if path is not None:
        refuse_other_graph(read_knowledge(path).layers, layers)


def take_knowledge(setup: RunSetup, study: Study) -> Knowledge | None:
    """Read what the setting names and record it, once; a resumed run takes what is recorded."""
    path = setup.settings.search.warm_start
    if path is None or Need.PRIOR not in setup.strategy.needs:
        return None
    recorded = study.state.knowledge
    if recorded is None:
        knowledge = read_knowledge(path)
        study.append(KnowledgeTaken(str(path), knowledge.to_json()))
        recorded = study.state.knowledge
        assert recorded is not None
        _take_profiles(study, knowledge)
    return Knowledge.from_json(recorded.knowledge, source=recorded.source)


def _take_profiles(study: Study, knowledge: Knowledge) -> None:
    """Take over the times of another run on this machine and device."""
    header, tested = study.state.header, study.state.int8_products
    if header is None or not knowledge.profiles:
        return
    here = machine_json(header.environment, header.device)
    same = knowledge.machine == here and tested is not None
    if not same or tested is None or tested.result != knowledge.int8_products:
        _say(study, "times by layer do not apply (another machine or device) and are measured anew")
        return
    for profile in knowledge.profiles:
        study.append(profile)
    _say(study, f"times by layer are taken over ({len(knowledge.profiles)} profiles)")


def make_prior(study: Study, workspace: Workspace, space: Space, known: Knowledge) -> Prior:
    """Return what of the knowledge holds for this run, checked."""
    plans = _offered_plans(study, space, known.plans)
    if known.float_model.transforms not in space.transforms:
        codes = " + ".join(known.float_model.transforms)
        _say(study, f"sensitivities do not apply: treatment {codes} is not at hand")
        return Prior(plans, kept_float=known.kept_float)
    damage = _holding(study, workspace, space, known)
    alone = {pair: value for pair, value in damage.items() if pair not in known.shared}
    scale = _probed_again(study, known.float_model, alone) if alone else None
    if scale is None:
        return Prior(plans, {}, known.float_model, known.kept_float)
    scaled = {pair: value * scale for pair, value in damage.items()}
    return Prior(plans, scaled, known.float_model, known.kept_float)


def _offered_plans(study: Study, space: Space, plans: Sequence[Plan]) -> tuple[Plan, ...]:
    offered = []
    for plan in plans:
        schemes = {n: _like(space, n, s) for n, s in plan.schemes if n in space.menu}
        if all(s is not None for s in schemes.values()):
            base = plan if plan.transforms in space.transforms else _untransformed(plan)
            offered.append(base.with_schemes({n: s for n, s in schemes.items() if s}))
    unique = tuple(dict.fromkeys(offered))
    _say(
        study,
        f"{len(unique)} of {len(plans)} good plans are tried first",
        figures={"plans": len(unique), "of": len(plans)},
    )
    return unique


def _untransformed(plan: Plan) -> Plan:
    return dataclasses.replace(plan, transforms=())


def _like(space: Space, layer: str, scheme: Scheme) -> Scheme | None:
    """Return the scheme or its stand-in: rounded otherwise, or one that cannot saturate here."""
    menu = space.menu[layer]
    options: list[Scheme] = [scheme]
    if isinstance(scheme, StaticInt) and scheme.weight is S8 and not space.exact_products:
        exact = (P8, U8) if scheme.per_channel else (U8,)
        options = [*(dataclasses.replace(scheme, weight=w) for w in exact), scheme]
    for option in options:
        plain = option.without_output_rounding()
        alike = [s for s in menu if s == option] + [
            s for s in menu if s.without_output_rounding() == plain
        ]
        if alike:
            return alike[0]
    return None


def _holding(
    study: Study, workspace: Workspace, space: Space, known: Knowledge
) -> dict[tuple[str, Scheme], float]:
    """Return sensitivities of layers whose ranges are near, of schemes that compute the same."""
    now = workspace.assembler.statistics.ranges
    moved = {x.name for x in workspace.layers if not _is_near(x, known.ranges, now)}
    exact = known.int8_products == (
        study.state.int8_products.result if study.state.int8_products else None
    )
    by_layer = {layer.name: layer for layer in workspace.layers}
    held = {
        (name, scheme): value
        for (name, scheme), value in known.damage.items()
        if scheme in space.menu.get(name, ())
        and name not in moved
        and (exact or not _may_saturate(by_layer[name], scheme))
    }
    said = f"{len(held)} of {len(known.damage)} sensitivities hold"
    if not known.damage:
        said = "the earlier run has no sensitivities: it ended before its probes"
    if moved:
        said += f"; of {len(moved)} layers the ranges have moved, and they are probed anew"
    if not exact:
        said += "; kernels that saturate on one of the devices are probed anew"
    figures = {"hold": len(held), "of": len(known.damage), "moved": len(moved)}
    _say(study, said, layers=tuple(sorted(moved)), figures=figures)
    return held


def _may_saturate(layer: Layer, scheme: Scheme) -> bool:
    return isinstance(scheme, StaticInt) and scheme.weight is S8 and not layer.depthwise


def _is_near(
    layer: Layer,
    before: Mapping[str, tuple[float, float]],
    now: Mapping[str, Mapping[str, tuple[float, float]]],
) -> bool:
    for tensor in (*layer.inputs, layer.output):
        new = now.get(tensor, {}).get("minmax")
        if tensor not in before or new is None:
            continue  # not calibrated then, or not now: no range that could have moved
        old = before[tensor]
        span = max(old[1] - old[0], new[1] - new[0], 1e-12)
        if max(abs(new[0] - old[0]), abs(new[1] - old[1])) > NEAR * span:
            return False
    return True


def _probed_again(
    study: Study, float_model: Plan, damage: Mapping[tuple[str, Scheme], float]
) -> float | None:
    """Probe some pairs again, from the worst to the harmless; return their common factor.

    None: they do not agree.
    """
    ranked = sorted(damage, key=lambda pair: (-damage[pair], pair[0], str(pair[1])))
    ranked = [pair for pair in ranked if damage[pair] > 0]
    if not ranked:
        return 1.0
    positions = np.unique(np.linspace(0, (len(ranked) - 1) * 0.6, CHECKED).round().astype(int))
    pairs = [ranked[i] for i in positions]
    plans = tuple(float_model.with_schemes({name: scheme}) for name, scheme in pairs)
    trials = study.answer(Ask(plans, probe=True))
    logs = [
        math.log(damage_of(t) / damage[pair])
        for t, pair in zip(trials, pairs, strict=True)
        if damage_of(t) > 0
    ]
    if not logs:
        return None
    middle = float(np.median(logs))
    agreeing = sum(abs(value - middle) <= AGREE for value in logs)
    figures = {"checked": len(pairs), "agree": agreeing, "factor": math.exp(middle)}
    if agreeing < MOST * len(pairs):
        _say(
            study,
            f"sensitivities do not apply: of {len(pairs)} probed again {agreeing} agree; "
            "all layers are probed anew",
            figures=figures,
        )
        return None
    _say(
        study,
        f"sensitivities apply: of {len(pairs)} probed again {agreeing} agree",
        figures=figures,
    )
    return math.exp(middle)


def _say(
    study: Study,
    message: str,
    *,
    layers: tuple[str, ...] = (),
    figures: Mapping[str, float] | None = None,
) -> None:
    finding = Finding(WARM_START, f"{message}.", layers, dict(figures or {}))
    if finding not in study.state.findings:
        study.append(finding)

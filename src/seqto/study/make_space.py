"""Make the search space of a run: layers, menu, bytes, ranking, transforms, milliseconds."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.assembly.rounded_weights import placeholders
from seqto.calibration.collect import calibrate
from seqto.calibration.row_reads import tables_of_few_reads
from seqto.config import Settings
from seqto.devices.saturation import EXACT
from seqto.errors import ConfigError, ModelError
from seqto.model import files as model_files
from seqto.model.float_session import element_counts
from seqto.model.layers import OUTPUT_OP, branch_nodes, untyped_nodes
from seqto.model.moved_data import reading_origins
from seqto.record.events import (
    MENU,
    TREATMENT,
    UNSUPPORTED,
    Finding,
    SchemesTried,
)
from seqto.records import CALIBRATION, Json, Layer, LayerError
from seqto.schemes.part import PartScheme
from seqto.schemes.scheme import FP32, Scheme
from seqto.schemes.types import INT_TYPES, S8, Arithmetic
from seqto.search import choices, support
from seqto.search.choices import Choices, NotOffered
from seqto.search.latency_table import latency_table, profile_plans
from seqto.search.offered import has_attention
from seqto.search.space import Space
from seqto.search.strategy import Need
from seqto.search.weight_error import weight_errors
from seqto.study.fleet_devices import Fleet
from seqto.study.layer_ranking import analysis, by_damage
from seqto.study.round_weights import roundable_kinds
from seqto.study.setup import RunSetup, calibration_methods
from seqto.study.study import Study
from seqto.study.warm_start import make_prior, take_knowledge
from seqto.study.workspace import Workspace, add_variant
from seqto.transforms.variants import BASE, variant_of


def make_space(setup: RunSetup, study: Study, workspace: Workspace) -> Space:
    """Collect what a strategy may use: layers, menu, bytes, ranking, times."""
    settings = setup.settings
    default, fixed = default_plan(settings, workspace.layers)
    ranking: tuple[LayerError, ...] = ()
    if Need.RANKING in setup.strategy.needs:
        ranking = analysis(setup, study, Plan.of(default))
        if settings.analysis.ranking == "damage":
            ranking = by_damage(study, ranking, default)
    roundable = roundable_kinds(
        workspace.prepared, study.rounding.kinds, workspace.assembler.statistics
    )
    tested = study.state.int8_products
    exact = tested is not None and tested.result == EXACT
    read_tables = tables_of_few_reads(workspace.layers, workspace.assembler.statistics)
    menu, refused = offered_menu(
        setup, workspace.layers, roundable=roundable, read_tables=read_tables
    )
    if settings.constraints.portable:
        menu, dependent = _portable(menu, workspace)
        refused += dependent
    _note_refusals(study, [*refused, *_stay_float(workspace.prepared.proto)])
    with_default = {n: tuple(dict.fromkeys((*c, default.get(n, FP32)))) for n, c in menu.items()}
    order = [row.layer for row in ranking] or list(with_default)
    full = Plan.of(default, settings.quantize.transforms)
    usable = _tried_menu(study, workspace, with_default, order=order, full=full)
    default = _usable(default, usable)
    menu = {n: tuple(s for s in schemes if s in usable[n]) for n, schemes in menu.items()}
    sizes = _sizes(workspace, menu, roundable)
    known = take_knowledge(setup, study)  # before profiles are made
    space = Space(
        layers=reading_origins(workspace.prepared.proto, workspace.layers),
        menu=menu,
        default=default,
        bytes_of=sizes,
        ranking=ranking,
        fixed=fixed,
        transforms=_variants(setup, study, workspace, menu),
        **_profiles(setup, study, workspace, menu),
        weight_error=_weight_errors(workspace, menu),
        float_bytes=setup.fetched.size_bytes(),
        float_latency_ms=_float_latency(study),
        exact_products=exact,
    )
    if known is None:
        return space
    return dataclasses.replace(space, prior=make_prior(study, workspace, space, known))


def _float_latency(study: Study) -> float | None:
    baseline = study.state.baseline
    return None if baseline is None or baseline.latency is None else baseline.latency.median


def _portable(
    menu: Choices, workspace: Workspace
) -> tuple[dict[str, tuple[Scheme, ...]], list[NotOffered]]:
    """Return the menu without schemes whose weights saturate on some CPUs, and those schemes.

    The types have ruled out most of it; they do not tell of groups with several outputs.
    """
    portable: dict[str, tuple[Scheme, ...]] = {}
    gone: dict[str, list[str]] = {}
    for layer in workspace.layers:
        schemes = menu[layer.name]
        for scheme in schemes:
            if scheme.weight is S8 and scheme.arithmetic is not Arithmetic.FLOAT:
                part = cast(PartScheme, scheme).part(
                    layer, workspace.assembler, input_scale=1.0, correct_bias=False
                )
                if part.may_saturate:
                    gone.setdefault(str(scheme), []).append(layer.name)
        portable[layer.name] = tuple(s for s in schemes if layer.name not in gone.get(str(s), ()))
    return portable, [
        NotOffered(c, choices.NOT_PORTABLE, tuple(names)) for c, names in gone.items()
    ]


def _sizes(
    workspace: Workspace, menu: Choices, roundable: frozenset[tuple[str, str]]
) -> dict[tuple[str, Scheme], int]:
    """Return the bytes of every (layer, scheme).

    Integers of the right shape stand for those rounded later.
    """
    known = workspace.assembler
    sizer = Assembler(workspace.prepared, known.statistics, max_opset=known.max_opset)
    sizes: dict[tuple[str, Scheme], int] = {}
    for layer in workspace.layers:
        kinds = [kind for name, kind in roundable if name == layer.name]
        sizer.rounded = placeholders(layer, kinds, sizer) if kinds else {}
        for scheme in menu[layer.name]:
            sizes[layer.name, scheme] = sizer.bytes_of(layer, scheme)
    return sizes


def _weight_errors(workspace: Workspace, menu: Choices) -> dict[tuple[str, Scheme], float]:
    """Return the weights' errors where they spare probes: of few bits, and beside attention."""
    attention = has_attention(workspace.layers)
    return {
        (layer.name, scheme): error
        for layer in workspace.layers
        if layer.weight
        for scheme, error in weight_errors(
            layer, menu[layer.name], workspace.assembler, attention=attention
        ).items()
    }


def _tried_menu(
    study: Study,
    workspace: Workspace,
    menu: Choices,
    *,
    order: Sequence[str],
    full: Plan,
) -> dict[str, tuple[Scheme, ...]]:
    """Return the menu without what this device refuses; each menu is tried once, then read back.

    The event names the plan of the fully quantized model too: the mode's schemes that are left.
    """
    key = _menu_key(menu)
    if key not in study.state.tried:
        # what was refused on an earlier menu may crash: it is not tried again
        known = {pair for event in study.state.tried.values() for pair in event.refused}
        open_menu = {n: tuple(s for s in ss if (n, str(s)) not in known) for n, ss in menu.items()}
        float_ops = {n.op_type for n in workspace.prepared.proto.graph.node}

        def added_ops(name: str, scheme: Scheme) -> frozenset[str]:
            plan = Plan.of({name: scheme.without_output_rounding()})
            model = workspace.assembler.assemble(plan).data
            return frozenset(model_files.op_types(model) - float_ops)

        left, unsupported = support.supported_choices(
            workspace.layers,
            open_menu,
            order=order,
            # weights are rounded for the output later, of the transforms that are chosen
            runs=lambda plans: study.runner.try_all([p.with_nearest_rounding() for p in plans]),
            added_ops=added_ops,
        )
        for row in unsupported:
            study.append(Finding(UNSUPPORTED, row.message, tuple(row.layers), row.figures))
        refused = ((n, str(s)) for n in menu for s in menu[n] if s not in left[n])
        used = full.with_schemes(_usable(full.as_dict(), left)).key
        study.append(SchemesTried(key, used, tuple(refused)))
    gone = set(study.state.tried[key].refused)
    return {n: tuple(s for s in ss if (n, str(s)) not in gone) for n, ss in menu.items()}


def _usable(default: Mapping[str, Scheme], menu: Choices) -> dict[str, Scheme]:
    return {name: scheme for name, scheme in default.items() if scheme in menu[name]}


def _menu_key(menu: Choices) -> str:
    codes = sorted((name, sorted(str(s) for s in schemes)) for name, schemes in menu.items())
    return hashlib.sha256(json.dumps(codes).encode()).hexdigest()


def mode_of(settings: Settings, layers: Sequence[Layer]) -> str:
    """Return the mode that is set, else dynamic beside attention (why: search/offered.py)."""
    if "quantize.mode" not in settings.given and has_attention(layers):
        return "dynamic"
    return settings.quantize.mode


def default_plan(
    settings: Settings, layers: Sequence[Layer]
) -> tuple[dict[str, Scheme], dict[str, Scheme]]:
    """Return the mode's scheme for each layer, and the layers that the user keeps float."""
    q = settings.quantize
    default = choices.default_schemes(
        layers,
        mode=mode_of(settings, layers),
        weight=INT_TYPES[q.weight],
        activation=INT_TYPES[q.activation],
        per_channel=q.per_channel,
        float_bias=q.bias == "float",
        ranges=q.ranges,
    )
    names = [*choices.resolve(layers, q.exclude), *choices.skipped(layers, q.skip)]
    fixed: dict[str, Scheme] = dict.fromkeys(names, FP32)
    # the outputs stand among the layers, for what is written behind the last one
    if fixed and all(x.name in fixed or x.op_type == OUTPUT_OP for x in layers):
        raise ConfigError(
            "every layer is excluded (quantize.exclude, quantize.skip): nothing is left to quantize"
        )
    return {k: v for k, v in default.items() if k not in fixed}, fixed


def offered_menu(
    setup: RunSetup,
    layers: Sequence[Layer],
    *,
    roundable: frozenset[tuple[str, str]],
    read_tables: frozenset[str] = frozenset(),
) -> tuple[dict[str, tuple[Scheme, ...]], list[NotOffered]]:
    """Return layer → schemes that the strategy may choose from, before any is tried; and others.

    `roundable`: the layers and kinds of integers that are rounded for their output. `read_tables`:
    layers of tables of which calibration reads few rows.
    """
    default, fixed = default_plan(setup.settings, layers)
    menu: dict[str, tuple[Scheme, ...]] = {
        x.name: (FP32, default[x.name]) if x.name in default else (FP32,) for x in layers
    }
    refused: list[NotOffered] = []
    if Need.WIDE_CHOICES in setup.strategy.needs:
        c = setup.settings.constraints
        menu, refused = choices.all_choices(
            layers,
            Fleet(setup.devices),
            choices.Constraints(**dataclasses.asdict(c)),
            weight_bytes={x.name: 4 * x.parameters for x in layers},
            only=[Scheme.parse(code) for code in setup.settings.search.menu],
            roundable=roundable,
            read_tables=read_tables,
            timed="latency" in setup.settings.search.objectives,
        )
    menu.update({name: (scheme,) for name, scheme in fixed.items()})
    return menu, refused


def _stay_float(proto: Any) -> list[NotOffered]:
    """Return the nodes that stay float: in branches, or not known to compute with floats."""
    untyped = "shape inference does not tell the type of their output, as behind a custom op"
    inside = "they are inside the branches of If, Loop or Scan, which run as they are"
    rows = ((untyped, untyped_nodes(proto)), (inside, branch_nodes(proto)))
    what = "a scheme other than fp32"
    return [NotOffered(what, reason, tuple(names)) for reason, names in rows if names]


def _note_refusals(study: Study, refused: Sequence[NotOffered]) -> None:
    if not study.state.has_finding(MENU):
        for row in refused:
            study.append(Finding(MENU, row.message, tuple(row.layers)))


def _profiles(
    setup: RunSetup,
    study: Study,
    workspace: Workspace,
    menu: Choices,
) -> dict[str, Any]:
    """Return milliseconds of each layer under each scheme, from a few uniform plans run alone."""
    if Need.LATENCY_TABLE not in setup.strategy.needs:
        return {}
    if "latency" not in setup.settings.search.objectives:
        return {}
    recorded = {event.scheme: event.to_json() for event in study.state.profiles.values()}
    for scheme, plan in profile_plans(workspace.layers, menu).items():
        if scheme in recorded:
            continue
        nearest = plan.with_nearest_rounding()
        if (profile := study.runner.profile(nearest, scheme=scheme)) is not None:
            recorded[scheme] = profile
    feeds = workspace.feeds.first(CALIBRATION, 1)
    layers = reading_origins(workspace.prepared.proto, workspace.layers)
    return latency_table(layers, menu, recorded, element_counts(workspace.prepared, feeds))


def _variants(
    setup: RunSetup,
    study: Study,
    workspace: Workspace,
    menu: Choices,
) -> tuple[tuple[str, ...], ...]:
    """Return the variants of the float model that plans may be built on.

    Made once, before the search.
    They ease the rounding of activations: a menu that rounds none needs none.
    """
    chosen = [setup.settings.quantize.transforms]
    schemes = (s for choices in menu.values() for s in choices)
    integer = any(s.arithmetic is not Arithmetic.FLOAT for s in schemes)
    if Need.WIDE_CHOICES in setup.strategy.needs and integer:
        chosen += [(t,) for t in setup.settings.search.treatments]
    chosen = [c for c in dict.fromkeys(chosen) if c]
    if not chosen:
        return ((),)
    peaks = workspace.calibration.peaks if workspace.calibration else None
    if peaks is None:
        peaks = calibrate(workspace.prepared, workspace.feeds.calibration).peaks
    variants: list[tuple[str, ...]] = [()] if not setup.settings.quantize.transforms else []
    for transforms in chosen:
        if variant_of(transforms) == BASE:  # applied while a model is assembled
            variants.append(transforms)
            continue
        name = "+".join(transforms)
        try:
            row = add_variant(
                workspace,
                transforms,
                methods=calibration_methods(setup.settings),
                peaks=peaks,
                needed=transforms == setup.settings.quantize.transforms,
            )
        except ModelError as error:
            if transforms == setup.settings.quantize.transforms:
                raise
            _note_transform(study, str(error), layers=[], figures={"name": name})
            continue
        if row["touched"] or transforms == setup.settings.quantize.transforms:
            variants.append(transforms)
        message = (
            f"treatment {name}: {len(row['touched'])} layers changed, outputs moved "
            f"by {row['moved']:.1e} of their spread"
        )
        figures = {k: row[k] for k in ("name", "moved", "exact", "skipped")}
        _note_transform(study, message, layers=row["touched"], figures=figures)
    return tuple(variants)


def _note_transform(study: Study, message: str, *, layers: list[str], figures: Json) -> None:
    known = [f.figures.get("name") for f in study.state.findings if f.kind == TREATMENT]
    if figures["name"] not in known:
        study.append(Finding(TREATMENT, message, tuple(layers), figures))

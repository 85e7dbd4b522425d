"""What treatments and rounding are worth: one scheme for all layers, with and without them.

    python benchmarks/treatments.py --models minilm stories15m --zoo PATH

For every model, float answers on samples of the report split are compared with those of
    dynamic   int8 weights, dynamic int8 activations: plain, smoothed, alpha measured per link
    int4      weights in blocks of 32, activations float: nearest, rounded for the output, AWQ
    conv      large convolutions in four bits: a scale a channel (s4), with multipliers (b4)
damage: squared error of the first output over its variance; changed: share of positions with
another largest number on the last axis; cosine: of the mean over positions. Nothing is timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import zoo

if TYPE_CHECKING:
    from seqto.assembly.assembler import Assembler
    from seqto.assembly.plan import Plan
    from seqto.data.store import SampleStore
    from seqto.model.prepare import Prepared
    from seqto.records import Layer

Json = dict[str, Any]
LARGE = 0.016  # share of all weights from which a convolution is given four bits here
DENSE = ("MatMul", "Gemm")
DYNAMIC, INT4 = "dynamic-s8-channel", "weight-s4-block32"
# (row, transform, scheme)
ROWS: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "dense": (
        ("dynamic int8", "", DYNAMIC),
        ("dynamic int8, smooth-0.5", "smooth-0.5", DYNAMIC),
        ("dynamic int8, alpha measured, folded", "smooth-against=int8", DYNAMIC),
        ("dynamic int8, alpha measured", "smooth-insert=true-against=int8", DYNAMIC),
        ("int4 blocks, nearest", "", INT4),
        ("int4 blocks, rounded for the output", "", f"{INT4}-round-output"),
        ("int4 blocks, AWQ, nearest", "smooth-against=int4", INT4),
        ("int4 blocks, AWQ, rounded", "smooth-against=int4", f"{INT4}-round-output"),
    ),
    "conv": (
        ("s4, rounded for the output", "", "weight-s4-channel-round-output"),
        ("b4, nearest", "", "weight-b4-channel"),
        ("b4, rounded for the output", "", "weight-b4-channel-round-output"),
    ),
}


def main() -> None:
    parser = zoo.parser("treatments", __doc__, models=("minilm", "stories15m", *zoo.MODELS[:3]))
    parser.add_argument("--samples", type=int, default=100, help="of the report split")
    options = parser.parse_args()
    results = zoo.Results(options.out, name="treatments", options={"samples": options.samples})
    for case in zoo.cases(options):
        for seed in options.seeds:
            for key, row in measured(case, seed, options, results.rows):
                results.put(key, row)
                print(key, row, flush=True)


def measured(
    case: zoo.Case, seed: int, options: Any, known: Mapping[str, Any]
) -> Iterator[tuple[str, Json]]:
    """Yield the rows that are not known yet."""
    from seqto.calibration.collect import calibrate
    from seqto.records import REPORT
    from seqto.study import workspace

    folder = options.runs / case.name / str(seed)
    setup = case.job(folder, {"data.seed": seed})
    prepared = workspace.prepare_model(setup, folder)
    store = workspace.build_store(setup, prepared, folder)
    count = min(options.samples, store.rows(REPORT))
    want = [x for _, x in outputs(prepared.proto.SerializeToString(), store, count)]
    dense = sum(x.op_type in DENSE for x in prepared.layers if x.weight) > 2
    calibration = calibrate(prepared, store.calibration)
    for name, code, scheme in ROWS["dense" if dense else "conv"]:
        key = f"{case.name}/{seed}/{name}"
        if key in known:
            continue
        changed, touched = treated(prepared, code, store, calibration.peaks)
        assembler = assembled(changed, scheme, store)
        model = assembler.assemble(plan(changed, scheme))
        got = (x for _, x in outputs(model.data, store, count))
        row = {"bytes": model.size_bytes, "touched": touched, "samples": count}
        yield key, row | compared(want, got)


def treated(
    prepared: Prepared, code: str, store: SampleStore, peaks: Mapping[str, Any]
) -> tuple[Prepared, int]:
    import dataclasses

    from seqto.calibration.input_rows import input_rows
    from seqto.model.layers import list_layers
    from seqto.transforms.transform import MeasuringTransform, parse_transform

    if not code:
        return prepared, 0
    transform = parse_transform(code)
    if isinstance(transform, MeasuringTransform) and transform.measures:
        applied = transform.apply_measured(prepared, peaks, input_rows(prepared, store.calibration))
    else:
        applied = transform.apply(prepared, peaks)
    layers = tuple(list_layers(applied.proto))
    return dataclasses.replace(prepared, proto=applied.proto, layers=layers), len(applied.touched)


def chosen_layers(prepared: Prepared, scheme: str) -> list[Layer]:
    """Return matrix products, or the large convolutions where four bits by channel are measured."""
    weighted = [x for x in prepared.layers if x.weight and not x.storage and x.table is None]
    if scheme.startswith((DYNAMIC, INT4)):
        return [x for x in weighted if x.op_type in DENSE]
    total = sum(x.parameters for x in weighted)
    return [x for x in weighted if x.parameters > LARGE * total and not x.depthwise]


def plan(prepared: Prepared, scheme: str) -> Plan:
    from seqto.assembly.plan import Plan

    return Plan.of({x.name: scheme for x in chosen_layers(prepared, scheme)})


def assembled(prepared: Prepared, scheme: str, store: SampleStore) -> Assembler:
    from seqto.assembly.assembler import Assembler
    from seqto.assembly.rounded_weights import round_layers
    from seqto.calibration.gram import columns_of
    from seqto.calibration.statistics import Statistics
    from seqto.schemes.scheme import Scheme
    from seqto.search.offered import rounded_kind

    assembler = Assembler(prepared, Statistics({}, {}))
    kind = rounded_kind(Scheme.parse(scheme))
    if kind is not None:
        layers = [x for x in chosen_layers(prepared, scheme) if columns_of(x, prepared)]
        assembler.rounded.update(
            round_layers(prepared, store.calibration, layers, (kind,), constants=assembler)
        )
    return assembler


def outputs(model: bytes, store: SampleStore, count: int) -> Iterator[tuple[int, Any]]:
    """Yield the first output of every sample, alone in its batch."""
    from seqto.model.ort_session import open_session
    from seqto.records import REPORT

    session = open_session(model, threads=1)
    for number in range(count):
        feeds = dict(store.batch(REPORT, number, number + 1))
        yield number, np.asarray(session.run(None, feeds)[0], np.float64)


def compared(want: Sequence[Any], got: Iterator[Any]) -> Json:
    error = power = changed = positions = 0.0
    cosines = []
    mean = np.mean([x.mean() for x in want])
    for exact, value in zip(want, got, strict=True):
        error += float(np.square(exact - value).sum())
        power += float(np.square(exact - mean).sum())
        changed += float((exact.argmax(-1) != value.argmax(-1)).sum())
        positions += exact[..., 0].size
        a, b = (x.reshape(-1, x.shape[-1]).mean(axis=0) for x in (exact, value))
        cosines.append(float(a @ b / np.sqrt((a @ a) * (b @ b))))
    return {
        "damage": round(error / power, 6),
        "changed": round(changed / positions, 5),
        "cosine": round(float(np.mean(cosines)), 5),
    }


if __name__ == "__main__":
    main()

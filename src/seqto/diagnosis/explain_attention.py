"""Findings of models with attention, from the figures of attention.py. Pure.

channels   single channels of what flows into matrix products exceed the others
masks      a mask sets the range of the scores that Softmax reads
tables     embedding tables: their share of the bytes, rows of different size
norms      norms that are taken apart in the file
batch      answers that depend on what else is in the batch
"""

from __future__ import annotations

from collections.abc import Mapping

from seqto.diagnosis.finding import finding
from seqto.records import Json
from seqto.text import percent, shorten

LOUD = 8.0  # times the median channel: three of eight bits are lost to one channel
TABLE_SHARE = 0.05  # of all constants: smaller tables do not matter
MOVED = 1e-5  # damage below this is rounding


def attention_findings(measured: Json) -> list[Json]:
    """Return what attention.py's figures say; nothing of models without attention."""
    if not measured:
        return []
    events = [
        _channels(measured["channels"]),
        _masks(measured["masks"]),
        _tables(measured["tables"]),
        _norms(measured["norms"]),
    ]
    return [*events, _batch(measured["batch"])] if measured["batch"] else events


def _channels(rows: Mapping[str, Json]) -> Json:
    order = sorted(rows, key=lambda n: -rows[n]["ratio"])
    hit = [n for n in order if rows[n]["ratio"] >= LOUD]
    text = f"outlier channels: {len(hit)} of {len(rows)} matrix products"
    if hit:
        worst = rows[hit[0]]
        text += (
            f" (largest: {shorten(hit[0], 60)}, {worst['loud']} channels above {LOUD:g} times the "
            f"median one, the widest {worst['ratio']:.0f} times); "
            "cure: the transform smooth-insert=true-against=int8"
        )
    return finding("channels", text, hit, {"layers": {n: dict(rows[n]) for n in order}})


def _masks(rows: Mapping[str, Json]) -> Json:
    hit = [n for n, r in rows.items() if r["lowest"] < r["low"]]
    text = f"masks in attention scores: {len(hit)} of {len(rows)} Softmax"
    if hit:
        row = rows[hit[0]]
        step = (row["high"] - row["lowest"]) / 255
        text += (
            f" (values down to {row['lowest']:.1e} beside scores of {row['low']:.1f} to "
            f"{row['high']:.1f}: one 8-bit step would be {step:.1e}); "
            "cure: keep the mask's Add and Softmax float"
        )
    return finding("masks", text, [], {"softmax": {n: dict(r) for n, r in rows.items()}})


def _tables(rows: Mapping[str, Json]) -> Json:
    large = {n: r for n, r in rows.items() if r["share"] >= TABLE_SHARE}
    text = f"embedding tables: {len(large)} with at least {percent(TABLE_SHARE)} of the constants"
    if large:
        name = max(large, key=lambda n: large[n]["share"])
        row = large[name]
        text += (
            f" (largest: {shorten(name, 60)}, {percent(row['share'])}; its widest row is "
            f"{row['ratio']:.1f} times the median one); "
            "cure: integers with a scale for every row (weight-s8-channel)"
        )
    return finding("tables", text, list(large), {"tables": {n: dict(r) for n, r in rows.items()}})


def _norms(row: Json) -> Json:
    apart = list(row["apart"])
    text = f"norms taken apart: {len(apart)} of {len(apart) + row['ops']}"
    if apart:
        text += (
            "; static integers between their parts keep the runtime from fusing them; "
            "cure: leave them float"
        )
    return finding("norms", text, [], {"apart": apart, "ops": row["ops"]})


def _batch(row: Json) -> Json:
    moves = row["damage"] > MOVED
    text = (
        f"answers depend on the batch: {'yes' if moves else 'no'} (damage {row['damage']:.1e} "
        f"between {row['samples']} samples alone and together, {row['layers']} dynamic layers)"
    )
    if moves:
        text += "; cure: measure with the batch that you serve with, or constraints.batch_invariant"
    return finding("batch", text, [], dict(row))

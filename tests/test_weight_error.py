"""Weight errors that spare probes: they must order schemes as rounding does."""

from __future__ import annotations

import numpy as np

import token_nets
from seqto.assembly.assembler import Assembler
from seqto.calibration.statistics import Statistics
from seqto.model.prepare import prepare
from seqto.schemes.scheme import Scheme
from seqto.search.weight_error import weight_errors

CODES = (
    "nbit-s8-channel",
    "nbit-u4-block32",
    "weight-s4-block32",
    "weight-s4-block128",
    "dynamic-b4-channel-round-output",
    "weight-s4-channel",
)


def test_errors_order_schemes_by_what_rounding_leaves() -> None:
    prepared = prepare(token_nets.encoder())
    assembler = Assembler(prepared, Statistics({}, {}))
    layer = next(x for x in prepared.layers if x.op_type == "MatMul" and x.weight)
    schemes = tuple(Scheme.parse(code) for code in CODES)
    errors = weight_errors(layer, schemes, assembler, attention=True)
    assert set(errors) == set(schemes)
    found = [errors[s] for s in schemes]
    eight, *four = found
    assert 0 < eight < min(four) / 50
    assert errors[schemes[2]] <= errors[schemes[3]] <= errors[schemes[5]]
    # a multiplier for every sixteen inputs is finer than one scale a channel
    assert errors[schemes[4]] < errors[schemes[5]]
    assert np.isfinite(found).all()

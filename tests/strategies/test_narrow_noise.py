"""Five and six bits need no probe: four bits tell what they do."""

from __future__ import annotations

import numpy as np
import pytest

import nets
from seqto.assembly.assembler import Assembler
from seqto.calibration.statistics import Statistics
from seqto.model.prepare import prepare
from seqto.schemes.scheme import Scheme
from seqto.search.offered import WEIGHTED
from seqto.search.space import Space
from seqto.search.strategies.noise_model import fit
from seqto.search.strategies.probing import _families_to_probe
from seqto.search.weight_error import weight_errors

B4, S6, S5 = (Scheme.parse(f"weight-{t}-channel-round-output") for t in ("b4", "s6", "s5"))
STATIC_S6 = Scheme.parse("static-s6-u8-channel-bias-float-round-output")


@pytest.fixture(scope="module")
def space() -> Space:
    """Return the space of a small net in which each layer has every scheme."""
    prepared = prepare(nets.residual())
    assembler = Assembler(prepared, Statistics({}, {}))
    layers = tuple(x for x in prepared.layers if x.weight and not x.depthwise)
    menu = {x.name: (Scheme.parse("fp32"), *WEIGHTED) for x in layers}
    errors = {
        (x.name, scheme): error
        for x in layers
        for scheme, error in weight_errors(x, menu[x.name], assembler, attention=False).items()
    }
    return Space(layers, menu, {}, {}, (), weight_error=errors, exact_products=True)


def test_no_family_of_five_or_six_bits_is_probed(space: Space) -> None:
    probed = {scheme for family in _families_to_probe(space) for scheme in family.values()}
    assert B4 in probed
    assert not {S6, S5, STATIC_S6} & probed


def test_noise_falls_as_the_error_of_the_weights(space: Space) -> None:
    probed = [(n, s) for family in _families_to_probe(space) for n, s in family.items()]
    model = fit(space, {pair: 0.5 if pair[1] == B4 else 0.01 for pair in probed})
    for layer in space.layers:
        noise = {s: model.weight[layer.name, s] for s in (B4, S5, S6, STATIC_S6)}
        assert noise[B4] == 0.5
        assert noise[B4] > noise[S5] > 2 * noise[S6] > 0
        assert noise[STATIC_S6] == noise[S6]
        ratio = space.weight_error[layer.name, S6] / space.weight_error[layer.name, B4]
        assert noise[S6] == pytest.approx(0.5 * ratio)


def test_errors_are_those_of_plain_rounding(space: Space) -> None:
    assert all(0 < error < 0.1 for error in space.weight_error.values())
    assert {s for _, s in space.weight_error} == {B4, S6, S5, Scheme.parse("weight-s6-channel")}
    assert np.isfinite(list(space.weight_error.values())).all()

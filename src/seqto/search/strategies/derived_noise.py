"""Schemes that need no probe: their noise follows from that of others of the same layer.

For layers whose weight errors are known (weight_error.py) a plan's noise is

    α · weight error + noise of the inputs' rounding, which the kernel decides

α comes from a probe with few bits, where weights are all that counts; the inputs' part is what an
eight-bit probe shows beyond α · its weight error. So three probes a layer tell all of its schemes.
"""

from __future__ import annotations

from collections.abc import Mapping

from seqto.schemes.scheme import Scheme
from seqto.schemes.types import Arithmetic
from seqto.search.space import Space

Noise = Mapping[tuple[str, Scheme], float]


def is_derived(space: Space, layer: str, scheme: Scheme) -> bool:
    """Return whether a scheme's noise follows from others that are probed."""
    if (layer, scheme) not in space.weight_error:
        return False
    return scheme not in _references(space, layer).values()


def derived_noise(space: Space, layer: str, scheme: Scheme, noise: Noise) -> float | None:
    """Return the noise of a scheme by that of the probed ones; None where nothing is known."""
    references = _references(space, layer)
    error = space.weight_error
    coarse = references.get(_FEW_BITS)
    probed = [r for r in references.values() if noise.get((layer, r)) is not None]
    if not probed:
        return None
    # without a probe of few bits, the eight-bit ones are taken for weight noise alone
    base = coarse if coarse in probed else min(probed, key=lambda r: noise[(layer, r)])
    assert base is not None
    rate = noise[(layer, base)] / max(error[(layer, base)], 1e-30)
    own = rate * error[(layer, scheme)]
    reference = references.get(_class_of(scheme, exact=True, bits=8))
    if reference is None or reference not in probed or reference == base:
        return own
    inputs = noise[(layer, reference)] - rate * error[(layer, reference)]
    return own + max(0.0, inputs)


Class = tuple[int, Arithmetic | None, str]


_FEW_BITS: Class = (4, None, "")


def _references(space: Space, layer: str) -> dict[Class, Scheme]:
    """Return the first scheme of each class: few bits; eight bits by kernel."""
    first_of_class: dict[Class, Scheme] = {}
    for scheme in space.menu[layer]:
        if (layer, scheme) in space.weight_error:
            first_of_class.setdefault(_class_of(scheme, exact=space.exact_products), scheme)
    return first_of_class


def _class_of(scheme: Scheme, *, exact: bool, bits: int = 0) -> Class:
    """Return the class whose noise a scheme's is derived from.

    Where products saturate, weights that cannot are a class of their own.
    """
    weight = scheme.weight
    if not bits and weight is not None and weight.is_narrow:
        return _FEW_BITS
    apart = weight is not None and weight.pair_limit is not None and not exact
    level = scheme.kernel.name if scheme.arithmetic is Arithmetic.NBIT else ""
    if bits == 8:
        level = level.replace("nbit-4", "nbit-8")
    return (8, scheme.arithmetic, f"{level}{' paired' if apart else ''}")

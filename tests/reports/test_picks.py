from __future__ import annotations

from seqto.selection.expected_loss import LossCurve, bound, expected
from seqto.selection.recommend import choose, steady


def trial(number: int, *, loss: float, size: int, ratio: float, damage: float = 0.01) -> dict:  # type: ignore[type-arg]
    return {
        "number": number,
        "loss": {"value": loss, "samples": 300},
        "size_bytes": size,
        "latency_ms": {"ratio": ratio},
        "damage": damage,
    }


FULL = trial(0, loss=0.16, size=100, ratio=0.7)
TRIALS = [
    FULL,
    trial(1, loss=0.0, size=200, ratio=1.0),
    trial(2, loss=0.012, size=98, ratio=0.9),
    trial(3, loss=0.018, size=80, ratio=1.1),
    trial(4, loss=0.019, size=104, ratio=0.6),
    trial(5, loss=0.12, size=40, ratio=0.9),
]


def pick(*, within: bool = True, tolerance: float = 0.02) -> dict[str, int]:
    rows = [(t, [t["loss"]["value"], t["size_bytes"], t["latency_ms"]["ratio"]]) for t in TRIALS]
    _, found = choose(
        rows,
        names=["loss", "size", "latency"],
        fully_quantized=FULL,
        tolerance=tolerance,
        within_tolerance=within,
    )
    return found


def test_practical_picks_keep_their_promises() -> None:
    found = pick()
    assert found["drop_in"] == 2, "no larger than int8, no slower than float"
    assert found["small"] == 3
    assert found["fast"] == 4
    assert found["size"] == 5
    assert TRIALS[found["balanced"]]["loss"]["value"] <= 0.02


def test_nothing_within_tolerance_leaves_the_plain_picks() -> None:
    found = pick(tolerance=-1.0)
    assert {"small", "fast"} & set(found) == set()
    assert {"balanced", "loss", "size", "latency"} <= set(found)


def test_a_lucky_count_is_not_taken_for_a_low_loss() -> None:
    """Two trials count 1.3 %; their damage decides which of them probably keeps 2 %."""
    others = [(d, 2.0 * d, 300) for d in (0.001, 0.002, 0.005, 0.01, 0.02, 0.04)]
    curve = LossCurve.fit(others)
    assert curve is not None
    lucky, steady_one = (0.03, 4 / 300, 300), (0.003, 4 / 300, 300)
    assert bound(lucky, curve) > 0.02 > bound(steady_one, curve)
    rows = [
        trial(n, loss=x[1], size=90, ratio=0.5 + n / 10, damage=x[0])
        for n, x in enumerate([*others, lucky, steady_one])
    ]
    found = choose(
        [(t, [t["loss"]["value"], t["size_bytes"], t["latency_ms"]["ratio"]]) for t in rows],
        names=["loss", "size", "latency"],
        fully_quantized=trial(99, loss=0.3, size=100, ratio=1.0),
        tolerance=0.02,
        within_tolerance=True,
    )[1]
    assert found["fast"] not in (3, 4, 5, 6)


def test_of_those_that_lose_least_the_fastest_drops_in() -> None:
    a = trial(1, loss=0.0033, size=1, ratio=0.99, damage=0.002)
    b = trial(2, loss=0.0033, size=1, ratio=0.75, damage=0.003)
    c = trial(3, loss=0.0600, size=1, ratio=0.50, damage=0.05)
    curve = LossCurve.fit([(t["damage"], t["loss"]["value"], 300) for t in (a, b, c)])
    assert [t["number"] for t in steady([a, b, c], curve)] == [1, 2]


def test_a_curve_needs_trials_and_stays_monotone() -> None:
    assert LossCurve.fit([(0.1, 0.1, 300), (None, 0.2, 300)]) is None
    curve = LossCurve.fit([(0.001, 0.03, 300), (0.01, 0.02, 300), (0.1, 0.01, 300)])
    assert curve is not None
    assert curve.loss_at(0.1) > curve.loss_at(0.001)
    assert abs(curve.loss_at(curve.damage_at(0.02)) - 0.02) < 1e-9
    assert expected((None, 0.01, 300), curve)[0] == 0.01


def test_a_drop_in_is_surely_no_slower_where_that_is_to_be_had() -> None:
    even = trial(1, loss=0.0, size=90, ratio=1.0, damage=0.0001)
    even["latency_ms"] |= {"ratio_low": 0.98, "ratio_high": 1.02}
    faster = trial(2, loss=0.016, size=90, ratio=0.8, damage=0.001)
    faster["latency_ms"] |= {"ratio_low": 0.79, "ratio_high": 0.81}
    lossy = trial(3, loss=0.08, size=90, ratio=0.6, damage=0.01)
    for rivals, expected_pick in ([(even, faster, lossy), 2], [(even, lossy), 1]):
        found = choose(
            [(t, [t["loss"]["value"], t["size_bytes"]]) for t in rivals],
            names=["loss", "size"],
            fully_quantized=FULL,
            tolerance=0.02,
            within_tolerance=True,
        )[1]
        assert found["drop_in"] == expected_pick

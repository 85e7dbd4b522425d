from __future__ import annotations

from seqto.reports.picks import choose, steadiest


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


def test_luck_is_not_preferred_to_less_damage() -> None:
    lucky = trial(1, loss=0.010, size=1, ratio=1.0, damage=0.05)
    steady = trial(2, loss=0.013, size=1, ratio=1.0, damage=0.001)
    worse = trial(3, loss=0.060, size=1, ratio=1.0, damage=0.0001)
    assert steadiest([lucky, steady, worse])["number"] == 2

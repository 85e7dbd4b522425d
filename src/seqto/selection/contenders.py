"""The trials between which the choice is close: they are timed once more, all in one session.

The speed of a shared machine changes within minutes, for integer kernels more than for float ones:
one int8 file of a sentence encoder took 0.43 of float's time, and 0.62 in the next session. Ratios
of two sessions do not tell which of two trials is faster; those of one session do.
"""

from __future__ import annotations

from collections.abc import Sequence

from seqto.record.replay import RunState
from seqto.record.trial import Trial
from seqto.selection.racing import complete
from seqto.selection.recommend import (
    FAST_SIZE,
    Recommendation,
    byte_limit,
    fully_quantized,
    loss_curve,
    near_lowest_loss,
    not_slower,
    ratio_of,
    tolerance_of,
    within,
)

# of a pick's time: trials that look slower than this are no match for it. As much as two sessions
# of one file have differed
NEAR = 1.5


def contenders(state: RunState, chosen: Recommendation, *, most: int) -> list[int]:
    """Return the numbers of the picks, then of trials that another session may put before them.

    Those have a pick's bytes and loss, and take up to `NEAR` of the time of the fastest such
    trial; the fastest come first. All picks are in it, else up to `most`.
    """
    picks = sorted(set(chosen.picks.values()))
    timed = [t for t, _ in complete(state.trials.values()) if t.latency and t.same_as is None]
    usable = sorted(_usable(timed, state), key=ratio_of)
    fastest = next((ratio_of(t) for t in usable if t.number in picks), 0.0)
    near = [t.number for t in usable if t.number not in picks and ratio_of(t) <= NEAR * fastest]
    return [*picks, *near][: max(most, len(picks))]


def _usable(trials: Sequence[Trial], state: RunState) -> list[Trial]:
    """Return the trials with the bytes and the loss of a drop-in or a fast pick."""
    curve = loss_curve(trials)
    limit = byte_limit(fully_quantized(state), 0.0)
    small = [t for t in trials if t.size_bytes <= FAST_SIZE * limit]
    fitting = [t for t in small if t.size_bytes <= limit and not_slower(t)]
    wanted = {t.number for t in within(small, tolerance_of(state), curve)}
    if fitting:
        wanted |= {t.number for t in near_lowest_loss(fitting, curve)}
    return [t for t in small if t.number in wanted]

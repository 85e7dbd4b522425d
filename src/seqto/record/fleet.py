"""Figures of several devices for one model as one figure: the worst of them counts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from seqto.record.trial import Trial
from seqto.records import WORST, Failure, Latency, Measurement


def joined_measurement(by_device: Mapping[str, Measurement]) -> Measurement:
    """Return the measurement with the largest loss, with all of them by device."""
    named = {n: dataclasses.replace(one, device=n, devices={}) for n, one in by_device.items()}
    worst = max(named.values(), key=lambda m: (m.loss.value, m.damage or 0.0))
    damages = [m.damage for m in named.values() if m.damage is not None]
    expected = [m.expected_loss for m in named.values() if m.expected_loss is not None]
    return dataclasses.replace(
        worst,
        devices=named,
        damage=max(damages, default=None),
        expected_loss=max(expected, key=lambda x: x.value, default=None),
        stopped_early=any(m.stopped_early for m in named.values()),
    )


def joined_latency(by_device: Mapping[str, Latency], judged_by: str = WORST) -> Latency:
    """Return the latency that is judged, of the slowest device or of a named one, with all."""
    alone = {n: dataclasses.replace(one, devices={}, judged_by="") for n, one in by_device.items()}
    chosen = alone.get(judged_by) or max(alone.values(), key=lambda one: one.ratio)
    return dataclasses.replace(chosen, devices=alone, judged_by=judged_by)


def joined_trial(by_device: Mapping[str, Trial]) -> Trial:
    """Return one trial from those of a plan on several devices, in the order of the devices.

    A plan that one device refuses is refused, with that device's name. Timings of equal graphs are
    not shared: devices make graphs of their own.
    """
    first = next(iter(by_device.values()))
    for name, trial in by_device.items():
        if trial.error is not None:
            return dataclasses.replace(first, error=of_device(name, trial.error), measurements={})
    splits = first.measurements
    joined = {
        split: joined_measurement({n: t.measurements[split] for n, t in by_device.items()})
        for split in splits
    }
    seconds = math.fsum(t.seconds for t in by_device.values())
    return dataclasses.replace(
        first, measurements=joined, seconds=round(seconds, 4), graph="", latency=None
    )


def of_device(name: str, failure: Failure) -> Failure:
    """Return a failure that names its device."""
    return dataclasses.replace(failure, message=f"on {name}: {failure.message}", device=name)

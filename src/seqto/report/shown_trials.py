"""The trials that charts show of a long run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def shown_numbers(report: Mapping[str, Any], *, most: int) -> set[int]:
    """Return the numbers of all trials, or of about `most` where there are more.

    The front, the picks and the fully quantized model are always among them; the others are an
    even sample.
    """
    numbers = [trial["number"] for trial in report["trials"]]
    if len(numbers) <= most:
        return set(numbers)
    needed = {*report["front"], *report["recommended"].values(), report["fully_quantized"]}
    others = [number for number in numbers if number not in needed]
    room = max(0, most - len(needed))
    sample = {others[i * len(others) // room] for i in range(room)}
    return sample | needed.intersection(numbers)

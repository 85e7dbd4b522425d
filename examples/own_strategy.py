"""A search of your own: int8 weights for the largest layers first, until the loss is too high.

    python examples/own_strategy.py [RUN_FOLDER]

A strategy is a generator. It yields `Ask`s (plans to run), receives their trials, and returns when
it is done. It opens no file and looks at no clock; so a killed run is resumed by running it again,
with the recorded trials as answers, and it is tested without any model.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import seqto
from seqto.search.strategy import Ask
from seqto.testing import check_strategy, small_feeds, small_model


@dataclass(frozen=True, slots=True)
class LargestFirst:
    """Its fields are its settings."""

    limit: float = 0.05
    scheme: str = "weight-s8-channel"  # its code; the rounding of the weights may be another
    needs: ClassVar = frozenset({seqto.Need.WIDE_CHOICES})  # more than the mode's scheme in `menu`

    def search(self, space, *, seed):
        del seed  # nothing is drawn here
        wanted = seqto.Scheme.parse(self.scheme)
        menu = {
            name: [s for s in schemes if s.without_output_rounding() == wanted]
            for name, schemes in space.menu.items()
        }
        sizes = {x.name: x.parameters for x in space.layers if menu[x.name]}
        chosen = {}
        for name in sorted(sizes, key=lambda n: (-sizes[n], n)):
            chosen[name] = menu[name][0]
            plan = seqto.Plan.of({**chosen, **space.fixed})
            (trial,) = yield Ask((plan,), (f"with {name}",))
            if trial.loss is None or trial.loss.value > self.limit:
                del chosen[name]  # failed, or too much: leave this one float and go on


def main(folder: Path) -> seqto.Result:
    check_strategy(LargestFirst())
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "small.onnx"
    model.write_bytes(small_model())
    return seqto.tune(
        model,
        out=folder / "run",
        data=list(small_feeds(120)["x"]),
        strategy=LargestFirst(limit=0.1),
        data__calibration=20,
        data__evaluation=60,
        device__latency_s=0.02,
    )


if __name__ == "__main__":
    result = main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/own-strategy"))
    for trial in result.trials:
        print(f"{trial.note}: {trial.loss.value:.1%} change, {trial.size_bytes} bytes")

"""The first run of a model that nobody has tried yet: in a process of its own, under a limit.

A model may hold a loop that never ends, or ask for more memory than there is. In the main process
neither a time limit nor Ctrl-C would end it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from seqto.calibration.feeds import model_feeds
from seqto.data.store import SampleStore
from seqto.devices.bundle import BundleDevice
from seqto.devices.ort import Ort
from seqto.errors import ModelError
from seqto.execution.local.pool import Pool
from seqto.execution.local.worker_process import Channel
from seqto.model.bundle import components_of, merge
from seqto.model.compare import same_answers
from seqto.model.files import load, to_bytes
from seqto.model.ort_session import open_session
from seqto.model.wiring import Wiring
from seqto.records import CALIBRATION, InputSpec, Json

ROWS = 4  # samples that both models are run on


def moved_answers(
    original: Sequence[Path],
    prepared: Path,
    samples: Path,
    *,
    wiring: Wiring | None = None,
    timeout_s: float,
    memory_bytes: int | None = None,
) -> float:
    """Return how far a prepared model's answers are from the original's, by the outputs' spread.

    `original`: the model's file; of a bundle, those of its components, with their `wiring`.
    """
    job: Json = {"prepared": str(prepared), "samples": str(samples)}
    job["original"] = [str(path) for path in original]
    job["wiring"] = None if wiring is None else wiring.to_json()
    target = f"{__name__}:serve"
    with Pool(target, {}, timeout_s=timeout_s, memory_bytes=memory_bytes) as pool:
        (ticket,) = pool.map([job])
    if ticket.failure is None and ticket.result is not None:
        return float(ticket.result["moved"])
    message = ticket.failure.message if ticket.failure else "no result"
    if ticket.failure and ticket.failure.stage == "timeout":
        message = (
            f"the float model does not answer within {timeout_s:g} s on {ROWS} samples: does it "
            "hold an endless loop? Raise device.timeout_s if it needs longer"
        )
    raise ModelError(message)


def refuse_endless(
    models: Sequence[Path], samples: Path, *, split: str, rows: int, timeout_s: float
) -> None:
    """Run models that will run in the main process once in a worker: there a limit ends them.

    Other ways to fail are left to the run in the main process, which says more about them.
    """
    for model in models:
        job: Json = {"model": str(model), "samples": str(samples), "split": split, "rows": rows}
        _refuse_late("serve_once", job, name=str(model), rows=rows, timeout_s=timeout_s)


def refuse_endless_step(model: Path, inputs: Sequence[InputSpec], *, timeout_s: float) -> None:
    """Run a model on zeros in a worker, before its states are computed in the main process."""
    shapes = [[s.name, s.dtype, list(s.shape[1:] if s.whole else s.shape)] for s in inputs]
    job: Json = {"model": str(model), "inputs": shapes}
    _refuse_late("serve_zeros", job, name=str(model), rows=1, timeout_s=timeout_s)


def refuse_endless_bundle(
    components: Mapping[str, Path], wiring: Wiring, samples: Path, *, split: str, timeout_s: float
) -> None:
    """Generate once with a bundle in a worker, as `refuse_endless` runs a model."""
    job: Json = {"components": {name: str(path) for name, path in components.items()}}
    job |= {"wiring": wiring.to_json(), "samples": str(samples), "split": split}
    name = f"the bundle of {' and '.join(map(str, components.values()))}"
    _refuse_late("serve_generation", job, name=name, rows=1, timeout_s=timeout_s)


def _refuse_late(handler: str, job: Json, *, name: str, rows: int, timeout_s: float) -> None:
    with Pool(f"{__name__}:{handler}", {}, timeout_s=timeout_s) as pool:
        (ticket,) = pool.map([job])
    if ticket.failure is not None and ticket.failure.stage == "timeout":
        samples = f"{rows} samples" if rows != 1 else "one sample"
        raise ModelError(
            f"{name} does not answer within {timeout_s:g} s on {samples}: does it hold an endless "
            "loop? Raise device.timeout_s if it needs longer"
        )


def serve_once(_setup: Json) -> Callable[[Json, Channel], Json]:
    """Return the handler of `refuse_endless`: one run of a model, its answers left alone."""

    def handle(job: Json, _channel: Channel) -> Json:
        feeds = SampleStore.open(Path(job["samples"])).batch(job["split"], 0, job["rows"])
        try:
            open_session(Path(job["model"])).run(None, dict(feeds))
        except Exception as error:  # ORT raises many types without a root
            return {"failed": str(error)}
        return {"failed": None}

    return handle


def serve_zeros(_setup: Json) -> Callable[[Json, Channel], Json]:
    """Return the handler of `refuse_endless_step`."""

    def handle(job: Json, _channel: Channel) -> Json:
        feeds = {n: np.zeros([side or 1 for side in shape], t) for n, t, shape in job["inputs"]}
        try:
            open_session(Path(job["model"])).run(None, feeds)
        except Exception as error:  # ORT raises many types without a root
            return {"failed": str(error)}
        return {"failed": None}

    return handle


def serve_generation(_setup: Json) -> Callable[[Json, Channel], Json]:
    """Return the handler of `refuse_endless_bundle`: one generation, its tokens left alone."""

    def handle(job: Json, _channel: Channel) -> Json:
        feeds = SampleStore.open(Path(job["samples"])).batch(job["split"], 0, 1)
        device = BundleDevice(Ort(), Wiring.from_json(job["wiring"]))
        try:
            files = {name: Path(path) for name, path in job["components"].items()}
            with device.open(files) as session:
                session.run(feeds)
        except Exception as error:  # ORT raises many types without a root
            return {"failed": str(error)}
        return {"failed": None}

    return handle


def compare_here(
    original: Sequence[Path], prepared: Path, samples: Path, *, wiring: Wiring | None = None
) -> float:
    model = None if wiring is None else load(prepared)
    feeds = model_feeds(SampleStore.open(samples), model, wiring).first(CALIBRATION, ROWS)
    float_model: bytes | str = str(original[0])
    if model is not None:
        float_model = to_bytes(
            merge({n: load(p) for n, p in zip(components_of(model), original, strict=True)})
        )
    # by its path: a large model has its weights in a file beside it
    return same_answers(float_model, str(prepared), feeds)


def serve(_setup: Json) -> Callable[[Json, Channel], Json]:
    """Return the handler of the worker's jobs."""

    def handle(job: Json, _channel: Channel) -> Json:
        moved = compare_here(
            [Path(path) for path in job["original"]],
            Path(job["prepared"]),
            Path(job["samples"]),
            wiring=Wiring.from_json(job["wiring"]) if job["wiring"] else None,
        )
        return {"moved": moved}

    return handle

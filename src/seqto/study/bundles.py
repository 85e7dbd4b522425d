"""Set-up of a bundle's run: its wiring, and the inputs that its samples have."""

from __future__ import annotations

from typing import Any

from seqto.devices.bundle import BundleDevice
from seqto.devices.device import Device
from seqto.errors import ConfigError
from seqto.model import files as model_files
from seqto.model.bundle import split
from seqto.model.inputs import declared_inputs, input_specs
from seqto.model.sources.source import Fetched
from seqto.model.wiring import IDS, Wiring
from seqto.records import InputSpec
from seqto.tasks.task import GenerationTask, Task, portable_form

# one sequence at a time, of any length
SEQUENCE = InputSpec(IDS, (1, None), "int64")


def sample_inputs(fetched: Fetched) -> tuple[InputSpec, ...]:
    """Return the inputs that samples are made for: those of the model, or a bundle's source."""
    return (SEQUENCE,) if fetched.components else input_specs(model_files.load(fetched.path))


def wiring_of(fetched: Fetched, task: Task) -> Wiring | None:
    """Return how a bundle's components are fed; None for an ordinary model."""
    if not isinstance(task, GenerationTask):
        if fetched.components:
            raise ConfigError(
                'model.bundle is set, but the task does not generate: set task.kind = "seq2seq"'
            )
        return None
    if not fetched.components:
        raise ConfigError(
            "the task generates sequences: name the files of the encoder and the decoder in "
            "[model.bundle] (a decoder alone continues its source)"
        )
    if portable_form(task) is None:
        raise ConfigError(
            f"{type(task).__name__} cannot be made again in a worker, which a task that generates "
            "must be: make it a dataclass of a module, with fields that are JSON"
        )
    wiring = task.make_wiring()
    protos = split(fetched.load())
    wiring.check(
        {name: tuple(spec.name for spec in declared_inputs(p)) for name, p in protos.items()},
        {name: tuple(o.name for o in p.graph.output) for name, p in protos.items()},
    )
    return wiring


def device_for(device: Device, wiring: Wiring | None) -> Any:
    """Return the device that runs whole samples: of a bundle, whole generations."""
    return device if wiring is None else BundleDevice(device, wiring)

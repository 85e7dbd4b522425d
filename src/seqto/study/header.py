"""Header of a run: model, data, settings, versions, CPU; and which of them may not change."""

from __future__ import annotations

import json

import numpy as np

from seqto import config
from seqto.data.store import SampleStore
from seqto.devices.environment import environment, version
from seqto.errors import JournalError
from seqto.model import files as model_files
from seqto.model.layer_graph import layer_inputs
from seqto.model.license import license_of
from seqto.model.sources.source import Fetched
from seqto.record.events import FORMAT, RunStarted
from seqto.records import Json
from seqto.study.setup import RunSetup
from seqto.study.workspace import Workspace
from seqto.transforms.variants import BASE, MODEL_FILE


def model_identity(fetched: Fetched) -> Json:
    proto = fetched.load()
    license_text = license_of(proto, fetched.origin)
    return {
        "name": fetched.name,
        "path": fetched.path,
        "sha256": fetched.sha256(),
        "size_bytes": fetched.size_bytes(),
        "opset": model_files.opset_of(proto),
        "origin": dict(fetched.origin),
        **({"license": license_text} if license_text else {}),
    }


def refuse_changes(setup: RunSetup, header: RunStarted, identity: Json) -> None:
    """Refuse to resume a run with another model, other data or other settings that matter."""
    changed = []
    if header.model["sha256"] != identity["sha256"]:
        old, new = header.model["sha256"][:12], identity["sha256"][:12]
        changed.append(f"model: sha256 {old}… → {new}…")
    new = settings_json(setup)
    changed += config.differences(dict(header.settings), new, free=_resume_keys(setup))
    if changed:
        raise JournalError(
            f"{setup.out} was begun with other input ({'; '.join(changed[:4])}): give another "
            "--out folder, or the same input to go on"
        )


def _resume_keys(setup: RunSetup) -> frozenset[str]:
    """Return the plug-ins' own settings that may change when a run is resumed."""
    chosen = {
        "task": setup.task,
        "search": setup.strategy,
        "device": setup.device,
        "data": setup.data,
    }
    return frozenset().union(*(config.resume_keys(k, plugin) for k, plugin in chosen.items()))


def settings_json(setup: RunSetup) -> Json:
    data = config.flatten(setup.settings.to_json())
    nested: Json = {}
    for dotted, value in data.items():
        target = nested
        *parents, last = dotted.split(".")
        for name in parents:
            target = target.setdefault(name, {})
        target[last] = value
    read_back: Json = json.loads(json.dumps(nested))  # as a journal will give it back
    return read_back


def header(setup: RunSetup, workspace: Workspace, identity: Json) -> RunStarted:
    """Return the first event of a run."""
    return RunStarted(
        schema=FORMAT,
        seqto=version(),
        model=identity,
        prepared={
            "path": f"variants/{BASE}/{MODEL_FILE}",
            "sha256": workspace.prepared.sha256,
            "size_bytes": workspace.prepared.proto.ByteSize(),
            "opset": workspace.prepared.opset,
        },
        data={
            "identity": workspace.store.identity,
            "kind": workspace.store.data.get("kind", "data"),
            "splits": workspace.store.splits(),
            "unreadable": list(workspace.store.unreadable),
            **_origin(workspace.store),
            **sequences_json(workspace.store),
        },
        settings=settings_json(setup),
        environment=environment(),
        device=_device_json(setup),
        layers=tuple(workspace.layers),
        layer_inputs=layer_inputs(workspace.prepared.proto, workspace.layers),
    )


def _device_json(setup: RunSetup) -> Json:
    """Return the device; of several, the first, and all of them."""
    described = [one.describe() for one in setup.devices]
    if len(described) == 1:
        return {**setup.device.describe(), **described[0]}
    return {**described[0], "devices": described}


def sequences_json(store: SampleStore) -> Json:
    """Return what a report says of sequences: their lengths, how they are run, what was cut."""
    if store.ragged is None:
        return {}
    rows = np.arange(len(store.ragged.order))
    lengths = store.ragged.lengths(rows)
    about = store.ragged.about
    return {
        "sequences": {
            "batch": store.run_rows,
            "per_sample": about.per_sample,
            "masked": about.masked,
            "max_length": about.max_length,
            "median_tokens": int(np.median(lengths)),
            "longest_tokens": int(lengths.max()),
        },
        "truncated": store.truncated,
    }


def _origin(store: SampleStore) -> Json:
    """Return where a dataset comes from: its name, split and commit."""
    origin = store.data.get("origin")
    return {"origin": origin} if origin else {}

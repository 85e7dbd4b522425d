"""A config file to begin with: what a model's file tells, the rest as comments to fill in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from seqto.model import files as model_files
from seqto.model.sources.source import Fetched
from seqto.study.guess_task import metadata, said_task, signature
from seqto.study.starter_preprocess import preprocess_table
from seqto.tasks.guess import guess_task
from seqto.tasks.task_guess import TaskGuess, Tensor

PLACEHOLDER = 100  # random inputs, where no data are given: enough for a dry run


def starter_config(fetched: Fetched, *, model: str, data: tuple[str, Any] | None) -> str:
    """Return the text of a commented TOML file; `data` is a key of [data] and its value."""
    proto = model_files.load(fetched.path)
    inputs, outputs = signature(proto)
    guess = guess_task(inputs, outputs, said=said_task(proto)) if inputs and outputs else None
    lines = ["# Settings of one run: `seqto tune --config FILE --out FOLDER`.", ""]
    lines += ["[model]", f"path = {_toml(model)}"]
    lines += [f"# input {_toml(name)}: {_shape(t)}" for name, t in inputs.items()]
    lines += [f"# output {_toml(name)}: {_shape(t)}" for name, t in outputs.items()]
    lines += ["", "[task]", *_task(guess), "", "[data]", *_data(data)]
    preprocess = preprocess_table(inputs, guess, metadata(proto))
    if preprocess is not None:
        lines += ["", "[data.preprocess]", *_preprocess(preprocess, fetched)]
    return "\n".join([*lines, *_SEARCH]) + "\n"


def _task(guess: TaskGuess | None) -> list[str]:
    if guess is None:
        return ['# kind = "classification"  # nothing could be told from the file']
    lines = [f"# {guess.sentence}", f"kind = {_toml(guess.kind)}"]
    return [*lines, *(f"{key} = {_toml(value)}" for key, value in guess.settings.items())]


def _data(data: tuple[str, Any] | None) -> list[str]:
    if data is not None:
        return [f"{data[0]} = {_toml(data[1])}", *_SPLITS]
    return [
        "# Give real samples before you believe a figure: one of these instead of `random`.",
        '# images = "pictures/"      # a folder of pictures, one sub-folder a class',
        '# arrays = "samples.npz"    # one array for each input, and labels',
        f"random = {PLACEHOLDER}",
        "calibration = 20",
        "evaluation = 60",
    ]


_SPLITS = (
    "# calibration = 100          # samples for ranges",
    "# evaluation = 300           # samples that the search measures loss on",
)


def _preprocess(table_and_notes: tuple[dict[str, Any], list[str]], fetched: Fetched) -> list[str]:
    table, lines = table_and_notes
    if fetched.preprocess:  # a repository says it
        table, lines = {key: value for key, value in fetched.preprocess.items() if value}, []
    return [*(f"# {line}" for line in lines), *(f"{k} = {_toml(v)}" for k, v in table.items())]


_SEARCH = (
    "",
    "[search]",
    '# want = "smallest"          # or fastest, lowest-loss, within the bounds below',
    '# max_loss = "1%"            # of changed answers',
    '# max_size = "4MB"',
    "# min_speedup = 1.3",
    "# max_minutes = 10",
)


def _shape(tensor: Tensor) -> str:
    sides = " × ".join("?" if side is None else str(side) for side in tensor.shape)
    return f"{sides} {tensor.dtype}"


def _toml(value: Any) -> str:
    """Return a value as TOML writes it; strings of strangers are escaped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return str(value)

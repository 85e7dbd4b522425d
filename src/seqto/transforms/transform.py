"""The protocol of a transform of the float model, and the codes that name transforms.

A code is the kind and what is set: `smooth`, `smooth-0.5` (the first field), or
`smooth-alpha=0.7-insert=true` (any field by its name).
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from seqto import plugins
from seqto.errors import ConfigError, nearest
from seqto.model.prepare import Prepared

GROUP = "seqto.transforms"
# named among the transforms in settings and journals, but a flag of the plan: it changes no float
# model, it is made while a model is assembled (assembly/bias_correction.py)
BIAS_CORRECTION = "bias-correction"


Peaks = Mapping[str, NDArray[np.float32]]  # tensor → largest magnitude of each channel


Rows = Mapping[str, NDArray[np.float32]]  # tensor → some of its rows [n, channels]


@dataclass(frozen=True, slots=True)
class Applied:
    """A transformed model, with the layers that were changed."""

    proto: Any  # a new onnx.ModelProto; existing nodes keep their names
    touched: tuple[str, ...]  # layers whose weights changed
    skipped: tuple[tuple[str, str], ...]  # (layer or "layer → layer", why not)
    exact: bool  # True: outputs must stay within tolerance; False: they may move
    notes: tuple[str, ...] = ()  # figures worth showing


@runtime_checkable
class Transform(Protocol):
    """A change of the float model: a frozen dataclass whose fields are its settings.

    `peaks` are those of the prepared model that is given, which is not changed. A result that is
    called exact gives the same outputs within a tolerance; the study checks it on samples.
    """

    kind: ClassVar[str]  # the name that it is registered under

    def apply(self, prepared: Prepared, peaks: Peaks) -> Applied: ...


@runtime_checkable
class MeasuringTransform(Transform, Protocol):
    """A transform that may want rows of what flows into matrix products (calibration/input_rows).

    `measures` says whether these settings do; `apply` must do without.
    """

    @property
    def measures(self) -> bool: ...

    def apply_measured(self, prepared: Prepared, peaks: Peaks, rows: Rows) -> Applied: ...


def parse_transform(code: str) -> Transform:
    """Return the transform that a code names."""
    kind, dash, settings = code.partition("-")
    known = plugins.kinds(GROUP)
    if kind not in known or code == BIAS_CORRECTION:
        suggestion = nearest(kind, known) or nearest(code, [*known, BIAS_CORRECTION])
        names = ", ".join([*known, BIAS_CORRECTION])
        raise ConfigError(f"unknown transform {code!r}{suggestion} (known: {names})")
    if dash and not settings:
        raise ConfigError(
            f"transform {code!r} ends in a dash: write {kind!r}, or a setting behind it"
        )
    plugin = plugins.find(GROUP, kind)
    fields = {f.name: f for f in dataclasses.fields(plugin) if f.init}
    values: dict[str, Any] = {}
    for word in re.split(r"-(?=[A-Za-z_]+=)", settings) if settings else ():
        name, equals, text = word.partition("=")
        if not equals:
            name, text = next(iter(fields), ""), word
        if name not in fields or name in values:
            raise ConfigError(
                f"transform {code!r}: {kind} has no setting {name or word!r} to set here"
                f"{nearest(name, list(fields))}"
            )
        values[name] = _typed(plugin, name, text, code=code)
    transform: Transform = plugin(**values)
    return transform


def code_of(transform: Transform) -> str:
    """Return the shortest code that names a transform: its kind and what is not the default."""
    words = [transform.kind]
    for position, item in enumerate(dataclasses.fields(typing.cast(Any, transform))):
        value = getattr(transform, item.name)
        if not item.init or value == item.default:
            continue
        # no plus sign: it joins the names of transforms that follow each other (variants.py)
        text = str(value).lower() if isinstance(value, bool) else str(value).replace("e+", "e")
        words.append(text if position == 0 else f"{item.name}={text}")
    return "-".join(words)


def _typed(plugin: Any, name: str, text: str, *, code: str) -> Any:
    hint = typing.get_type_hints(plugin)[name]
    try:
        if hint is bool:
            return {"true": True, "false": False}[text]
        if hint is int:  # `equalize-3.0` was a code of 0.1.0
            number = float(text)
            if number != int(number):
                raise ValueError(text)
            return int(number)
        return hint(text)
    except (ValueError, KeyError, OverflowError, TypeError) as error:
        type_name = "true or false" if hint is bool else getattr(hint, "__name__", str(hint))
        raise ConfigError(f"transform {code!r}: {name} is {text!r}, use a {type_name}") from error

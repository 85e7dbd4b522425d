"""ONNX → Relax → a library for the device, made once for the same model, shapes and target.

The stage at which TVM fails, and the operators it names when it does, are what a study needs to
give single layers back to float: they are kept in the DeviceError.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqto.errors import DeviceError
from seqto.files import make_folder
from seqto.records import Json


@dataclass(frozen=True, slots=True)
class Recipe:
    """Target, host, compiler and cache folder that a library is compiled with."""

    target: Json
    host: Json = field(default_factory=dict)
    cross_compiler: str | None = None
    cache: str | None = None

    @property
    def kind(self) -> str:
        return str(self.target["kind"])


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model with the shapes that are needed to feed it in chunks."""

    proto: Any
    sha256: str
    shapes: Mapping[str, tuple[int | None, ...]]  # by input, in order; None = the free batch
    outputs: tuple[str, ...]

    @property
    def batch(self) -> int | None:
        """The fixed batch; None when it is free."""
        firsts = [shape[0] for shape in self.shapes.values() if shape]
        return None if None in firsts or not firsts else firsts[0]

    def batched(self, name: str) -> bool:
        shape = self.shapes[name]
        return bool(shape) and shape[0] == self.batch


def read_model(model: bytes | Path, dims: Mapping[str, int]) -> ImportedModel:
    import onnx

    try:
        if isinstance(model, Path):
            proto = onnx.load_model(str(model))  # with the data beside it
            digest = hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()
        else:
            proto = onnx.load_model_from_string(model)
            digest = hashlib.sha256(model).hexdigest()
    except Exception as error:
        raise DeviceError(f"not an ONNX model: {error}", stage="import") from error
    constants = {tensor.name for tensor in proto.graph.initializer}
    shapes: dict[str, tuple[int | None, ...]] = {}
    for value in proto.graph.input:
        if value.name in constants:
            continue
        shape: list[int | None] = []
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            size = dim.dim_value if dim.dim_value > 0 else dims.get(dim.dim_param)
            if size is None and axis > 0:
                raise DeviceError(
                    f"input {value.name!r} has the free dimension {dim.dim_param!r} at axis {axis} "
                    f"and TVM compiles for fixed shapes: give its size in `dims`",
                    stage="import",
                )
            shape.append(size)
        shapes[value.name] = tuple(shape)
    outputs = tuple(value.name for value in proto.graph.output)
    return ImportedModel(proto, digest, shapes, outputs)


def compiled(recipe: Recipe, model: ImportedModel, *, size: int) -> Path:
    """Return the library for one batch size, from the cache where the same was asked before."""
    asked = {
        "model": model.sha256,
        "shapes": {n: [size if d is None else d for d in s] for n, s in model.shapes.items()},
        "target": recipe.target,
        "host": dict(recipe.host),
        "linker": recipe.cross_compiler,
        "tvm": version_of("apache-tvm"),
    }
    key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    folder = Path(recipe.cache) if recipe.cache else _own_folder()
    path = folder / f"{key}.so"
    if not path.is_file():
        make_folder(folder)
        module = _imported(model.proto, asked["shapes"], recipe=recipe)
        _compile(module, recipe, path=path)
    return path


def _imported(proto: Any, shapes: Any, *, recipe: Recipe) -> Any:
    from tvm.relax.frontend.onnx import from_onnx

    said = io.StringIO()  # the importer prints the operator it stumbles over
    try:
        with contextlib.redirect_stdout(said):
            return from_onnx(proto, shape_dict=shapes)
    except Exception as error:
        raise device_error(error, "import", kind=recipe.kind, said=said.getvalue()) from error


def _compile(module: Any, recipe: Recipe, *, path: Path) -> None:
    import tvm
    from tvm.support import cc

    host = dict(recipe.host) or {"kind": "llvm"}
    handle, draft = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(handle)
    linker = {"fcompile": cc.cross_compiler(recipe.cross_compiler)} if recipe.cross_compiler else {}
    try:
        target = tvm.target.Target(recipe.target, host=host)
        tvm.compile(module, target=target).export_library(draft, **linker)
        os.replace(draft, path)  # whole or not at all: other workers read the same folder
    except Exception as error:
        raise device_error(error, "compile", kind=recipe.kind) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)


_UNSUPPORTED = re.compile(r"not supported for frontend ONNX: ([\w, ]+)")


_STUMBLED = re.compile(r"Error converting operator (\w+),")


def device_error(error: BaseException, stage: str, *, kind: str, said: str = "") -> DeviceError:
    """Return TVM's error in one line, with the op types that it names."""
    text = str(error).strip()
    match = _UNSUPPORTED.search(text)
    ops = tuple(sorted(re.split(r"[,\s]+", match[1].strip()))) if match else ()
    if not ops:
        ops = tuple(dict.fromkeys(_STUMBLED.findall(said)))
    last = (text.splitlines() or [type(error).__name__])[-1].strip()[:400]
    blamed = f" (operator {', '.join(ops)})" if ops else ""
    hint = ""
    if "not registered" in text and stage == "load":
        hint = f"; the server was built without a runtime for {kind}"
    return DeviceError(
        f"TVM failed to {stage} for {kind}{blamed}: {last}{hint}", stage=stage, ops=ops
    )


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def own_linker() -> str | None:
    from tvm.support import cc

    linker: str | None = cc.get_cc()
    return linker


_FOLDER: list[Path] = []


def _own_folder() -> Path:
    if not _FOLDER:
        _FOLDER.append(Path(tempfile.mkdtemp(prefix="seqto-tvm-")))
        atexit.register(shutil.rmtree, _FOLDER[0], ignore_errors=True)
    return _FOLDER[0]

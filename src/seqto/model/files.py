"""Model files: load, save, hash, external data."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqto.errors import ModelError
from seqto.files import make_folder, temporary_folder, write_file

DATA_SUFFIX = ".data"  # of the file beside a model that is too large for one
PROTOBUF_LIMIT_BYTES = 2**31 - 1
LARGE_MODEL_BYTES = 2**28  # from this size on, memory goes before time
HANDLES = "/proc/self/fd"  # where Linux lists the open files of a process


# ---------------------------------------------------------------------------- reading and writing


def sha256_of_file(path: str | Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def size_of(path: str | Path) -> int:
    """Return the bytes on disk, external data included."""
    total = Path(path).stat().st_size
    return total + sum(p.stat().st_size for p in external_files(path))


def external_files(path: str | Path) -> list[Path]:
    """List the files that hold initializers outside of the .onnx file, without reading them."""
    import onnx

    proto = onnx.load(str(path), load_external_data=False)
    names = set()
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                names.add(entry.value)
    folder = Path(path).resolve().parent
    files = []
    for name in sorted(names):
        file = (folder / name).resolve()
        if not file.is_relative_to(folder):
            raise ModelError(f"{path}: external data {name!r} lies outside of the model's folder")
        files.append(file)
    return files


def load(path: str | Path, *, ours: bool = False) -> Any:
    """Read a model with its external data; every way to be unreadable is a ModelError.

    ours: `save` wrote it, so that it is not checked once more, which takes its size in memory.
    """
    path = Path(path)
    with utf8_name(path) as name:
        if not path.is_file():
            raise ModelError(f"model {str(path)!r} does not exist; give the path of an .onnx file")
        return _load(path, name, ours=ours)


def _load(path: Path, name: str, *, ours: bool) -> Any:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        missing = [] if ours else [p for p in external_files(path) if not p.is_file()]
        if missing:
            raise ModelError(f"{path}: external data file {missing[0].name!r} is missing beside it")
        proto = onnx.load(name)
        if not proto.graph.node:
            raise ModelError(f"{path}: no ONNX graph in this file (wrong file, or cut short?)")
        if not ours:
            _check(name)
    except ModelError:
        raise
    except (DecodeError, onnx.checker.ValidationError, ValueError, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{path} is not a readable ONNX model: {first}") from error
    return proto


def _check(name: str) -> None:
    """Check a model by ONNX's rules, unless it has operators that ONNX does not know.

    Exporters write some of ONNX Runtime's own, such as SimplifiedLayerNormalization, as if they
    were ONNX's; whether a runtime knows an operator is found when the model is first loaded.
    """
    import onnx

    try:
        onnx.checker.check_model(name)
    except onnx.checker.ValidationError as error:
        if "No Op registered for" not in str(error):
            raise


@contextlib.contextmanager
def utf8_name(path: Path) -> Iterator[str]:
    """Yield a name of a file that is UTF-8 text: ONNX and ONNX Runtime take no other.

    A file with another name is opened through a link, a folder with another name by its open
    handle, which Linux gives a name. A link has no external data beside it.
    """
    if _is_utf8(str(path)):
        yield str(path)
        return
    if not _is_utf8(path.name) and path.is_file() and not _has_external_files(path):
        with temporary_folder("seqto-model-") as folder:
            link = folder / "model.onnx"
            link.symlink_to(path.resolve())
            yield str(link)
        return
    if not _is_utf8(path.name) or not os.path.isdir(HANDLES):
        raise ModelError(
            f"model {str(path)!r} has a name that is not UTF-8 text in this locale, which ONNX "
            "Runtime does not open: rename the file or its folder, or set LC_ALL=C.UTF-8"
        )
    try:
        handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ModelError(f"model {str(path)!r} cannot be read: {error.strerror}") from error
    try:
        yield f"{HANDLES}/{handle}/{path.name}"
    finally:
        os.close(handle)


def _has_external_files(path: Path) -> bool:
    """Return whether a file has weights beside it; one that is no model has none."""
    from google.protobuf.message import DecodeError

    try:
        return bool(external_files(path))
    except (DecodeError, ValueError):
        return False


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_bytes(proto: Any) -> bytes:
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def save(proto: Any, path: str | Path) -> None:
    """Write atomically; initializers go to a file beside it when protobuf's limit is near."""
    write_outside(proto, Path(path), from_bytes=PROTOBUF_LIMIT_BYTES // 2)


def write_outside(proto: Any, path: Path, *, from_bytes: int) -> None:
    """Write a model; of one of so many bytes, the weights leave it for a file beside it."""
    import onnx

    make_folder(path.parent)
    if constant_bytes(proto) < from_bytes:
        write_file(path, to_bytes(proto))
        return
    onnx.save_model(
        proto,
        str(path),
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=path.name + DATA_SUFFIX,
        size_threshold=1024,
    )


def constant_bytes(proto: Any) -> int:
    """Return the bytes of a model's constants, by their shapes.

    `ByteSize` of a message serializes it, which takes its size in memory once more.
    """
    return sum(map(bytes_of_constant, proto.graph.initializer))


def bytes_of_constant(tensor: Any) -> int:
    import onnx

    try:
        item = int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except (KeyError, ValueError):  # a type that this onnx does not know
        item = 1
    return int(math.prod(tensor.dims)) * item


def op_types(data: bytes) -> set[str]:
    """Return the op types in a serialized model."""
    import onnx

    return {n.op_type for n in onnx.load_from_string(data).graph.node}


def opset_of(proto: Any) -> int:
    return next((int(o.version) for o in proto.opset_import if o.domain in ("", "ai.onnx")), 0)


def give_back_memory() -> None:
    """Return freed memory to the system.

    glibc keeps what a large model's tensors took: three times its size after it was prepared.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)

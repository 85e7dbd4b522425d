"""Device `tvm`: a model compiled with Apache TVM (Relax), run over RPC, timed on the device.

Only the files of this folder import tvm. The far end may be a phone (address, or
tracker with a key) or a server that is started here for the purpose, on 127.0.0.1.

TVM compiles for fixed shapes. A model whose batch is free is compiled for `chunk` samples, the
last chunk is filled up with copies of its last sample and the copies' answers are dropped.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqto.devices.tvm.compile import (
    Recipe,
    own_linker,
    read_model,
    version_of,
)
from seqto.devices.tvm.rpc import Endpoint, host_and_port
from seqto.devices.tvm.session import DEVICE_OF_KIND, TvmSession
from seqto.errors import ConfigError, DeviceError, nearest
from seqto.records import Json, Layer
from seqto.schemes.scheme import Scheme
from seqto.schemes.types import Arithmetic

_NO_TVM = "apache-tvm is not installed: pip install 'seqto[tvm]'"


@dataclass(frozen=True, slots=True)
class Tvm:
    """The target to compile for, and the endpoint that runs it; every field is a setting.

    preset          a name of PRESETS: gives the fields that are left as they are
    target          what the kernels are for: a kind ("llvm", "opencl", "cuda", "vulkan", …) or
                    TVM's table of it, {"kind": "opencl", "device": "mali"}
    host            the CPU beside it, as a table; empty = this machine's
    address         host:port of a running RPC server; None = start one here, on 127.0.0.1
    tracker, key    host:port of a tracker, and the name under which the device is registered
    cross_compiler  linker for the device, e.g. the NDK's clang++; None = this machine's
    load_library    runtime library for a server started here (OpenCL is not in the wheel)
    session_timeout_s  the longest one step, and one connection, may take
    retries, backoff_s  after a lost link: how often again, and the first pause (it doubles)
    chunk           samples in one run, where the model's batch is free
    dims            sizes of free dimensions other than the batch, by name
    cache           folder for compiled models; None = one that ends with the process. Whoever
                    can write there can run code on the device
    """

    target: str | Mapping[str, Any] = "llvm"
    host: Mapping[str, Any] = field(default_factory=dict)
    # free: may be another when a run is resumed
    address: str | None = field(default=None, metadata={"resume": True})
    tracker: str | None = field(default=None, metadata={"resume": True})
    key: str = field(default="", metadata={"resume": True})
    cross_compiler: str | None = None
    load_library: str | None = None
    session_timeout_s: float = 600.0
    connect_timeout_s: float = 60.0
    retries: int = 3
    backoff_s: float = 1.0
    chunk: int = 1
    dims: Mapping[str, int] = field(default_factory=dict)
    cache: str | None = field(default=None, metadata={"resume": True})
    preset: str = ""

    def __post_init__(self) -> None:
        self._fill_from_preset()
        if isinstance(self.target, str) and not re.fullmatch(r"\w+", self.target):
            raise ConfigError(
                f"tvm target {self.target!r} is no kind; options go into a table, such as "
                '{kind = "opencl", device = "mali", max_num_threads = 256}'
            )
        if not self.kind:
            raise ConfigError(f"tvm target {self.target!r} has no kind")
        if self.address and self.tracker:
            raise ConfigError("tvm device has both an address and a tracker: give one of them")
        if self.tracker and not self.key:
            raise ConfigError(f"tracker {self.tracker!r} needs the key of the device")
        if self.load_library and (self.address or self.tracker):
            raise ConfigError("load_library is for a server started here, not for one elsewhere")
        for address in filter(None, (self.address, self.tracker)):
            try:
                host_and_port(address)
            except ValueError as error:
                raise ConfigError(f"tvm device: {error}") from error
        if self.chunk < 1 or self.retries < 0 or self.session_timeout_s <= 0:
            raise ConfigError("tvm device: chunk ≥ 1, retries ≥ 0 and session_timeout_s > 0")

    def _fill_from_preset(self) -> None:
        if self.preset and self.preset not in PRESETS:
            known = ", ".join(PRESETS)
            suggestion = nearest(self.preset, list(PRESETS))
            raise ConfigError(f"no tvm preset {self.preset!r}{suggestion} (known: {known})")
        untouched: Json = {"target": "llvm", "host": {}, "cross_compiler": None}
        for name, value in PRESETS.get(self.preset, {}).items():
            if getattr(self, name) == untouched[name]:
                object.__setattr__(self, name, value)

    @property
    def max_workers(self) -> int | None:
        """One address serves one connection at a time: two workers would lock each other out."""
        return None if self.address is None else 1

    def with_cache(self, folder: Path) -> Json:
        """Return the setting by which a run's workers share compiled models.

        A folder that the user has named stays.
        """
        return {} if self.cache is not None else {"cache": str(folder)}

    @property
    def kind(self) -> str:
        return self.target if isinstance(self.target, str) else str(self.target.get("kind", ""))

    @property
    def name(self) -> str:
        return f"tvm-{self.kind}"

    def open(self, model: bytes | Path, *, threads: int = 0) -> TvmSession:
        """Compile, upload and load; DeviceError says at which stage it failed."""
        if importlib.util.find_spec("tvm") is None:
            raise DeviceError(_NO_TVM, stage="load")
        if self.load_library and not Path(self.load_library).is_file():
            raise DeviceError(f"no runtime library {self.load_library!r}", stage="load")
        session = TvmSession(
            read_model(model, self.dims),
            self._recipe(),
            endpoint=self._endpoint(),
            chunk=self.chunk,
            threads=threads,
        )
        try:
            session.load()
        except BaseException:
            session.close()
            raise
        return session

    def refuses(self, layer: Layer, scheme: Scheme) -> str | None:
        """Return why TVM 0.27 cannot run a scheme, as tried; docs/devices-tvm.md has the table."""
        if scheme.weight is not None and scheme.weight.is_narrow:
            return "TVM's ONNX import fails on int4 tensors"
        if scheme.arithmetic is Arithmetic.DYNAMIC and layer.op_type == "Conv":
            return "TVM's ONNX import has no ConvInteger"
        return None

    def describe(self) -> Json:
        where = self.address or self.tracker or "local RPC server"
        return {
            "kind": "tvm",
            "name": self.name,
            "target": self._target(),
            "host": dict(self.host),
            "place": where,
            "key": self.key,
            "chunk": self.chunk,
            "versions": {p: version_of(p) for p in ("apache-tvm", "apache-tvm-ffi")},
        }

    def usable(self) -> tuple[bool, str]:
        """Return whether it can be used from here, and why not.

        The far end is asked only for an open port.
        """
        if importlib.util.find_spec("tvm") is None:
            return False, _NO_TVM
        obstacle = self._cannot_compile() or self._cannot_run()
        where = self.address or self.tracker or "a server started here"
        return not obstacle, obstacle or f"compiles for {self.kind}, runs on {where}"

    def _cannot_compile(self) -> str:
        import tvm

        if tvm.get_global_func(f"target.build.{self.kind}", allow_missing=True) is None:
            return f"this TVM was built without a code generator for {self.kind}"
        linker = self.cross_compiler or own_linker()
        if linker is None:
            return "no C++ compiler on this machine to link with: install g++ or clang"
        return "" if shutil.which(linker) else f"no linker {linker!r} on this machine"

    def _cannot_run(self) -> str:
        import tvm

        if address := self.address or self.tracker:
            try:
                socket.create_connection(host_and_port(address), timeout=3).close()
            except OSError as error:
                return f"nobody answers at {address}: {error}"
        elif self.host.get("mtriple"):
            return "compiled for another machine: give its address, or a tracker and a key"
        elif self.load_library:
            return "" if Path(self.load_library).is_file() else f"no file {self.load_library!r}"
        elif self.kind not in DEVICE_OF_KIND and not tvm.runtime.device(self.kind).exist:
            return f"this TVM has no {self.kind} runtime, or finds no such device here"
        return ""

    def _target(self) -> Json:
        return {"kind": self.target} if isinstance(self.target, str) else dict(self.target)

    def _recipe(self) -> Recipe:
        return Recipe(self._target(), dict(self.host), self.cross_compiler, self.cache)

    def _endpoint(self) -> Endpoint:
        shared = {f.name for f in dataclasses.fields(Endpoint)}
        return Endpoint(**{name: getattr(self, name) for name in shared})


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "llvm": {},
    "opencl": {"target": {"kind": "opencl", "max_num_threads": 256}},
    "opencl-mali-android": {
        "target": {"kind": "opencl", "device": "mali", "max_num_threads": 256},
        "host": {"kind": "llvm", "mtriple": "aarch64-linux-android"},
        "cross_compiler": "aarch64-linux-android30-clang++",
    },
    "cuda": {"target": "cuda"},
    "vulkan": {"target": "vulkan"},
}


def preset(name: str) -> Tvm:
    """Return a device by its short name; change fields with dataclasses.replace."""
    return Tvm(preset=name)

"""ONNX Runtime with any of its execution providers, strictly: no silent fallback to the CPU."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.errors import DeviceError
from seqto.files import temporary_folder
from seqto.model.graph_hash import graph_hash
from seqto.model.ort_session import CPU, open_session
from seqto.records import Json, Layer
from seqto.schemes.scheme import Scheme
from seqto.schemes.types import Arithmetic


@dataclass(frozen=True, slots=True)
class Ort:
    """`provider` as ORT spells it, or its short form (cpu, cuda, openvino, webgpu, …)."""

    provider: str = CPU
    options: Mapping[str, str] = field(default_factory=dict)
    optimize: bool = True  # False: no graph optimization, quantization simulated in float
    strict: bool = True

    @property
    def full_provider(self) -> str:
        return full_name(self.provider)

    @property
    def name(self) -> str:
        short = self.full_provider.removesuffix("ExecutionProvider").lower()
        return f"ort-{short}" + ("" if self.optimize else "-exact")

    def open(self, model: bytes | Path, *, threads: int = 0) -> OrtSession:
        return OrtSession(self._session(model, threads=threads, strict=self.strict))

    def open_with_graph(self, model: bytes | Path, *, threads: int = 0) -> tuple[OrtSession, str]:
        """Load, and return a hash of the graph that ORT has made of the model.

        Providers that compile a graph cannot write it, and a disk may be full: then nothing is
        known of it.
        """
        if self.full_provider == CPU and self.optimize:
            with contextlib.suppress(OSError, DeviceError, ValueError):
                return self._open_and_hash(model, threads)
        return self.open(model, threads=threads), ""

    def _open_and_hash(self, model: bytes | Path, threads: int) -> tuple[OrtSession, str]:
        with tempfile.TemporaryDirectory(prefix="seqto-graph-") as folder:
            path = Path(folder) / "graph.onnx"
            session = self._session(model, threads=threads, strict=self.strict, save_graph=path)
            return OrtSession(session), graph_hash(path.read_bytes())

    def refuses(self, layer: Layer, scheme: Scheme) -> str | None:
        if self.full_provider == CPU:
            return None
        if scheme.arithmetic is Arithmetic.DYNAMIC and layer.op_type in ("Conv", "ConvTranspose"):
            return f"{self.full_provider} has no ConvInteger; it would run on the CPU"
        return None

    def describe(self) -> Json:
        import onnxruntime as ort

        return {
            "kind": "ort",
            "name": self.name,
            "provider": self.full_provider,
            "options": dict(self.options),
            "optimize": self.optimize,
            "onnxruntime": ort.__version__,
        }

    def profile(self, model: bytes, feeds: Mapping[str, NDArray[Any]], *, runs: int) -> list[Json]:
        """Return kernel times and placement by node: [{node, op, provider, ms}], measured."""
        with temporary_folder("seqto-profile-") as folder:
            session = self._session(model, threads=0, strict=False, profile=str(folder / "p"))
            for _ in range(runs):
                session.run(None, dict(feeds))
            path = session.end_profiling()
            try:
                with open(path, encoding="utf-8") as stream:
                    events = json.load(stream)
            except (OSError, ValueError) as error:  # such as on a full disk
                raise DeviceError(
                    f"ONNX Runtime's profile is not whole ({error}): is there room for temporary "
                    f"files in {folder.parent}?",
                    stage="run",
                ) from error
        return _kernel_times(events)

    def _session(
        self,
        model: bytes | Path,
        *,
        threads: int,
        strict: bool,
        profile: str | None = None,
        save_graph: Path | None = None,
    ) -> Any:
        import onnxruntime as ort

        provider = self.full_provider
        if provider not in ort.get_available_providers():
            have = ", ".join(ort.get_available_providers())
            raise DeviceError(
                f"this onnxruntime has no {provider} (it has {have}): install the build for it",
                stage="load",
            )
        # Threads that spin after a run steal the cores: from other workers, and in a latency job
        # from the sessions whose turn is next, which doubled their times and made ratios random.
        entries = {
            "session.intra_op.allow_spinning": "1" if threads == 0 else "0",
            "session.force_spinning_stop": "1",
        }
        if strict and provider != CPU:
            entries["session.disable_cpu_ep_fallback"] = "1"
        try:
            session = open_session(
                model,
                provider=provider,
                provider_options=self.options,
                threads=threads,
                optimize=self.optimize,
                entries=entries,
                profile=profile,
                save_graph=save_graph,
            )
        except Exception as error:  # ORT raises many types without a root
            raise DeviceError(_first_line(error), stage="load", ops=ops_in(str(error))) from error
        if provider not in session.get_providers():
            raise DeviceError(
                f"{provider} did not start; ORT fell back to {session.get_providers()}",
                stage="load",
            )
        session.disable_fallback()
        return session


class OrtSession:
    """A loaded model. Not shared between processes."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        try:
            outputs: list[NDArray[Any]] = self._session.run(None, dict(feeds))
        except Exception as error:  # ORT raises many types without a root
            raise DeviceError(_first_line(error), stage="run", ops=ops_in(str(error))) from error
        return [o if isinstance(o, np.ndarray) else _boxed(o) for o in outputs]

    def time_ms(self, feeds: Mapping[str, NDArray[Any]]) -> float:
        begin = time.perf_counter()
        self.run(feeds)
        return (time.perf_counter() - begin) * 1e3

    def close(self) -> None:
        self._session = None

    def __enter__(self) -> OrtSession:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _boxed(value: Any) -> NDArray[Any]:
    """Return a sequence, a map or an empty optional as the one object of an array."""
    boxed = np.empty(1, dtype=object)
    boxed[0] = value
    return boxed


def full_name(provider: str) -> str:
    """Return a provider's full name, cpu → CPUExecutionProvider, by what this onnxruntime knows."""
    if provider.endswith("ExecutionProvider"):
        return provider
    import onnxruntime as ort

    for known in ort.get_all_providers():
        if known.removesuffix("ExecutionProvider").lower() == provider.lower():
            return str(known)
    raise DeviceError(
        f"onnxruntime knows no provider {provider!r}; it knows "
        + ", ".join(p.removesuffix("ExecutionProvider").lower() for p in ort.get_all_providers()),
        stage="load",
    )


def ops_in(message: str) -> tuple[str, ...]:
    """Return op types of ORT's message: 'Op (QLinearAdd)', 'implementation for Foo(11)'."""
    import re

    ops = re.findall(r"Op \((\w+)\)", message)
    ops += re.findall(r"implementation for (?:the node \S*?:)?(\w+)\(\d+\)", message)
    return tuple(dict.fromkeys(ops))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _kernel_times(events: list[Json]) -> list[Json]:
    """Return medians over the runs: one busy moment of the machine must not name a slow layer."""
    durations: dict[str, list[float]] = {}
    about: dict[str, Json] = {}
    for event in events:
        if event.get("cat") != "Node" or not event["name"].endswith("_kernel_time"):
            continue
        node = event["name"].removesuffix("_kernel_time")
        durations.setdefault(node, []).append(event["dur"] / 1e3)
        about[node] = event["args"]
    return [
        {
            "node": node,
            "op": about[node].get("op_name", ""),
            "provider": about[node].get("provider", ""),
            "ms": float(np.median(times)),
        }
        for node, times in durations.items()
    ]

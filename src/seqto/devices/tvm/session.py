"""A compiled model on a TVM device: upload, runs in chunks, timing by the device."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqto.devices.tvm.compile import ImportedModel, Recipe, compiled, device_error
from seqto.devices.tvm.rpc import Endpoint, Link, link_to
from seqto.errors import DeviceError

if TYPE_CHECKING:
    from seqto.records import Array, Feeds

DEVICE_OF_KIND = {"llvm": "cpu", "c": "cpu"}  # others have the name of their kind


@dataclass(slots=True)
class _Program:
    """A compiled model, and the machine that runs it on the link's current connection."""

    path: Path
    machine: Any = None
    generation: int = -1


class TvmSession:
    """A model on a TVM device. Survives a lost link by loading again where it stopped."""

    def __init__(
        self,
        model: ImportedModel,
        recipe: Recipe,
        *,
        endpoint: Endpoint,
        chunk: int,
        threads: int,
    ) -> None:
        """`chunk`: samples in one run, where the model's batch is free."""
        self._model, self._recipe, self._threads = model, recipe, threads
        self._size = model.batch or chunk
        self._programs: dict[int, _Program] = {}
        self._link: Link | None = link_to(endpoint)

    def load(self) -> None:
        program = self._program(self._size)
        self._attempt(program, lambda remote: None, stage="load", doing="loading the model")

    def run(self, feeds: Feeds) -> list[Array]:
        import numpy as np

        samples = self._samples(feeds)
        size = self._size
        program = self._program(size)
        parts: list[list[Array]] = []
        for start in range(0, samples, size):
            chunk = self._chunk(feeds, start, size=size)
            count = min(size, samples - start)
            answers = self._attempt(
                program,
                lambda remote, chunk=chunk: self._invoke(program, remote, chunk),
                stage="run",
                doing=f"running samples {start} to {start + count - 1} of {samples}",
            )
            if samples != size:
                self._check_batched(answers, size)
                answers = [a[:count] for a in answers]
            parts.append(answers)
        if len(parts) == 1:
            return parts[0]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def time_ms(self, feeds: Feeds) -> float:
        """Return the time of one run, by the device itself, after a run that is not counted.

        Compiled for exactly the samples given, so that a batch is timed as a batch.
        """
        samples = self._samples(feeds)
        size = self._model.batch or samples
        program = self._program(size)
        total_s = 0.0
        for start in range(0, samples, size):
            chunk = self._chunk(feeds, start, size=size)
            total_s += self._attempt(
                program,
                lambda remote, chunk=chunk: self._clock(program, remote, chunk),
                stage="time",
                doing="timing the model",
            )
        return total_s * 1e3

    def __enter__(self) -> TvmSession:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        link, self._link = self._link, None
        self._programs.clear()  # the machines go first: they use the link's connection
        if link is not None:
            link.release()

    # what happens on the far side; each of these is repeated as a whole after a lost link

    def _attempt(self, program: _Program, step: Any, *, stage: str, doing: str) -> Any:
        link = self._link
        if link is None:
            raise DeviceError("this TVM session is closed: open the model again", stage=stage)

        def whole(remote: Any) -> Any:
            if program.generation != link.generation:
                try:
                    self._upload(program, remote)
                except Exception as error:
                    raise _LoadFailed from error
                program.generation = link.generation
            if self._threads and link.threads != self._threads:
                # 1 = the machine's big cores, TVM's own default
                remote.get_function("runtime.config_threadpool")(1, self._threads)
                link.threads = self._threads
            return step(remote)

        try:
            return link.attempt(whole, stage=stage, doing=doing)
        except DeviceError:
            raise
        except _LoadFailed as error:
            raise device_error(
                error.__cause__ or error, "load", kind=self._recipe.kind
            ) from error.__cause__
        except Exception as error:
            raise device_error(error, stage, kind=self._recipe.kind) from error

    def _upload(self, program: _Program, remote: Any) -> None:
        from tvm import relax

        # never the same name twice: a library that is loaded already would be taken for this
        # one (seen: a float model's answers for a quantized one), and overwriting it is a crash
        name = f"seqto-{uuid.uuid4().hex}.so"
        remote.upload(bytearray(program.path.read_bytes()), name)
        library = remote.load_module(name)
        with contextlib.suppress(Exception):  # not every server can remove; it is mapped by now
            remote.remove(name)
        far = self._far(remote)
        devices = [far] if self._on_cpu else [far, remote.cpu()]
        program.machine = relax.VirtualMachine(library, devices)

    def _invoke(self, program: _Program, remote: Any, chunk: list[Array]) -> list[Array]:
        self._set(program, remote, chunk)
        program.machine.invoke_stateful("main")
        answer = program.machine.get_outputs("main")
        answers = answer if isinstance(answer, (tuple, list)) else (answer,)
        return [a.numpy() for a in answers]

    def _clock(self, program: _Program, remote: Any, chunk: list[Array]) -> float:
        self._set(program, remote, chunk)
        timer = program.machine.time_evaluator(
            "invoke_stateful", self._far(remote), number=1, repeat=1
        )
        return float(timer("main").results[0])

    def _set(self, program: _Program, remote: Any, chunk: list[Array]) -> None:
        import tvm

        far = self._far(remote)
        program.machine.set_input("main", *(tvm.runtime.tensor(a, far) for a in chunk))

    def _far(self, remote: Any) -> Any:
        return remote.device(DEVICE_OF_KIND.get(self._recipe.kind, self._recipe.kind))

    @property
    def _on_cpu(self) -> bool:
        return self._recipe.kind in DEVICE_OF_KIND

    # chunks

    def _program(self, size: int) -> _Program:
        if size not in self._programs:
            self._programs[size] = _Program(compiled(self._recipe, self._model, size=size))
        return self._programs[size]

    def _samples(self, feeds: Feeds) -> int:
        missing = [name for name in self._model.shapes if name not in feeds]
        if missing:
            raise DeviceError(f"no values for the input {missing[0]!r}", stage="run")
        counts = {len(feeds[n]) for n in self._model.shapes if self._model.batched(n)}
        if len(counts) > 1 or 0 in counts:
            raise DeviceError(f"inputs with {sorted(counts)} samples cannot run", stage="run")
        return counts.pop() if counts else 1

    def _chunk(self, feeds: Feeds, start: int, *, size: int) -> list[Array]:
        import numpy as np

        chunk = []
        for name in self._model.shapes:
            values = feeds[name]
            if self._model.batched(name):
                values = values[start : start + size]
                if len(values) < size:
                    filling = np.repeat(values[-1:], size - len(values), axis=0)
                    values = np.concatenate([values, filling])
            chunk.append(np.ascontiguousarray(values))
        return chunk

    def _check_batched(self, answers: list[Array], size: int) -> None:
        for name, answer in zip(self._model.outputs, answers, strict=True):
            if answer.ndim == 0 or answer.shape[0] != size:
                raise DeviceError(
                    f"output {name!r} has shape {answer.shape}, not one row for each of {size} "
                    f"samples, so chunks cannot be put together: run one sample at a time",
                    stage="run",
                )


class _LoadFailed(Exception):  # noqa: N818 (never leaves this file)
    """Marks a failure of upload or load inside a step that also runs."""

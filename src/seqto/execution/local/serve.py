"""The target of the pool's processes: a worker that is set up from JSON."""

from __future__ import annotations

from pathlib import Path

from seqto.execution import codec
from seqto.execution.files import LocalFiles
from seqto.execution.jobs import WorkerSetup, job_from_json, result_to_json
from seqto.execution.local.worker_process import Channel, Handler
from seqto.execution.worker import Worker
from seqto.records import Json


def setup_to_json(setup: WorkerSetup, files: LocalFiles) -> Json:
    """Return a worker's set-up with the folder of its files, for a process of this machine."""
    return {
        "root": str(files.root.resolve()),
        "elsewhere": {name: str(path.resolve()) for name, path in files.elsewhere.items()},
        "setup": codec.encode(setup),
    }


def setup_from_json(data: Json) -> tuple[WorkerSetup, LocalFiles]:
    elsewhere = {name: Path(path) for name, path in data["elsewhere"].items()}
    setup: WorkerSetup = codec.decode(WorkerSetup, data["setup"])
    return setup, LocalFiles(Path(data["root"]), elsewhere)


class ChannelSignals:
    """`Signals` over the channel to the main process."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def alive(self) -> None:
        self._channel.send({})

    def note(self, facts: Json) -> None:
        self._channel.send(facts)

    @property
    def stopped(self) -> bool:
        return self._channel.stopped


def serve(data: Json) -> Handler:
    """Set up a worker; return the handler of its jobs."""
    worker = Worker(*setup_from_json(data))

    def handle(job: Json, channel: Channel) -> Json:
        result = worker.run(job_from_json(job), ChannelSignals(channel))
        return result_to_json(result)

    return handle

"""A `seqto` command that kills itself, as `kill -9` would, right after its N-th journal record.

python killing.py N tune …    (N = 0: it does not) It draws no plots, which are most of its time.
"""

from __future__ import annotations

import os
import signal
import sys

from seqto.cli.main import main
from seqto.record.events import Event
from seqto.record.journal import Journal
from seqto.report import plots

if __name__ == "__main__":
    limit = int(sys.argv[1])
    written = 0
    append = Journal.append

    def append_then_die(self: Journal, event: Event) -> Event:
        global written  # noqa: PLW0603
        recorded = append(self, event)
        written += 1
        if written == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        return recorded

    Journal.append = append_then_die  # type: ignore[method-assign]
    plots.write_plots = lambda _folder, _report, **_writer: []  # type: ignore[assignment]
    raise SystemExit(main(sys.argv[2:]))

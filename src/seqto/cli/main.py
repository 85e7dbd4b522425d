"""The commands: parse, call one function of seqto.api, print.

It catches SeqtoError, and what a Ctrl-C turns into: anything else is a bug and shows itself. Exit
codes: 0 done, 2 bad input, 3 no trial meets the goal (or a comparison got worse), 4 some of several
models failed, 130 Ctrl-C. What a command needs is imported when it is called, so that
`seqto --help` is quick.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from seqto.cli.exit_codes import BAD_INPUT, INTERRUPTED
from seqto.cli.options import COMMANDS, make_parser
from seqto.errors import ConfigError, SeqtoError
from seqto.text import one_line

RESUMED = ("tune", "demo")  # commands that continue where they were interrupted
# objects made between two looks for garbage, instead of 700: a journal of 10,000 trials makes
# millions that stay, and looking at them again and again took a quarter of a resume's time
GARBAGE_THRESHOLD = 20_000

_interrupts: list[int] = []  # signals of Ctrl-C that this process got


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `seqto` command."""
    if arguments is None:  # the process is this command's
        if sys.getfilesystemencoding() == "ascii":
            _start_again_in_utf8()
        gc.set_threshold(GARBAGE_THRESHOLD)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may ignore it
            signal.signal(signal.SIGINT, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            code = _run(arguments)
        finally:  # also when argparse ends the program
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:  # after the work, while the output is written
        code = INTERRUPTED
    except BrokenPipeError:  # the reader has left: what it wanted to see, it has seen
        _discard_output()
        return 0
    except OSError as error:
        if not _is_output_error(error):
            raise
        _discard_output()
        print(f"seqto: cannot write to the standard output: {error.strerror}", file=sys.stderr)
        return BAD_INPUT
    if arguments is None:  # the work is done: a late Ctrl-C may not hide the exit code
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Note a Ctrl-C, and raise KeyboardInterrupt.

    A library that is being loaded makes an ImportError of that, which comes here as bad input.
    """
    _interrupts.append(number)
    signal.default_int_handler(number, frame)


def _start_again_in_utf8() -> None:
    """Replace this process by one whose file names are UTF-8; what it prints stays ASCII.

    Python does so itself in the C locale unless PYTHONUTF8=0 and PYTHONCOERCECLOCALE=0 are set.
    ONNX Runtime takes UTF-8 names only.
    """
    encoding = os.environ.get("PYTHONIOENCODING") or "ascii:backslashreplace"
    environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": encoding}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _run(arguments: Sequence[str] | None) -> int:
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.version:
        return print_version()
    if options.command is None:
        parser.print_help()
        return BAD_INPUT
    try:
        _, file = COMMANDS[options.command]
        module = importlib.import_module(f"seqto.cli.{file}")
        code: int = getattr(module, options.command)(options)
    except (SeqtoError, ImportError) as error:
        if _interrupts:
            return _say_interrupted(options.command)
        if not isinstance(error, SeqtoError):
            raise
        print(f"seqto: {one_line(error)}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return _say_interrupted(options.command)
    return code


def _say_interrupted(command: str) -> int:
    more = "; the same command continues the run" if command in RESUMED else ""
    print(f"seqto: interrupted{more}", file=sys.stderr)
    return INTERRUPTED


def _is_output_error(error: OSError) -> bool:
    """Return whether an error comes from writing to the standard output, not to a named file."""
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EFBIG)


def _discard_output() -> None:
    """Send the rest of the output nowhere: at its end the interpreter would fail on it again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_version() -> int:
    from seqto.devices.environment import version

    print(f"seqto {version()}")
    return 0


def completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise ConfigError("completion needs shtab: pip install 'seqto[completion]'") from error
    print(shtab.complete(make_parser(), shell=options.shell))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

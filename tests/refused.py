"""The one line that a bad call of the command prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqto.cli.main import main


def said(capsys: Any, *words: str | Path) -> str:
    """Return the one line that a bad call prints; checks all that is common to them."""
    code = main([str(w) for w in words])
    printed = capsys.readouterr()
    assert code == 2, printed
    assert printed.out == ""
    assert printed.err.startswith("seqto: ")
    assert printed.err.count("\n") == 1, printed.err
    assert "Traceback" not in printed.err
    return str(printed.err)

"""A finished run that tests of this folder publish, and a hub on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from finished_run import Done, finished_run
from hub_server import FakeHub, serve_hub
from inline_runs import run_inline


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A finished run; tests read it and change nothing."""
    with pytest.MonkeyPatch.context() as patch:
        run_inline(patch)
        return finished_run(tmp_path_factory.mktemp("published"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub for which the library is set up, with the token of a writer in its usual place."""
    from huggingface_hub import close_session, constants

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    close_session()
    monkeypatch.setenv("HF_TOKEN", "hf_writer")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    # the other way of large files is a binary protocol of its own, which no small server speaks
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    with serve_hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server
        close_session()  # else the server waits for the threads of its connections

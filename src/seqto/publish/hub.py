"""Upload a package to a repository of the hub, through `huggingface_hub` (extra `hub`).

The token is the library's own: HF_TOKEN or what `hf auth login` has stored. It is never read into
a message, a journal or a file, and goes only to the endpoint that the library is set up for.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqto.errors import ConfigError
from seqto.model.sources.hub.client import import_library, silent
from seqto.publish.package import CARD, Package
from seqto.report.card import MARK
from seqto.text import plain

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def check_repository(name: str) -> str:
    """Return OWNER/NAME; anything else is refused."""
    if not _REPOSITORY.fullmatch(name) or ".." in name or "--" in name:
        raise ConfigError(f"--repo {plain(name)[:100]!r} names no repository: write OWNER/NAME")
    return name


def upload(package: Package, repo: str, *, public: bool, replace_card: bool) -> str:
    """Make the repository where it is not there, and one commit with all files; returns its URL.

    A README.md that seqto did not write is replaced only if the user says so.
    """
    library = import_library()
    if library.get_token() is None:
        raise ConfigError(
            f"no token of the hub to upload to {repo} with: run `hf auth login`, or set HF_TOKEN"
        )
    api = library.HfApi()
    with _asking(api.endpoint, repo):
        api.create_repo(repo, private=not public, exist_ok=True)
        if not replace_card and api.file_exists(repo, CARD):
            there = api.hf_hub_download(repo, CARD, force_download=True)
            if MARK.encode() not in Path(there).read_bytes():
                raise ConfigError(
                    f"{repo} has a {CARD} that seqto did not write, and is left as it is: name "
                    "another repository, or give --replace-card"
                )
        operations = [
            library.CommitOperationAdd(path_in_repo=name, path_or_fileobj=data)
            for name, data in package.files.items()
        ]
        done = api.create_commit(repo, operations, commit_message=package.message)
    return str(done.commit_url)


@contextmanager
def _asking(endpoint: str, repo: str) -> Iterator[None]:
    """Wrap every use of the library: silent, and its errors become one line of ours."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError

    try:
        # warnings of its own are for its developers
        with silent(), warnings.catch_warnings(action="ignore"):
            yield
    except HfHubHTTPError as error:
        raise ConfigError(_refusal(error, endpoint, repo)) from error
    except (HTTPError, OSError) as error:
        raise ConfigError(
            f"cannot reach the hub at {endpoint} to upload to {repo} ({type(error).__name__}): "
            "check the network and any proxy, then run it again; nothing was committed"
        ) from error
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        cause = error.__cause__ or error
        raise ConfigError(
            f"the upload to {repo} at {endpoint} failed ({type(cause).__name__}): run it again; "
            "nothing was committed"
        ) from error


def _refusal(error: Any, endpoint: str, repo: str) -> str:
    """Say what the hub refused; the library's own text may repeat headers, and is left out."""
    status = error.response.status_code
    if status in (401, 403):
        return (
            f"{endpoint} does not let you write to {repo} ({status}): log in with a token that has "
            "the right to write (`hf auth login`), or name a repository of your own"
        )
    return f"{endpoint} answered {status} for {repo}: try again later; nothing was committed"

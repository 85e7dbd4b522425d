"""Clients for the files of a repository: the cache on this disk, and the hub itself.

All that is known about huggingface_hub is in this file. Its cache layout (refs, snapshots) is a
documented one; it is read directly, since listing a cached commit has no public call.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from seqto.errors import ModelError, nearest
from seqto.files import write_file
from seqto.model.sources.hub.spec import DEFAULT_OWNER, DEFAULT_REVISION, Listing

TIMEOUT_SECONDS = 10.0
PAGE_LIMIT = 100  # of 1,000 repositories each: a server that pages for ever must not hang us
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubCache:
    """The cache on this disk, in the layout that huggingface_hub documents."""

    spec: str
    folder: Path

    def storage(self, repo: str) -> Path:
        return self.folder / ("models--" + repo.replace("/", "--"))

    def repositories(self, owner: str, pattern: str) -> list[str]:
        prefix = f"models--{owner}--"
        folders = sorted(p.name for p in self.folder.glob(prefix + "*"))
        names = [name.removeprefix(prefix) for name in folders]
        matching = [f"{owner}/{name}" for name in names if fnmatchcase(name, pattern)]
        if not matching:
            raise ModelError(f"model {self.spec!r}: no such repository is cached; go online once")
        return matching

    def commit_of(self, repo: str, revision: str) -> str | None:
        """Return the commit of a revision when it was last fetched, if it is still cached."""
        commit = revision
        if not COMMIT.fullmatch(revision):
            try:
                commit = (self.storage(repo) / "refs" / revision).read_text().strip()
            except (OSError, ValueError):
                return None
        there = COMMIT.fullmatch(commit) and (self.storage(repo) / "snapshots" / commit).is_dir()
        return commit if there else None

    def list_files(self, repo: str, revision: str) -> Listing:
        commit = self.commit_of(repo, revision)
        if commit is None:
            raise ModelError(
                f"model {self.spec!r}: offline, and {repo} at {revision!r} is not in the cache "
                f"{str(self.folder)!r}; fetch it once without offline mode"
            )
        snapshot = self.storage(repo) / "snapshots" / commit
        files = sorted(
            p.relative_to(snapshot).as_posix() for p in snapshot.rglob("*") if p.is_file()
        )
        return Listing(repo, commit, tuple(files))

    def download(self, listing: Listing, file: str) -> Path:
        return self.storage(listing.repo) / "snapshots" / listing.commit / file

    def note(self, listing: Listing, revision: str) -> None:
        """Do nothing: a cache learns nothing new."""


@dataclass(frozen=True, slots=True)
class OnlineHub:
    """The hub itself; downloads stay in the cache."""

    spec: str
    cache: HubCache
    endpoint: str
    token: bool | None
    library: Any

    def repositories(self, owner: str, pattern: str) -> list[str]:
        # not HfApi.list_models: it asks without a time limit and six times over, which without a
        # network can last for minutes
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        names: list[str] = []
        query = [("author", owner), ("limit", "1000")]
        with self._asking(f"{owner}/{pattern}"):
            headers = build_hf_headers(token=self.token)
            for _ in range(PAGE_LIMIT):
                answer = get_session().get(
                    f"{self.endpoint}/api/models",
                    params=query,
                    headers=headers,
                    timeout=TIMEOUT_SECONDS,
                )
                hf_raise_for_status(answer)
                names += [str(item["id"]) for item in answer.json()]
                # only the query of the next page's address is used: it may not lead elsewhere
                query = parse_qsl(urlsplit(answer.links.get("next", {}).get("url", "")).query)
                if not query:
                    break
        matching = sorted({name for name in names if fnmatchcase(name, f"{owner}/{pattern}")})
        if not matching:
            raise ModelError(
                f"model {self.spec!r}: none of the {len(names)} repositories of {owner!r} matches "
                f"{pattern!r}{nearest(f'{owner}/{pattern}', names)}"
            )
        return matching

    def list_files(self, repo: str, revision: str) -> Listing:
        api = self.library.HfApi(endpoint=self.endpoint, token=self.token)
        with self._asking(repo, revision=revision):
            info = api.model_info(repo, revision=revision, timeout=TIMEOUT_SECONDS)
            files = tuple(str(sibling.rfilename) for sibling in info.siblings or ())
            if not COMMIT.fullmatch(str(info.sha)):
                raise ValueError(f"commit {info.sha!r}")
        return Listing(repo, str(info.sha), files)

    def download(self, listing: Listing, file: str) -> Path:
        with self._asking(listing.repo):
            downloaded = self.library.hf_hub_download(
                listing.repo,
                file,
                revision=listing.commit,
                cache_dir=str(self.cache.folder),
                endpoint=self.endpoint,
                token=self.token,
                etag_timeout=TIMEOUT_SECONDS,
            )
        path = Path(downloaded)
        if not path.absolute().is_relative_to(self.cache.storage(listing.repo)):
            raise ModelError(
                f"{file!r} of {listing.repo} was put outside of the cache: {downloaded!r}"
            )
        return path

    def note(self, listing: Listing, revision: str) -> None:
        """Remember what the revision stood for, as the library does, for offline mode."""
        if COMMIT.fullmatch(revision):
            return
        ref = self.cache.storage(listing.repo) / "refs" / revision
        with self._asking(listing.repo):
            write_file(ref, listing.commit.encode(), error=ModelError)

    @contextmanager
    def _asking(self, repo: str, *, revision: str = "") -> Iterator[None]:
        """Wrap every use of the library: silent, and its errors become ours."""
        # HTTPError is the root of the HTTP library's errors; taken from here since that library
        # is httpx in huggingface_hub 1 and httpx2 in 2
        from huggingface_hub.errors import HfHubHTTPError, HTTPError, LocalEntryNotFoundError

        try:
            with silent():
                yield
        except HfHubHTTPError as error:
            raise ModelError(self._refusal(error, repo, revision=revision)) from error
        except (HTTPError, LocalEntryNotFoundError, ConnectionError) as error:
            raise ModelError(self._unreachable(error, repo, revision=revision)) from error
        except OSError as error:
            if error.errno is None:  # raised by the library itself, for a download cut short
                raise ModelError(
                    f"model {self.spec!r}: the download from {self.endpoint} failed: "
                    f"{_first_line(error)}; run it again"
                ) from error
            raise ModelError(
                f"model {self.spec!r}: cannot be put into the cache {str(self.cache.folder)!r}: "
                f"{error.strerror}; free some space or choose another folder"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(
                f"model {self.spec!r}: the answer of {self.endpoint} about {repo} makes no sense "
                f"({_first_line(error)}); check the endpoint and any proxy in between"
            ) from error

    def _refusal(self, error: Any, repo: str, *, revision: str) -> str:
        from huggingface_hub import errors

        status = error.response.status_code
        if isinstance(error, errors.GatedRepoError):
            return (
                f"model {self.spec!r}: {repo} is gated; accept its terms on the hub, then log in "
                "with `hf auth login`"
            )
        if isinstance(error, errors.RepositoryNotFoundError):
            hint = "; check owner and name, or log in if it is private"
            if repo.endswith(".onnx"):
                hint = f"; did you mean 'hub:{DEFAULT_OWNER}/{repo}'?"
            return f"model {self.spec!r}: no repository {repo!r} at {self.endpoint}{hint}"
        if isinstance(error, errors.RevisionNotFoundError):
            return (
                f"model {self.spec!r}: {repo} has no revision {revision!r}; leave @{revision} away "
                f"for {DEFAULT_REVISION!r}, or name a branch, tag or commit"
            )
        if status in (401, 403):
            return f"model {self.spec!r}: {repo} is not open to you; log in with `hf auth login`"
        return (
            f"model {self.spec!r}: {self.endpoint} answered {status} for {repo}; try again later, "
            "or use offline mode if it was fetched before"
        )

    def _unreachable(self, error: Exception, repo: str, *, revision: str) -> str:
        way_out = "run it again when it answers, or use offline mode for what is cached"
        if revision:
            commit = self.cache.commit_of(repo, revision)
            way_out = (
                f"offline mode works from the cached commit {commit[:12]}"
                if commit
                else "it is not in the cache, so offline mode cannot help"
            )
        return (
            f"model {self.spec!r}: cannot reach the hub at {self.endpoint} "
            f"({_first_line(error.__cause__ or error)}); check the network and any proxy; {way_out}"
        )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# --------------------------------------------------------------------------------- the library


def import_library() -> Any:
    """Return huggingface_hub with its telemetry off: here and in processes that start here."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    try:
        import huggingface_hub
        from huggingface_hub import constants
    except ImportError as error:
        raise ModelError(
            "models of the hub need the package huggingface_hub, which is not installed; "
            "run `pip install 'seqto[hub]'`"
        ) from error
    # the environment is read when the library is imported, which others may have done before us
    constants.HF_HUB_DISABLE_TELEMETRY = True
    return huggingface_hub


@contextmanager
def silent() -> Iterator[None]:
    """Silence progress bars and log lines of the library's own while we use it."""
    from huggingface_hub import constants, utils
    from huggingface_hub.utils import logging

    hide_bars = (
        constants.HF_HUB_DISABLE_PROGRESS_BARS is None and not utils.are_progress_bars_disabled()
    )
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    if hide_bars:
        utils.disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if hide_bars:
            utils.enable_progress_bars()

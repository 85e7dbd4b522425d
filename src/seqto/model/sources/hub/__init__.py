"""Models from a repository of the hub, through `huggingface_hub` (extra `hub`).

    hub:OWNER/NAME[/path/to/file.onnx][@revision]

One part alone is a NAME of `onnxmodelzoo`; with two or more parts the first is the OWNER. `*`, `?`
and `[…]` in NAME choose several repositories, in the path several .onnx files (`*` crosses
folders). The revision is what follows the last `@`: a branch, a tag or a commit.

Everything is downloaded at one commit into the library's own cache, and the revision is noted
there last, so that offline mode finds either all of a model or nothing. What the hub says is
untrusted: names must stay inside the cache, nothing that it sends is executed or unpickled, and a
token that the user has stored goes only to the endpoint that the library itself is set up for.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from seqto.errors import ModelError
from seqto.files import replacing
from seqto.model.files import external_files, sha256_of_file
from seqto.model.license import license_of_card
from seqto.model.sources.hub.client import HubCache, OnlineHub, import_library
from seqto.model.sources.hub.config import CONFIG_NAMES, read_preprocess
from seqto.model.sources.hub.spec import Listing, choose_files, is_safe_name, name_model, parse_spec
from seqto.model.sources.hub.text_config import find_files, read_text_config
from seqto.model.sources.source import Fetched
from seqto.records import Json

CARD = "README.md"


class Client(Protocol):
    """Access to the files of a hub: online or in the cache."""

    def repositories(self, owner: str, pattern: str) -> list[str]: ...

    def list_files(self, repo: str, revision: str) -> Listing: ...

    def download(self, listing: Listing, file: str) -> Path: ...

    def note(self, listing: Listing, revision: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Hub:
    """One or several models of the hub. `offline` (or HF_HUB_OFFLINE=1) uses the cache alone."""

    spec: str
    cache_dir: str | None = None  # None: where huggingface_hub keeps its cache
    endpoint: str | None = None  # None: the one huggingface_hub is set up for
    offline: bool = False

    def __post_init__(self) -> None:
        parse_spec(self.spec)
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise ModelError(
                f"hub endpoint {self.endpoint!r} is no address; it begins with https:// or http://"
            )

    def fetch(self) -> Iterator[Fetched]:
        parsed = parse_spec(self.spec)
        client = self._open_client()
        repos = [f"{parsed.owner}/{parsed.name}"]
        if parsed.many_repositories:
            repos = client.repositories(parsed.owner, parsed.name)
        # all choices are made before the first model is handed out: a mistake in the last of many
        # should not show after hours of work on the others
        chosen = []
        for repo in repos:
            listing = client.list_files(repo, parsed.revision)
            chosen += [(listing, file) for file in choose_files(listing, parsed, spec=self.spec)]
        for listing, file in chosen:
            yield _fetch_one(client, listing, file, revision=parsed.revision)

    def _open_client(self) -> Client:
        library = import_library()
        cache = Path(self.cache_dir or library.constants.HF_HUB_CACHE).expanduser().absolute()
        cached = HubCache(self.spec, cache)
        if self.offline or library.constants.HF_HUB_OFFLINE:
            return cached
        endpoint = (self.endpoint or library.constants.ENDPOINT).rstrip("/")
        token = None if self.endpoint is None else False  # None: the stored one, False: none
        return OnlineHub(self.spec, cached, endpoint=endpoint, token=token, library=library)


def _fetch_one(client: Client, listing: Listing, file: str, *, revision: str) -> Fetched:
    path = client.download(listing, file)
    sha256 = _checked_sha256(path, file)
    data = {}
    for name in _data_files(path, file):
        if name not in listing.files or not is_safe_name(name):
            raise ModelError(
                f"model {file!r} of {listing.repo} needs the data file {name!r}, which is not "
                "there; fetch it online again, or choose another file"
            )
        data[name] = client.download(listing, name)
    config, preprocess = _find_preprocess(client, listing, file)
    text_files = find_files((name for name in listing.files if is_safe_name(name)), file)
    text = read_text_config(lambda name: client.download(listing, name), text_files)
    origin: dict[str, Any] = {
        "kind": "hub",
        "repo": listing.repo,
        "file": file,
        "revision": revision,
        "commit": listing.commit,
        "sha256": sha256,
        "data_files": {name: _checked_sha256(data[name], name) for name in data},
        "preprocess_file": config,
    }
    if text is not None:
        origin["taken"] = text["taken"]
    if CARD in listing.files:
        stated = license_of_card(client.download(listing, CARD))
        origin |= {"license": stated} if stated else {}
    if data:
        path = _copy_plainly({**data, file: path}, file=file, commit=listing.commit)
    client.note(listing, revision)
    return Fetched(name_model(listing.repo, file), str(path), origin, preprocess, text=text)


def _data_files(path: Path, file: str) -> list[str]:
    """Return the repository's names of the files that hold the model's weights outside of it."""
    from google.protobuf.message import DecodeError

    try:
        data_files = external_files(path)
    except (DecodeError, ValueError, OSError):
        return []  # not a readable model: loading it says so, better than we could here
    folder = path.resolve().parent
    return [str(PurePosixPath(file).parent / f.relative_to(folder).as_posix()) for f in data_files]


def _find_preprocess(client: Client, listing: Listing, file: str) -> tuple[str | None, Json | None]:
    """Find the first config that can be read: beside the model, then in the repository's root."""
    parent = PurePosixPath(file).parent
    candidates = dict.fromkeys(str(p / c) for p in (parent, PurePosixPath()) for c in CONFIG_NAMES)
    for config in candidates:
        if config in listing.files:
            preprocess = read_preprocess(client.download(listing, config))
            if preprocess is not None:
                return config, preprocess
    return None, None


def _checked_sha256(path: Path, file: str) -> str:
    """Return the file's sha256, checked if the cache knows it: large files are named after it."""
    digest = sha256_of_file(path)
    blob = path.resolve()
    if re.fullmatch(r"[0-9a-f]{64}", blob.name) and blob.name != digest:
        raise ModelError(
            f"{file!r} in the cache is damaged: sha256 {digest[:12]}… instead of "
            f"{blob.name[:12]}…; delete {str(blob)!r} and fetch it online again"
        )
    return digest


def _copy_plainly(paths: Mapping[str, Path], *, file: str, commit: str) -> Path:
    """Copy a model and its data out of the cache's links; returns the model's new path.

    The cache keeps links to blobs, and onnx 1.23 refuses external data behind a link, symbolic or
    hard. The copies lie in the repository's cache folder, so clearing the cache clears them.
    """
    snapshot = next(p for p in paths[file].parents if p.name == commit)
    target = snapshot.parent.parent / "seqto" / commit
    try:
        for name, source in paths.items():
            copy = target / name
            if copy.is_file() and copy.stat().st_size == source.stat().st_size:
                continue
            with source.open("rb") as cached, replacing(copy, error=ModelError) as stream:
                shutil.copyfileobj(cached, stream, 1 << 20)
    except OSError as error:
        raise ModelError(
            f"{file!r} cannot be copied into {str(target)!r}: {error.strerror}; free some space or "
            "choose another cache folder"
        ) from error
    return target / file

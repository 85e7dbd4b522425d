"""A small server on loopback that answers as the hub does, as far as seqto asks it.

    GET  /api/models?author=OWNER                     repositories, two a page, Link: rel=next
    GET  /api/models/OWNER/NAME/revision/REV          commit and file names
    HEAD, GET /OWNER/NAME/resolve/REV/FILE            a file; ETag, X-Repo-Commit

and the same for datasets, which are repositories called datasets/OWNER/NAME here:

    GET  /api/datasets/OWNER/NAME[/revision/REV]      commit and file names
    GET  /api/datasets/OWNER/NAME/tree/REV[/FOLDER]   files of a folder, or of all
    POST /api/datasets/OWNER/NAME/paths-info/REV      files by name
    HEAD, GET /datasets/OWNER/NAME/resolve/REV/FILE   a file

What is missing gives 404 with the hub's X-Error-Code. Every request is kept in `requests`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PAGE = 2
LARGE = (".onnx", "data")  # names that end so are "LFS" files, whose ETag is their sha256


def commit_of(files: Mapping[str, bytes]) -> str:
    text = repr(sorted((name, hashlib.sha1(data).hexdigest()) for name, data in files.items()))
    return hashlib.sha1(text.encode()).hexdigest()


@dataclass
class FakeHub:
    """Repositories by name, each a mapping from revision to its files."""

    repos: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    status: int = 0  # answer everything with this, if set
    file_status: int = 0  # the same for files only
    cut_short: bool = False  # files lack their last byte
    body: bytes | None = None  # answer everything with this, if set
    gated: set[str] = field(default_factory=set)
    endpoint: str = ""

    def add(self, repo: str, files: Mapping[str, bytes], *, revision: str = "main") -> str:
        self.repos.setdefault(repo, {})[revision] = dict(files)
        return commit_of(files)

    def find(self, repo: str, revision: str) -> dict[str, bytes] | None:
        revisions = self.repos[repo]
        if revision in revisions:
            return revisions[revision]
        return next((f for f in revisions.values() if commit_of(f) == revision), None)

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _ in self.requests]


class Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _answer(self) -> None:  # noqa: PLR0911
        self.hub.requests.append((self.command, self.path, dict(self.headers)))
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        if self.hub.status:
            return self._send(self.hub.status, b"")
        if self.hub.body is not None:
            return self._send(200, self.hub.body)
        if parts[:2] == ["api", "models"] and len(parts) == 2:
            return self._send_repositories(parse_qs(url.query))
        if parts[:2] == ["api", "models"]:
            return self._send_info("/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main")
        if parts[:2] == ["api", "datasets"] and len(parts) >= 4:
            deep = parse_qs(url.query).get("recursive", ["false"])[0].lower() == "true"
            return self._send_dataset("/".join(parts[1:4]), parts[4:], deep=deep)
        if parts[0] == "datasets" and len(parts) > 5:
            return self._send_file("/".join(parts[:3]), parts[4], "/".join(parts[5:]))
        if len(parts) < 4:
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        return self._send_file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))

    def _send_dataset(self, repo: str, rest: list[str], *, deep: bool) -> None:
        what, revision = rest[0] if rest else "revision", rest[1] if len(rest) > 1 else "main"
        if what == "revision":
            return self._send_info(repo, revision)
        files = self._find(repo, revision)
        if files is None:
            return None
        folder = "/".join(rest[2:])
        names = [name for name in files if not folder or name.startswith(folder + "/")]
        if what == "paths-info":
            asked = self._body()
            names = [name for name in files if name in asked]
        elif what != "tree" or (folder and not names):
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        rows: dict[str, dict[str, Any]] = {}
        for name in names:
            inner = name.removeprefix(folder + "/" if folder else "")
            if what == "tree" and not deep and "/" in inner:
                path = name.removesuffix(inner) + inner.split("/")[0]
                rows[path] = {"type": "directory", "path": path, "oid": "0" * 40}
                continue
            digest = hashlib.sha1(files[name]).hexdigest()
            rows[name] = {"type": "file", "path": name, "size": len(files[name]), "oid": digest}
        return self._send(200, json.dumps(list(rows.values())).encode())

    def _body(self) -> list[str]:
        """Names in the body of a request, in JSON or as a form."""
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        try:
            found = json.loads(raw)["paths"]
        except (ValueError, KeyError):
            found = parse_qs(raw).get("paths", [])
        return [found] if isinstance(found, str) else list(found)

    def _send_repositories(self, query: dict[str, list[str]]) -> None:
        owner, start = query["author"][0], int(query.get("cursor", ["0"])[0])
        names = sorted(name for name in self.hub.repos if name.startswith(owner + "/"))
        page = [{"id": name, "modelId": name} for name in names[start : start + PAGE]]
        headers = {}
        if start + PAGE < len(names):
            # another host on purpose: the client must not follow it there
            address = f"http://elsewhere.invalid/api/models?author={owner}&cursor={start + PAGE}"
            headers["Link"] = f'<{address}>; rel="next"'
        self._send(200, json.dumps(page).encode(), headers)

    def _send_info(self, repo: str, revision: str) -> None:
        files = self._find(repo, revision)
        if files is not None:
            names = [{"rfilename": name} for name in files]
            info = {"id": repo, "modelId": repo, "sha": commit_of(files), "siblings": names}
            self._send(200, json.dumps(info).encode())

    def _send_file(self, repo: str, revision: str, name: str) -> None:
        files = self._find(repo, revision)
        if files is None:
            return
        headers = {"X-Repo-Commit": commit_of(files)}
        if self.hub.file_status:
            self._send(self.hub.file_status, b"", headers)
            return
        if name not in files:
            self._send(404, b"", {**headers, "X-Error-Code": "EntryNotFound"})
            return
        data = files[name]
        if self.hub.cut_short and self.command == "GET":
            data = data[:-1]
        digest = hashlib.sha256 if name.endswith(LARGE) else hashlib.sha1
        headers["ETag"] = f'"{digest(data).hexdigest()}"'
        self._send(200, data, headers)

    def _find(self, repo: str, revision: str) -> dict[str, bytes] | None:
        if repo in self.hub.gated:
            self._send(403, b"", {"X-Error-Code": "GatedRepo"})
            return None
        if repo not in self.hub.repos:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
            return None
        files = self.hub.find(repo, revision)
        if files is None:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        return files

    def _send(self, status: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command in ("GET", "POST"):
            self.wfile.write(data)


@contextmanager
def serve_hub() -> Iterator[FakeHub]:
    """A hub on a free port of 127.0.0.1, for as long as the block lasts."""
    hub = FakeHub()
    handler = type("BoundHandler", (Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        hub.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()

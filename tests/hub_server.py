"""A small server on loopback that answers as the hub does, as far as seqto asks it.

    GET  /api/models?author=OWNER                     repositories, two a page, Link: rel=next
    GET  /api/models/OWNER/NAME/revision/REV          commit and file names
    HEAD, GET /OWNER/NAME/resolve/REV/FILE            a file; ETag, X-Repo-Commit

and the same for datasets, which are repositories called datasets/OWNER/NAME here:

    GET  /api/datasets/OWNER/NAME[/revision/REV]      commit and file names
    GET  /api/datasets/OWNER/NAME/tree/REV[/FOLDER]   files of a folder, or of all
    POST /api/datasets/OWNER/NAME/paths-info/REV      files by name
    HEAD, GET /datasets/OWNER/NAME/resolve/REV/FILE   a file

and uploads, for requests with a token; a commit is kept as the files of its revision:

    POST /api/repos/create                            makes a repository; 409 where it is there
    POST /api/validate-yaml                           whether the head of a card is YAML
    POST /api/models/OWNER/NAME/preupload/REV         which files are "LFS" files
    POST /OWNER/NAME.git/info/lfs/objects/batch       where their content goes
    PUT  /lfs/SHA256                                  the content
    POST /api/models/OWNER/NAME/commit/REV            one line of JSON for each file

What is missing gives 404 with the hub's X-Error-Code. Every request is kept in `requests`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

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
    writers: set[str] = field(default_factory=lambda: {"hf_writer"})  # tokens that may write
    private: dict[str, bool] = field(default_factory=dict)  # of repositories made by a client
    stored: dict[str, bytes] = field(default_factory=dict)  # "LFS" content by sha256
    messages: list[str] = field(default_factory=list)  # of commits

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

    def do_PUT(self) -> None:
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
        if self._is_upload(parts):
            return self._take(parts)
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

    def _is_upload(self, parts: list[str]) -> bool:
        words = ("create", "validate-yaml", "preupload", "commit", "batch", "lfs")
        return self.command in ("POST", "PUT") and any(w in parts for w in words)

    def _take(self, parts: list[str]) -> None:  # noqa: PLR0911
        """Answer a request that writes; one without a token of a writer is refused."""
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if parts[0] == "lfs":  # addresses of the storage carry no token
            self.hub.stored[parts[1]] = raw
            return self._send(200, b"")
        if self.headers.get("Authorization", "").removeprefix("Bearer ") not in self.hub.writers:
            return self._send(401, b"")
        if parts[:3] == ["api", "repos", "create"]:
            return self._make_repository(json.loads(raw))
        if parts[-1] == "validate-yaml":
            good = isinstance(yaml.safe_load(json.loads(raw)["content"].split("---")[1]), dict)
            errors = [] if good else [{"message": "the head is no mapping"}]
            answer = {"errors": errors, "warnings": []}
            return self._send(200 if good else 400, json.dumps(answer).encode())
        if parts[-1] == "batch":
            objects = [
                {**o, "actions": {"upload": {"href": f"{self.hub.endpoint}/lfs/{o['oid']}"}}}
                for o in json.loads(raw)["objects"]
            ]
            return self._send(200, json.dumps({"transfer": "basic", "objects": objects}).encode())
        repo, revision = "/".join(parts[2:4]), parts[5]
        if parts[4] == "preupload":
            files = [
                {
                    "path": f["path"],
                    "uploadMode": "lfs" if f["path"].endswith(LARGE) else "regular",
                    "shouldIgnore": False,
                }
                for f in json.loads(raw)["files"]
            ]
            return self._send(200, json.dumps({"files": files}).encode())
        return self._commit(repo, revision, [json.loads(x) for x in raw.splitlines() if x])

    def _make_repository(self, asked: dict[str, Any]) -> None:
        repo = f"{asked['organization']}/{asked['name']}"
        there = repo in self.hub.repos
        if not there:
            self.hub.repos[repo] = {"main": {}}
            self.hub.private[repo] = bool(
                asked.get("private") or asked.get("visibility") == "private"
            )
        answer = json.dumps({"url": f"{self.hub.endpoint}/{repo}"}).encode()
        self._send(409 if there else 200, answer)

    def _commit(self, repo: str, revision: str, lines: list[dict[str, Any]]) -> None:
        files = dict(self.hub.repos[repo][revision])
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.hub.messages.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.stored[value["oid"]]
        commit = self.hub.add(repo, files, revision=revision)
        url = f"{self.hub.endpoint}/{repo}/commit/{commit}"
        answer = {"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""}
        self._send(200, json.dumps(answer).encode())

    def _body(self) -> list[str]:
        """Return names in the body of a request, in JSON or as a form."""
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
        if self.command != "HEAD":
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

"""The live view: the report page, made from the journal on the fly, on this machine only.

Read-only, no database, no state: each answer is a pure function of a journal file. It listens
on 127.0.0.1 alone; a request whose Host is another name is refused, else a web page could reach
it by pointing a name of its own at this address (DNS rebinding). URLs never become paths: they
are looked up among the runs that a scan of the folder found.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast
from urllib.parse import quote, unquote, urlsplit

from seqto.errors import ConfigError, SeqtoError
from seqto.record.own_files import JOURNAL
from seqto.record.replay import read_state
from seqto.records import Json
from seqto.report import html_page, view, wording
from seqto.text import utf8

HOST = "127.0.0.1"
DEPTH = 2  # DIR itself, its run folders, and theirs: `tune` makes no deeper ones
MOST_RUNS = 500


_LOG = logging.getLogger(__name__)


_HTML, _JSON, _TEXT = "text/html", "application/json", "text/plain"


@dataclass(slots=True)
class Runs:
    """The runs below a folder, and the last answers about each; safe for several threads."""

    folder: Path
    _answers: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self) -> dict[str, Path]:
        """Name to run folder; "" is the folder itself. Links that lead outside do not count."""
        root = self.folder.resolve()
        runs: dict[str, Path] = {}
        for parent, folders, files in os.walk(root):
            here = Path(parent)
            depth = len(here.relative_to(root).parts)
            folders[:] = (
                sorted(f for f in folders if not f.startswith(".")) if depth < DEPTH else []
            )
            if JOURNAL in files and (here / JOURNAL).resolve().parent == here:
                runs["/".join(here.relative_to(root).parts)] = here
                folders.clear()  # a run folder holds no other runs
            if len(runs) >= MOST_RUNS:
                break
        return runs

    def tag(self, run: Path) -> str:
        """Return a tag that changes whenever the journal does; it asks the file system only."""
        stat = (run / JOURNAL).stat()
        return f'"{stat.st_ino:x}-{stat.st_size:x}-{stat.st_mtime_ns:x}"'

    def answer(self, name: str, run: Path, *, kind: str) -> tuple[str, bytes]:
        """Return tag and content of one answer, made again only after the journal has grown."""
        with self._lock:
            # the tag is taken first: what is read may be newer than it says, never older
            tag = self.tag(run)
            known = self._answers.get((name, kind))
            if known is None or known[0] != tag:
                known = (tag, self._make(name, run, kind))
                self._answers[name, kind] = known
            return known

    def _make(self, name: str, run: Path, kind: str) -> bytes:
        report = view.build_report(read_state(run / JOURNAL))
        folder = os.path.join(os.fspath(self.folder), *name.split("/")) if name else self.folder
        if kind == "page":
            return utf8(html_page.render(report, folder=os.fspath(folder), live=True))
        if kind == "data":
            return html_page.embed(html_page.page_data(report, folder=os.fspath(folder))).encode()
        if kind == "row":
            return html_page.embed(_row(name, report)).encode()
        return html_page.embed(report).encode()

    def index(self) -> bytes:
        """Return the list of runs; one that cannot be read is shown with its reason."""
        rows = []
        for name, run in self.find().items():
            try:
                rows.append(json.loads(self.answer(name, run, kind="row")[1]))
            except (SeqtoError, OSError) as error:
                rows.append({**_link(name), "status": "?", "trials": 0, "sentence": str(error)})
        return utf8(html_page.render_index(rows, folder=os.fspath(self.folder)))


def _link(name: str) -> Json:
    return {"href": f"/runs/{quote(name, safe='')}/", "name": name or "."}


def _row(name: str, report: Json) -> Json:
    return {
        **_link(name),
        "status": report["status"],
        "trials": report["counts"]["trials"],
        "sentence": wording.recommendation(report),
    }


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; everything else is refused."""

    # one answer a connection: a kept-alive one would go on answering after the server has ended
    protocol_version = "HTTP/1.0"
    timeout = 30
    server_version = "seqto"
    sys_version = ""

    def __init__(self, runs: Runs, *args: object) -> None:
        self.runs = runs
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        try:
            self._answer()
        except SeqtoError as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, utf8(str(error)), _TEXT)
        except FileNotFoundError:
            self._refuse(HTTPStatus.NOT_FOUND)  # a run that was removed since the scan
        except (BrokenPipeError, ConnectionResetError):
            pass  # the browser left; nothing is lost by that

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: a library does not."""

    def _answer(self) -> None:
        if not self._host_is_ours():
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        try:
            path = urlsplit(self.path).path
        except ValueError:  # such as "http://[", which is no address
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        runs = self.runs.find()
        if path == "/" and "" not in runs:
            self._send(HTTPStatus.OK, self.runs.index(), _HTML)
            return
        name, leaf = _split(path)
        kind = {"": "page", "data.json": "data", "report.json": "report"}.get(leaf)
        if name is None or name not in runs or kind is None:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        # an unchanged journal costs a stat, not a parse
        if self.headers.get("If-None-Match") == self.runs.tag(runs[name]):
            self._send(HTTPStatus.NOT_MODIFIED, b"", _JSON, tag=self.headers["If-None-Match"])
            return
        tag, content = self.runs.answer(name, runs[name], kind=kind)
        self._send(HTTPStatus.OK, content, _HTML if kind == "page" else _JSON, tag=tag)

    def _host_is_ours(self) -> bool:
        port = cast(ThreadingHTTPServer, self.server).server_port
        return self.headers.get("Host") in (f"{HOST}:{port}", f"localhost:{port}")

    def _refuse(self, status: HTTPStatus) -> None:
        self._send(status, f"{status.phrase}\n".encode(), _TEXT)

    def _send(self, status: HTTPStatus, content: bytes, kind: str, *, tag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(content)))
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if tag:
            self.send_header("ETag", tag)
        for name, value in (
            ("Cache-Control", "no-cache"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and status != HTTPStatus.NOT_MODIFIED:
            self.wfile.write(content)


def _split(path: str) -> tuple[str | None, str]:
    """Run name and leaf of a URL path: / and /runs/NAME/ with a file name behind each."""
    parts = path.split("/")
    if len(parts) == 2:
        return "", parts[1]
    if len(parts) == 4 and parts[1] == "runs":
        return unquote(parts[2]), parts[3]
    return None, ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # an open browser never keeps the process alive
    request_queue_size = 32

    def handle_error(self, request: object, client_address: object) -> None:
        """Write to the log, not to the terminal; a broken connection is the browser's business."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            _LOG.exception("a request to the live view failed")


class LiveView:
    """A server that answers in the background; the end of the process ends it too."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self.server_address = server.server_address
        self.url = url_of(server)
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="live", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until somebody ends the server; Ctrl-C gets through."""
        self._thread.join()

    def shutdown(self) -> None:
        """End it, twice is fine."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def make_server(folder: str | os.PathLike[str], *, port: int = 0) -> ThreadingHTTPServer:
    """Return a server that is bound but not yet answering; port 0 takes a free one.

    The folder need not be there yet: `tune --serve` opens the page before its first trial.
    """
    handler = functools.partial(_Handler, Runs(Path(folder)))
    try:
        return _Server((HOST, port), handler)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot listen on {HOST}:{port}: {error}; choose another port, or 0 for a free one"
        ) from error


def url_of(server: ThreadingHTTPServer) -> str:
    return f"http://{HOST}:{server.server_port}/"


def start(folder: str | os.PathLike[str], *, port: int = 0) -> LiveView:
    """Serve a run folder, or a folder of runs, beside other work."""
    return LiveView(make_server(folder, port=port))

from __future__ import annotations

import http.client
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from seqto.errors import ConfigError
from seqto.report.live import make_server, start, url_of
from serving import live_view

sys.path.insert(0, str(Path(__file__).parent / "reports"))
from synthetic import EVIL_NAMES, build_report, journal


def write_journal(folder: Path, events: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(e).replace("Infinity", "null") for e in events]
    path = folder / "journal.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def ask(
    url: str, path: str, *, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=10)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host="Host" in names)
        for name, value in names.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    folder = tmp_path / "run"
    write_journal(folder, journal(layers=6, trials=6))
    with live_view(folder) as url:
        yield url, folder


def test_a_run_is_shown_as_its_live_page(run: tuple[str, Path]) -> None:
    status, headers, body = ask(run[0], "/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert b'data-live="true"' in body


def test_report_is_the_one_a_file_would_hold(run: tuple[str, Path]) -> None:
    _, _, body = ask(run[0], "/report.json")
    events = [json.loads(line) for line in (run[1] / "journal.jsonl").read_text().splitlines()]
    assert json.loads(body) == build_report(events)


def test_an_unchanged_journal_is_not_sent_again_and_a_grown_one_is(run: tuple[str, Path]) -> None:
    url, folder = run
    _, headers, first = ask(url, "/data.json")
    status, _, body = ask(url, "/data.json", If_None_Match=headers["ETag"])
    assert (status, body) == (304, b"")
    write_journal(folder, journal(layers=6, trials=7))
    status, _, second = ask(url, "/data.json", If_None_Match=headers["ETag"])
    assert status == 200
    assert len(json.loads(second)["trials"]) == len(json.loads(first)["trials"]) + 1


def test_a_torn_last_line_does_no_harm(run: tuple[str, Path]) -> None:
    url, folder = run
    with open(folder / "journal.jsonl", "a") as file:
        file.write('{"event": "trial", "tri')
    status, _, body = ask(url, "/data.json")
    assert status == 200
    assert len(json.loads(body)["trials"]) == 6


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "0.0.0.0", "127.0.0.1"])
def test_another_host_name_is_refused(run: tuple[str, Path], host: str) -> None:
    status, _, body = ask(run[0], "/report.json", Host=host)
    assert status == 403
    assert b"trials" not in body


def test_localhost_is_this_machine_too(run: tuple[str, Path]) -> None:
    assert ask(run[0], "/", Host=f"localhost:{urlsplit(run[0]).port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(run: tuple[str, Path], method: str) -> None:
    status, headers, _ = ask(run[0], "/", method=method)
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"


def test_head_has_no_body(run: tuple[str, Path]) -> None:
    status, headers, body = ask(run[0], "/", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 100_000


@pytest.mark.parametrize(
    "path",
    [
        "/journal.jsonl",
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/runs/../secret.txt",
        "/runs/..%2f..%2fsecret.txt/",
        "/runs/..%2fother/report.json",
        "/runs/%2e%2e/report.json",
        "/runs//secret.txt",
        "//secret.txt",
        "/runs/%00/",
        "/runs/link/report.json",
        "/runs/a/journal.jsonl",
        "/runs/a/../../secret.txt",
        "http://evil.example/secret.txt",
    ],
)
def test_no_url_leads_out_of_the_folder(tmp_path: Path, path: str) -> None:
    events = journal(layers=4, trials=3)
    write_journal(tmp_path / "runs" / "a", events)
    write_journal(tmp_path / "other", events)
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "other")
    linked = tmp_path / "runs" / "linked"
    linked.mkdir()
    (linked / "journal.jsonl").symlink_to(tmp_path / "other" / "journal.jsonl")
    with live_view(tmp_path / "runs") as url:
        assert ask(url, path)[0] in (403, 404)
        assert ask(url, "/runs/linked/report.json")[0] == 404
        assert ask(url, "/runs/a/report.json")[0] == 200


def test_several_runs_get_an_index(tmp_path: Path) -> None:
    events = journal(layers=4, trials=4)
    for name in ("first", "group/second", "with space & <b>"):
        write_journal(tmp_path / name, events)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "journal.jsonl").write_text("no json\n{}\n")
    with live_view(tmp_path) as url:
        status, _, body = ask(url, "/")
        text = body.decode()
        assert status == 200
        assert "with space &amp; &lt;b&gt;" in text
        assert "<b>" not in text
        assert "no journal record" in text
        links = [part.split("'")[0] for part in text.split("href='")[1:] if part[0] == "/"]
        assert len(links) == 4
        good = [link for link in links if "broken" not in link]
        assert all(ask(url, link)[0] == 200 for link in good)
        assert all(ask(url, f"{link}data.json")[0] == 200 for link in good)
        assert ask(url, "/runs/broken/")[0] == 503


@pytest.mark.parametrize(
    "line",
    [{}, {"event": "trial"}, {"event": "trial", "trial": {}}, {"event": "finding"}, [], "\ud800"],
)
def test_one_damaged_run_does_not_take_the_index_down(tmp_path: Path, line: Any) -> None:
    """A line that is JSON, and no event of ours, between good ones."""
    good = journal(layers=4, trials=3)
    write_journal(tmp_path / "good", good)
    write_journal(tmp_path / "damaged", [*good[:-1], line, good[-1]])
    with live_view(tmp_path) as url:
        status, _, body = ask(url, "/")
        text = body.decode()
        assert status == 200
        assert "href='/runs/good/'" in text
        assert f"line {len(good)}" in text  # where the damage is
        assert ask(url, "/runs/good/data.json")[0] == 200
        assert ask(url, "/runs/damaged/")[0] == 503


@pytest.mark.parametrize("target", ["http://[", "http://[::1", "http://[bad/", "//[", "/runs/[/"])
def test_an_address_that_is_none_is_refused_and_the_server_goes_on(
    run: tuple[str, Path], target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # the client, too, would look at the address for the name of the host
    assert ask(run[0], target, Host=urlsplit(run[0]).netloc)[0] in (400, 404)
    assert ask(run[0], "/")[0] == 200
    assert capsys.readouterr().err == ""


def test_names_of_runs_cannot_break_the_index(tmp_path: Path) -> None:
    events = journal(layers=4, trials=3, name=EVIL_NAMES[0])
    names = [n for n in EVIL_NAMES if "/" not in n]
    for name in names:
        write_journal(tmp_path / name, events)
    with live_view(tmp_path) as url:
        _, _, body = ask(url, "/")
        text = body.decode()
        assert "<script" not in text
        assert "<img" not in text
        links = [part.split("'")[0] for part in text.split("href='")[1:] if part[0] == "/"]
        assert len(links) == len(names)
        assert all(ask(url, f"{link}data.json")[0] == 200 for link in links)


def test_an_empty_folder_waits_for_runs(tmp_path: Path) -> None:
    with live_view(tmp_path) as url:
        assert b"No run yet" in ask(url, "/")[2]
        assert ask(url, "/data.json")[0] == 404
        write_journal(tmp_path, journal(layers=4, trials=3))
        assert ask(url, "/data.json")[0] == 200


def test_only_this_machine_can_connect(tmp_path: Path) -> None:
    with make_server(tmp_path) as server:
        assert server.socket.getsockname()[0] == "127.0.0.1"
        assert url_of(server).startswith("http://127.0.0.1:")


def test_serving_leaves_the_folder_as_it_was(run: tuple[str, Path]) -> None:
    before = {p: p.stat().st_mtime_ns for p in run[1].rglob("*")}
    for path in ("/", "/data.json", "/report.json", "/nothing"):
        ask(run[0], path)
    assert {p: p.stat().st_mtime_ns for p in run[1].rglob("*")} == before


def test_a_port_in_use_is_one_clear_error(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match="choose another port"):
            make_server(tmp_path, port=other.getsockname()[1])


def test_the_page_can_be_open_before_the_folder_exists(tmp_path: Path) -> None:
    with live_view(tmp_path / "later") as url:
        assert b"No run yet" in ask(url, "/")[2]
        write_journal(tmp_path / "later", journal(layers=4, trials=3))
        assert b'data-live="true"' in ask(url, "/")[2]


def test_a_view_ends_for_good_and_may_be_ended_twice(tmp_path: Path) -> None:
    view = start(tmp_path)
    assert ask(view.url, "/")[0] == 200
    view.shutdown()
    view.wait()
    view.shutdown()
    with pytest.raises(ConnectionRefusedError):
        ask(view.url, "/")

"""The local server: what it lists, what it refuses, and that nothing on disk is sent as it is."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from awn.errors import ArgumentError
from awn.report.server import RunServer
from report_cases import tabled

SUMMARY = {
    "table": "<b>adult</b>.csv",
    "target": "income",
    "score_name": "accuracy",
    "scores": {"adaptive": 0.87},
    "widths": {"hidden.0": 20, "hidden.1": 2},
    "parameters": 1345,
    "seconds": 3.2,
    "from": {"date": "2026-01-02T03:04:05+00:00", "seed": 0},
}
Answer = tuple[int, str, dict[str, str]]


def store(folder: Path, **changed: object) -> None:
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({**SUMMARY, **changed}), encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(tabled().to_json()), encoding="utf-8")
    (folder / "report.html").write_text("<script>alert(1)</script>", encoding="utf-8")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunServer]:
    root = tmp_path_factory.mktemp("runs")
    store(root / "adult")
    store(root / "many" / "a & b", **{"from": {"date": "2026-01-03T00:00:00+00:00", "seed": 1}})
    store(root / "damaged", widths="none")
    (root / "secret.txt").write_text("secret", encoding="utf-8")
    with RunServer(root, port=0) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server: RunServer, path: str, method: str = "GET", host: str | None = None) -> Answer:
    asking = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    asking.request(method, path, headers={"Host": host or f"127.0.0.1:{server.server_port}"})
    got = asking.getresponse()
    return got.status, got.read().decode(), dict(got.getheaders())


def test_runs_are_listed_the_newest_first_with_their_names_as_text(server: RunServer) -> None:
    status, page, headers = ask(server, "/")
    assert status == 200
    assert page.index("many/a &amp; b") < page.index(">adult<")
    assert "&lt;b&gt;adult&lt;/b&gt;.csv" in page
    assert "damaged" not in page
    assert "<script" not in page
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


def test_a_report_is_drawn_from_its_data(server: RunServer) -> None:
    status, page, _ = ask(server, "/report?run=many/a%20%26%20b")
    assert status == 200
    assert tabled().answer in page
    assert "alert(1)" not in page, "the file on disk is not sent"


def test_ticked_runs_are_compared(server: RunServer) -> None:
    status, page, _ = ask(server, "/compare?run=adult&run=many%2Fa+%26+b")
    assert status == 200
    assert "Comparison of 2 runs" in page
    assert "many/a &amp; b" in page
    assert "Tick from 2" in ask(server, "/compare?run=adult")[1]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/secret.txt", 404),
        ("/adult/report.html", 404),
        ("/report?run=../runs/adult", 404),
        ("/report?run=/etc", 404),
        ("/report?run=damaged", 404),
        ("/report?run=%ff", 404),
        ("//evil.example/", 404),
        ("/report", 200),
    ],
)
def test_files_cannot_be_reached(server: RunServer, path: str, status: int) -> None:
    got, page, _ = ask(server, path)
    assert got == status
    assert "secret" not in page
    assert "alert(1)" not in page


def test_other_hosts_and_other_methods_are_refused(server: RunServer) -> None:
    assert ask(server, "/", host="evil.example")[0] == 403
    assert ask(server, "/", host=f"evil.example:{server.server_port}")[0] == 403
    assert ask(server, "/", host=f"localhost:{server.server_port}")[0] == 200
    for method in ("POST", "PUT", "DELETE"):
        assert ask(server, "/", method)[0] == 501


def test_it_answers_this_machine_alone(server: RunServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="is not a folder"):
        RunServer(tmp_path / "none", port=0)

"""A local server that lists runs, shows their reports and compares some of them.

It answers this machine alone, reads and never writes, and sends no file as it is: every page is made here, from the
data of a run. Requests name runs, not files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from awn.errors import AwnError
from awn.report.page import comparison_content, report_content
from awn.report.runs_page import message_content, runs_content
from awn.report.stored import StoredRun, find_runs, read_report_data

_HOST = "127.0.0.1"
_MOST_COMPARED = 50
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class RunServer(ThreadingHTTPServer):
    """Serves the runs below a folder on the loopback interface. Port 0 takes any free one.

    >>> import tempfile
    >>> with RunServer(Path(tempfile.mkdtemp()), port=0) as server:
    ...     server.url
    'http://127.0.0.1:...'
    """

    daemon_threads = True

    def __init__(self, root: Path, port: int) -> None:
        self.root = root
        find_runs(root)  # refuses what is not a folder
        super().__init__((_HOST, port), _Handler)

    @property
    def url(self) -> str:
        """The address of the list of runs."""
        return f"http://{_HOST}:{self.server_port}"

    @property
    def names(self) -> set[str]:
        """The values of the Host header that are this server's.

        Another one means that a web page made its own name point here, to read what is not meant for it.
        """
        return {f"{host}:{self.server_port}" for host in (_HOST, "localhost")}


class _Handler(BaseHTTPRequestHandler):
    server: RunServer
    server_version, sys_version = "awn", ""

    def do_GET(self) -> None:
        """Answer with a page."""
        if self.headers.get("Host") not in self.server.names:
            self._send(HTTPStatus.FORBIDDEN, message_content("This address is not served here."))
            return
        asked = urlsplit(self.path)
        page = _PAGES.get(asked.path)
        if page is None:
            self._send(HTTPStatus.NOT_FOUND, message_content("There is no such page."))
            return
        names = parse_qs(asked.query, errors="surrogateescape").get("run", [])
        try:
            runs = find_runs(self.server.root)
            unknown = [name for name in names if name not in runs]
            if unknown:
                self._send(HTTPStatus.NOT_FOUND, message_content(f"There is no run {unknown[0]!r} any more."))
                return
            self._send(HTTPStatus.OK, page(self.server.root, runs, [runs[name] for name in names]))
        except (AwnError, OSError) as error:
            self._send(HTTPStatus.UNPROCESSABLE_ENTITY, message_content(str(error)))

    def _send(self, status: HTTPStatus, content: bytes) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests, and one line of an error."""
        if "code" in format:
            print("awn ui: a request was refused", file=sys.stderr)


def _list(root: Path, runs: dict[str, StoredRun], chosen: list[StoredRun]) -> bytes:
    return runs_content(root, list(runs.values()))


def _report(root: Path, runs: dict[str, StoredRun], chosen: list[StoredRun]) -> bytes:
    if len(chosen) != 1:
        return message_content("Choose one run to see its report.")
    return report_content(read_report_data(chosen[0].folder))


def _compare(root: Path, runs: dict[str, StoredRun], chosen: list[StoredRun]) -> bytes:
    if not 1 < len(chosen) <= _MOST_COMPARED:
        return message_content(f"Tick from 2 to {_MOST_COMPARED} runs to compare.")
    return comparison_content([read_report_data(run.folder) for run in chosen], [run.name for run in chosen])


_PAGES: dict[str, Callable[[Path, dict[str, StoredRun], list[StoredRun]], bytes]] = {
    "/": _list,
    "/report": _report,
    "/compare": _compare,
}

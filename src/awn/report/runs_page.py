"""The list of runs, as a page without any program: links to reports, and a form that compares ticked runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from awn.report.markup import escape, fill, number, packaged, policy_hash, raw_table, seconds
from awn.report.stored import StoredRun


def runs_content(root: Path, runs: Sequence[StoredRun]) -> bytes:
    """The page that lists runs."""
    if not runs:
        body = f"<section><p>{escape(root)} holds no finished runs yet: awn fit makes them.</p></section>"
        return _page("Runs", body)
    head = ("run", "compare", "target", "score", "units", "parameters", "training", "seed", "made")
    rows = [_cells(run) for run in runs]
    body = (
        f'<form action="/compare" method="get"><section>{raw_table(head, rows, "Runs")}'
        '<p><button type="submit">Compare the ticked runs</button></p></section></form>'
    )
    return _page(f"Runs in {root}", body)


def message_content(message: str) -> bytes:
    """A page with one sentence and a link to the list."""
    return _page("awn", f'<section><p>{escape(message)}</p><p><a href="/">All runs</a></p></section>')


def _cells(run: StoredRun) -> list[str]:
    found, name = run.summary, escape(_readable(run.name))
    address = quote(run.name, errors="surrogateescape")
    score = found["scores"].get("adaptive")
    return [
        f'<a href="/report?run={address}">{escape(found["table"])}</a><small>{name}</small>',
        f'<input type="checkbox" name="run" value="{escape(run.name)}" aria-label="Compare {name}">',
        escape(found["target"]),
        escape(f"{found['score_name']} {number(score)}"),
        escape(number(sum(found["widths"].values()))),
        escape(number(found["parameters"])),
        escape(seconds(found["seconds"])),
        escape(number(found["from"].get("seed"))),
        escape(run.date[:16].replace("T", " ")),
    ]


def _readable(name: str) -> str:
    """A name for people: bytes that are not UTF-8 become question marks."""
    return name.encode("utf-8", "replace").decode()


def _page(title: str, body: str) -> bytes:
    style = f"\n{packaged('page.css')}\n"
    page = fill("runs.html", title=escape(title), body=body, style=style, styles=policy_hash(style))
    return page.encode("utf-8", "replace")

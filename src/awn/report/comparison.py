"""The sections of a comparison of runs: a table, overlaid curves, and differing settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from awn.report.data import EpochRow, ReportData
from awn.report.epoch_plots import drawn_rows
from awn.report.figure import Figures, figure, line
from awn.report.markup import Section, plot, plots, table

NamedRuns = dict[str, ReportData]  # by a name that no two have in common


def comparison_sections(runs: Sequence[ReportData], figures: Figures) -> list[Section]:
    """All sections of a comparison; their figures are added to `figures`, by key."""
    named = _named(runs)
    made = (
        _results(named),
        _scores(named, figures),
        _units(named, figures),
        _tradeoffs(named, figures),
        _differences(named),
        _notes(named),
    )
    return [section for section in made if section is not None]


def _named(runs: Sequence[ReportData]) -> NamedRuns:
    """The runs by their titles, numbered where titles are the same."""
    titles = [run.title for run in runs]
    named: NamedRuns = {}
    for i, run in enumerate(runs):
        place = titles[:i].count(run.title) + 1
        named[f"{run.title} ({place})" if titles.count(run.title) > 1 else run.title] = run
    return named


def _results(runs: NamedRuns) -> Section:
    columns = list(dict.fromkeys(label for run in runs.values() for label, _ in run.headline))
    rows = [(name, *(dict(run.headline).get(label) for label in columns)) for name, run in runs.items()]
    says = "The figures that each run ended with."
    return Section("results", "Results", says, table(("run", *columns), rows, "Results"))


def _scores(runs: NamedRuns, figures: Figures) -> Section | None:
    says = "The score after every epoch, a line for each run: on rows kept from training, where there are any."
    return _by_score(runs, figures, "score", "Score over time", says, _score_curve, "epoch")


def _tradeoffs(runs: NamedRuns, figures: Figures) -> Section | None:
    says = (
        "What each run scores when its least important units are cut off: the higher and the further left, the better."
    )
    return _by_score(runs, figures, "tradeoff", "Truncation", says, _tradeoff_curve, "parameters")


def _by_score(
    runs: NamedRuns,
    figures: Figures,
    key: str,
    heading: str,
    says: str,
    curve: Callable[[ReportData], tuple[list[Any], list[Any]]],
    x: str,
) -> Section | None:
    """One plot per kind of score, since accuracies and errors need different axes."""
    made = []
    for i, score in enumerate(dict.fromkeys(run.score_name for run in runs.values())):
        # A run has one colour in all plots, so the place is that among all runs.
        found = [
            line(name, *curve(run), place)
            for place, (name, run) in enumerate(runs.items())
            if run.score_name == score and curve(run)[0]
        ]
        if found:
            figures[f"{key}-{i}"] = figure(found, x, score, showlegend=True, xaxis={"rangemode": "tozero"})
            made.append(plot(f"{key}-{i}", f"{heading}: {score}", score))
    return Section(key, heading, says, plots(made)) if made else None


def _score_curve(run: ReportData) -> tuple[list[Any], list[Any]]:
    rows = drawn_rows(run.history)
    for name in ("score", "train_score"):
        if any(row.get(name) is not None for row in rows):
            return [row["epoch"] for row in rows], [row.get(name) for row in rows]
    return [], []


def _tradeoff_curve(run: ReportData) -> tuple[list[Any], list[Any]]:
    points = sorted(run.truncation, key=lambda point: point.keep)
    return [point.parameters for point in points], [point.score for point in points]


def _units(runs: NamedRuns, figures: Figures) -> Section | None:
    curves = []
    for place, (name, run) in enumerate(runs.items()):
        rows = [row for row in drawn_rows(run.history) if row.get("widths")]
        if rows:
            curves.append(line(name, [row["epoch"] for row in rows], [_all_units(row) for row in rows], place))
    if not curves:
        return None
    says = "The units of all layers together after every epoch, a line for each run."
    figures["units"] = figure(curves, "epoch", "units", showlegend=True, yaxis={"rangemode": "tozero"})
    return Section("units-over-time", "Units over time", says, plot("units", says))


def _all_units(row: EpochRow) -> int:
    return sum(row["widths"].values())


def _differences(runs: NamedRuns) -> Section | None:
    facts = [{**run.environment, **run.settings} for run in runs.values()]
    names = list(dict.fromkeys(name for own in facts for name in own))
    differing = [name for name in names if len({str(own.get(name)) for own in facts}) > 1]
    if not differing:
        return None
    rows = [(name, *(own.get(fact) for fact in differing)) for name, own in zip(runs, facts, strict=True)]
    says = "Settings and environment, only where the runs differ."
    return Section("differences", "What differs", says, table(("run", *differing), rows, "What differs"))


def _notes(runs: NamedRuns) -> Section | None:
    notes = dict.fromkeys(note for run in runs.values() for note in run.notes)
    rows = []
    for note in notes:
        having = [name for name, run in runs.items() if note in run.notes]
        rows.append(("all runs" if len(having) == len(runs) else ", ".join(having), note))
    return Section("notes", "Notes", "", table(("runs", "note"), rows, "Notes")) if rows else None

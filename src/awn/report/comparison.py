"""The sections of a comparison of runs: means over seeds, a table, overlaid curves, and differing settings."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Any

from awn.report.data import EpochRow, ReportData
from awn.report.epoch_plots import drawn_rows
from awn.report.figure import Figures, figure, line
from awn.report.markup import Section, number, plot, plots, table

NamedRuns = dict[str, ReportData]  # by a name that no two have in common


def comparison_sections(runs: Sequence[ReportData], figures: Figures, folders: Sequence[str] = ()) -> list[Section]:
    """All sections of a comparison; their figures are added to `figures`, by key. `folders` are those of the runs."""
    named = short_names(runs)
    made = (
        _means(named),
        _results(named),
        _scores(named, figures),
        _units(named, figures),
        _tradeoffs(named, figures),
        _differences(named),
        _notes(named),
        _folders(named, folders),
    )
    return [section for section in made if section is not None]


def short_names(runs: Sequence[ReportData]) -> NamedRuns:
    """The runs by their titles, with the seeds where titles are the same, and numbered where that is not enough.

    >>> run = ReportData("iris.csv: kind", "classification", "accuracy", settings={"seed": 3})
    >>> list(short_names([run, ReportData("iris.csv: kind", "classification", "accuracy", settings={"seed": 4})]))
    ['iris.csv: kind, seed 3', 'iris.csv: kind, seed 4']
    >>> list(short_names([run, run]))
    ['iris.csv: kind (1)', 'iris.csv: kind (2)']
    """
    titles = [run.title for run in runs]
    seeded = [f"{run.title}, seed {run.settings['seed']}" if "seed" in run.settings else run.title for run in runs]
    named: NamedRuns = {}
    for place, run in enumerate(runs):
        alike = [other for other, title in enumerate(titles) if title == run.title]
        if len(alike) == 1:
            named[run.title] = run
        elif len({seeded[other] for other in alike}) == len(alike):
            named[seeded[place]] = run
        else:
            named[f"{run.title} ({alike.index(place) + 1})"] = run
    return named


def _figures_of(run: ReportData) -> dict[str, Any]:
    """The scores of all models, and the key figures besides."""
    leaders = {f"{run.score_name}, {one.name}": one.score for one in run.leaders}
    return {**leaders, **{label: value for label, value in run.headline if not (leaders and label == run.score_name)}}


def _means(runs: NamedRuns) -> Section | None:
    """Mean ± standard deviation of the runs that share a title and differ in their seed."""
    groups: dict[str, list[ReportData]] = {}
    for run in runs.values():
        groups.setdefault(run.title, []).append(run)
    several = {title: own for title, own in groups.items() if len({run.settings.get("seed") for run in own}) > 1}
    if not several:
        return None
    facts = {title: [_figures_of(run) for run in own] for title, own in several.items()}
    columns = list(dict.fromkeys(label for own in facts.values() for each in own for label in each))
    rows = [
        (title, len(own), *(_mean([each.get(label) for each in own]) for label in columns))
        for title, own in facts.items()
    ]
    shown = [place for place in range(2, len(columns) + 2) if any(row[place] is not None for row in rows)]
    rows = [(row[0], row[1], *(row[place] for place in shown)) for row in rows]
    head = ("table", "runs", *(columns[place - 2] for place in shown))
    says = "Mean ± standard deviation over the seeds."
    return Section("means", "Means over seeds", says, table(head, rows, "Means over seeds"))


def _mean(values: Sequence[Any]) -> str | None:
    """The mean ± standard deviation of numbers; None if some of them are none.

    >>> _mean([0.91, 0.93]), _mean([100, 120]), _mean(["3 s", "4 s"])
    ('0.920 ± 0.014', '110 ± 14', None)
    """
    if not values or not all(isinstance(value, numbers.Real) for value in values):
        return None
    mean, deviation = fmean(values), stdev(values) if len(values) > 1 else 0.0
    if abs(mean) < 10 and not all(isinstance(value, numbers.Integral) for value in values):
        return f"{mean:.3f} ± {deviation:.3f}"
    return f"{number(round(mean))} ± {number(round(deviation))}"


def _results(runs: NamedRuns) -> Section:
    facts = {name: _figures_of(run) for name, run in runs.items()}
    columns = list(dict.fromkeys(label for own in facts.values() for label in own))
    rows = [(name, *(own.get(label) for label in columns)) for name, own in facts.items()]
    says = "The figures that each run ended with; scores are those of the test rows."
    return Section("results", "Results", says, table(("run", *columns), rows, "Results"))


def _folders(runs: NamedRuns, folders: Sequence[str]) -> Section | None:
    if not folders:
        return None
    rows = list(zip(runs, folders, strict=True))
    return Section("folders", "Folders", "Where each run is.", table(("run", "folder"), rows, "Folders"))


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

"""`fit_table`: from a table file to a trained model, its scores and a report."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from awn.core.count import count_parameters
from awn.core.groups import find_groups
from awn.errors import ColumnWarning
from awn.files.lock import folder_lock
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn.parallel.torchrun import is_first
from awn.report import ReportData, write_report
from awn.tabular.analysis import TableRows, analyse
from awn.tabular.contest import Contestant, Scored, leaderboard, score_outputs, size_curve
from awn.tabular.estimators import AdaptiveClassifier, r_squared
from awn.tabular.folder import Estimator, save_estimator
from awn.tabular.members import describe_members, networks_of
from awn.tabular.outcome import SCORE_NAMES, Start, TableFit, describe_rows
from awn.tabular.preparing import ESTIMATORS, Prepared, prepare_table
from awn.tabular.rivals import fit_rivals, why_no_rivals
from awn.tabular.settings import TableSettings
from awn.tabular.split import row_parts, table_hash, write_split
from awn.tabular.train_score import TrainScore
from awn.training import Callback, Progress
from awn.training.evaluate import accuracy


def fit_table(
    table: str | Path,
    folder: str | Path,
    settings: TableSettings,
    *,
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
    data_parallel: bool = False,
    facts: Mapping[str, Any] | None = None,
    begin: Callable[[Start], None] = lambda _: None,
) -> TableFit:
    """Train on a table, score on its test set, and write the model, the report and a summary to a folder.

    With `data_parallel`, all processes of torch's default group train one network together, and rank 0 writes. The
    summary records its provenance by `awn.files.provenance`, with `facts` added. `begin` is called right before the
    first epoch. While it runs, the folder is locked.
    """
    writes = not data_parallel or is_first()
    with folder_lock(folder) if writes else nullcontext():
        known = prepare_table(table, settings)
        opening = _Opening(lambda: begin(_start(known, estimator, settings)))
        score = accuracy if known.task == "classification" else r_squared
        estimator = _make(known, settings.seed, callbacks=[opening, *callbacks, TrainScore(score)])
        run = Path(folder, "run")
        seconds = _train(estimator, known, folder=run, resume=resume, data_parallel=data_parallel) + opening.before
        contest = _Contest.hold(known, estimator, seconds, settings, data_parallel=data_parallel, rivals=writes)
        result = TableFit(
            **_start(known, estimator, settings)._asdict(),
            **_end(estimator),
            scores={name: scored.score for name, scored in contest.scored.items()},
            measures={name: scored.measures for name, scored in contest.scored.items()},
            seconds=round(seconds, 1),
            folder=str(folder),
            model=str(Path(folder, "model")),
            report=str(Path(folder, "report.html")),
        )
        if writes:
            made_by = provenance(seed=settings.seed, **(facts or {}))
            _write(result, estimator, known, contest, Path(table), settings, made_by)
        return result


def check_fit(table: str | Path, settings: TableSettings) -> str:
    """Raise any error that `fit_table` would raise before training; returns a description of the task."""
    return prepare_table(table, settings).notes[0]


class _Opening(Callback):
    """Calls a function when the columns are known, right before the first epoch."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin
        #: The seconds of the epochs before an interruption.
        self.before = 0.0

    def on_fit_start(self, progress: Progress) -> None:
        self.before = sum(float(row.get("seconds") or 0.0) for row in progress.history)
        self._begin()


def _start(known: Prepared, estimator: Estimator, settings: TableSettings) -> Start:
    """The facts known once the preprocessing is fitted."""
    columns = estimator.preprocessor_.columns
    counts = {
        "table": len(columns),
        "used": sum(column.used for column in columns),
        "inputs": len(estimator.preprocessor_.feature_names),
    }
    validation = len(estimator.validation_index_)
    rows = {"train": len(known.X), "validation": validation, "test": len(known.X_test)}
    notes = [*known.notes, describe_rows(rows, counts), describe_members(estimator.members_)]
    notes += estimator.preprocessor_.notes
    too_large = why_no_rivals(len(known.X), counts["used"]) if settings.compare else ""
    notes += [too_large] if too_large else []
    return Start(known.task, SCORE_NAMES[known.task], known.classes, rows, counts, notes)


def _end(estimator: Estimator) -> dict[str, Any]:
    """The facts known once the network is trained."""
    history = estimator.history_
    widths = {group.name: group.width for one in networks_of(estimator.model_) for group in find_groups(one)}
    return {
        "networks": estimator.members_,
        "widths": estimator.widths_,
        "learned_widths": estimator.learned_widths_,
        "at_cap": {name: width.units for name, width in widths.items() if width.units == width.max_units},
        "parameters": count_parameters(estimator.model_),
        "epochs": len(history),
        "kept_epoch": history.kept_epoch,
        "stopped_early": len(history) < estimator.max_iter_,
        "training_path": history.path,
    }


def _make(known: Prepared, seed: int, **others: Any) -> Estimator:
    return ESTIMATORS[known.task](**known.options, random_state=seed, **others)


def _train(estimator: Estimator, known: Prepared, **options: Any) -> float:
    """Train on all rows besides the test rows; returns the seconds that it took."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnWarning)  # the notes name these columns
        estimator.fit(known.X, known.y, **options)
    return time.perf_counter() - started


@dataclass(frozen=True)
class _Contest:
    """The models to compare, those among them for the curve of sizes, and their scores on the test rows."""

    contestants: list[Contestant]
    on_curve: list[Contestant]
    scored: dict[str, Scored]

    @classmethod
    def hold(
        cls,
        known: Prepared,
        estimator: Estimator,
        seconds: float,
        settings: TableSettings,
        *,
        data_parallel: bool,
        rivals: bool,
    ) -> _Contest:
        """Train the other models, and score all on the test rows.

        The other models learn from all rows besides the test rows. For the curve of sizes, boosting learns from the
        training rows alone, since the curve is of the validation rows.
        """
        classes = estimator.classes_ if isinstance(estimator, AdaptiveClassifier) else None
        contestants, on_curve = [Contestant.of_network("adaptive", estimator, seconds)], []
        if settings.compare:
            fixed = _make(known, settings.seed, fixed_widths=list(estimator.widths_.values()))
            contestants.append(Contestant.of_network("fixed", fixed, _train(fixed, known, data_parallel=data_parallel)))
            on_curve.append(contestants[-1])
        if rivals:
            used = sum(column.used for column in estimator.preprocessor_.columns)
            all_kinds = settings.compare and not why_no_rivals(len(known.X), used)
            kinds = ["boosting", "linear", "baseline"] if all_kinds else ["baseline"]
            options: dict[str, Any] = {"seed": settings.seed, "balanced": _is_balanced(known)}
            fitted = fit_rivals(estimator.preprocessor_, known.X, known.y, known.task, kinds=kinds, **options)
            contestants += [Contestant.of_rival(rival, classes) for rival in fitted.values()]
        if rivals and len(estimator.validation_index_):
            train = known.X.index.difference(estimator.validation_index_, sort=False)
            kinds = [kind for kind in kinds if kind != "linear"]
            X, y = known.X.loc[train], known.y.loc[train]
            fitted = fit_rivals(estimator.preprocessor_, X, y, known.task, kinds=kinds, **options)
            on_curve += [Contestant.of_rival(rival, classes) for rival in fitted.values()]
        scored = {one.name: score_outputs(known.y_test, one.outputs(known.X_test), classes) for one in contestants}
        return cls(contestants, on_curve, scored)


def _is_balanced(known: Prepared) -> bool:
    return known.options.get("class_weight") == "balanced"


def _write(
    result: TableFit,
    estimator: Estimator,
    known: Prepared,
    contest: _Contest,
    table: Path,
    settings: TableSettings,
    made_by: dict[str, Any],
) -> None:
    folder, rows = Path(result.folder), _rows(known, estimator)
    about = {"table": table.name, "target": settings.target, "task": result.task, "score_name": result.score_name}
    about |= {"table_sha256": table_hash(table)}
    save_estimator(estimator, result.model, about={**about, "scores": result.scores, "rows": result.rows})
    held = estimator.validation_index_
    parts = row_parts(known.rows, train=known.X.index, validation=held, test=known.X_test.index)
    write_split(Path(result.model), parts)
    first = ReportData(
        title=f"{table.name}: {settings.target}",
        task=result.task,
        score_name=result.score_name,
        answer=result.answer(),
        headline=_headline(result),
        size_curve=size_curve(estimator, rows.X_held, rows.y_held, contest.on_curve) if rows.are_apart else None,
        leaders=leaderboard(contest.contestants, contest.scored, result.score_name),
        leader_rows=f"the {len(known.X_test):,} test rows",
        settings={
            "table": table.name,
            "target": settings.target,
            "seed": settings.seed,
            **_reported_options(estimator),
        },
        environment=provenance(),
        notes=[*result.notes, *result.ending()],
        measures=result.measures,
    )
    data = analyse(estimator, rows, first, explain=settings.explain)
    write_report(folder / "report.html", data)
    write_files(
        {
            folder / "summary.json": json_file({"from": made_by, **about, **asdict(result)}),
            folder / "report.json": json_file(data.to_json()),
        }
    )


def _rows(known: Prepared, estimator: Estimator) -> TableRows:
    """The rows by their role. A table that is too small for validation rows is judged by its training rows."""
    held = estimator.validation_index_
    train = known.X.index.difference(held, sort=False)
    judged: pd.Index = held if len(held) else train
    return TableRows(
        known.X.loc[train], known.y.loc[train], known.X.loc[judged], known.y.loc[judged], known.X_test, known.y_test
    )


def _headline(result: TableFit) -> list[tuple[str, Any]]:
    return [
        (result.score_name, result.scores["adaptive"]),
        ("units", sum(result.widths.values())),
        ("parameters", result.parameters),
        ("seconds of training", round(result.seconds, 1)),
    ]


def _reported_options(estimator: Estimator) -> dict[str, Any]:
    return {name: value for name, value in estimator.get_params().items() if name not in ("callbacks", "random_state")}

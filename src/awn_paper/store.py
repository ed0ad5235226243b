"""The store: a JSON file for every run and one for the outcome of every case, written whole or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from awn.basics.plain import to_plain
from awn.basics.schema import anything, entries
from awn.errors import CheckpointError
from awn.files.lock import folder_lock
from awn.files.provenance import provenance
from awn.files.read import read_json as read_file
from awn.files.write import write_files
from awn_paper.protocol import AnyCase, Experiment, Outcome, Profile, Protocol
from awn_paper.run import Job, Record


@dataclass(frozen=True)
class Store:
    """The results under a folder: <experiment>/runs/<data set>/<key>.json and <experiment>/<profile>/<case>.json."""

    root: Path

    def run_path(self, folder: str, job: Job) -> Path:
        """Where the record of a run lies, or will."""
        return self._runs(folder, job.settings.dataset) / f"{job.key}.json"

    def outcome_path(self, experiment: Experiment, profile: Profile, case: AnyCase) -> Path:
        """Where the outcome of a case lies, or will."""
        fold = f"-fold-{case.settings.fold}" if case.settings.fold else ""
        return self.root / experiment.name / profile / f"{slug(case.settings.dataset)}-{slug(case.label)}{fold}.json"

    @contextmanager
    def locked(self, folder: str, datasets: Iterable[str]) -> Iterator[None]:
        """Inside the block, no other process makes runs of these data sets for this folder."""
        with ExitStack() as locks:
            for name in datasets:
                locks.enter_context(folder_lock(self._runs(folder, name)))
            yield

    def find(self, folder: str, job: Job) -> Record | None:
        """The record of a run that is finished."""
        path = self.run_path(folder, job)
        return read_json(path) if path.is_file() else None

    def keep(self, folder: str, job: Job, record: Record) -> None:
        """Write the record of a run."""
        write_files({self.run_path(folder, job): packed(record)})

    def keep_outcome(
        self, experiment: Experiment, profile: Profile, case: AnyCase, outcome: Outcome, protocol: Protocol
    ) -> None:
        """Write what a case came to, by the names of its runs; with fewer final runs than are written, that stays."""
        folder = experiment.runs_folder
        content = {
            "experiment": experiment.name,
            "profile": profile,
            "says": protocol.says,
            "details": protocol.details.get(case.settings.dataset, ""),
            "dataset": case.settings.dataset,
            "fold": case.settings.fold,
            "label": case.label,
            "chosen": to_plain(outcome.chosen, kinds=True),
            "selection": [self._name(folder, run.job) for run in outcome.selection],
            "final": [self._name(folder, run.job) for run in outcome.final],
            "from": provenance(),
        }
        path = self.outcome_path(experiment, profile, case)
        before = read_json(path) if path.is_file() else None
        if before and before["chosen"] == content["chosen"]:
            more_seeds = set(before["final"]) > set(content["final"])
            if more_seeds and set(before["selection"]) >= set(content["selection"]):
                return
        write_files({path: packed(content)})

    def outcomes(self, experiment: Experiment, profile: Profile) -> list[dict[str, Any]]:
        """All outcomes of an experiment, with the records of their runs in place of the names."""
        found = []
        for path in sorted((self.root / experiment.name / profile).glob("*.json")):
            content = read_json(path)
            for part in ("selection", "final"):
                content[part] = [read_json(self.root / name) for name in content[part]]
            found.append(content)
        return found

    def _runs(self, folder: str, dataset: str) -> Path:
        return self.root / folder / "runs" / slug(dataset)

    def _name(self, folder: str, job: Job) -> str:
        return self.run_path(folder, job).relative_to(self.root).as_posix()


def slug(words: str) -> str:
    """Words as a file name.

    >>> slug("credit card"), slug("Fixed+"), slug("k = 0.9")
    ('credit-card', 'fixed-plus', 'k-0.9')
    """
    return re.sub(r"[^a-z0-9.]+", "-", words.lower().replace("+", "-plus")).strip("-")


def packed(content: Any) -> bytes:
    """JSON with a line for each entry of its first level: short, and still readable."""
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in content.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def read_json(path: Path) -> dict[str, Any]:
    """The content of a file of this store."""
    try:
        content: dict[str, Any] = read_file(path, entries(anything()))
    except CheckpointError as error:
        raise CheckpointError(f"{path} is not a readable result: {error} Delete it to have it made again.") from None
    return content

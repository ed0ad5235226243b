"""Sweep: all cases of an experiment at once. Finished runs are found in the store, and the others given to workers."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from awn.errors import AwnError
from awn.files.provenance import origin
from awn.runs.manager import Failure, RunManager, RunRecipe, Tell
from awn.runs.workers import Workers
from awn_paper.protocol import AnyCase, Experiment, Finished, Outcome, Profile, Protocol, Stages
from awn_paper.run import Job, Record, train
from awn_paper.store import Store


class SweepError(AwnError, RuntimeError):
    """Runs that could not be made; those that are finished are kept."""


class Sweep:
    """The runs of an experiment's cases, and the cases that wait for them."""

    def __init__(
        self,
        experiment: Experiment,
        profile: Profile,
        store: Store,
        workers: Workers,
        *,
        scratch: Path | None = None,
        resume: bool = False,
        tell: Tell = lambda _: None,
    ) -> None:
        self._experiment, self._profile, self._store, self._tell = experiment, profile, store, tell
        # The command and the commit are those of this process: a worker elsewhere does not know them.
        recipe = _Jobs(store, experiment.runs_folder, scratch, resume, origin(), tell)
        self._runs = RunManager(recipe, workers)

    @property
    def made(self) -> int:
        """The number of runs that were made, and not found."""
        return self._runs.made

    def run(self, protocol: Protocol) -> list[Outcome]:
        """Make all runs that are missing, and write the outcome of every case as soon as it is there.

        Another process that makes runs of the same data sets for the same folder is refused meanwhile.
        """
        with self._store.locked(self._experiment.runs_folder, protocol.datasets):
            return self._run(protocol)

    def _run(self, protocol: Protocol) -> list[Outcome]:
        outcomes: list[Outcome] = []
        waiting: list[tuple[AnyCase, Stages, Sequence[Job]]] = []
        for case in protocol.cases:
            stages = case.stages(protocol.seeds)
            waiting.append((case, stages, next(stages)))
        while waiting:
            still = []
            for case, stages, jobs in waiting:
                wanted: Sequence[Job] | None = jobs
                while wanted is not None and self._ready(wanted):
                    done = [Finished(job, self._runs.results[job]) for job in wanted]
                    try:
                        wanted = stages.send(done)
                    except StopIteration as end:
                        wanted = None
                        outcomes.append(end.value)
                        self._store.keep_outcome(self._experiment, self._profile, case, end.value, protocol)
                        self._tell(f"{case.settings.dataset}, {case.label}: done")
                if wanted is not None and not any(job in self._runs.failures for job in wanted):
                    still.append((case, stages, wanted))
            waiting = still
            if waiting:
                self._runs.collect()
        if self._runs.failures:
            found = [f"{job.settings.dataset}: {failure.says}" for job, failure in self._runs.failures.items()]
            raise SweepError(f"not all runs could be made. {' '.join(dict.fromkeys(found))} What is finished is kept.")
        return outcomes

    def _ready(self, jobs: Sequence[Job]) -> bool:
        """Whether all these runs are finished; those that nobody has asked for yet are asked for."""
        for job in jobs:
            self._runs.ask(job)
        return all(job in self._runs.results for job in jobs)


@dataclass(frozen=True)
class _Jobs(RunRecipe[Job, Record]):
    store: Store
    folder: str
    scratch: Path | None
    resume: bool
    origin: Mapping[str, Any]
    tell: Tell

    def find(self, job: Job) -> Record | None:
        return self.store.find(self.folder, job)

    def call(self, job: Job) -> tuple[Any, ...]:
        return make, job, self._scratch_of(job), self.resume

    def keep(self, job: Job, record: Record) -> Record:
        record["from"] |= self.origin
        self.store.keep(self.folder, job, record)
        scratch = self._scratch_of(job)
        if scratch is not None:  # of no use any more
            shutil.rmtree(scratch, ignore_errors=True)
        return record

    def say(self, job: Job, outcome: Record | Failure, left: int) -> None:
        if not isinstance(outcome, Failure):
            self.tell(_sentence(job, outcome, left))
        elif outcome.trace:
            self.tell(outcome.trace)

    def _scratch_of(self, job: Job) -> Path | None:
        return None if self.scratch is None else self.scratch / job.key


def make(job: Job, scratch: Path | None, resume: bool) -> Record:
    """What a worker does: one run, with one thread."""
    torch.set_num_threads(1)
    return train(job, scratch, resume=resume)


def _sentence(job: Job, record: Record, left: int) -> str:
    kind = "final" if job.final else "selection"
    if "failed" in record:
        return f"{job.settings.dataset} {kind} seed {job.seed}: {record['failed']}"
    scores = record["test"] or record["validation"]
    return (
        f"{job.settings.dataset} {kind} seed {job.seed}: score {scores['score']:.4f}, "
        f"{sum(record['widths'].values())} units, {record['epochs']} epochs in {record['seconds']:.0f} s; {left} to go"
    )

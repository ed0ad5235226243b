"""Sweep: all cases of an experiment at once. Finished runs are found in the store, and the others given to workers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from awn.errors import AwnError
from awn.files.provenance import origin
from awn.runs.workers import Tasks, Workers
from awn_paper.protocol import AnyCase, Experiment, Finished, Outcome, Profile, Protocol, Stages
from awn_paper.run import Job, Record, train
from awn_paper.store import Store

Tell = Callable[[str], None]


class SweepError(AwnError, RuntimeError):
    """Runs that could not be made; those that are finished are kept."""


class Sweep:
    """The runs of an experiment's cases: those that are finished, those under way, and who waits for them."""

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
        self._experiment, self._profile, self._store = experiment, profile, store
        self._scratch, self._resume, self._tell = scratch, resume, tell
        self._tasks: Tasks[Job] = Tasks(workers)
        self._asked: set[str] = set()
        self._records: dict[str, Record] = {}
        self._failures: dict[str, str] = {}
        self._origin = origin()  # a worker elsewhere does not know it
        self.made = 0

    def run(self, protocol: Protocol) -> list[Outcome]:
        """Make all runs that are missing, and write the outcome of every case as soon as it is there."""
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
                    done = [Finished(job, self._records[job.key]) for job in wanted]
                    try:
                        wanted = stages.send(done)
                    except StopIteration as end:
                        wanted = None
                        outcomes.append(end.value)
                        self._store.keep_outcome(self._experiment, self._profile, case, end.value, protocol.says)
                        self._tell(f"{case.settings.dataset}, {case.label}: done")
                if wanted is not None and not any(job.key in self._failures for job in wanted):
                    still.append((case, stages, wanted))
            waiting = still
            if waiting:
                self._collect()
        if self._failures:
            reasons = " ".join(dict.fromkeys(self._failures.values()))
            raise SweepError(f"not all runs could be made. {reasons} What is finished is kept.")
        return outcomes

    def _ready(self, jobs: Sequence[Job]) -> bool:
        """Whether all these runs are finished; those that nobody has asked for yet are put in the queue."""
        for job in jobs:
            if job.key in self._asked:
                continue
            self._asked.add(job.key)
            found = self._store.find(self._experiment.runs_folder, job)
            if found is not None:
                self._records[job.key] = found
            else:
                self._tasks.add(job, make, job, self._scratch_of(job), self._resume)
        return all(job.key in self._records for job in jobs)

    def _collect(self) -> None:
        """Wait for runs, and keep what they came to."""
        for job, record in self._tasks.finished():
            if isinstance(record, Exception):
                self._failures[job.key] = f"{job.settings.dataset}: {record}"
                continue
            record["from"] |= self._origin
            self._store.keep(self._experiment.runs_folder, job, record)
            self._records[job.key] = record
            self.made += 1
            self._clear(job)
            self._tell(_sentence(job, record, len(self._tasks)))

    def _scratch_of(self, job: Job) -> Path | None:
        return None if self._scratch is None else self._scratch / job.key

    def _clear(self, job: Job) -> None:
        """What a run would have been resumed from is of no use any more."""
        folder = self._scratch_of(job)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


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

"""How many runs an experiment needs, and how many of them are there: a sweep that makes none."""

from __future__ import annotations

from typing import NamedTuple

from awn.errors import MissingExtraError
from awn_paper.protocol import AnyCase, Experiment, Finished, Profile
from awn_paper.run import Record
from awn_paper.store import Store

# In the place of a run that is yet to be made. What it scores decides which runs follow, and hardly ever how many.
_UNMADE: Record = {"validation": {"score": 0.0, "loss": 0.0}, "widths": {"": 1}}


class Plan(NamedTuple):
    """The runs that an experiment needs in all, and those that are finished; None where that cannot be told."""

    runs: int | None
    there: int | None


def plan(experiment: Experiment, profile: Profile, store: Store) -> Plan:
    """Go through all stages of an experiment with the records that are there, and stand-ins for the others."""
    protocol = experiment.protocol(profile)
    there: dict[str, bool] = {}
    try:
        for case in protocol.cases:
            there |= _go_through(case, protocol.seeds, store, experiment.runs_folder)
    except MissingExtraError:  # that of a search
        return Plan(None, None)
    return Plan(len(there), sum(there.values()))


def _go_through(case: AnyCase, seeds: int, store: Store, folder: str) -> dict[str, bool]:
    """Every run that a case asks for, by its key, and whether it is there."""
    there: dict[str, bool] = {}
    stages = case.stages(seeds)
    jobs = next(stages)
    while True:
        found = [store.find(folder, job) for job in jobs]
        there |= {job.key: record is not None for job, record in zip(jobs, found, strict=True)}
        done = [Finished(job, record or _UNMADE) for job, record in zip(jobs, found, strict=True)]
        try:
            jobs = stages.send(done)
        except StopIteration:
            return there

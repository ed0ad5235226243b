"""The protocol: which runs an experiment needs, stage after stage. It asks for runs, and gets their records.

A case is a generator of stages: it yields jobs, is sent their records, and returns its outcome in the end. It does not
know where or in which order the runs are made.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from awn.errors import ArgumentError
from awn_paper.models import Fixed
from awn_paper.run import Job, Record, total_width
from awn_paper.search import Proposer, make_proposer
from awn_paper.settings import Settings

Profile = Literal["paper", "long", "small"]
#: From the paper's own protocol to the shortest: of a data set's results, the first that is complete counts.
PROFILES: tuple[Profile, ...] = get_args(Profile)


@dataclass(frozen=True)
class Finished:
    """A run that was asked for, and its record."""

    job: Job
    record: Record


@dataclass(frozen=True)
class Outcome:
    """What a case came to: the runs of its model selection, the chosen settings, and its final runs."""

    selection: tuple[Finished, ...]
    chosen: Settings
    final: tuple[Finished, ...]


Stages = Generator[Sequence[Job], Sequence[Finished], Outcome]


@dataclass(frozen=True)
class Case:
    """A row of a table: the best of a grid by its validation score, retrained with several seeds.

    With one entry there is nothing to select. Without seeds the grid itself is the result, as where the paper averages
    over configurations, with `repeats` runs of each. `seeds` is the number of final runs where it is another than the
    protocol's. `selected_in` is the number of epochs of the model selection where they are fewer, and `selected_on`
    its fold where it is another.
    """

    label: str
    grid: tuple[Settings, ...]
    seeds: int | None = None
    selected_in: int | None = None
    selected_on: int | None = None
    repeats: int = 1

    @property
    def settings(self) -> Settings:
        """The first of the grid, which has the data set and the fold of all."""
        return self.grid[0]

    def stages(self, seeds: int) -> Stages:
        """Model selection, then the final runs."""
        seeds = seeds if self.seeds is None else self.seeds
        selection: Sequence[Finished] = ()
        chosen = self.grid[0]
        if len(self.grid) > 1 or seeds == 0:
            changed = {"epochs": self.selected_in, "fold": self.selected_on}
            changed = {name: value for name, value in changed.items() if value is not None}
            tried = [settings.change(**changed) for settings in self.grid]
            selection = yield [Job(settings, seed, final=False) for seed in range(self.repeats) for settings in tried]
            ours = self.settings
            chosen = best_of(selection).job.settings.change(epochs=ours.training.epochs, fold=ours.fold)
        final = yield [Job(chosen, seed, final=True) for seed in range(seeds)]
        return Outcome(tuple(selection), chosen, tuple(final))


@dataclass(frozen=True)
class Retrained:
    """A fixed network of the width that another case learned: Fixed+.

    Its other settings are those that `fixed` selects. The width of each layer is the mean over the layers and final
    runs of `adaptive`.
    """

    label: str
    adaptive: Case
    fixed: Case
    seeds: int | None = None

    @property
    def settings(self) -> Settings:
        """Settings with the data set and the fold of all."""
        return self.fixed.settings

    def stages(self, seeds: int) -> Stages:
        """Those of the two cases, then the runs of the width between them."""
        learned = yield from self.adaptive.stages(seeds)
        selected = yield from self.fixed.stages(seeds)
        totals = [total_width(record) for record in _learned(learned)]
        if not totals:
            return Outcome((), selected.chosen, ())
        chosen = selected.chosen.change(widths=_shared(sum(totals) / len(totals), learned))
        return (yield from _retrained(chosen, seeds if self.seeds is None else self.seeds))


@dataclass(frozen=True)
class OfTotal:
    """A fixed network of so many units over all its layers, with the other settings of the best adaptive one."""

    label: str
    adaptive: Case
    total: int
    seeds: int | None = None

    @property
    def settings(self) -> Settings:
        """Settings with the data set and the fold of all."""
        return self.adaptive.settings

    def stages(self, seeds: int) -> Stages:
        """Those of the adaptive case, then the runs of the total."""
        learned = yield from self.adaptive.stages(seeds)
        if not _learned(learned):
            return Outcome((), learned.chosen, ())
        chosen = learned.chosen.change(widths=_shared(self.total, learned))
        return (yield from _retrained(chosen, seeds if self.seeds is None else self.seeds))


@dataclass(frozen=True)
class Searched:
    """A width found by a search of so many runs, then retrained with several seeds."""

    label: str
    settings: Settings
    proposer: Proposer
    widths: tuple[int, ...]
    budget: int = 5

    def stages(self, seeds: int) -> Stages:
        """One run after the other, each proposed by what the others found."""
        propose = make_proposer(self.proposer, self.widths, seed=0)
        tried: list[Finished] = []
        for _ in range(self.budget):
            units = propose([(run.job.settings.widths.units, merit_of(run)) for run in tried])  # type: ignore[union-attr]
            known = [run for run in tried if run.job.settings.widths.units == units]  # type: ignore[union-attr]
            tried += known[:1] or (yield [Job(self.settings.change(units=units), 0, final=False)])
        chosen = best_of(tried).job.settings
        final = yield [Job(chosen, seed, final=True) for seed in range(seeds)]
        return Outcome(tuple({run.job.key: run for run in tried}.values()), chosen, tuple(final))


AnyCase = Case | Retrained | OfTotal | Searched


@dataclass(frozen=True)
class Protocol:
    """What is run: the cases, the number of final runs, and how it differs from what the paper did.

    `says` holds for all data sets, `details` for one each.
    """

    cases: tuple[AnyCase, ...]
    seeds: int
    says: str
    details: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets, in order."""
        return tuple(dict.fromkeys(case.settings.dataset for case in self.cases))

    def part(self, dataset: str | None = None, label: str | None = None) -> Protocol:
        """The cases of one data set, and those whose label matches a pattern with `*` and `?`; None takes all."""
        cases = [case for case in self.cases if dataset is None or case.settings.dataset.lower() == dataset.lower()]
        if not cases:
            raise ArgumentError(f"no case has the data set {dataset!r}. There are: {', '.join(self.datasets)}.")
        matching = tuple(case for case in cases if label is None or fnmatchcase(case.label, label))
        if not matching:
            labels = ", ".join(dict.fromkeys(repr(case.label) for case in cases))
            raise ArgumentError(f"no case has a label that matches {label!r}. There are: {labels}.")
        return replace(self, cases=matching)

    def with_seeds(self, seeds: int | None) -> Protocol:
        """Another number of final runs, and a word on it; a protocol without final runs has none to change."""
        if seeds is None or self.seeds == 0:
            return self
        cases = tuple(case if isinstance(case, Searched) else replace(case, seeds=None) for case in self.cases)
        details = {name: f"{self.details.get(name, '')} Final runs here: {seeds}.".strip() for name in self.datasets}
        return Protocol(cases, seeds, self.says, details)


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper: its protocol for those with the hardware, and one for an evening on two cores.

    `long` stands between them: the paper's epochs and a number of seeds, over fewer configurations. Without it, the
    paper's own protocol is short enough. Experiments that look at the same runs name the same `folder`, so that none
    is made twice.
    """

    name: str
    title: str
    says: str
    paper: Protocol
    small: Protocol
    long: Protocol | None = field(default=None, kw_only=True)
    folder: str = field(default="", kw_only=True)

    def protocol(self, profile: Profile) -> Protocol:
        """The protocol of a profile."""
        if profile == "small":
            return self.small
        if profile == "paper":
            return self.paper
        if self.long is None:
            raise ArgumentError(f"{self.name} has no long profile, as the paper's own is short: use --profile paper.")
        return self.long

    @property
    def runs_folder(self) -> str:
        """The folder of its runs."""
        return self.folder or self.name


def best_of(runs: Sequence[Finished]) -> Finished:
    """The run with the best validation score; of equally good ones, the one with the lowest validation loss."""
    return max(runs, key=merit_of)


def merit_of(run: Finished) -> tuple[float, float]:
    """The score to select by and, where it is the same, the loss with its sign changed; the lowest for a lost run."""
    found: Any = run.record.get("validation")
    return (-math.inf, -math.inf) if found is None else (float(found["score"]), -float(found["loss"]))


def _learned(outcome: Outcome) -> list[Record]:
    """The records of the final runs, without those whose loss was lost."""
    return [run.record for run in outcome.final if "failed" not in run.record]


def _shared(total: float, learned: Outcome) -> Fixed:
    """A total of units shared out over the layers of a network that learned its widths."""
    return Fixed(max(1, round(total / len(_learned(learned)[0]["widths"]))))


def _retrained(chosen: Settings, seeds: int) -> Stages:
    """Final runs of settings that were selected elsewhere."""
    final = yield [Job(chosen, seed, final=True) for seed in range(seeds)]
    return Outcome((), chosen, tuple(final))

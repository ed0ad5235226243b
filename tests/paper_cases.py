"""Tiny instances of the paper's experiments, for its tests: few epochs, few configurations, one seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from awn.runs.workers import Workers, local_workers
from awn_paper.protocol import AnyCase, Case, Experiment, OfTotal, Outcome, Protocol, Retrained, Searched
from awn_paper.settings import Settings
from awn_paper.store import Store
from awn_paper.sweep import Sweep


def tiny_settings(settings: Settings, **changes: Any) -> Settings:
    small: dict[str, Any] = {"epochs": 2, "batch_size": 1024, **changes}
    return settings.change(**small)


def tiny_case(case: AnyCase, configurations: int = 2, **changes: Any) -> AnyCase:
    if isinstance(case, Case):
        return Case(case.label, tuple(tiny_settings(s, **changes) for s in case.grid[:configurations]))
    if isinstance(case, Retrained):
        adaptive, fixed = (tiny_case(part, configurations, **changes) for part in (case.adaptive, case.fixed))
        assert isinstance(adaptive, Case)
        assert isinstance(fixed, Case)
        return replace(case, adaptive=adaptive, fixed=fixed)
    if isinstance(case, OfTotal):
        adaptive = tiny_case(case.adaptive, configurations, **changes)
        assert isinstance(adaptive, Case)
        return replace(case, adaptive=adaptive)
    assert isinstance(case, Searched)
    return replace(case, settings=tiny_settings(case.settings, **changes), budget=2)


def tiny(protocol: Protocol, **changes: Any) -> Protocol:
    return Protocol(tuple(tiny_case(case, **changes) for case in protocol.cases), min(protocol.seeds, 1), "tiny")


def run_here(experiment: Experiment, protocol: Protocol, root: Path, **options: Any) -> tuple[Sequence[Outcome], Sweep]:
    with local_workers(1) as workers:
        return run_with(workers, experiment, protocol, root, **options)


def run_with(
    workers: Workers, experiment: Experiment, protocol: Protocol, root: Path, **options: Any
) -> tuple[Sequence[Outcome], Sweep]:
    sweep = Sweep(experiment, "small", Store(root), workers, **options)
    return sweep.run(protocol), sweep

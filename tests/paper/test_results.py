"""The results that are kept: each is of a case of a present protocol, says what that says, and has its runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from awn_paper.experiments import EXPERIMENTS
from awn_paper.protocol import PROFILES, AnyCase, Protocol
from awn_paper.store import Store, read_json

STORE = Store(Path(__file__).parents[2] / "results/paper")
#: The case of every outcome that there may be, by its file.
CASES: dict[Path, tuple[Protocol, AnyCase]] = {
    STORE.outcome_path(experiment, profile, case): (experiment.protocol(profile), case)
    for experiment, _ in EXPERIMENTS.values()
    for profile in PROFILES
    if profile != "long" or experiment.long is not None
    for case in experiment.protocol(profile).cases
}
OUTCOMES = sorted(path for profile in PROFILES for path in STORE.root.glob(f"*/{profile}/*.json"))


@pytest.mark.parametrize("path", OUTCOMES, ids=lambda path: path.relative_to(STORE.root).as_posix())
def test_an_outcome_says_what_its_protocol_says_and_has_its_runs(path: Path) -> None:
    assert path in CASES, "it is of no case of the present protocols"
    found, (protocol, case) = read_json(path), CASES[path]
    assert (found["dataset"], found["fold"], found["label"]) == (case.settings.dataset, case.settings.fold, case.label)
    assert found["says"] == protocol.says
    assert found["details"].startswith(protocol.details.get(case.settings.dataset, ""))
    runs = [*found["selection"], *found["final"]]
    assert runs
    for name in runs:
        assert (STORE.root / name).is_file()
        assert read_json(STORE.root / name)["settings"]["dataset"] == found["dataset"]

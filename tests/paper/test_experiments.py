"""Every experiment end to end at a tiny size: from its data through its runs to its tables, pictures and page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from awn.core.families import Exponential
from awn_paper import document as paper_document
from awn_paper.document import _results, write_document
from awn_paper.experiments import EXPERIMENTS, find_experiment, find_experiments
from awn_paper.experiments.retrain import SAME_DEPTH
from awn_paper.pictures import picture
from awn_paper.protocol import PROFILES, Experiment, Protocol
from awn_paper.show import Plot, Results, Series, Table
from awn_paper.store import Store
from paper_cases import run_here, tiny

PLANE = ("DoubleMoon", "Spiral", "SpiralHard")


def on_the_plane(protocol: Protocol) -> Protocol:
    """The cases that need no file."""
    return replace(protocol, cases=tuple(case for case in protocol.cases if case.settings.dataset in PLANE))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of all experiments, made once."""
    folder = tmp_path_factory.mktemp("results")
    for name, (experiment, _) in EXPERIMENTS.items():
        # Where every unit is removed in turn, few of them will do.
        changes = {"importance": Exponential(rate=0.1, scale="mass")} if name in ("truncate", "remove") else {}
        run_here(experiment, tiny(on_the_plane(experiment.small), epochs=1, **changes), folder)
    return folder


def outcomes(root: Path, experiment: Experiment) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in (root / experiment.name / "small").glob("*.json")]


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if on_the_plane(EXPERIMENTS[name][0].small).cases])
def test_an_experiment_runs_and_is_shown(root, name):
    experiment, show = EXPERIMENTS[name]
    found = outcomes(root, experiment)
    assert len(found) == len(on_the_plane(experiment.small).cases)
    assert all(outcome["final"] or outcome["selection"] for outcome in found)
    for outcome in found:
        assert str(outcome["from"]["commit"]).removesuffix("+changes") == commit()
        assert datetime.fromisoformat(outcome["from"]["date"]).utcoffset() == timedelta(0)
    shown = show(Results(tuple(load(root, outcome) for outcome in found)))
    tables = [part for part in shown if isinstance(part, Table)]
    assert tables
    for part in tables:
        assert all(len(row) == len(part.head) for row in part.rows)
    assert any(re.search(r"\d", cell) for row in tables[0].rows for cell in row[1:])
    for part in shown:
        if isinstance(part, Plot):
            assert part.series
            assert all(len(series.x) == len(series.y) > 0 for series in part.series)


def commit() -> str:
    """The commit of the working folder; 'None' where it has none."""
    said = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    return said.stdout.strip() or "None"


def load(root: Path, outcome):
    return {
        **outcome,
        **{part: [json.loads((root / name).read_text()) for name in outcome[part]] for part in ("selection", "final")},
    }


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_was_not_run_is_said_to_be(name):
    shown = EXPERIMENTS[name][1](Results(()))
    tables = [part for part in shown if isinstance(part, Table)]
    if name == "search":  # on data sets that the paper does not have
        assert [table.head[0] for table in tables] == ["the paper, ResNet-20"]
    else:
        assert any("not run" in cell for table in tables for row in table.rows for cell in row)


def test_the_report_has_every_experiment_with_the_papers_figures_and_ours(root, tmp_path):
    (root / "notes").mkdir(exist_ok=True)
    (root / "notes" / "truncate.md").write_text("An honest word.")
    document, page = tmp_path / "docs" / "paper.md", tmp_path / "report.html"
    files = write_document(root, document, tmp_path / "docs" / "images" / "paper", page)
    text = document.read_text()
    for experiment, _ in EXPERIMENTS.values():
        assert f"## {experiment.title}" in text
        assert f"awn paper run {experiment.name}" in text
    assert "227.4 (32.4)" in text  # the paper's
    assert "An honest word." in text
    assert "| MiniBooNE | not run | 92.9 (0.3) | not run | 93.2 (0.1) |" in text
    pictures = re.findall(r"\]\((images/paper/[^)]+\.svg)\)", text)
    assert len(pictures) == len(set(pictures)) > 10
    assert all((document.parent / name).read_bytes().startswith(b"<?xml") for name in pictures)
    assert set(files) == {document, page, *(document.parent / name for name in pictures)}
    content = page.read_text()
    assert content.count("<section") == 2 + len(EXPERIMENTS)  # the claims come first, the origins last
    assert text.index("## The claims") < text.index("## Table 1")
    assert "| Deep networks need Kaiming+ |" in text
    assert "anneal-width" in content


def test_pictures_come_as_png_too(root, tmp_path):
    for name in ("truncate", "remove"):
        shutil.copytree(root / name, tmp_path / "found" / name)
    write_document(tmp_path / "found", tmp_path / "paper.md", tmp_path / "images", tmp_path / "page.html", png=True)
    kinds = {kind: {path.stem for path in (tmp_path / "images").glob(f"*.{kind}")} for kind in ("svg", "png")}
    assert kinds["svg"] == kinds["png"] >= {"remove-first", "remove-each"}


def test_the_document_says_what_the_results_say(tmp_path):
    """What `awn paper report` would write now is what is there."""
    project = Path(__file__).parents[2]
    document = tmp_path / "docs" / "paper.md"
    write_document(
        project / "results" / "paper", document, tmp_path / "docs" / "images" / "paper", tmp_path / "page.html"
    )
    assert document.read_text() == (project / "docs" / "paper.md").read_text()
    there, here = (folder / "docs" / "images" / "paper" for folder in (project, tmp_path))
    assert {path.name for path in there.glob("*.svg")} == {path.name for path in here.glob("*.svg")}


def test_a_plot_gives_the_same_picture_whenever_it_is_drawn():
    plot = Plot("key", "Title", "epoch", "units", (Series("a", (1.0, 2.0), (3.0, 4.0), (2.0, 3.0), (4.0, 5.0)),))
    assert picture(plot) == picture(plot)
    assert picture(plot, "png").startswith(b"\x89PNG")


def test_experiments_that_look_at_the_same_runs_share_them(root):
    """`difficulty`, `time` and `retrain` find the runs of Table 1, and make none of their own but Fixed+."""
    assert not (root / "difficulty" / "runs").exists()
    assert not (root / "time" / "runs").exists()
    assert not (root / "remove" / "runs").exists()
    _, again = run_here(EXPERIMENTS["time"][0], tiny(on_the_plane(EXPERIMENTS["time"][0].small), epochs=1), root)
    assert again.made == 0


def test_fixed_plus_has_the_mean_width_that_was_learned(root):
    retrain = {(o["dataset"], o["label"]): load(root, o) for o in outcomes(root, EXPERIMENTS["retrain"][0])}
    for dataset in ("Spiral", "SpiralHard"):
        awn, plus = retrain[dataset, "AWN"]["final"], retrain[dataset, "Fixed+"]["final"]
        layers = [units for run in awn for units in run["widths"].values()]
        assert set(plus[0]["widths"].values()) == {round(sum(layers) / len(layers))}
    deep = retrain["SpiralHard", SAME_DEPTH]["final"]
    assert len(deep[0]["widths"]) == len(retrain["SpiralHard", "AWN"]["final"][0]["widths"])
    assert set(deep[0]["widths"].values()) == set(plus[0]["widths"].values())


@pytest.mark.parametrize(
    ("profile", "name"), [(profile, e.name) for profile in PROFILES for e in find_experiments("all", profile)]
)
def test_a_profile_says_what_it_is_and_names_each_case_once(name, profile):
    protocol = find_experiment(name).protocol(profile)
    assert protocol.says.endswith(".")
    places = [(case.settings.dataset, case.settings.fold, case.label) for case in protocol.cases]
    assert len(set(places)) == len(places)


def test_the_papers_grids_have_the_papers_numbers_of_configurations():
    grids = {(c.settings.dataset, c.label): len(c.grid) for c in EXPERIMENTS["table1"][0].paper.cases}
    assert grids["SpiralHard", "AWN"] == 18
    assert grids["SpiralHard", "Fixed"] == 180
    assert grids["DoubleMoon", "AWN"] == 6
    assert EXPERIMENTS["table1"][0].paper.seeds == 10


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without pictures, for tests of their words: drawing takes most of the time."""
    monkeypatch.setattr(paper_document, "picture", lambda plot, kind="svg": b"")


def copied(root: Path, to: Path) -> Path:
    shutil.copytree(root, to)
    return to


@pytest.mark.usefixtures("undrawn")
def test_claims_go_by_the_papers_protocol_only_where_all_of_a_data_set_was_run(root, tmp_path):
    found = copied(root, tmp_path / "found")
    (found / "notes" / "claims").mkdir(parents=True)
    (found / "notes" / "table1.md").write_text("About Table 1.")
    (found / "notes" / "claims" / "accuracy.md").write_text("Why it is so.")
    small, exact = found / "table1" / "small", found / "table1" / "paper"
    exact.mkdir()

    claim = {}
    for label in ("awn", "fixed"):
        shutil.copy(small / f"spiral-{label}.json", exact)
        for run in json.loads((exact / f"spiral-{label}.json").read_text())["final"]:
            shutil.copy(found / run, found / f"{run}.paper")
        marked = json.loads((exact / f"spiral-{label}.json").read_text())
        marked["final"] = [f"{run}.paper" for run in marked["final"]]
        (exact / f"spiral-{label}.json").write_text(json.dumps(marked))
        for run in marked["final"]:
            content = json.loads((found / run).read_text())
            content["test"]["accuracy"] = 0.123
            (found / run).write_text(json.dumps(content))
        write_document(found, tmp_path / "paper.md", tmp_path / "images", tmp_path / "page.html")
        text = (tmp_path / "paper.md").read_text()
        claim[label] = next(line for line in text.splitlines() if line.startswith("- Ours:"))
        assert text.count("About Table 1.") == text.count("Why it is so.") == 1
        assert all(name in claim[label] for name in ("DoubleMoon", "Spiral ", "SpiralHard"))
    assert "Spiral 12.3" not in claim["awn"], "half of it is there"
    assert "Spiral 12.3 / 12.3" in claim["fixed"]


def test_one_fold_of_the_papers_protocol_is_not_all_of_a_data_set(root, tmp_path):
    found = copied(root, tmp_path / "found")
    small, exact = found / "table1" / "small", found / "table1" / "paper"
    exact.mkdir()
    for label in ("awn", "fixed"):
        first = json.loads((small / f"spiral-{label}.json").read_text())
        (small / f"spiral-{label}-fold-1.json").write_text(json.dumps({**first, "fold": 1}))
        (exact / f"spiral-{label}.json").write_text(json.dumps({**first, "profile": "paper"}))
    results = _results(Store(found), EXPERIMENTS["table1"][0])
    used = [(o["profile"], o["fold"]) for o in results.outcomes if (o["dataset"], o["label"]) == ("Spiral", "AWN")]
    assert sorted(used) == [("small", 0), ("small", 1)]


@pytest.mark.usefixtures("undrawn")
def test_the_report_says_which_commits_made_the_runs_by_a_command_that_can_be_typed(root, tmp_path):
    found = copied(root, tmp_path / "found")
    for path in (found / "table1" / "small").glob("spiral-*.json"):
        outcome = json.loads(path.read_text())
        outcome["dataset"] = "two words"
        outcome["from"]["commit"] = "of-the-outcome"
        path.write_text(json.dumps(outcome))
        for name in outcome["selection"] + outcome["final"]:
            run = json.loads((found / name).read_text())
            run["from"] |= {"commit": "of-the-run", "date": "2026-01-02T03:04:05"}
            (found / name).write_text(json.dumps(run))
    write_document(found, tmp_path / "paper.md", tmp_path / "images", tmp_path / "page.html")
    text = (tmp_path / "paper.md").read_text()
    assert "| `awn paper run table1 --only 'two words'` | of-the-run | 2026-01-02 |" in text
    assert "of-the-outcome" not in text


def test_a_protocol_is_told_once_with_what_single_cases_add():
    outcomes = [
        ("Spiral", "AWN", ""),
        ("Spiral", "Fixed", "Final runs here: 3."),
        ("pol", "AWN", "Two layers."),
        ("pol", "Fixed", "Two layers."),
        ("credit card", "AWN", "Two layers."),
        ("NCI1", "AWN", "Two runs of this fold."),
        ("NCI1", "AWN", "All folds."),
    ]
    told = [dict(zip(("dataset", "label", "details", "says"), (*words, "Long."), strict=True)) for words in outcomes]
    said = paper_document._said("long", Results(tuple(told)))
    assert said.of_all == "Profile `long`: Long."
    assert said.of_some == [
        "Spiral, Fixed: Final runs here: 3.",
        "pol; credit card: Two layers.",
        "NCI1, AWN: Two runs of this fold.",
        "NCI1, AWN: All folds.",
    ]


def record(seconds: float, **fields: object) -> dict[str, object]:
    return {"seconds": seconds, **fields}


def outcome(dataset: str, label: str, selection: list[float], final: list[float]) -> dict[str, object]:
    return {
        "dataset": dataset,
        "label": label,
        "selection": [record(seconds) for seconds in selection],
        "final": [record(seconds) for seconds in final],
    }


def test_time_is_the_mean_of_a_configuration_and_the_sum_of_a_selection():
    (table,) = EXPERIMENTS["time"][1](
        Results(
            (
                outcome("Spiral", "Fixed", [1.0, 3.0], [9.0]),
                outcome("Spiral", "AWN", [5.0], [9.0]),
                outcome("MNIST", "Fixed", [], [1.0, 3.0]),
                outcome("MNIST", "AWN", [], [5.0, 7.0]),
                outcome("PMNIST", "Fixed", [1.0, 3.0], [9.0]),
                outcome("PMNIST", "AWN", [], [5.0, 7.0]),
                outcome("Multi30k (seen tokens)", "Fixed", [], [2.0]),
                outcome("Multi30k (seen tokens)", "AWN", [], [3.0]),
            )
        )
    )
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["Spiral"] == ("2", "5", "2.50", "1.1", "1.25", "0.24")
    assert rows["MNIST"] == ("2", "6", "3.00", "1.6", "–", "0.33"), "without a selection there is none to compare"
    assert rows["PMNIST"] == ("2", "6", "3.00", "2.4", "1.50", "0.48"), "one configuration of ours against two"
    assert rows["Multi30k (seen tokens)"][2:4] == ("1.50", "0.42"), "it stands for the paper's"
    assert "Multi30k" not in rows
    assert rows["MiniBooNE"][0] == "not run"


def test_networks_that_have_fewer_units_than_are_removed_are_not_counted():
    def run(units: int) -> dict[str, object]:
        removal = {"first": [1.0] + [0.5] * (units - 1), "each": [1.0] * units}
        found = {"test": {"accuracy": 1.0}, "measured": {"removal": removal}}
        return {**found, "last": found}

    found = Results(({"dataset": "Spiral", "label": "k = 0.9", "selection": [], "final": [run(30), run(50)]},))
    table = EXPERIMENTS["remove"][1](found)[0]
    row = dict(zip(table.head, table.rows[0], strict=True))
    assert row["20"] == "50.0 (0.0)"
    assert row["40"] == "50.0"

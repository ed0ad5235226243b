"""docs/theory.md against the results that it shows: its tables, and what its sentences say about them."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

import awn
from awn import AdaptiveMLP, Exponential, Prior
from awn.loss import Price

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
FOUND: dict[str, Any] = json.loads((ROOT / "results/theory.json").read_text(encoding="utf-8"))
PRICED: dict[str, Any] = json.loads((ROOT / "results/theory_price.json").read_text(encoding="utf-8"))


def _benchmark(name: str) -> Any:
    specification = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _written() -> dict[str, str]:
    return {**_benchmark("theory_show").tables(FOUND), "priced": _benchmark("theory_price").table(PRICED["rows"])}


WRITTEN = _written()


@pytest.mark.parametrize("name", WRITTEN)
def test_the_page_has_the_table_of_the_results(name):
    assert WRITTEN[name] in PAGE


def test_every_table_of_the_page_is_measured_or_derived():
    derived = ("| scale | family |", "| k | 0.8 |")
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, flags=re.MULTILINE):
        assert table.startswith(derived) or table.strip() in WRITTEN.values()


def test_every_figure_of_the_page_exists():
    pictures = re.findall(r"\]\((images/\S+)\)", PAGE)
    assert len(pictures) == 3
    assert all((ROOT / "docs" / picture).is_file() for picture in pictures)


@pytest.mark.parametrize(("found", "name"), [(FOUND, "theory"), (PRICED, "theory_price")])
def test_the_results_say_how_they_were_made(found, name):
    made_by = found["from"]
    assert made_by["command"] == f"python benchmarks/{name}.py"
    assert {"seed", "commit", "date"} <= made_by.keys()


# The sentences beside the tables.


@pytest.mark.parametrize(("scale", "least", "within"), [("anchored", 0.8, 0.02), ("mass", 0.9, 0.05)])
def test_runs_end_where_the_law_says(scale, least, within):
    runs = [run for run in FOUND["rest"] if run["scale"] == scale and run["quantile"] >= least]
    assert len(runs) == 3 * len({run["quantile"] for run in runs})
    for run in runs:
        assert run["mean_index"] == pytest.approx(run["law"], rel=within)


@pytest.mark.parametrize(("scale", "low", "high"), [("anchored", 1.2, 1.6), ("mass", 0.6, 1.2)])
def test_the_start_is_remembered_as_stated(scale, low, high):
    widths = defaultdict(dict)
    for run in FOUND["rest"]:
        if run["scale"] == scale:
            widths[run["quantile"]][run["start"]] = run["units"]
    ratios = [round(of[512] / of[64], 1) for of in widths.values()]
    assert (min(ratios), max(ratios)) == (low, high)


def test_the_unit_scale_ends_at_the_cap():
    assert all(run["units"] == 2000 for run in FOUND["unit"])


def test_needed_units_are_about_two_over_nu():
    by_row = defaultdict(list)
    for run in FOUND["rest"]:
        if run["quantile"] >= 0.9:
            by_row[run["scale"], run["quantile"]].append(run["used"] * run["nu"])
    means = [sum(of) / len(of) for of in by_row.values()]
    assert (round(min(means), 1), round(max(means), 1)) == (1.9, 2.5)


def test_no_unit_changes_the_objective_beyond_its_bound():
    for row in FOUND["growth"]:
        assert row["largest_ratio"] <= 1 + 1e-9
        assert row["new_units"] != "zero" or row["largest_ratio"] == pytest.approx(1)
    (normal,) = [row for row in FOUND["growth"] if (row["scale"], row["new_units"]) == ("anchored", "normal")]
    assert normal["largest_change"] > normal["objective"]


def test_moments_over_depth_follow_the_law():
    for row in FOUND["depth"]:
        assert row["activation"][-1] == pytest.approx(row["activation_law"], rel=0.5)
        for name in ("gradient_sum", "gradient_unit"):
            assert row[name][0] == pytest.approx(row[f"{name}_law"], rel=0.5)


def test_adams_drift_follows_the_law():
    for row in FOUND["adam"]["drift"]:
        assert row["adam"] == pytest.approx(row["law"], rel=0.3)


def test_draws_estimate_the_mean_over_prefixes():
    for row in FOUND["widths"]:
        assert abs(row["drawn"] - row["expected"]) < 3 * row["error"]


def test_only_the_best_posterior_prices_units_by_need():
    for scale in ("anchored", "mass"):
        narrow, wide = (row for row in FOUND["price"] if row["scale"] == scale)
        assert wide["units"] > 1.8 * narrow["units"]
        assert wide["laplace"] == pytest.approx(narrow["laplace"], rel=0.15)
        for name in ("first_order", "kl"):
            assert wide[name] / narrow[name] == pytest.approx(wide["units"] / narrow["units"])


def test_a_priced_layer_rests_where_the_law_says():
    for row in PRICED["rows"]:
        assert row["squares"] >= row["least"]
        not_yet = (row["price"], row["quantile"]) == ("first order", 0.9)
        assert abs(row["balance"] - row["paid"]) < (0.25 if not_yet else 0.05) * row["squares"]


def test_four_layers_cost_far_more_than_the_labels_hold():
    model, samples = AdaptiveMLP(2, 2, hidden_layers=4, importance=Exponential(rate=0.01, scale="mass")), 7200
    prior = Prior(10.0, price=Price())
    priced = awn.loss.terms(torch.zeros(()), model, n_samples=samples, prior=prior)["width"].item()
    assert (round(priced), round(math.log(2), 2)) == (41, 0.69)

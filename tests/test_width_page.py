"""The tables of docs/width.md are those of the results."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/width.md").read_text(encoding="utf-8")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def results() -> dict[str, list[dict[str, object]]]:
    names = [line.split("|")[1].strip() for line in PAGE.split("<!-- scores -->")[1].splitlines() if "|" in line][2:]
    names = names[: names.index("bank-marketing") + 1]
    assert len(names) == 20
    return {name: json.loads((ROOT / f"results/width/{name.lower()}.json").read_text())["rows"] for name in names}


def test_the_page_shows_the_results() -> None:
    assert script("width_tables").with_tables(PAGE, results()) == PAGE


def test_every_set_has_all_methods_and_five_seeds() -> None:
    for name, rows in results().items():
        for method in ("chosen", "learned", "ordered", "from 32", "from 512", "fixed", "alone"):
            assert {row["seed"] for row in rows if row["method"] == method} == {0, 1, 2, 3, 4}, (name, method)


def test_a_smaller_loss_within_the_error_makes_a_smaller_width_the_answer() -> None:
    measured = script("width_tables").Measured
    rows = [
        {"method": "fixed", "width": width, "units": width, "seed": seed, "validation_loss": loss + 0.01 * seed * width}
        for width, loss in ((16, 1.02), (32, 1.0), (64, 1.01))
        for seed in (-1, 0, 1)
    ]
    assert measured(rows).smallest_fixed() == 16
    for row in rows:
        row["validation_loss"] = {16: 3.0, 32: 1.0, 64: 0.9}[row["width"]]  # type: ignore[index]
    assert measured(rows).smallest_fixed() == 64


def test_rows_of_other_settings_are_measured_anew(tmp_path: Path) -> None:
    script("width_tables")
    width = script("width")
    settings = width.settings_of("pol", "classification", {})
    path = tmp_path / "pol.json"
    assert width.rows_with(path, settings) == []
    path.write_text(json.dumps({"from": {"settings": settings}, "rows": [{"seed": 0}]}))
    assert width.rows_with(path, settings) == [{"seed": 0}]
    assert width.rows_with(path, width.settings_of("pol", "classification", {"units": 32})) == []

"""docs/trust.md says what the results say."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from awn.basics.limits import Limits, variable

ROOT = Path(__file__).parents[1]
PAGE = " ".join((ROOT / "docs/trust.md").read_text(encoding="utf-8").split())


def results(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_bytes())


@pytest.mark.parametrize("limit", [own.name for own in dataclasses.fields(Limits)])
def test_every_limit_is_listed(limit: str) -> None:
    value = getattr(Limits(), limit)
    power = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(value.bit_length() - 1))
    assert any(f"| {said} | `{variable(limit)}` |" in PAGE for said in (f"{value:,}", f"2{power}"))


def test_the_fuzz_found_what_the_page_says() -> None:
    fuzz = results("fuzz")
    counts = {name: sum(kind[name] for kind in fuzz["by_kind"].values()) for name in ("read", "refused")}
    assert fuzz["inputs"] >= 100_000
    assert f"Of {fuzz['inputs']:,} changed files" in PAGE
    assert f"{counts['read']:,} were read, {counts['refused']:,} were refused, and {fuzz['findings']} raised" in PAGE


def test_the_soak_found_what_the_page_says() -> None:
    soak = results("soak")
    assert soak["kills"] >= 200
    assert f"{soak['kills']} kills (`results/soak.json`) and found {soak['faults']} faults" in PAGE
    for name, task in soak["by_task"].items():
        assert f"| {name} | {task['kills']} | {task['runs']} | {task['equal']} |" in PAGE
    for name, swing in soak["widths"].items():
        sizes = list(swing["megabytes"].values())
        assert f"{swing['steps']:,} steps each" in PAGE
        assert f"| {name} | {swing['resized']:,} | {sizes[1]:.0f} | {sizes[-1]:.0f} |" in PAGE


def test_the_versions_that_were_run_are_listed() -> None:
    for run in results("package")["tests"]["runs"]:
        python, torch = run["python"], run["torch"].split("+")[0]
        assert f"| {python} | {torch} | {run['passed']:,} | {run.get('failed', 0)} |" in PAGE


def test_the_licences_are_counted() -> None:
    found = results("licences")["awn"]
    mozilla = sum(len(names) for licence, names in found.items() if "MPL" in licence)
    assert f"Of {sum(map(len, found.values()))} packages" in PAGE
    assert f"in {mozilla} cases, the Mozilla Public License" in PAGE
    assert not any("GPL" in licence for licence in found)

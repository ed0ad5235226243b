"""`awn fit` on ten well-known tables as they are, with the target alone as an option, and what it said.

Run: AWN_DATA=folder python benchmarks/tables_as_they_are.py        (about ten minutes on one core)
Writes results/tables_as_they_are.json: for every table the messages, the result in one line, the scores and the sizes,
and for one table the processor time of the command with and without the comparison and the importances. `--show`
writes the table of docs/tables.md from it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from awn.files.provenance import provenance
from awn.files.write import json_file, write_files

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "results" / "tables_as_they_are.json", ROOT / "docs" / "tables.md"
TARGETS = {
    "ames": "SalePrice",
    "concrete": "Concrete compressive strength(MPa, megapascals)",
    "bike_sharing": "cnt",
    "diamonds": "price",
    "abalone": "Rings",
    "hpc": "class",
    "satellite": "classes",
    "telco_churn": "Churn",
    "bank_marketing": "y",
    "titanic": "survived",
}
COSTED = "bike_sharing"  # of about 20,000 rows
WAYS = {
    "all": [],
    "without importances": ["--no-explain"],
    "without importances and comparison": ["--no-explain", "--no-compare"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TARGETS, nargs="*", default=list(TARGETS))
    parser.add_argument("--show", action="store_true", help="write the table of the page from the results")
    options = parser.parse_args()
    if not options.show:
        folder = Path(os.environ["AWN_DATA"]) / "tables"
        fits = [fit(folder, name) for name in options.only]
        cost = {way: fit(folder, COSTED, words)["cpu_seconds"] for way, words in WAYS.items()}
        found = {"from": provenance(seed=0), "tables": fits, "cpu_seconds": {"table": COSTED, **cost}}
        write_files({RESULTS: json_file(found)})
    page = PAGE.read_text(encoding="utf-8")
    write_files({PAGE: with_table(page, json.loads(RESULTS.read_bytes())).encode()})


def fit(folder: Path, name: str, more: list[str] | None = None) -> dict[str, Any]:
    """Run the command on a table, and return what it said."""
    with tempfile.TemporaryDirectory() as out:
        words = ["fit", str(folder / f"{name}.csv.gz"), "--target", TARGETS[name], "--out", f"{out}/run", "--json"]
        before = _cpu_seconds()
        done = subprocess.run(
            [sys.executable, "-m", "awn", *words, *(more or [])], capture_output=True, text=True, check=False
        )
        spent = _cpu_seconds() - before
        said = [line for line in done.stderr.splitlines() if line and not line.startswith("epoch ")]
        print(f"{name} {' '.join(more or [])}: {spent:.1f} s", *said, sep="\n  ")
        if done.returncode:
            return {"table": name, "said": said, "cpu_seconds": spent, "exit_code": done.returncode}
        result = json.loads(done.stdout)
        report = json.loads(Path(out, "run", "report.json").read_bytes())
    kept = ("task", "score_name", "rows", "columns", "scores", "measures", "widths", "learned_widths", "at_cap")
    facts = {entry: result[entry] for entry in (*kept, "parameters", "seconds")}
    top = [column["name"] for column in report["columns"][:3]]
    return {"table": name, "answer": report["answer"], "said": said, **facts, "top": top, "cpu_seconds": spent}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def with_table(page: str, found: dict[str, Any]) -> str:
    """The page with its table written anew."""
    head = "| table | rows | score | `awn fit` | boosting | units, of those learned | what it said of the columns |"
    lines = [head, "|" + " --- |" * 7]
    for one in found["tables"]:
        rows = sum(one["rows"][part] for part in ("train", "test"))
        units, learned = (sum(one[which].values()) for which in ("widths", "learned_widths"))
        cells = [one["table"], f"{rows:,}", one["score_name"], _score(one, "adaptive"), _score(one, "boosting")]
        lines.append(
            f"| {' | '.join([*cells, f'{units} of {learned}', '; '.join(_pointed_out(one['said'])) or '–'])} |"
        )
    cost = {way: seconds for way, seconds in found["cpu_seconds"].items() if way != "table"}
    costs = ", ".join(f"{seconds:.1f} s {way}" if way != "all" else f"{seconds:.1f} s" for way, seconds in cost.items())
    lines.append(f"\nProcessor time of the command on {found['cpu_seconds']['table']}: {costs}.")
    mark = re.compile("<!-- as they are -->.*?<!-- end -->", re.DOTALL)
    return mark.sub(lambda _: "\n".join(["<!-- as they are -->", *lines, "<!-- end -->"]), page)


def _score(one: dict[str, Any], model: str) -> str:
    interval = one["measures"][model][one["score_name"]]
    return f"{one['scores'][model]:.3f} ± {(interval['high'] - interval['low']) / 2:.3f}"


def _pointed_out(said: list[str]) -> list[str]:
    """The messages about columns and classes, shortened."""
    found = []
    patterns = {
        r"('.*') together give the target exactly": "{} together give the target",
        r"('.*') (?:gives the target exactly|alone predicts the target)": "{} gives the target away",
        r"('.*') is (?:known|missing) only in rows of one class": "{} is known in rows of one class alone",
        r"('.*'): left out as an identifier": "{} left out as an identifier",
        r"('.*'): left out as text": "{} left out as text",
        r"('.*'): numbers, with missing": "{} has blanks among its numbers",
        r"the classes are imbalanced(): ": "imbalanced classes",
    }
    for pattern, words in patterns.items():
        names = [match[1] for line in said if (match := re.match(pattern, line))]
        if names:
            found.append(words.format(", ".join(names).replace("'", "`")))
    return found


if __name__ == "__main__":
    main()

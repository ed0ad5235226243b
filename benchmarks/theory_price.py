"""Where a layer rests whose weights have a price: the measurements behind the last section of docs/theory.md.

Run: python benchmarks/theory_price.py            (about two minutes on one core)
Writes results/theory_price.json and prints the table of docs/theory.md; `--show` only prints it. The trainings are
those of theory.py on the mass scale, with and without a price.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch

from awn.basics.text_table import markdown_table
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn.loss import Price

Row = dict[str, Any]
SIGMA = 10.0
PRICES = {"none": None, "Kullback-Leibler": Price("kl"), "first order": Price("first order")}
WEIGHTS = 5  # of a unit: two that it reads, its bias, two that read it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/theory_price.json"))
    parser.add_argument("--show", action="store_true", help="print the table of a finished file")
    asked = parser.parse_args()
    if not asked.show:
        torch.set_num_threads(1)
        write_files({asked.out: json_file(measure())})
    print(table(json.loads(asked.out.read_text())["rows"]))


def measure() -> Row:
    from theory import EPOCHS, SEED, STARTS, Spiral, outgoing

    from awn.datasets import spiral, split
    from awn.training import Data
    from awn.training.evaluate import accuracy

    parts = split(spiral(SEED), SEED)
    train, test = Data(*parts.train), Data(*parts.test)
    rows = []
    for quantile in (0.9, 0.97):
        for name, price in PRICES.items():
            run = Spiral(train, "mass", quantile, STARTS[1], price=price)
            nu, soft = run.width.value, run.width.soft_units().item()
            cost = outgoing(run.model).double().square().sum(0) / SIGMA**2
            distance = torch.arange(len(cost)) - 1 / math.expm1(nu)
            rows.append(
                {
                    "price": name,
                    "quantile": quantile,
                    "units": run.width.units,
                    "accuracy": accuracy(run.model, test),
                    "squares": cost.sum().item(),
                    "balance": nu * (cost * distance).sum().item(),
                    "paid": 0.0 if price is None else price.of(SIGMA) * WEIGHTS * soft,
                    "least": 0.0 if price is None else price.of(SIGMA) * WEIGHTS * soft / (-math.log1p(-quantile) - 1),
                }
            )
            print(rows[-1], flush=True)
    return {"from": provenance(seed=SEED, epochs=EPOCHS), "rows": rows}


def table(rows: list[Row]) -> str:
    """The table in Markdown."""
    head = ["price", "k", "units", "accuracy", "Σ‖w_j‖²/σ²", "at least", "ν Σ (‖w_j‖²/σ²)(j − 1/(e^ν − 1))", "c m D"]
    lines = [
        [
            row["price"],
            f"{row['quantile']:g}",
            str(row["units"]),
            f"{row['accuracy']:.1%}",
            *(f"{row[name]:.0f}" for name in ("squares", "least", "balance", "paid")),
        ]
        for row in rows
    ]
    return markdown_table(head, lines)


if __name__ == "__main__":
    main()

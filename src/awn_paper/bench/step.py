"""Benchmark 1, a training step: learned widths over fixed ones, with the prior and the look at the widths in it."""

from __future__ import annotations

import os
import statistics
from typing import Any

from awn.basics.timing import in_turns, middle_half, ratio, threads
from awn_paper.bench.pairs import PAIRS, QUICK_PAIRS, adam, adaptive_step, fixed_step

TITLE = "A training step, adaptive / fixed"
THREADS = "as the rows say"


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    """A row for each network and number of threads.

    `gate`: the importance and its gradient alone, without prior and without a look at the widths. `changing`: every
    width changes at every step, inside its capacity. `fixed again`: another network of fixed widths, which would be 1
    without noise. `middle half`: where the ratios of half of the turns lie.
    """
    rows = []
    for number in [1] if quick else sorted({1, os.cpu_count() or 1}):
        with threads(number):
            for pair in QUICK_PAIRS if quick else PAIRS:
                x, y = pair.batch()
                fixed, again = pair.fixed(), pair.fixed()
                gated, steady, changing = pair.adaptive(), pair.adaptive(), pair.adaptive()
                works = {
                    "fixed": fixed_step(fixed, adam(fixed), x, y),
                    "fixed again": fixed_step(again, adam(again), x, y),
                    "gate": fixed_step(gated, adam(gated), x, y),
                    "steady": adaptive_step(steady, adam(steady), x, y),
                    "changing": adaptive_step(changing, adam(changing), x, y, changing=True),
                }
                seconds = in_turns(works, repetitions=2 if quick else 51, burst=0.001 if quick else 0.03)
                plain = seconds["fixed"]
                row = {"network": pair.name, "threads": number, "fixed, ms": round(1e3 * statistics.median(plain), 3)}
                row["fixed again"] = ratio(seconds["fixed again"], plain)
                for name in ("gate", "steady", "changing"):
                    row[name] = ratio(seconds[name], plain)
                    row[f"{name}, middle half"] = middle_half(seconds[name], plain)
                rows.append(row)
    return rows

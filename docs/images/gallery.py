"""The pictures of the gallery: the width of every layer before and after training, from results/adapt.

python docs/images/gallery.py
"""

from __future__ import annotations

import json
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]


def main() -> None:
    for path in sorted((ROOT / "results/adapt").glob("adapt_*.json")):
        draw(json.loads(path.read_text())["row"], ROOT / f"docs/images/gallery-{path.stem.removeprefix('adapt_')}.svg")


def draw(row: dict[str, dict[str, int]], picture: Path) -> None:
    with rc_context({"svg.hashsalt": "awn", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(5, 2.2), layout="constrained")
        axes = figure.subplots()
        places = range(len(row["before"]))
        axes.bar([place - 0.2 for place in places], list(row["before"].values()), 0.38, color="#c9cbd8", label="before")
        axes.bar([place + 0.2 for place in places], list(row["after"].values()), 0.38, color="#3f51b5", label="after")
        axes.set_xticks(list(places), [f"layer {place + 1}" for place in places])
        axes.set(ylabel="units")
        figure.legend(frameon=False, ncols=2, fontsize=8, loc="outside upper right")
        figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main()

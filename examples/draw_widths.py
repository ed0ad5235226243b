"""Draw the widths and the accuracy of a run over its epochs, from its history.

python examples/draw_widths.py results/spiral_hard/seed-0.jsonl docs/images/widths.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("history", type=Path, help="a history.jsonl")
    parser.add_argument("picture", type=Path, help="an .svg or .png to write")
    options = parser.parse_args()
    draw([json.loads(line) for line in options.history.read_text().splitlines()], options.picture)


def draw(history: list[dict[str, object]], picture: Path) -> None:
    epochs = [row["epoch"] for row in history]
    plt.rcParams.update({"font.size": 10, "svg.hashsalt": "awn", "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for layer in history[0]["widths"]:  # type: ignore[attr-defined]
        left.plot(epochs, [row["widths"][layer] for row in history], label=layer)  # type: ignore[index]
    left.set(xlabel="epoch", ylabel="units", title="Width of each hidden layer", ylim=(0, None))
    left.legend(frameon=False, ncols=2)
    right.plot(epochs, [100 * row["validation_accuracy"] for row in history], color="black", linewidth=1)  # type: ignore[operator]
    right.set(xlabel="epoch", ylabel="%", title="Validation accuracy", ylim=(45, 101))
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, metadata={"Date": None} if picture.suffix == ".svg" else None, dpi=150)


if __name__ == "__main__":
    main()

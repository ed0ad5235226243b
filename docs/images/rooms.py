"""Draw docs/images/rooms.svg: the packages of awn in import order, and four paths through them.

python docs/images/rooms.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path

# Import order, last first: a room imports rooms below it.
ROOMS = {
    "awn_paper": "the paper's experiments, benchmarks",
    "awn": "front door: 26 names; awn.advanced",
    "cli": "the awn command",
    "tabular": "tables, estimators",
    "runs": "many runs on workers",
    "report": "HTML reports",
    "integrations": "Lightning, Hugging Face",
    "training": "the training loop",
    "export": "ONNX, torch.export",
    "files": "save, load, resume",
    "smaller": "truncate, compress, finalize",
    "adapt": "make a model adaptive",
    "nn": "AdaptiveMLP, AdaptiveRNN",
    "loss": "objective, prior, budget",
    "core": "width, gate, group, resize",
    "parallel": "DDP, ranks",
    "basics": "checks, errors, datasets",
}

# A path visits rooms in the order of its numbers.
PATHS = {
    "Training step": {
        "nn": "1 forward",
        "loss": "3 objective, then backward",
        "core": "2 gated weights · 5 resize_",
        "parallel": "4 ranks agree on widths",
    },
    "awn fit": {
        "cli": "1 parse the command",
        "tabular": "2 read, split, encode",
        "report": "7 report.html",
        "training": "4 epochs of steps, keep the best",
        "files": "5 model folder, checkpoints",
        "smaller": "6 smaller versions",
        "nn": "3 build an AdaptiveMLP",
    },
    "awn.adapt_": {
        "awn": "1 import on first use",
        "adapt": "2 find hidden axes",
        "core": "4 connect widths, gate layers",
        "parallel": "3 refuse sharded weights",
    },
    "awn paper run": {
        "awn_paper": "2 plan · 7 compare with paper",
        "cli": "1 entry point awn.commands",
        "runs": "3 missing runs to workers",
        "training": "5 fit",
        "files": "6 provenance",
        "adapt": "4 build the model",
    },
}
COLOURS = ("#0b6e99", "#b3541e", "#3f7d20", "#7a3e9d")

ROW, TOP, LEFT, COLUMN = 34, 52, 312, 215
FONT = "font-family='Helvetica, Arial, sans-serif'"


def text(x: float, y: float, words: str, size: int = 12, colour: str = "#222", weight: str = "normal") -> str:
    """One line of text."""
    return (
        f"<text x='{x}' y='{y}' {FONT} font-size='{size}' font-weight='{weight}' fill='{colour}'>{escape(words)}</text>"
    )


def draw() -> str:
    """The picture as SVG."""
    height = {room: TOP + ROW * place for place, room in enumerate(ROOMS)}
    width, bottom = LEFT + COLUMN * len(PATHS) + 10, TOP + ROW * len(ROOMS) + 26
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {bottom}' role='img'>",
        "<title>The rooms of awn and four paths through them</title>",
        f"<rect width='{width}' height='{bottom}' fill='white'/>",
    ]
    for room, purpose in ROOMS.items():
        y = height[room]
        lines.append(f"<rect x='8' y='{y - 14}' width='{width - 16}' height='{ROW - 6}' rx='5' fill='#f3f4f6'/>")
        lines.append(text(18, y + 4, room, 13, weight="bold"))
        lines.append(text(122, y + 4, purpose, 11, "#555"))
    for number, (path, stops) in enumerate(PATHS.items()):
        x, colour = LEFT + COLUMN * number + 20, COLOURS[number]
        lines.append(text(x - 8, 24, path, 13, colour, "bold"))
        levels = [height[room] for room in stops]
        lines.append(f"<path d='M{x} {min(levels)}V{max(levels)}' stroke='{colour}' stroke-width='2'/>")
        for room, happens in stops.items():
            lines.append(f"<circle cx='{x}' cy='{height[room]}' r='5' fill='{colour}'/>")
            lines.append(text(x + 11, height[room] + 4, happens, 11))
    lines.append(
        text(18, bottom - 10, "A room imports only rooms below it. The numbers give the order of a path.", 11, "#555")
    )
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw(), encoding="utf-8")

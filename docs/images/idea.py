"""The pictures of "awn in fifteen minutes", drawn from a real run.

    python docs/images/idea.py run         trains, and writes results/idea.json
    python docs/images/idea.py draw        draws the pictures from it, into docs/images

The run is one hidden layer on Spiral, from 4 and from 128 units.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS, PICTURES = ROOT / "results/idea.json", ROOT / "docs/images"
SEED, EPOCHS, SCALE = 0, 150, 10.0
BLUE, GREY, RED = "#3f51b5", "#c9cbd8", "#c2452d"


# The run


def run() -> None:
    from sklearn.datasets import load_breast_cancer

    import awn
    from awn.files.provenance import provenance
    from awn.files.write import json_file, write_files

    trainings = {str(units): train(units) for units in (4, 128)}
    classifier = awn.AdaptiveClassifier(random_state=SEED).fit(*load_breast_cancer(return_X_y=True))
    curve = [{"units": one.total_units, "loss": one.loss, "error": one.error} for one in classifier.curve_]
    made_by = provenance(seed=SEED, epochs=EPOCHS, weight_scale=SCALE)
    found = {"from": made_by, "starts": trainings, "curve": curve, "chosen": sum(classifier.widths_.values())}
    write_files({RESULTS: json_file(found)})


def train(units: int) -> dict[str, Any]:
    """The epochs of a training, and the boundary after those of the animation."""
    import torch

    import awn
    from awn.datasets import spiral, split
    from awn.training import Data, FitOptions, fit
    from awn.training.evaluate import accuracy

    torch.set_num_threads(1)
    data = split(spiral(SEED))
    learn, validation = (Data(part.x, part.y) for part in (data.train, data.validation))
    model = awn.AdaptiveMLP(
        2,
        2,
        activation="relu6",
        importance=awn.Exponential.for_units(units),
        generator=torch.Generator().manual_seed(SEED),
    )
    recorder = boundary_recorder()
    history = fit(
        model,
        learn,
        validation,
        loss=awn.likelihood.categorical,
        score=accuracy,
        prior=awn.Prior(weight_scale=SCALE),
        options=FitOptions(EPOCHS, batch_size=64, schedule="cosine", patience=None, choose=None, ties="last"),
        callbacks=[recorder],
    )
    rows = [
        {"epoch": row["epoch"], "units": row["widths"]["hidden.0"], "nu": row["nu"]["hidden.0"], "score": row["score"]}
        for row in history
    ]
    for row, boundary in zip(rows, recorder.boundaries, strict=True):
        if boundary is not None:
            row["boundary"] = boundary
    points = torch.randperm(len(validation.y), generator=torch.Generator().manual_seed(SEED))[:240]
    chosen = validation.rows(points)
    shown = [[round(x, 1), round(y, 1), int(c)] for (x, y), c in zip(chosen.x.tolist(), chosen.y, strict=True)]
    return {"rows": rows, "points": shown}


def boundary_recorder() -> Any:
    """A callback that keeps the line between the two classes after the epochs of the animation."""
    import torch
    from matplotlib.figure import Figure

    from awn.training import Callback

    ticks = torch.linspace(-14, 14, 41)
    grid = torch.cartesian_prod(ticks, ticks)

    class Recorder(Callback):
        def __init__(self) -> None:
            self.boundaries: list[Any] = []

        def on_epoch_end(self, progress: Any) -> None:
            if not is_shown(progress.epoch):
                self.boundaries.append(None)
                return
            with torch.no_grad():
                logits = progress.model(grid)
            field = (logits[:, 1] - logits[:, 0]).view(41, 41).T.numpy()
            lines = Figure().subplots().contour(ticks.numpy(), ticks.numpy(), field, levels=[0.0]).allsegs[0]
            self.boundaries.append([" ".join(f"{x:.1f},{y:.1f}" for x, y in line) for line in lines])

    return Recorder()


def is_shown(epoch: int) -> bool:
    return epoch <= 12 or (epoch <= 30 and epoch % 2 == 0) or epoch % 10 == 0


# The pictures


def draw() -> None:
    found = json.loads(RESULTS.read_text())
    (PICTURES / "growth.svg").write_text(animation(found["starts"]["4"]), encoding="utf-8")
    draw_importance()
    draw_starts(found["starts"])
    draw_curve(found["curve"], found["chosen"])


def animation(training: dict[str, Any]) -> str:
    """The layer over the epochs, as an animated SVG: the plane, the units with their importance, the width."""
    frames = [row for row in training["rows"] if "boundary" in row]
    parts = [plane(training["points"], frames), bars(frames), captions(frames)]
    style = "font-family:system-ui,sans-serif;font-size:13px;fill:#333"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 300" style="{style}" role="img" '
        'aria-label="A hidden layer grows while its network learns to separate two spirals">'
        f'<rect width="720" height="300" fill="white"/>{"".join(parts)}</svg>\n'
    )


SECONDS = 14.0


def animate(attribute: str, values: list[Any]) -> str:
    """An attribute that takes a value per frame, and stays at the last for a while before it starts again."""
    times = [0.85 * place / (len(values) - 1) for place in range(len(values))] + [1.0]
    listed = ";".join(map(str, [*values, values[-1]]))
    keys = ";".join(f"{time:.3f}".rstrip("0").rstrip(".") for time in times)
    return (
        f'<animate attributeName="{attribute}" values="{listed}" keyTimes="{keys}" calcMode="discrete" '
        f'dur="{SECONDS:g}s" repeatCount="indefinite"/>'
    )


def plane(points: list[list[float]], frames: list[dict[str, Any]]) -> str:
    dots = "".join(
        f'<circle cx="{140 + 9 * x:.0f}" cy="{150 - 9 * y:.0f}" r="2.2" fill="{RED if label else BLUE}"/>'
        for x, y, label in points
    )
    paths = ["".join(map(path_of, frame["boundary"])) for frame in frames]
    # Browsers without a value for the first frame would draw nothing: the last boundary is the picture at rest.
    line = f'<path d="{paths[-1]}" fill="none" stroke="#333" stroke-width="1.5">{animate("d", paths)}</path>'
    return f"{dots}{line}"


def path_of(line: str) -> str:
    """A line of the plane, "x,y x,y …", as a path of the picture."""
    points = [tuple(map(float, point.split(","))) for point in line.split()]
    return "M" + " ".join(f"{140 + 9 * x:.0f} {150 - 9 * y:.0f}" for x, y in points)


def bars(frames: list[dict[str, Any]]) -> str:
    from awn import Exponential

    count = max(frame["units"] for frame in frames) + 4
    step = 390 / count
    heights = [importances(Exponential, frame, count) for frame in frames]
    top = max(max(one) for one in heights)
    drawn = []
    for unit in range(count):
        tall = [round(150 * one[unit] / top) for one in heights]
        colours = [BLUE if unit < frame["units"] else GREY for frame in frames]
        drawn.append(
            f'<rect x="{300 + unit * step:.1f}" width="{step - 2:.1f}" y="{230 - tall[-1]}" height="{tall[-1]}" '
            f'fill="{colours[-1]}">{animate("y", [230 - one for one in tall])}{animate("height", tall)}'
            f"{animate('fill', colours)}</rect>"
        )
    ends = [f"{300 + frame['units'] * step - 1:.1f}" for frame in frames]
    edge = (
        f'<line x1="{ends[-1]}" x2="{ends[-1]}" y1="70" y2="236" stroke="{RED}" stroke-dasharray="4 3" '
        f'stroke-width="1.5">{animate("x1", ends)}{animate("x2", ends)}</line>'
    )
    axis = '<line x1="298" x2="692" y1="230" y2="230" stroke="#333"/>'
    label = '<text x="300" y="252">units of the layer, by importance; the dashed line is the width</text>'
    return "".join(drawn) + edge + axis + label


def importances(family: Any, frame: dict[str, Any], count: int) -> list[float]:
    import torch

    index, value = torch.arange(count, dtype=torch.float64), torch.tensor(frame["nu"], dtype=torch.float64)
    return [float(one) for one in family().importance(index, value)]


def captions(frames: list[dict[str, Any]]) -> str:
    """One text per frame, of which only that of the frame is visible."""
    shown = []
    for place, frame in enumerate(frames):
        visible = ["visible" if at == place else "hidden" for at in range(len(frames))]
        text = f"epoch {frame['epoch']}: {frame['units']} units, {frame['score']:.1%} correct"
        shown.append(
            f'<text x="300" y="46" font-size="17" visibility="{visible[-1]}">{text}'
            f"{animate('visibility', visible)}</text>"
        )
    return "".join(shown)


def figure() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "svg.hashsalt": "awn", "axes.spines.top": False, "axes.spines.right": False})
    return plt.subplots(figsize=(6, 2.8), layout="constrained")


def save(drawn: Any, name: str) -> None:
    drawn.savefig(PICTURES / name, metadata={"Date": None})


def draw_importance() -> None:
    from awn import Exponential

    drawn, axes = figure()
    for units, colour in ((12, BLUE), (40, RED)):
        family = Exponential.for_units(units)
        f = importances(Exponential, {"nu": family.rate}, 60)
        axes.bar(range(60), f, width=0.8, color=[colour if unit < units else GREY for unit in range(60)], alpha=0.6)
        axes.axvline(units - 0.5, color=colour, linestyle="--")
        axes.annotate(f"ν = {family.rate:.3f}: {units} units", (units, 0.9 * max(f) + 0.3), color=colour)
    axes.set(xlabel="unit", ylabel="importance", xlim=(-0.6, 60))
    save(drawn, "importance.svg")


def draw_starts(starts: dict[str, Any]) -> None:
    drawn, axes = figure()
    for start, colour, place in (("4", BLUE, -14), ("128", RED, 6)):
        rows = starts[start]["rows"]
        axes.plot([0, *(row["epoch"] for row in rows)], [int(start), *(row["units"] for row in rows)], color=colour)
        axes.annotate(f"from {start} units", (rows[-1]["epoch"] - 24, rows[-1]["units"] + place), color=colour)
    axes.set(xlabel="epoch", ylabel="units", ylim=(0, None))
    save(drawn, "starts.svg")


def draw_curve(curve: list[dict[str, Any]], chosen: int) -> None:
    drawn, axes = figure()
    units, losses, errors = ([one[name] for one in curve] for name in ("units", "loss", "error"))
    axes.errorbar(units, losses, yerr=errors, color=BLUE, marker="o", markersize=3, capsize=2, linewidth=1)
    axes.axvline(chosen, color=RED, linestyle="--")
    axes.annotate(f"chosen: {chosen} units", (chosen * 1.05, 0.9 * max(losses)), color=RED)
    axes.set(xlabel="units of all layers", ylabel="validation loss", ylim=(0, None))
    save(drawn, "curve.svg")


if __name__ == "__main__":
    {"run": run, "draw": draw}[sys.argv[1]]()

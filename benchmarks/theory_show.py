"""The tables and figures of docs/theory.md, from results/theory.json."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from awn.basics.text_table import markdown_table

Row = dict[str, Any]
AVERAGED = ("units", "used", "energy_of_last_30%", "accuracy", "accuracy_without_30%")
COLOURS = {0.8: "#9467bd", 0.9: "#d62728", 0.95: "#ff7f0e", 0.97: "#2ca02c", 0.99: "#1f77b4"}


def tables(found: Row) -> dict[str, str]:
    """The tables in Markdown, by the name of their section."""
    return {name: table(found[SOURCES.get(name, name)]) for name, table in TABLES.items()}


def _rest(rows: list[Row]) -> str:
    lines = []
    for scale in ("anchored", "mass"):
        of_scale = [row for row in rows if row["scale"] == scale]
        for quantile in COLOURS:
            runs = [row for row in of_scale if row["quantile"] == quantile]
            widths = ", ".join(str(run["units"]) for run in runs)
            means = ", ".join(f"{run['mean_index']:.1f}" for run in runs)
            laws = ", ".join(f"{run['law']:.1f}" for run in runs)
            lines.append([scale, f"{quantile:g}", widths, means, laws])
    return markdown_table(["scale", "k", "units from 64, 231, 512", "mean index", "1/(e^ν − 1)"], lines)


def _unit(rows: list[Row]) -> str:
    lines = [[str(run["start"]), str(run["units"]), f"{run['mean_index']:.1f}"] for run in rows]
    return markdown_table(["units at the start", "units in the end", "mean index"], lines)


def _tail(rows: list[Row]) -> str:
    lines = []
    for scale in ("anchored", "mass"):
        for quantile in COLOURS:
            runs = [row for row in rows if row["scale"] == scale and row["quantile"] == quantile]

            mean = {name: statistics.mean(run[name] for run in runs) for name in AVERAGED}
            needed = statistics.mean(run["used"] * run["nu"] for run in runs)
            carried = statistics.mean(run["units"] * run["nu"] for run in runs)
            lines.append(
                [
                    scale,
                    f"{quantile:g}",
                    f"{mean['units']:.0f}",
                    f"{mean['used']:.0f}",
                    f"{carried:.2f}",
                    f"{needed:.2f}",
                    f"{mean['energy_of_last_30%']:.1%}",
                    f"{mean['accuracy']:.1%}",
                    f"{mean['accuracy_without_30%']:.1%}",
                ]
            )
    head = [
        "scale",
        "k",
        "carried",
        "needed",
        "carried · ν",
        "needed · ν",
        "energy, last 30 %",
        "accuracy",
        "without 30 %",
    ]
    return markdown_table(head, lines)


def _growth(rows: list[Row]) -> str:
    lines = [
        [
            row["scale"],
            row["new_units"],
            f"{row['importance']:.3f}",
            f"{row['objective']:.3f}",
            f"{row['largest_change']:.1g}",
            f"{row['largest_bound']:.1g}",
            f"{row['largest_ratio']:.2f}",
        ]
        for row in rows
    ]
    head = ["scale", "new units", "f_D/f_0", "objective", "largest change", "largest bound", "largest change/bound"]
    return markdown_table(head, lines)


def _depth(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        error = f" ± {row['activation_error'][-1]:.2f}" if row["activation"][-1] > 0.01 else ""
        lines.append([row["name"], f"{row['activation_law']:.2g}", f"{row['activation'][-1]:.2g}{error}"])
        for name in ("gradient_sum", "gradient_unit"):
            lines[-1] += [f"{row[f'{name}_law']:.2g}", f"{row[name][0]:.2g}"]
    head = ["start", "E[α²], law", "measured", "Σ g², law", "measured", "g²/f², law", "measured"]
    return markdown_table(head, lines)


def _adam(found: Row) -> str:
    lines = [
        [
            f"{row['deviation']:g}",
            f"{row['gradient']:.1g}",
            f"{row['gradient'] / found['noise']:.2g}",
            f"{row['law']:.2g}",
            f"{row['adam']:.2g}",
        ]
        for row in found["drift"]
    ]
    head = ["σ_λ", "gradient of the prior", "over the noise", "drift per 1,000 steps, law", "measured"]
    return markdown_table(head, lines)


def _noise(found: Row) -> str:
    return (
        f"Here ν = {found['nu']:.3f} and r = {found['noise']:.2g}. "
        f"The noise alone moves log ν by {found['walk']:.2f} in 1,000 steps."
    )


def _widths(rows: list[Row]) -> str:
    lines = [
        [
            f"{row['ordered']:g}",
            str(row["units"]),
            f"{row['whole']:.3f}",
            f"{row['expected']:.3f}",
            f"{row['drawn']:.3f} ± {row['error']:.3f}",
        ]
        for row in rows
    ]
    return markdown_table(["ordered", "units", "loss, whole", "mean over prefixes", "1,000 draws"], lines)


def _price(rows: list[Row]) -> str:
    lines = [
        [row["scale"], f"{row['sigma']:g}", f"{row['quantile']:g}", str(row["units"])]
        + [f"{row[name]:.0f}" for name in ("first_order", "kl", "laplace")]
        + [f"{row[name]:.1f}" for name in ("laplace_first_unit", "laplace_last_unit")]
        for row in rows
    ]
    head = ["scale", "σ_θ", "k", "units", "first order", "KL, s = 1", "best s", "a first unit", "a last unit"]
    return markdown_table(head, lines)


TABLES: dict[str, Callable[[Any], str]] = {
    "rest": _rest,
    "unit": _unit,
    "tail": _tail,
    "growth": _growth,
    "depth": _depth,
    "adam": _adam,
    "noise": _noise,
    "widths": _widths,
    "price": _price,
}
# Tables that have no rows of their own.
SOURCES = {"tail": "rest", "noise": "adam"}


def draw(found: Row, folder: Path) -> None:
    """Write theory-rest.svg, theory-tail.svg and theory-depth.svg."""
    import matplotlib

    matplotlib.use("Agg")
    style: Any = {
        "font.size": 9,
        "svg.hashsalt": "awn",
        "svg.fonttype": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawing in (("rest", _draw_rest), ("tail", _draw_tail), ("depth", _draw_depth)):
        with matplotlib.rc_context(style):
            drawing(found).savefig(folder / f"theory-{name}.svg", metadata={"Date": None})


def _draw_rest(found: Row) -> Any:
    import matplotlib.pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained", sharey=True, sharex=True)
    for axes, scale in zip(both, ("anchored", "mass"), strict=True):
        axes.plot([1, 300], [1, 300], color="#999999", linewidth=1, zorder=0)
        for row in found["rest"]:
            if row["scale"] != scale:
                continue
            colour = COLOURS[row["quantile"]]
            law, mean = [point[1] for point in row["path"]], [point[0] for point in row["path"]]
            axes.plot(law, mean, color=colour, alpha=0.35, linewidth=0.8)
            label = f"k = {row['quantile']:g}" if row["start"] == 64 else None
            axes.plot(row["law"], row["mean_index"], "o", color=colour, markersize=4.5, label=label)
        axes.set(xscale="log", yscale="log", xlim=(4, 150), ylim=(4, 150), title=f"{scale} scale", xlabel="1/(e^ν − 1)")
    both[0].set_ylabel("mean index of the energy ‖w_j‖²")
    both[0].legend(frameon=False)
    return figure


def _draw_tail(found: Row) -> Any:
    import matplotlib.pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(8.4, 3.0), layout="constrained", sharey=True)
    for axes, scale in zip(both, ("anchored", "mass"), strict=True):
        for row in found["rest"]:
            if row["scale"] == scale and row["start"] == 231 and row["quantile"] in (0.9, 0.97, 0.99):
                norms = row["norms"]
                smooth = [statistics.mean(norms[max(0, j - 2) : j + 3]) / max(norms) for j in range(len(norms))]
                at = [j * row["nu"] for j in range(len(norms))]
                axes.plot(at, smooth, color=COLOURS[row["quantile"]], label=f"k = {row['quantile']:g}", linewidth=1.4)
        axes.axvline(2, color="#999999", linewidth=1, zorder=0)
        axes.set(title=f"{scale} scale", xlabel="ν · j", ylim=(0, None))
    both[0].set_ylabel("‖w_j‖, relative")
    both[1].legend(frameon=False)
    return figure


def _draw_depth(found: Row) -> Any:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
    for row in found["depth"]:
        layers = range(1, len(row["activation"]) + 1)
        left.plot(layers, row["activation"], "o-", markersize=3, linewidth=1.2, label=row["name"])
        if row["name"].startswith("Kaiming+"):
            widths = row["name"].removeprefix("Kaiming+, ")
            right.plot(layers, row["gradient_sum"], "o-", markersize=3, linewidth=1.2, label=f"Σ g², {widths}")
            right.plot(layers, row["gradient_unit"], "s--", markersize=3, linewidth=1, label=f"g²/f², {widths}")
    left.set(yscale="log", ylim=(1e-20, 1e2), xlabel="layer", title="Activations, relative to layer 1")
    right.set(ylim=(0, None), xlabel="layer", title="Gradients, relative to layer 16")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=7.5)
    return figure

"""The sections of one run's report, in their order. A section without data is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from awn.report.data import Confusion, ReportData
from awn.report.epoch_plots import (
    LOSS_TERMS,
    best_row,
    data_loss_plot,
    drawn_rows,
    layer_names,
    loss_plot,
    score_plot,
    widths_plot,
)
from awn.report.figure import MOST_LINES, Figures, finite
from awn.report.markup import Section, chooser, items, plot, plots, table
from awn.report.result_plots import confusion_plot, finite_pairs, is_dense, predicted_plot, residual_plot, tradeoff_plot
from awn.report.slider import slider
from awn.report.table_sections import (
    calibration_section,
    columns_section,
    hard_rows_section,
    leaders_section,
    sizes_section,
)
from awn.report.unit_plots import activation_plot, importance_plot


def run_sections(data: ReportData, figures: Figures) -> list[Section]:
    """All sections of a run; their figures are added to `figures`, by key."""
    made = (
        sizes_section(data, figures),
        leaders_section(data, figures),
        Section("notes", "Notes", "", items(data.notes)) if data.notes else None,
        columns_section(data, figures),
        _learning(data, figures),
        _widths(data, figures),
        calibration_section(data, figures),
        _confusion(data, figures),
        _residuals(data, figures),
        hard_rows_section(data),
        _truncation(data, figures),
        _importance(data, figures),
        _activations(data, figures),
        _facts("settings", "Settings", "The options of the run, given or by default.", data.settings),
        _facts("environment", "Environment", "The machine and the versions.", data.environment),
    )
    return [section for section in made if section is not None]


def _widths(data: ReportData, figures: Figures) -> Section | None:
    names = layer_names(drawn_rows(data.history))
    if not names:
        return None
    what = "each layer" if len(names) <= MOST_LINES else f"the {len(names)} layers"
    best = best_row(data.history)
    mark = "" if best is None else f" The dashed line marks the best epoch, {data.history[best]['epoch']:,}."
    says = f"The number of units of {what} after every epoch: training widens and narrows them.{mark}{_thinned(data)}"
    if data.max_units is not None:
        says += f" A layer may have at most {data.max_units:,} units."
    figures["widths"] = widths_plot(data.history, data.max_units)
    return Section("widths", "Widths over time", says, plot("widths", says))


def _learning(data: ReportData, figures: Figures) -> Section | None:
    made, says = [], []
    if any(row.get(key) is not None for row in data.history for key in ("score", "train_score")):
        says.append(f"How {data.score_name} moved from epoch to epoch.")
        figures["score"] = score_plot(data)
        made.append(plot("score", says[-1], data.score_name))
    if any(row.get("validation_loss") is not None for row in data.history):
        says.append("How the loss of the data moved on the training and the validation rows.")
        figures["data-loss"] = data_loss_plot(data.history)
        made.append(plot("data-loss", says[-1], "loss on training and validation rows"))
    if any(finite(row.get(term)) for row in data.history for term in LOSS_TERMS):
        says.append("The loss that training minimises is the sum of its terms.")
        figures["loss"] = loss_plot(data.history)
        made.append(plot("loss", says[-1], "loss and its terms"))
    if not made:
        return None
    says = [data.kept_because, *says] if data.kept_because else says
    lost = [row for row in data.history if any(_lost(row.get(key)) for key in (*LOSS_TERMS, "score", "train_score"))]
    if lost:
        first, count = lost[0]["epoch"], len(lost)
        says.append(
            f"The curves have a gap where a value is not finite: in {count:,} of the epochs, first in epoch {first:,}."
        )
    return Section("learning", "Training", " ".join(says) + _thinned(data), plots(made))


def _importance(data: ReportData, figures: Figures) -> Section | None:
    if not data.layers:
        return None
    says = (
        "How much each unit counts, in falling order. A layer ends where its units hold the share k of all importance "
        "(dashed line); the grey tail is cut."
    )
    named = {f"importance-{i}": layer.name for i, layer in enumerate(data.layers)}
    figures |= {key: importance_plot(layer) for key, layer in zip(named, data.layers, strict=True)}
    return Section("importance", "Importance of the units", says, _by_layer(named, "Importance by unit"))


def _truncation(data: ReportData, figures: Figures) -> Section | None:
    if len(data.truncation) < 2:
        return None
    on = f" on {data.truncation_rows}, after a repair on training rows" if data.truncation_rows else ""
    says = (
        f"Move the slider to cut the least important units off: the dot shows what {data.score_name} is left{on}, "
        "and at how many parameters."
    )
    figures["tradeoff"] = tradeoff_plot(data)
    return Section("truncation", "Truncate", says, slider(data, says))


def _activations(data: ReportData, figures: Figures) -> Section | None:
    if not data.activations:
        return None
    says = "What each unit puts out on data: the band spans its range, the line is its mean."
    named = {f"activations-{i}": name for i, name in enumerate(data.activations)}
    figures |= {
        key: activation_plot(bands["low"], bands["mean"], bands["high"])
        for key, bands in zip(named, data.activations.values(), strict=True)
    }
    return Section("activations", "Activations by unit", says, _by_layer(named, "Activations by unit"))


def _confusion(data: ReportData, figures: Figures) -> Section | None:
    if data.confusion is None or not data.confusion.labels:
        return None
    says = (
        "How many rows of each class (down) were taken for which (across), coloured by the share of the row: "
        "what is right lies on the diagonal."
    )
    figures["confusion"] = confusion_plot(data.confusion)
    head = ("class", "rows", "recall", "precision")
    body = f'<div class="beside">{plot("confusion", says)}{table(head, _by_class(data.confusion), "By class")}</div>'
    return Section("confusion", "Confusion matrix", says, body)


def _by_class(confusion: Confusion) -> list[tuple[str, float, float | None, float | None]]:
    """For each class: the number of rows, the recall and the precision."""
    rows = []
    for i, (label, counts) in enumerate(zip(confusion.labels, confusion.counts, strict=True)):
        actual, named = sum(counts), sum(other[i] for other in confusion.counts)
        rows.append((label, actual, counts[i] / actual if actual else None, counts[i] / named if named else None))
    return rows


def _residuals(data: ReportData, figures: Figures) -> Section | None:
    if data.residuals is None or not data.residuals.actual:
        return None
    left = "The nearer a row is to the dashed diagonal, the better its prediction."
    right = "What is left over should scatter around 0 without a pattern."
    figures["predicted"] = predicted_plot(data.residuals)
    figures["residuals"] = residual_plot(data.residuals)
    pair = plots([plot("predicted", left, "predicted and actual"), plot("residuals", right, "residuals")])
    rows, finite_rows = len(data.residuals.actual), len(finite_pairs(data.residuals))
    fewer = f" {finite_rows:,} of {rows:,} rows have finite values and are drawn." if finite_rows < rows else ""
    dense = is_dense(data.residuals)
    many = f" All {finite_rows:,} rows are counted: the stronger the colour, the more rows." if dense else ""
    return Section("residuals", "Predicted and actual", f"{left} {right}{many}{fewer}", pair)


def _facts(key: str, heading: str, says: str, facts: Mapping[str, Any]) -> Section | None:
    rows = [(name, value) for name, value in facts.items()]
    return Section(key, heading, says, table(("name", "value"), rows, heading)) if rows else None


def _by_layer(named: Mapping[str, str], says: str) -> str:
    """One plot per layer, or a single plot with a list for many layers."""
    if len(named) > MOST_LINES:
        return chooser("Layer", says, named)
    return plots([plot(key, f"{says} of layer {name}", name) for key, name in named.items()])


def _thinned(data: ReportData) -> str:
    rows, drawn = len(data.history), len(drawn_rows(data.history))
    return f" Of {rows:,} epochs, {drawn:,} are drawn." if drawn < rows else ""


def _lost(value: Any) -> bool:
    return value is not None and finite(value) is None

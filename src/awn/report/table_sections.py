"""Sections of a report on a table: sizes, models, columns, calibration and rows that are hard to predict."""

from __future__ import annotations

from awn.report.data import ReportData
from awn.report.figure import Figures
from awn.report.markup import Section, bar, escape, histogram, interval, number, plot, plots, raw_table, seconds, table
from awn.report.table_data import ColumnFacts
from awn.report.table_plots import calibration_plot, dependence_plot, leader_plot, size_plot

_MOST_COLUMNS = 200  # in the table of columns


def sizes_section(data: ReportData, figures: Figures) -> Section | None:
    """Score against size."""
    curve = data.size_curve
    if curve is None:
        return None
    says = (
        f"The {data.score_name} on {curve.rows} of the network cut to each size and repaired, with its 95 % interval. "
        "The dashed line marks the smallest size whose loss is as good as the best. The star is the network that was "
        "kept, after fine-tuning. The others were trained on the same training rows."
    )
    figures["sizes"] = size_plot(curve, data.score_name)
    head = ("units", "parameters", data.score_name, "95 % interval")
    rows = [(one.units, one.parameters, one.score, interval(one.low, one.high)) for one in curve.points]
    fold = f"<details><summary>All sizes as a table</summary>{table(head, rows, 'Sizes')}</details>"
    return Section("sizes", "Score against size", says, plot("sizes", says) + fold)


def leaders_section(data: ReportData, figures: Figures) -> Section | None:
    """The models, from the best down."""
    if not data.leaders:
        return None
    says = f"All models on {data.leader_rows}, with 95 % bootstrap intervals over these rows."
    figures["leaders"] = leader_plot(data.leaders, data.score_name)
    loss = "log-loss" if data.task == "classification" else "RMSE"
    head = ("model", data.score_name, "interval", loss, "units", "parameters", "training")
    rows = [
        (
            one.name,
            one.score,
            interval(one.low, one.high),
            one.loss,
            one.units,
            one.parameters,
            seconds(one.seconds),
        )
        for one in data.leaders
    ]
    measures = "" if "adaptive" not in data.measures else _measures(data)
    body = plot("leaders", says) + table(head, rows, "Models") + measures
    return Section("leaders", "Leaderboard", says, body)


def _measures(data: ReportData) -> str:
    rows = [(name, one["value"], interval(one["low"], one["high"])) for name, one in data.measures["adaptive"].items()]
    inner = table(("measure", "value", "95 % interval"), rows, "Measures")
    return f"<details><summary>All measures of the adaptive network</summary>{inner}</details>"


def columns_section(data: ReportData, figures: Figures) -> Section | None:
    """The columns: kind, missing values, distribution and importance; and what predictions depend on."""
    if not data.columns:
        return None
    says = "The columns of the table, in the training rows."
    if data.importance_name:
        says += (
            f" Importance: {data.importance_name} when the column is shuffled, the mean of three shuffles ± its "
            "standard deviation."
        )
    shown, all_columns = data.columns[:_MOST_COLUMNS], max(data.column_count, len(data.columns))
    if len(shown) < all_columns:
        says += f" {len(shown):,} of {all_columns:,} columns are shown."
    largest = max((one.importance for one in shown if one.importance is not None), default=0.0)
    head = ("column", "importance", "", "kind", "missing", "levels", "distribution")
    body = raw_table(head, [_column_cells(one, largest) for one in shown], "Columns")
    made = []
    for place, one in enumerate(data.dependences):
        key, curves = f"dependence-{place}", list(one.curves)
        y = "mean prediction" if data.task == "regression" else "mean probability"
        y += f" of {curves[0]}" if data.task == "classification" and len(curves) == 1 else ""
        figures[key] = dependence_plot(one, y)
        made.append(plot(key, f"{y} by {one.column}", one.column))
    if made:
        body += (
            "<h3>Partial dependence</h3><p>The mean prediction if every row had the same value in a column, for the "
            f"most important columns.</p>{plots(made)}"
        )
    return Section("columns", "Columns", says, body)


def _column_cells(one: ColumnFacts, largest: float) -> list[str]:
    value = "–"
    if one.importance is not None:
        value = f"{one.importance:.3f}" + ("" if one.spread is None else f" ± {one.spread:.3f}")
    share = 0.0 if not largest or one.importance is None else max(0.0, one.importance) / largest
    missing = f"{one.missing:.1%}" if one.missing else "–"
    named = f"{one.labels[0]} to {one.labels[-1]}" if one.kind in ("number", "date") and one.labels else ""
    named = named or ", ".join(one.labels[:3]) + ("…" if len(one.labels) > 3 else "")
    kind = one.kind if one.kind in ("number", "boolean", "category", "date") else f"{one.kind}, not used"
    meter = bar(share) if one.importance is not None else ""
    cells = [escape(value), meter, escape(kind), escape(missing), escape(number(one.levels))]
    return [escape(one.name), *cells, histogram(one.counts, named) if one.counts else escape("–")]


def calibration_section(data: ReportData, figures: Figures) -> Section | None:
    """Whether probabilities and intervals can be trusted."""
    found = data.calibration
    if found is None:
        return None
    if "covered" in found:
        says = (
            f"The {found['wanted']:.0%} prediction intervals (awn predict --interval {found['wanted']:g}) contain "
            f"{found['covered']:.1%} of the test rows' values. Each is {number(found['width'])} wide."
        )
        return Section("calibration", "Prediction intervals", says, "")
    if not found.get("confidence"):
        return None
    says = (
        "How often the predicted class was right in the test rows, by the probability that it had, in bins of about "
        "equally many rows. On the dashed line, probabilities mean what they say. The expected calibration error is "
        f"{number(found['error'])}"
    )
    if found["temperature"] != 1:  # it is 1 if there are no validation rows
        says += f", after dividing by a temperature of {number(found['temperature'])} fitted to the validation rows"
    says += "."
    figures["calibration"] = calibration_plot(found)
    return Section("calibration", "Calibration", says, plot("calibration", says))


def hard_rows_section(data: ReportData) -> Section | None:
    """The worst-predicted rows."""
    if data.hard_rows is None or not data.hard_rows.rows:
        return None
    says = "The test rows with the largest errors, with the values of the most important columns."
    body = table(data.hard_rows.head, data.hard_rows.rows, "Worst-predicted rows")
    return Section("hard-rows", "Worst-predicted rows", says, body)

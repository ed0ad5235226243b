"""Reports of training runs, as HTML files that need no network.

`write_report` draws one run, `write_comparison` several beside each other; both from `ReportData`.
"""

from awn.report.data import Confusion, LayerCurve, ReportData, Residuals, TruncationPoint
from awn.report.page import write_comparison, write_report

__all__ = [
    "Confusion",
    "LayerCurve",
    "ReportData",
    "Residuals",
    "TruncationPoint",
    "write_comparison",
    "write_report",
]

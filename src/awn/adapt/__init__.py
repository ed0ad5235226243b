"""Any PyTorch model made adaptive: `adapt_` records a run, follows dimensions, verifies by numbers, and connects."""

from awn.adapt.adapt import adapt_
from awn.adapt.hidden import Hidden, Refusal
from awn.adapt.report import Report
from awn.adapt.rules import ModuleRule, add_rule
from awn.adapt.table import add_operation

__all__ = ["Hidden", "ModuleRule", "Refusal", "Report", "adapt_", "add_operation", "add_rule"]

"""Any PyTorch model made adaptive: `adapt_`, the rules it goes by, and how to add one."""

from awn.adapt.adapt import adapt_
from awn.adapt.hidden import Hidden, Refusal
from awn.adapt.report import Report
from awn.adapt.rules import Rule, add_rule

__all__ = ["Hidden", "Refusal", "Report", "Rule", "adapt_", "add_rule"]

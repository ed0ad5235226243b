"""Any PyTorch model made adaptive: `adapt_`, the rules it goes by, and how to add one."""

from awn.convert.adapt import adapt_
from awn.convert.hidden import Hidden, Refusal
from awn.convert.report import Report
from awn.convert.rules import Rule, add_rule

__all__ = ["Hidden", "Refusal", "Report", "Rule", "adapt_", "add_rule"]

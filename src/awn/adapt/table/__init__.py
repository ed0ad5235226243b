"""The table: what each ATen operation does with the dimensions of its tensors.

A rule takes an `Operation` and says which dimensions are the same units, and which cannot change. Rules know operations
by their names. Operations that torch tags as pointwise need no rule of their own. An operation that has no rule is
decomposed into others or, if that is not possible, mixes all units. `add_operation` adds a rule:

>>> from awn.adapt.table.entrywise import entrywise
>>> add_operation("mish_of_mine", entrywise)
>>> _ = RULES.pop("mish_of_mine")
"""

from __future__ import annotations

from awn.adapt.operation import Operation, Rule, Schema
from awn.adapt.table import entrywise, indexing, layers, shapes, sums

#: The rules by the names of operations.
RULES: dict[str, Rule] = {**entrywise.RULES, **shapes.RULES, **sums.RULES, **layers.RULES, **indexing.RULES}


def rule_for(schema: Schema) -> Rule | None:
    """The rule of an operation, if there is one."""
    return RULES.get(schema.name) or (entrywise.entrywise if schema.pointwise else None)


def add_operation(name: str, rule: Rule) -> None:
    """Tell how an operation of your own, say of `torch.library`, treats the dimensions of its tensors."""
    RULES[name] = rule


def unknown(operation: Operation) -> None:
    """An operation that nobody has described may mix everything."""
    entrywise.mixes(operation)

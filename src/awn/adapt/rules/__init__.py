"""Rules: which layers of a module that awn knows by its type make hidden units, and which read them.

A rule takes a module and returns what it found in it, or None if the module is none of its own:

>>> from torch import nn
>>> class Mixer(nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
...     def forward(self, x):
...         return self.down(self.up(x).relu() if x.sum() > 0 else self.up(x))   # what no tracing sees through
>>> def mixer(module):
...     return [Hidden((module.up,), (module.down,))] if isinstance(module, Mixer) else None
>>> add_rule(mixer)
>>> import awn
>>> model = nn.Sequential(Mixer(), Mixer())
>>> _ = awn.adapt_(model)
>>> awn.widths(model)
{'0.up': 32, '1.up': 32}
>>> _RULES.remove(mixer)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from torch import nn

from awn.adapt.hidden import Hidden, Refusal
from awn.adapt.rules.huggingface import feed_forward
from awn.adapt.rules.recurrent import recurrent_layer
from awn.adapt.rules.transformer import transformer_layer

Rule: TypeAlias = Callable[[nn.Module], Sequence[Hidden | Refusal] | None]

_RULES: list[Rule] = [transformer_layer, recurrent_layer, feed_forward]


def add_rule(rule: Rule) -> None:
    """Have `adapt_` ask a rule of your own before its own ones.

    >>> rule = lambda module: None
    >>> add_rule(rule)
    >>> _RULES.remove(rule)
    """
    _RULES.insert(0, rule)


def apply_rules(module: nn.Module) -> Sequence[Hidden | Refusal] | None:
    """What the first rule says that knows the module; None if no rule does."""
    return next((found for rule in _RULES if (found := rule(module)) is not None), None)

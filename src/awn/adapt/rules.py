"""Rules of the user: which layers of a module make hidden units, and which read them.

A rule takes a module and returns what it knows of it, or None if the module is none of its own. It helps where an
example cannot show everything, and what it says is verified like everything else:

>>> from torch import nn
>>> class Mixer(nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
...     def forward(self, x):
...         return self.down(self.up(x).relu())
>>> def mixer(module):
...     return [Hidden((module.up,), (module.down,))] if isinstance(module, Mixer) else None
>>> add_rule(mixer)
>>> import awn
>>> model = nn.Sequential(Mixer(), Mixer())
>>> _ = awn.adapt_(model)
>>> awn.widths(model)
{'0.up': 32, '0.down': 8, '1.up': 32}
>>> RULES.remove(mixer)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from torch import nn

from awn.adapt.groups import Candidate, owner
from awn.adapt.hidden import Hidden, Refusal
from awn.adapt.record import Place, Recorder
from awn.adapt.terms import Term, product

ModuleRule: TypeAlias = Callable[[nn.Module], Sequence[Hidden | Refusal] | None]

RULES: list[ModuleRule] = []


def add_rule(rule: ModuleRule) -> None:
    """Have `adapt_` ask a rule of your own about every module, the last one added first.

    >>> rule = lambda module: None
    >>> add_rule(rule)
    >>> RULES.remove(rule)
    """
    RULES.insert(0, rule)


def ruled(model: nn.Module, recorder: Recorder, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that rules name, and those of the recording that no rule speaks of."""
    names = {id(tensor): name for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    paths = {module: path for path, module in model.named_modules()}
    found: list[Candidate] = []
    refused: dict[str, str] = {}
    for said in _said_of(model):
        if isinstance(said, Refusal):
            refused[paths[said.layer]] = said.reason
        else:
            found.append(_candidate(said, recorder, names))
    taken = {place for candidate in found for place in candidate.places}
    left = [candidate for candidate in candidates if not taken & set(candidate.places)]
    for candidate in left:
        candidate.why = refused.get(candidate.name, candidate.why)
    return [*found, *left]


def _said_of(model: nn.Module) -> Iterator[Hidden | Refusal]:
    for module in model.modules():
        yield from next((said for rule in RULES if (said := rule(module)) is not None), ())


def _candidate(hidden: Hidden, recorder: Recorder, names: dict[int, str]) -> Candidate:
    """What a rule names, with terms in place of those that were recorded."""
    leaf, makers, readers = Term(hidden.units), list[Place](), list[Place]()
    for axis in hidden.axes():
        place = names[id(axis.tensor)], axis.dim
        (makers if axis.role == "producer" else readers).append(place)
        recorder.axes[place[0]][axis.dim] = product([leaf, Term(axis.per_unit, "a rule names it")])
    candidate = Candidate(leaf, owner(makers[0][0]), makers, readers, gain=hidden.gain)
    if not {name for name, _ in candidate.places} <= recorder.ran:
        candidate.why = "it did not run with this example. Pass an example_input with which it does"
    return candidate

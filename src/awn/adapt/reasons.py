"""Reasons: why each layer that was not adapted was not, and the report of what was done."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from awn.adapt.discover import PARAMETRIZED, Discovery
from awn.adapt.report import Adapted, Report, Skipped
from awn.adapt.terms import Term
from awn.core.axes import layout_of
from awn.core.count import axes_by_tensor
from awn.core.gate import plain_class
from awn.core.groups import WidthGroup, find_groups


def report_on(model: nn.Module, found: Discovery, skipped: Sequence[Skipped]) -> Report:
    """The report of a model that has become adaptive."""
    paths = {module: path for path, module in model.named_modules()}

    def layers(group: WidthGroup, role: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(paths[axis.module] for axis in group.axes if axis.role == role))

    groups = find_groups(model)
    adapted = [
        Adapted(group.name, group.width.units, layers(group, "producer"), layers(group, "consumer")) for group in groups
    ]
    made = {name for one in adapted for name in one.producers}
    skipped = [one for one in skipped if one.name not in made]
    told = made | {one.name for one in skipped}
    others = [Skipped(name, reason) for name, reason in reasons_for_others(model, found, told).items()]
    governed, own = axes_by_tensor(groups), {group.width.log_nu for group in groups}
    sizes = {parameter: parameter.numel() for parameter in model.parameters() if parameter not in own}
    share = sum(size for parameter, size in sizes.items() if parameter in governed) / max(1, sum(sizes.values()))
    numbers = {
        f"{plain_class(one.module).__name__}.{one.name}": None for group in groups for one in group.width.attributes
    }
    return Report(tuple(adapted), (*skipped, *others), share, tuple(numbers), tuple(found.not_taken))


def reasons_for_others(model: nn.Module, found: Discovery, told: set[str]) -> dict[str, str]:
    """The layers with a weight of which nothing was said yet, with the reason: a reader should not miss any."""
    reasons: dict[str, str] = {}
    paths = {id(tensor): name for name, tensor in model.named_parameters()}
    for path, module in model.named_modules():
        parents = {path.rsplit(".", end)[0] for end in range(path.count(".") + 1)}
        if parents & (told | reasons.keys()):
            continue
        weights = [(n, p) for n, p in module._parameters.items() if p is not None and p.dim() > 1]
        if not weights:
            continue
        names = [(paths[id(p)], n) for n, p in weights if id(p) in paths]
        layer, *parametrized = path.split(".parametrizations.")
        why = PARAMETRIZED if parametrized else _reason(module, names, found)
        reasons[layer or "the model itself"] = why
    return reasons


def _reason(module: nn.Module, names: Sequence[tuple[str, str]], found: Discovery) -> str:
    """Why the units that a module makes stay as many as they are."""
    recorder = found.recorder
    if not any(name in recorder.ran for name, _ in names):
        return "it did not run with this example. Pass an example_input with which it does"
    whys = {candidate.leaf: candidate.why for candidate in found.candidates}
    layout = layout_of(module)
    for name, own in names:
        terms = recorder.axes[name]
        if layout is not None and own == "weight":
            terms = [terms[layout.out_dim]]
        for why in _whys(terms, whys):
            return why
    return "no other layer reads what it makes"


def _whys(terms: Sequence[Term], dropped: dict[Term, str | None]) -> list[str]:
    leaves = [leaf for term in terms for leaf in term.leaves()]
    found = [why for leaf in leaves if (why := dropped.get(leaf) or leaf.why) is not None]
    return found or (["it makes a single unit"] if all(leaf.size == 1 for leaf in leaves) else [])

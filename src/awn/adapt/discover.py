"""Discover: find and verify every hidden width of a model, and leave the model as it is."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from awn.adapt.bench import Bench, Failure, Patches, converted
from awn.adapt.copies import copied
from awn.adapt.cover import Cover
from awn.adapt.example import given_example, how_to_pass, made_example
from awn.adapt.groups import Candidate, find_candidates, owner
from awn.adapt.record import Recorder
from awn.adapt.rest import not_finite_at_rest
from awn.adapt.rules import ruled
from awn.adapt.verify import NOT_SEEN, Verifier, another_size
from awn.basics.batches import Batch
from awn.core.gate import check_gateable
from awn.errors import ArgumentError

# Further recordings of a forward that draws from the random numbers of Python or NumPy.
_MORE_DRAWS = 4
# Further trials with other noise in the weights, where units have no visible effect.
_MORE_NOISE = 6

PARAMETRIZED = "a weight is computed by a parametrization such as weight norm. Remove that first"


@dataclass
class Discovery:
    """What was found: all candidates, of which those without a reason against them hold, and what follows them."""

    recorder: Recorder
    candidates: list[Candidate]
    patches: Patches = field(default_factory=dict)
    not_taken: list[str] = field(default_factory=list)

    @property
    def kept(self) -> list[Candidate]:
        """The candidates that hold."""
        return [candidate for candidate in self.candidates if candidate.why is None]


def discover(model: nn.Module, example_input: Any, *, required: bool = True) -> Discovery:
    """Find and verify the hidden widths of a model. The caller keeps the model and the random states as they are.

    >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> [(one.name, one.size) for one in discover(model, torch.randn(4, 3)).kept]
    [('0', 8)]
    """
    if not any(parameter.dim() > 1 for parameter in model.parameters()):
        return Discovery(Recorder(model), [])
    example = made_example(model) if example_input is None else given_example(example_input)
    if example is None:
        if required:
            raise ArgumentError(how_to_pass(model))
        return Discovery(Recorder(model), [])
    recorder, cover = _record(model, example, given=example_input is not None)
    candidates = ruled(model, recorder, find_candidates(recorder))
    _refuse_(model, candidates)
    found = Discovery(recorder, candidates, not_taken=cover.not_taken())
    if found.kept:
        _verify_(model, example, found)
    return found


def check_dense(model: nn.Module) -> None:
    """Raise for a tensor whose dimensions cannot be followed."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_nested or tensor.layout != torch.strided:
            kind = "nested" if tensor.is_nested else "sparse"
            raise ArgumentError(
                f"{name!r} is a {kind} tensor, whose dimensions awn cannot follow. Make it dense first."
            )


def _record(model: nn.Module, example: Batch, *, given: bool) -> tuple[Recorder, Cover]:
    """Follow the dimensions through a run in eval mode and one in training mode."""
    twin, cover = copied(model), Cover(model)
    recorder = Recorder(twin)
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    inputs = converted(example, dtype)
    with cover.following():
        try:
            recorder.run(twin.eval(), inputs)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if "does not require grad" in text:
                text += (
                    ". A forward that differentiates itself (torch.autograd.grad) cannot be recorded. Adapt the part "
                    "of the model that it differentiates, as in awn.adapt_(model.part), and train the whole"
                )
            what = "example_input does not run" if given else "the example that awn made does not run under a recording"
            raise ArgumentError(f"{what} through {type(model).__name__}: {text}", argument=None) from error
        with contextlib.suppress(Exception):  # some want labels then, or more than one sample
            recorder.run(twin.train(), inputs)
        for draw in range(_MORE_DRAWS if recorder.draws else 0):
            with contextlib.suppress(Exception):
                recorder.seed = draw + 1
                recorder.run(twin.train(draw % 2 == 1), inputs)
    recorder.release()
    return recorder, cover


def _refuse_(model: nn.Module, candidates: Sequence[Candidate]) -> None:
    """Drop candidates that could not be connected, before any time is spent on them."""
    ties, parameters = tied(model), dict(model.named_parameters())
    modules = dict(model.named_modules())
    for candidate in candidates:
        if candidate.why is None:
            candidate.why = (
                _tie(candidate, parameters, ties)
                or _frozen(candidate, parameters)
                or _sparse(candidate, modules)
                or _bypassed(candidate, modules)
                or _ungateable(candidate, modules)
            )


def _tie(candidate: Candidate, parameters: dict[str, nn.Parameter], ties: dict[Tensor, list[str]]) -> str | None:
    for name, _ in candidate.places:
        if name in parameters and parameters[name] in ties:
            return f"a weight is tied: {' is '.join(ties[parameters[name]])}. Untie it, or leave the width fixed"
    return None


def _frozen(candidate: Candidate, parameters: dict[str, nn.Parameter]) -> str | None:
    """Units that are added to layers that are not trained would never learn anything."""
    if all(parameters[name].requires_grad for name, _ in candidate.places if name in parameters):
        return None
    return (
        "weights are frozen (requires_grad=False). To have the width learned all the same, name the layers in groups="
    )


def _sparse(candidate: Candidate, modules: dict[str, nn.Module]) -> str | None:
    for name, _ in candidate.places:
        if getattr(modules[owner(name)], "sparse", False):
            return (
                f"{owner(name)!r} has sparse gradients, which cannot follow a change of width. Build it without sparse"
            )
    return None


def _bypassed(candidate: Candidate, modules: dict[str, nn.Module]) -> str | None:
    """Torch's fused encoder layer leaves out what a subclass changed; it is not used while the heads are adaptive."""
    for name, _ in candidate.places:
        attention = owner(name)
        layer = modules.get(owner(attention))
        if isinstance(modules[attention], nn.MultiheadAttention) and isinstance(layer, nn.TransformerEncoderLayer):
            for part in ("_sa_block", "_ff_block"):
                if getattr(type(layer), part) is not getattr(nn.TransformerEncoderLayer, part):
                    return f"in evaluation, torch's fused encoder layer leaves out the {part} of {type(layer).__name__}"
    return None


def _ungateable(candidate: Candidate, modules: dict[str, nn.Module]) -> str | None:
    if any(".parametrizations." in name for name, _ in candidate.places):
        return PARAMETRIZED
    for name, _ in candidate.readers:
        try:
            check_gateable(modules[owner(name)], name.rpartition(".")[2])
        except ArgumentError as error:
            return str(error).rstrip(".")
    return None


def tied(model: nn.Module) -> dict[Tensor, list[str]]:
    """The parameters that stand in more than one module of a model, with their names."""
    names: dict[Tensor, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    slots: dict[Tensor, set[int]] = {}
    for module in model.modules():
        for own in module.parameters(recurse=False):
            slots.setdefault(own, set()).add(id(module))
    return {parameter: names[parameter] for parameter, holders in slots.items() if len(holders) > 1}


def _verify_(model: nn.Module, example: Batch, found: Discovery) -> None:
    """Give a reason to every candidate that does not hold."""
    try:
        bench = Bench(model, example, found.recorder)
    except Failure as failure:
        for candidate in found.kept:
            candidate.why = failure.why
        return
    verifier = Verifier(bench)
    kept = verifier.verify(found.candidates)
    if bench.is_exact and any(candidate.why == NOT_SEEN for candidate in found.candidates):
        kept = _seen_with_other_noise(model, example, found, verifier)
    other = another_size(bench.example)
    if kept and other is not None and verifier.holds_for(other) is False:
        for candidate in kept:
            verifier.kept = [candidate]
            if verifier.holds_for(other) is False:
                candidate.why = "with another number of samples, the outputs change or the forward fails"
        verifier.kept = [candidate for candidate in kept if candidate.why is None]
        if verifier.kept and verifier.holds_for(other) is False:
            for candidate in verifier.kept:
                candidate.why = "with another number of samples, the outputs change or the forward fails"
    _check_rest_(model, example, found, bench, verifier.patches)
    found.patches = verifier.patches


def _seen_with_other_noise(model: nn.Module, example: Batch, found: Discovery, verifier: Verifier) -> list[Candidate]:
    """Try units without a visible effect with other weights: in narrow layers, all units of a ReLU may be silent."""
    for seed in range(1, _MORE_NOISE + 1):
        hidden = [candidate for candidate in found.candidates if candidate.why == NOT_SEEN]
        if not hidden:
            break
        held, again = verifier.kept, [*verifier.kept, *hidden]
        for candidate in hidden:
            candidate.why = None
        with contextlib.suppress(Failure):
            other = Verifier(Bench(model, example, found.recorder, seed=seed))
            seen = other.verify(again)
            verifier.kept = [candidate for candidate in again if candidate in held or candidate in seen]
            verifier.patches = verifier.patches | other.patches
        for candidate in again:
            if candidate in held:
                candidate.why = None  # seen before
            elif candidate not in verifier.kept:
                candidate.why = candidate.why or NOT_SEEN
    return verifier.kept


def _check_rest_(model: nn.Module, example: Batch, found: Discovery, bench: Bench, patches: Patches) -> None:
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), bench.dtype)
    if own != bench.dtype:
        with contextlib.suppress(Failure):
            bench = Bench(model, example, found.recorder, own_precision=True)
    for candidate, why in not_finite_at_rest(bench, found.kept, patches).items():
        candidate.why = why

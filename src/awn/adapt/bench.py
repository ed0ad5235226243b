"""Bench: a copy of a model on which units are permuted, added and dropped, to see what its outputs do.

Traps that shaped this file:

- Zeros and equal weights hide errors, so all weights get noise. In deep networks without trained statistics signals die
  out, so batch norms take the statistics of the example.
- Forwards store tensors in attributes and share configurations: after every trial all attributes are restored.
- `parameter.data` is set, so that tied weights, and the lists of nn.LSTM, follow.
- NaN never equals NaN. Masks that are finite in single precision may give NaN in double: then single is used.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import linecache
import math
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from awn.adapt.copies import copied
from awn.adapt.groups import Candidate
from awn.adapt.interrupt import check_interrupt
from awn.adapt.operation import tensors_in
from awn.adapt.record import Place, Recorder, quiet, without_chance
from awn.adapt.sizes import size_names
from awn.adapt.terms import Term
from awn.basics.batches import Batch
from awn.core.attribute import Attribute

# Larger models are tried in single precision, for the sake of memory and time.
_MOST_IN_DOUBLE = 4_000_000
# At once, the units of at most this share of their numbers change.
_SHARE_AT_ONCE = 1 / 3


@dataclass(frozen=True)
class Change:
    """Other units in place of a leaf's: for each the old one that it copies, and which of them are to be 0."""

    source: Tensor
    zero: Tensor

    @classmethod
    def permuted(cls, size: int, generator: torch.Generator) -> Change:
        """All units in another order."""
        order = torch.randperm(size, generator=generator)
        order = order.flip(0) if torch.equal(order, torch.arange(size)) else order
        return cls(order, torch.zeros(size, dtype=torch.bool))

    @classmethod
    def grown(cls, size: int, more: int, *, at_rest: bool = False) -> Change:
        """Some more units that copy others; or, at rest, slots that hold zeros."""
        return cls(torch.arange(size + more) % size, (torch.arange(size + more) >= size) & at_rest)

    @classmethod
    def mixed(cls, size: int, more: int, generator: torch.Generator) -> Change:
        """All units in another order, and then some more that copy others."""
        order, places = cls.permuted(size, generator).source, torch.arange(size + more)
        return cls(order[places % size], torch.zeros(size + more, dtype=torch.bool))

    @classmethod
    def shrunk(cls, size: int, fewer: int) -> Change:
        """Fewer units."""
        return cls(torch.arange(size - fewer), torch.zeros(size - fewer, dtype=torch.bool))


Changes = Mapping[Term, Change]
#: Numbers in attributes, by the path of the module, the attribute's name and its index, and the term that they count.
Patches = dict[tuple[str, str, int | None], Term]


@dataclass
class Failure(Exception):
    """A trial that went wrong: why, after how many operations, in which modules."""

    why: str
    after: float = math.inf
    modules: tuple[str, ...] = ()


class Counting(TorchDispatchMode):
    """Counts operations, and has those that draw numbers give the same ones for every unit."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        check_interrupt()
        self.count += 1
        return without_chance(func, args, kwargs or {})


def size_after(term: Term, changes: Changes) -> int:
    """The size of a term with other units."""
    if term.kind == "leaf":
        return len(changes[term.root].source) if term.root in changes else term.size
    sizes = [size_after(part, changes) for part in term.parts]
    return math.prod(sizes) if term.kind == "product" else sum(sizes)


def entries_after(term: Term, changes: Changes, zeros: set[Term]) -> tuple[Tensor, Tensor]:
    """Where each entry of a dimension comes from, and which are 0, with other units.

    New units of the leaves in `zeros` are 0 even where they copy others.
    """
    if term.kind == "leaf":
        leaf = term.root
        if leaf not in changes:
            return torch.arange(leaf.size), torch.zeros(leaf.size, dtype=torch.bool)
        change = changes[leaf]
        new = torch.arange(len(change.source)) >= leaf.size
        return change.source, (change.zero | new) if leaf in zeros else change.zero
    (source, zero), *rest = (entries_after(part, changes, zeros) for part in term.parts)
    start = term.parts[0].size
    for part, (low, low_zero) in zip(term.parts[1:], rest, strict=True):
        if term.kind == "concatenation":
            source, zero, start = torch.cat([source, low + start]), torch.cat([zero, low_zero]), start + part.size
        else:
            source = (source[:, None] * part.size + low).flatten()
            zero = (zero[:, None] | low_zero).flatten()
    return source, zero


class Bench:
    """A copy of the model with noise in its weights, and what it computes on the example."""

    def __init__(
        self, model: nn.Module, example: Batch, recorder: Recorder, *, own_precision: bool = False, seed: int = 0
    ) -> None:
        self.recorder, self.runs, self._seed = recorder, 0, seed
        own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        small = sum(p.numel() for p in model.parameters()) <= _MOST_IN_DOUBLE
        single = own if own.itemsize >= 4 else torch.float32
        kinds = [own] if own_precision else [torch.float64, single] if small else [single]
        for dtype in kinds:
            self._copy(model, example, dtype)
            try:
                self.base = self.run()
            except Exception as error:
                if dtype == kinds[-1]:
                    raise Failure(f"a copy of the model with noise in its weights does not run: {error}") from error
                continue  # a forward may insist on single precision
            if all(out.isfinite().all() for out in self.base):
                break
        self.dtype, self.is_exact = dtype, dtype == torch.float64
        self.scale = max(
            (float(out[out.isfinite()].abs().max()) for out in self.base if out.isfinite().any()), default=0.0
        )
        # Large models are not run once more only to see whether they give the same twice.
        again = self.difference(self.run()) if small else 0.0
        self.noise = max(again, self.scale * (1e-13 if self.is_exact else 1e-6))

    def _copy(self, model: nn.Module, example: Batch, dtype: torch.dtype) -> None:
        self.model = copied(model).eval().to(dtype).requires_grad_(False)
        self.tensors: dict[str, Tensor] = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        self.modules, self.example = dict(self.model.named_modules()), converted(example, dtype)
        self._shake()
        norms = [one for one in self.model.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
        for norm in norms:
            norm.momentum = 1.0
        if norms:
            with contextlib.suppress(Exception):
                self.model.train()
                self.run()
        self.model.eval()
        self._state = [(one, dict(one.__dict__), dict(one._buffers)) for one in self.model.modules()]

    def _shake(self) -> None:
        """Add noise: weights that are 0 or all alike would hide what is wrong."""
        generator = torch.Generator().manual_seed(self._seed)
        for name, tensor in self.tensors.items():
            if tensor.is_floating_point() and (isinstance(tensor, nn.Parameter) or "running_" in name):
                size = float(torch.linalg.vector_norm(tensor.data)) / math.sqrt(max(1, tensor.numel()))
                noise = torch.randn(tensor.shape, generator=generator).to(tensor)
                noise.mul_((1.0 if self._seed else 0.3) * (size if math.isfinite(size) else 0.0) + 0.02)
                tensor.data.add_(noise.abs_() if "running_var" in name else noise)

    def run(self, example: Batch | None = None) -> list[Tensor]:
        """The tensors of floating-point numbers that the copy returns."""
        self.runs += 1
        example = copy.deepcopy(example or self.example)
        with quiet(), Counting() as self.counter:
            result = self.model(*example.args, **example.kwargs)
        return [out.detach().clone() for out in tensors_in(result) if out.is_floating_point()]

    @property
    def tolerance(self) -> float:
        """By how much rounding may change the outputs, where sums have another order: deep networks amplify it."""
        return max((1e-6 if self.is_exact else 2e-3) * self.scale, 4 * self.noise)

    def difference(self, outs: Sequence[Tensor], base: Sequence[Tensor] | None = None) -> float:
        """The largest change of the outputs; infinite if other entries are finite than were."""
        base = self.base if base is None else base
        if [out.shape for out in outs] != [out.shape for out in base]:
            return math.inf
        if not all(torch.equal(one.isfinite(), two.isfinite()) for one, two in zip(outs, base, strict=True)):
            return math.inf
        changes = [(one - two)[two.isfinite()].abs() for one, two in zip(outs, base, strict=True)]
        return max((float(change.max()) for change in changes if len(change)), default=0.0)

    @contextlib.contextmanager
    def changed(
        self,
        changes: Changes,
        zeros: Mapping[Term, Sequence[Place]],
        patches: Patches,
        only: set[Place] | None = None,
        at_rest: bool = False,
    ) -> Iterator[None]:
        """The copy with other units, and with the numbers that follow; with `only` some dimensions changed.

        `at_rest`: new slots hold zeros everywhere, also in buffers.
        """
        saved: dict[str, Tensor] = {}
        try:
            for name in self.recorder.ran:
                for dim, term in enumerate(self.recorder.axes[name]):
                    mine = {leaf for leaf in term.leaves() if leaf in changes}
                    if not mine or (only is not None and (name, dim) not in only):
                        continue
                    tensor, (path, _, own) = self.tensors[name], name.rpartition(".")
                    recorded = size_names(self.modules[path], own, dim)
                    source, zero = entries_after(term, changes, {leaf for leaf in mine if (name, dim) in zeros[leaf]})
                    saved.setdefault(name, tensor.data)
                    tensor.data = self._selected(tensor, dim, source, zero, at_rest)
                    for attribute in recorded:
                        setattr(self.modules[path], attribute, len(source))
            for (path, attribute, index), term in patches.items():
                Attribute(self.modules[path], attribute, (), index).set_(size_after(term, changes))
            yield
        finally:
            for name, data in saved.items():
                self.tensors[name].data = data
            self._restore()

    @staticmethod
    def _selected(tensor: Tensor, dim: int, source: Tensor, zero: Tensor, at_rest: bool) -> Tensor:
        data = tensor.data.index_select(dim, source)
        if zero.any() and (at_rest or isinstance(tensor, nn.Parameter)):
            data.index_fill_(dim, zero.nonzero().flatten(), 0)
        return data

    def _restore(self) -> None:
        for module, attributes, buffers in self._state:
            for now, before in ((module.__dict__, attributes), (module._buffers, buffers)):
                now.clear()
                now.update(before)

    def attempt(self, changes: Changes, zeros: Mapping[Term, Sequence[Place]], patches: Patches, limit: float) -> float:
        """Run with other units; raises a Failure if the outputs change by more than the limit."""
        try:
            with self.changed(changes, zeros, patches):
                outs = self.run()
        except Failure:
            raise
        except Exception as error:
            raise self._failure(error) from error
        change = self.difference(outs)
        if not change <= limit:
            raise Failure(f"the outputs change, by {change / max(self.scale, 1e-300):.1g} of their size")
        return change

    def _failure(self, error: Exception) -> Failure:
        """What went wrong, in which line of the model's code, after how many operations, in which modules."""
        names = {id(module): path for path, module in self.modules.items()}
        modules: list[str] = []
        line = ""
        for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
            path = frame.f_code.co_filename
            mine = [
                names[id(one)]
                for one in list(frame.f_locals.values())
                if isinstance(one, nn.Module) and id(one) in names
            ]
            if mine and not line and f"{os.sep}torch{os.sep}" not in path:
                line = f" at {os.path.basename(path)}:{number}: {linecache.getline(path, number).strip()[:100]}"
            modules += mine
        first = str(error).strip().splitlines()[:1]
        text = f"{type(error).__name__}{': ' + first[0][:120] if first else ''}{line}"
        return Failure(f"the forward fails: {text}", self.counter.count, tuple(dict.fromkeys(modules)))

    def portions(self, candidates: Sequence[Candidate]) -> list[list[Candidate]]:
        """Candidates to change at once: all, or of a large model some after the others, which takes less memory."""
        if self.is_exact:
            return [list(candidates)] if candidates else []
        every = sum(tensor.numel() for tensor in self.tensors.values())
        shares = [sum(self.tensors[name].numel() for name, _ in one.places) / every for one in candidates]
        number = max(1, math.ceil(sum(shares) / _SHARE_AT_ONCE))
        found: list[list[Candidate]] = [[] for _ in range(number)]
        for one, before, own in zip(candidates, itertools.accumulate(shares, initial=0.0), shares, strict=False):
            found[min(number - 1, int(number * (before + own / 2) / sum(shares)))].append(one)
        return [part for part in found if part]


def zeros_of(candidates: Sequence[Candidate]) -> dict[Term, list[Place]]:
    """The dimensions that are 0 for new units, by leaf."""
    return {candidate.leaf: candidate.zeros for candidate in candidates}


def converted(example: Batch, dtype: torch.dtype) -> Batch:
    """A copy of an example in another precision."""

    def convert(tensor: Tensor) -> Tensor:
        return tensor.detach().clone().to(dtype) if tensor.is_floating_point() else tensor.detach().clone()

    args, kwargs = pytree.tree_map_only(Tensor, convert, (example.args, example.kwargs))
    return Batch(args, kwargs)

"""Verify: try on a copy, by numbers, whether candidates are what the recording takes them for.

Permuting units must not change the outputs. Permuting only what reads them must, or the example shows nothing. Adding
units, whose readers are 0, must not change the outputs, and dropping units must leave a model that runs. All candidates
are tried together, each with another number of units, so that a tie between two of them shows. The number added shares
no divisor with the present one, or a `view(…, -1, 8)` would take new units for more samples. Where all together fail,
parts of them are tried, down to single ones.
"""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from awn.adapt.attributes import find_attributes
from awn.adapt.bench import Bench, Change, Changes, Failure, Patches, converted, zeros_of
from awn.adapt.groups import Candidate, first_choice, in_one_product, owner
from awn.basics.batches import Batch
from awn.core.axes import Norm

# With this many seconds spent on controls, those of the same kind are tried together.
_LONG = 4.0
# After so many runs, what is not yet verified is dropped.
_MOST_RUNS = 400

NOT_SEEN = "not verifiable with this example: its units have no effect on the outputs that would show"

Kinds = list[list[Candidate]]


@dataclass
class Verifier:
    """Tries candidates, and keeps those that hold; the others get the reason."""

    bench: Bench
    kept: list[Candidate] = field(default_factory=list)
    patches: Patches = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._generator = torch.Generator().manual_seed(1)
        self._amounts: dict[Candidate, tuple[int, int]] = {}
        self._changes: list[float] = []

    def verify(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates that hold, all together."""
        usable = [candidate for candidate in candidates if candidate.why is None]
        self._choose_amounts(usable)
        conflicts = in_one_product(self.bench.recorder, usable)
        first = first_choice(usable, conflicts)
        self.kept = [one for part in self.bench.portions(first) for one in self._good(_kinds(part), [])]
        taken = set(self.kept)
        second = [one for one in usable if one not in first and not conflicts[one] & taken]
        second = first_choice(second, conflicts)
        if second:
            self.kept += self._good(_kinds(second), self.kept)
        for one in usable:
            if one.why is None and one not in self.kept:
                names = sorted({other.name for other in conflicts[one] if other in self.kept})
                one.why = f"its units are repeated for each unit of {', '.join(map(repr, names))}, which is adaptive"
        self._control()
        return self.kept

    def _choose_amounts(self, candidates: Sequence[Candidate]) -> None:
        for place, candidate in enumerate(candidates):
            # In single precision an eighth more: what depends on their number must show above the rounding.
            fewest = 2 if self.bench.is_exact else 2 + candidate.size // 8
            more = [number for number in range(fewest, fewest + 60) if math.gcd(number, candidate.size) == 1]
            self._amounts[candidate] = more[place % min(9, len(more))], 1 + place % max(1, min(candidate.size - 1, 7))

    def _good(self, kinds: Kinds, others: Sequence[Candidate]) -> list[Candidate]:
        """Of candidates in kinds, those that hold together with others; the rest gets a reason."""
        every = [candidate for kind in kinds for candidate in kind]
        if not every:
            return []
        failure = self._try(every, others)
        if failure is None:
            return every
        if self.bench.runs > _MOST_RUNS:
            for candidate in every:
                candidate.why = f"it could not be verified in {_MOST_RUNS} runs of the model"
            return []
        if len(every) == 1:
            bare = "its units are multiplied or summed with each other, without a weight between them; "
            every[0].why = (bare if every[0].bare else "") + failure.why
            return []
        if len(kinds) == 1:
            kinds = (
                [[candidate] for candidate in every]
                if len(every) <= 4
                else [every[: len(every) // 2], every[len(every) // 2 :]]
            )
        middle = len(kinds) // 2
        one = self._good(kinds[:middle], others)
        return [*one, *self._good(kinds[middle:], [*others, *one])]

    def _try(self, candidates: Sequence[Candidate], others: Sequence[Candidate]) -> Failure | None:
        """Permute, grow and shrink candidates together with others that hold already."""
        failure = None
        for silent in _ways_to_be_silent(candidates, self.bench):
            for candidate in candidates:
                candidate.silent = silent.get(candidate, [])
            try:
                self._trial([*others, *candidates])
                return None
            except Failure as found:
                failure = failure or found
                if found.after < math.inf:
                    break
        return failure

    def _trial(self, candidates: Sequence[Candidate]) -> None:
        bench, zeros = self.bench, zeros_of(candidates)
        limit = bench.tolerance
        try:
            permuted = bench.attempt(self._permuted(candidates), zeros, {}, limit)
        except Failure as failure:
            raise Failure(f"with its units permuted, {failure.why}", failure.after) from failure
        try:
            patches, grown = find_attributes(bench, self._grown(candidates), zeros, self.patches, limit)
        except Failure as failure:
            raise Failure(f"with more units, {failure.why}", failure.after) from failure
        try:
            patches, _ = find_attributes(bench, self._shrunk(candidates), zeros, patches, 1e9 * max(bench.scale, 1e-9))
        except Failure as failure:
            raise Failure(f"with fewer units, {failure.why}", failure.after) from failure
        self.patches, self._changes = patches, [*self._changes, permuted, grown]

    def _permuted(self, candidates: Sequence[Candidate]) -> Changes:
        return {one.leaf: Change.permuted(one.size, self._generator) for one in candidates}

    def _grown(self, candidates: Sequence[Candidate]) -> Changes:
        return {one.leaf: Change.grown(one.size, self._amounts[one][0]) for one in candidates}

    def _shrunk(self, candidates: Sequence[Candidate]) -> Changes:
        return {one.leaf: Change.shrunk(one.size, self._amounts[one][1]) for one in candidates}

    def _control(self) -> None:
        """Drop candidates whose units have no visible effect: permuting only their readers must change the outputs."""
        effects: dict[Candidate, float] = {}
        started = time.process_time()
        for place, candidate in enumerate(self.kept):
            if candidate in effects:
                continue
            spent = time.process_time() - started
            long = place > 0 and spent / place * len(self.kept) > _LONG
            kin = next(kind for kind in _kinds(self.kept) if candidate in kind) if long else [candidate]
            effects |= dict.fromkeys(kin, self._effect(kin))
        for candidate, effect in sorted(effects.items(), key=lambda pair: pair[1]):
            seen = math.isfinite(effect) and effect > 1e3 * self.bench.noise
            small = 1e-4 if self.bench.is_exact else 2e-2
            if not seen or max(self._changes) > max(small * effect, 4 * self.bench.noise):
                candidate.why = NOT_SEEN
        self.kept = [candidate for candidate in self.kept if candidate.why is None]
        leaves = {candidate.leaf for candidate in self.kept}
        self.patches = {number: term for number, term in self.patches.items() if leaves & set(term.leaves())}

    def _effect(self, candidates: Sequence[Candidate]) -> float:
        only = {place for candidate in candidates for place in candidate.zeros}
        try:
            with self.bench.changed(self._permuted(candidates), zeros_of(candidates), {}, only):
                return self.bench.difference(self.bench.run())
        except Exception:
            return math.inf

    def holds_for(self, example: Batch) -> bool | None:
        """Whether another example shows nothing wrong; None if the model does not run on it."""
        example = converted(example, self.bench.dtype)
        try:
            base = self.bench.run(example)
        except Exception:
            return None
        return all(self._holds(part, example, base) for part in self.bench.portions(self.kept))

    def _holds(self, candidates: Sequence[Candidate], example: Batch, base: Sequence[Tensor]) -> bool:
        mixed = {one.leaf: Change.mixed(one.size, self._amounts[one][0], self._generator) for one in candidates}
        try:
            with self.bench.changed(mixed, zeros_of(candidates), self.patches):
                return self.bench.difference(self.bench.run(example), base) <= 4 * self.bench.tolerance
        except Exception:
            return False


def _kinds(candidates: Sequence[Candidate]) -> Kinds:
    """Candidates whose names differ in numbers only, together."""
    found: dict[tuple[str, int], list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        found[re.sub(r"\d+", "*", candidate.name), candidate.makers[0][1] if candidate.makers else 0].append(candidate)
    return list(found.values())


def _ways_to_be_silent(candidates: Sequence[Candidate], bench: Bench) -> list[dict[Candidate, list[tuple[str, int]]]]:
    """For units that are summed over without a weight: which of their makers are 0 for new units, choice by choice."""
    bare = [candidate for candidate in candidates if candidate.bare]
    choices: dict[Candidate, list[list[tuple[str, int]]]] = {}
    for candidate in bare:
        modules = dict.fromkeys(owner(name) for name, _ in reversed(candidate.makers))
        parts = [[place for place in candidate.makers if owner(place[0]) == module] for module in modules]
        # Something has to make the units, and a norm's scale does not read them.
        parts = [
            part
            for part in parts
            if len(part) < len(candidate.makers)
            and all(name in bench.recorder.parameters for name, _ in part)
            and not isinstance(bench.modules[owner(part[0][0])], Norm)
        ]
        choices[candidate] = [*([[]] if candidate.readers else []), *parts]
    most = max((len(found) for found in choices.values()), default=1)
    return [
        {candidate: found[min(number, len(found) - 1)] for candidate, found in choices.items() if found}
        for number in range(max(most, 1))
    ]


def another_size(example: Batch) -> Batch | None:
    """The example with one more sample, if its tensors agree on the number of samples."""
    sizes = {len(tensor) for tensor in example.tensors if tensor.dim()}
    if len(sizes) != 1 or 0 in sizes:
        return None

    def longer(tensor: Tensor) -> Tensor:
        return torch.cat([tensor, tensor[:1]]) if tensor.dim() else tensor

    args, kwargs = pytree.tree_map_only(Tensor, longer, (example.args, example.kwargs))
    return Batch(args, kwargs)

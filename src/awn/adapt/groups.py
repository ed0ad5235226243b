"""Groups: the leaves that parameters hold and nothing froze, as candidates for learned widths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from awn.adapt.record import Place, Recorder
from awn.adapt.terms import Term

# A dimension of more blocks is left as it is: every read of a gated weight would join as many pieces.
_MOST_BLOCKS = 256

Owner = TypeVar("Owner")


@dataclass(eq=False)
class Candidate:
    """Units of one leaf: the dimensions that make them and those that read them, by the names of the tensors.

    `bare`: the units are also summed over without a weight, as queries times keys are. Then some `silent` makers, which
    are gated like readers, have to be 0 for new units. `why` says why the candidate was dropped.
    """

    leaf: Term
    name: str
    makers: list[Place]
    readers: list[Place]
    bare: bool = False
    silent: list[Place] = field(default_factory=list)
    why: str | None = None
    gain: float | None = None

    @property
    def size(self) -> int:
        """The number of units."""
        return self.leaf.size

    @property
    def places(self) -> list[Place]:
        """All dimensions that follow the units."""
        return [*self.makers, *self.readers]

    @property
    def zeros(self) -> list[Place]:
        """The dimensions that are gated, and 0 for new units."""
        return [*self.readers, *self.silent]


def find_candidates(recorder: Recorder) -> list[Candidate]:
    """One candidate for every leaf that is not frozen and that some parameter holds; some with a reason against it."""
    holders: dict[Term, list[Place]] = defaultdict(list)
    for name, terms in recorder.axes.items():
        for dim, term in enumerate(terms if name in recorder.ran else ()):
            for leaf in dict.fromkeys(term.leaves()):
                holders[leaf].append((name, dim))
    bare = {leaf for term in recorder.bare for leaf in term.leaves()}
    matrices = set(matrices_of(recorder))
    gains = {leaf: gain for term, gain in recorder.gains for leaf in term.leaves()}
    found = []
    for leaf, places in holders.items():
        if leaf.why is not None or leaf.size < 2:
            continue
        makers = [place for place in places if id(recorder.axes[place[0]][place[1]]) not in recorder.readers]
        readers = [place for place in places if place not in makers]
        maker = next((name for name, _ in makers if name in matrices), None)
        candidate = Candidate(leaf, owner(maker or places[0][0]), makers, readers, leaf in bare)
        candidate.why = _why_not(candidate, maker, matrices)
        candidate.gain = gains.get(leaf)
        found.append(candidate)
    return found


def _why_not(candidate: Candidate, maker: str | None, matrices: set[str]) -> str | None:
    if maker is None:
        tied = any(name in matrices for name, _ in candidate.readers)
        return "one weight both makes and reads its units" if tied else "no weight makes its units"
    if not candidate.readers and not candidate.bare:
        return "no weight reads its units"
    return None


def owner(name: str) -> str:
    """The path of the module that a tensor belongs to.

    >>> owner("encoder.0.weight"), owner("scale")
    ('encoder.0', '')
    """
    return name.rpartition(".")[0]


def matrices_of(recorder: Recorder) -> list[str]:
    """The weights that ran: tensors of two dimensions or more, of which one may have a single entry if it is read.

    A weight of one input is a matrix, as its input is summed over. A vector of the shape [1, units] that scales is not.
    """
    return [
        name
        for name, tensor in recorder.tensors.items()
        if name in recorder.parameters
        and name in recorder.ran
        and tensor.dim() > 1
        and (
            sum(size > 1 for size in tensor.shape) > 1
            or any(id(term) in recorder.readers for term in recorder.axes[name])
        )
    ]


def layout(term: Term, owners: Mapping[Term, Owner]) -> list[tuple[Owner | None, int]] | None:
    """A dimension as neighbouring blocks of entries: so many for each unit of an owner, or so many in all.

    None if there is no such layout: if the units of one owner are repeated for each unit of another.

    >>> heads, size = Term(4), Term(8)
    >>> layout(Term(96, None, "product", [Term(3), heads, size]), {heads: "heads"})
    [('heads', 8), ('heads', 8), ('heads', 8)]
    """
    if term.kind == "leaf":
        leaf = term.root
        return [(owners[leaf], 1)] if leaf in owners else [(None, leaf.size)]
    if term.kind == "concatenation":
        pieces = [layout(piece, owners) for piece in term.parts]
        return None if None in pieces else _merged(block for piece in pieces for block in piece or ())
    blocks: list[tuple[Owner | None, int]] = [(None, 1)]
    for factor in reversed(term.parts):
        major = layout(factor, owners)
        if major is None or len(blocks) > _MOST_BLOCKS:
            return None
        if all(found is None for found, _ in blocks):
            inner = sum(entries for _, entries in blocks)
            blocks = _merged((found, entries * inner) for found, entries in major)
        elif all(found is None for found, _ in major):
            blocks = _merged(blocks * sum(entries for _, entries in major))
        else:
            return None
    return blocks if len(blocks) <= _MOST_BLOCKS else None


def _merged(blocks: Iterable[tuple[Owner | None, int]]) -> list[tuple[Owner | None, int]]:
    """Blocks with neighbouring fixed ones joined."""
    found: list[tuple[Owner | None, int]] = []
    for whose, entries in blocks:
        if found and whose is None and found[-1][0] is None:
            found[-1] = None, found[-1][1] + entries
        else:
            found.append((whose, entries))
    return found


def in_one_product(recorder: Recorder, candidates: Sequence[Candidate]) -> dict[Candidate, set[Candidate]]:
    """Candidates that cannot be adaptive together: some dimension repeats the units of one for each of another."""
    by_leaf = {candidate.leaf: candidate for candidate in candidates}
    conflicts: dict[Candidate, set[Candidate]] = {candidate: set() for candidate in candidates}
    for name in recorder.ran:
        for term in recorder.axes[name]:
            for part in term.all_parts():
                sides = [{by_leaf[leaf] for leaf in factor.leaves() if leaf in by_leaf} for factor in part.parts]
                for i, one in enumerate(sides if part.kind == "product" else ()):
                    for other in sides[i + 1 :]:
                        for a in one:
                            conflicts[a] |= other - {a}
                        for b in other:
                            conflicts[b] |= one - {b}
    return conflicts


def first_choice(candidates: Sequence[Candidate], conflicts: Mapping[Candidate, set[Candidate]]) -> list[Candidate]:
    """Of candidates that cannot be adaptive together, those with readers first, then those that more weights hold."""
    chosen: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda one: (one.bare, -len(one.places))):
        if not conflicts[candidate] & set(chosen):
            chosen.append(candidate)
    return [candidate for candidate in candidates if candidate in chosen]

"""Terms: what the dimensions of tensors consist of, and which of them are the same units.

A term is a leaf, a product of terms (heads × head size, major to minor), or a concatenation of terms (`cat`, `chunk`).
Operations say that two terms are the same units (`unify`), or that a term cannot change (`freeze`). Terms are never
joined because their sizes are equal. Joined terms share a root, by union-find.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

Kind = Literal["leaf", "product", "concatenation"]

#: Why the dimensions of a model's inputs are frozen. No other reason replaces this one.
INPUT = "it is an input of the model"


class Term:
    """A dimension of a tensor, or a part of one; `why` is the reason if it cannot change."""

    __slots__ = ("_kind", "_parts", "_up", "size", "why")

    def __init__(
        self,
        size: int,
        why: str | None = None,
        kind: Kind = "leaf",
        parts: Sequence[Term] = (),
        same_as: Term | None = None,
    ) -> None:
        self.size, self.why = size, why
        self._kind: Kind = kind
        self._parts, self._up = tuple(parts), same_as

    @property
    def root(self) -> Term:
        """The term that stands for all that were joined with this one."""
        term = self
        while term._up is not None:
            if term._up._up is not None:
                term._up = term._up._up
            term = term._up
        return term

    @property
    def kind(self) -> Kind:
        """What the term is, after all that is known by now."""
        return self.root._kind

    @property
    def parts(self) -> tuple[Term, ...]:
        """The factors of a product, or the pieces of a concatenation."""
        return self.root._parts

    def become(self, kind: Kind, parts: Sequence[Term]) -> None:
        """Turn a leaf into what it was found to consist of."""
        root = self.root
        root._kind, root._parts = kind, tuple(parts)

    def join(self, other: Term) -> None:
        """Let the other term stand for this one."""
        if self.root is not other.root:
            self.root._up = other.root

    def leaves(self) -> Iterator[Term]:
        """The leaves that the term consists of, in order.

        >>> [leaf.size for leaf in product([Term(2), concatenation([Term(3), Term(4)])]).leaves()]
        [2, 3, 4]
        """
        if self.kind == "leaf":
            yield self.root
        for part in self.parts:
            yield from part.leaves()

    def all_parts(self) -> Iterator[Term]:
        """The term, its parts, and theirs."""
        yield self
        for part in self.parts:
            yield from part.all_parts()

    def flat(self, kind: Kind) -> list[Term]:
        """The factors of nested products, or the pieces of nested concatenations."""
        if self.kind != kind:
            return [self.root]
        return [one for part in self.parts for one in part.flat(kind)]


def product(factors: Sequence[Term]) -> Term:
    """The product of terms, from the major to the minor one.

    >>> product([Term(2), Term(1), Term(3)]).size
    6
    """
    factors = [factor for factor in factors if factor.size != 1]
    if len(factors) < 2:
        return factors[0] if factors else Term(1)
    return Term(math.prod(factor.size for factor in factors), None, "product", factors)


def concatenation(pieces: Sequence[Term]) -> Term:
    """The concatenation of terms.

    >>> concatenation([Term(2), Term(0), Term(3)]).size
    5
    """
    pieces = [piece for piece in pieces if piece.size]
    if len(pieces) < 2:
        return pieces[0] if pieces else Term(0)
    if all(piece.size == 1 for piece in pieces):
        return Term(len(pieces), "its entries are concatenated one by one")
    return Term(sum(piece.size for piece in pieces), None, "concatenation", pieces)


def freeze(term: Term, why: str) -> None:
    """Keep the size of a term, for this reason."""
    for leaf in term.leaves():
        leaf.why = INPUT if INPUT in (why, leaf.why) else leaf.why or why


def split(term: Term, minor: int, why: str) -> tuple[Term, Term]:
    """The term as a product of two, the minor one of a size that divides it; frozen if it is no such product.

    >>> heads, size = split(Term(12), 4, "view")
    >>> heads.size, size.size
    (3, 4)
    """
    factors, tail, rest = term.flat("product"), list[Term](), minor
    while rest > 1:
        last = factors.pop()
        if rest % last.size == 0:
            tail.insert(0, last)
            rest //= last.size
            continue
        pairs = _divided(last, rest, why)
        if pairs is None:
            freeze(term, why)
            return Term(term.size // minor, why), Term(minor, why)
        for _, low in pairs[1:]:
            unify(pairs[0][1], low, why)
        high, low = concatenation([high for high, _ in pairs]), pairs[0][1]
        if last.why is None:
            last.become("product", (high, low))
        return product([*factors, high]), product([low, *tail])
    return product(factors), product(tail)


def _divided(term: Term, minor: int, why: str) -> list[tuple[Term, Term]] | None:
    """A factor as products with a minor one of this size: one, or one for each piece of a concatenation."""
    if term.kind == "leaf" and term.size % minor == 0:
        return [(Term(term.size // minor, term.why), Term(minor, term.why))]
    pieces = term.flat("concatenation")
    if term.kind == "concatenation" and all(piece.size % minor == 0 for piece in pieces):
        return [split(piece, minor, why) for piece in pieces]
    return None


def cut(term: Term, first: int, why: str) -> tuple[Term, Term]:
    """The term as a concatenation of two, the first one of a given size; frozen if it is no such concatenation.

    >>> gate, up = cut(Term(10), 4, "split")
    >>> gate.size, up.size
    (4, 6)
    """
    term = term.root
    if first in (0, term.size):
        return (term, Term(0)) if first else (Term(0), term)
    if term.kind == "leaf":
        two = Term(first, term.why), Term(term.size - first, term.why)
        if term.why is None:
            term.become("concatenation", two)
        return two
    if term.kind == "concatenation":
        pieces, head = term.flat("concatenation"), list[Term]()
        while pieces[0].size <= first:
            head.append(pieces.pop(0))
            first -= head[-1].size
        here, rest = cut(pieces[0], first, why)
        return concatenation([*head, here]), concatenation([rest, *pieces[1:]])
    major, *minors = term.flat("product")
    inner = math.prod(part.size for part in minors)
    if first % inner == 0:
        one, other = cut(major, first // inner, why)
        return product([one, *minors]), product([other, *minors])
    freeze(term, why)
    return Term(first, why), Term(term.size - first, why)


def unify(one: Term, two: Term, why: str) -> None:
    """Both are the same units; frozen, for the reason `why`, if they cannot be.

    >>> a, b = Term(6), product([Term(2), Term(3)])
    >>> unify(a, b, "add")
    >>> a.kind
    'product'
    """
    one, two = one.root, two.root
    if one is two or one.size == two.size == 1:
        return
    if one.size != two.size:
        freeze(one, why)
        freeze(two, why)
    elif "leaf" in (one.kind, two.kind):
        one, two = (one, two) if one.kind == "leaf" else (two, one)
        frozen = one.why
        one.join(two)
        if frozen:
            freeze(two, frozen)
    else:
        _unify_parts(one, two, why)
        one.join(two)


def _unify_parts(one: Term, two: Term, why: str) -> None:
    if one.kind == two.kind == "product":
        rest = one
        for factor in reversed(two.flat("product")):
            rest, low = split(rest, factor.size, why)
            unify(low, factor, why)
        return
    one, two = (one, two) if one.kind == "concatenation" else (two, one)
    rest = two
    for piece in one.flat("concatenation"):
        here, rest = cut(rest, piece.size, why)
        unify(here, piece, why)


def regroup(terms: Sequence[Term], shape: Sequence[int], why: str) -> list[Term]:
    """The dimensions after a view: both shapes are read in blocks of equal products.

    >>> [term.size for term in regroup([Term(2), Term(12)], (2, 3, 4), "view")]
    [2, 3, 4]
    """
    if 0 in shape:
        return [Term(size, "the tensor is empty") for size in shape]
    olds, news = [term for term in terms if term.size != 1], [size for size in shape if size != 1]
    found: list[Term] = []
    while olds or news:
        block, sizes = [olds.pop(0)], [news.pop(0)]
        while (have := math.prod(term.size for term in block)) != (want := math.prod(sizes)):
            if have < want:
                block.append(olds.pop(0))
            else:
                sizes.append(news.pop(0))
        rest, lows = product(block), list[Term]()
        for size in reversed(sizes[1:]):
            rest, low = split(rest, size, why)
            lows.insert(0, low)
        found += [rest, *lows]
    return [Term(1) if size == 1 else found.pop(0) for size in shape]

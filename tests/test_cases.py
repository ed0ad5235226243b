"""The tables that other tests use: what they promise."""

from __future__ import annotations

import itertools

import pytest

from cases import BLOCKS, MODELS, OPTIMIZERS, pairwise

FACTORS = [
    (MODELS, OPTIMIZERS, BLOCKS),
    (MODELS, ("wider", "narrower", "within", "same"), BLOCKS, BLOCKS),
    (range(5), range(4), range(3), range(2), range(2)),
    (range(2), range(7)),
]


@pytest.mark.parametrize("factors", FACTORS, ids=lambda factors: "×".join(str(len(one)) for one in factors))
def test_every_two_values_of_two_factors_meet(factors: tuple[list[object], ...]) -> None:
    rows = pairwise(*factors)
    assert len(set(rows)) == len(rows)
    for (first, ones), (second, others) in itertools.combinations(enumerate(factors), 2):
        assert {(row[first], row[second]) for row in rows} == set(itertools.product(ones, others))
    largest = sorted((len(one) for one in factors), reverse=True)
    assert len(rows) <= 1.5 * largest[0] * largest[1], "hardly more than the two largest factors need by themselves"

"""The real files of the paper's data sets, where AWN_DATA has them: their hashes, sizes and classes."""

from __future__ import annotations

import pytest

from awn.errors import DataError
from awn_paper.data import load

# Sizes of the parts, what a network is told of its inputs, and classes or tokens.
FACTS = {
    "pol": ((10800, 1200, 3000), 48, 2),
    "credit card": ((21600, 2400, 6000), 23, 2),
    "MNIST": ((50001, 9999, 10000), 1, 10),
    "NCI1": ((3328, 370, 412), 37, 2),
    "REDDIT-B": ((1620, 180, 200), 1, 2),
    "Multi30k": ((29000, 1014, 1000), 48, 50258),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_real_data_set_has_the_papers_size(name):
    try:
        data = load(name)
    except DataError as error:
        if "is missing" in str(error):
            pytest.skip(str(error))
        raise
    sizes, inputs, outputs = FACTS[name]
    assert tuple(len(part.y) for part in (data.train, data.validation, data.test)) == sizes
    assert (data.inputs, data.outputs) == (inputs, outputs)

"""Numbers: every precision that torch trains in, and runs that repeat to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import awn
from awn.errors import NonFiniteError
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.folder import save_estimator
from awn.training import Data, FitOptions, History, Shrink, fit

DTYPES = [torch.float64, torch.float32, torch.bfloat16]
#: The rounding of outputs near 1, with room for a few operations.
ROUNDING = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 0.05}
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def samples(dtype: torch.dtype = torch.float32) -> Data:
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    return Data(x, (x[:, 0] * x[:, 1] > 0).long())


def network(dtype: torch.dtype, **options: Any) -> awn.AdaptiveMLP:
    torch.manual_seed(0)
    return awn.AdaptiveMLP(2, 2, 2, importance=awn.Exponential.for_units(20), dtype=dtype, **options)


def steps(model: nn.Module, data: Data, number: int = 40) -> list[float]:
    """The losses of some steps, in order, with resizes."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []

    def nll() -> Tensor:
        return awn.likelihood.categorical(model(data.x), data.y)

    for _ in range(number):
        loss = awn.objective(awn.advanced.ordered_loss(model, nll), model, n_samples=len(data.y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        awn.resize_(model, optimizer)
        losses.append(loss.item())
    return losses


@dtypes
def test_a_network_trains_and_resizes_in_every_precision(dtype: torch.dtype) -> None:
    model = network(dtype, ordered=0.5)
    losses = steps(model, samples(dtype))
    assert losses[-1] < 0.6 * losses[0]
    assert model.output.weight.dtype == dtype
    # Half precision counts no further than 256 units, so ν stays in single precision.
    assert all(group.width.log_nu.dtype != torch.bfloat16 for group in awn.advanced.find_groups(model))
    before = awn.widths(model)
    for units in (50, 3):
        for group in awn.advanced.find_groups(model):
            group.width.move_to_(units)
        awn.resize_(model)
        assert set(awn.widths(model).values()) == {units} != set(before.values())


@dtypes
def test_a_network_is_saved_finalized_and_cut_in_every_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    model, data = network(dtype), samples(dtype)
    steps(model, data)
    expected = model.eval()(data.x)
    awn.save(model, tmp_path)
    assert torch.equal(awn.load(tmp_path).eval()(data.x), expected)
    final = awn.finalize(model)
    assert {parameter.dtype for parameter in final.parameters()} == {dtype}
    torch.testing.assert_close(final(data.x), expected, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
    for smaller in (
        awn.truncate(model, keep=0.5, repair=data.x),
        awn.advanced.prune(model, data.x, keep=0.5),
        awn.choose(model, (data.x, data.y), awn.likelihood.categorical).model(),
    ):
        assert smaller.eval()(data.x).isfinite().all()
        assert smaller.output.weight.dtype == dtype
        assert sum(awn.widths(smaller).values()) < sum(awn.widths(model).values())


@dtypes
@pytest.mark.parametrize("shrink", [False, True], ids=["choose", "Shrink"])
def test_fit_works_in_every_precision(dtype: torch.dtype, shrink: bool, tmp_path: Path) -> None:
    model, data = network(dtype), samples(dtype)
    history = trained(model, data, callbacks=[Shrink(0.1, start=4)] if shrink else [], folder=tmp_path)
    assert history.path == ("autograd" if dtype == torch.bfloat16 else "by hand")
    assert history[-1]["data"] < history[0]["data"]
    assert model.output.weight.dtype == dtype
    again = network(dtype)
    trained(again, data, callbacks=[Shrink(0.1, start=4)] if shrink else [], folder=tmp_path, resume=True)
    assert_same_state(model, again)


def test_numbers_that_half_precision_cannot_hold_are_refused_by_name() -> None:
    """Adam's 1e-8 is 0 in float16, and torch divides by it."""
    with pytest.raises(NonFiniteError, match=r"the loss is not finite .* hidden\.0\.weight"):
        steps(network(torch.float16), samples(torch.float16))


def trained(model: nn.Module, data: Data, **options: Any) -> History:
    settings = FitOptions(epochs=8, batch_size=50, by_hand=options.pop("by_hand", None), seed=3)
    return fit(model, data, data, loss=awn.likelihood.categorical, options=settings, **options)


def assert_same_state(one: nn.Module, other: nn.Module) -> None:
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


# Equal runs


@pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "autograd"])
def test_a_seed_gives_the_same_history_to_the_bit(by_hand: bool) -> None:
    models = [network(torch.float32, dropout=0.1) for _ in range(2)]
    histories = [trained(model, samples(), by_hand=by_hand) for model in models]
    rows = [[{name: row[name] for name in row if name != "seconds"} for row in history] for history in histories]
    assert rows[0] == rows[1]
    assert_same_state(*models)


@pytest.mark.parametrize("kind", [AdaptiveClassifier, AdaptiveRegressor])
def test_equal_runs_give_equal_bytes(kind: Any, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(120, 3))
    target = (rows[:, 0] > 0).astype(int) if kind is AdaptiveClassifier else rows[:, 0] * rows[:, 1]
    for name in "ab":
        estimator = kind(units=8, epochs=4, members=1, random_state=0).fit(rows, target)
        save_estimator(estimator, tmp_path / name)
        awn.save(estimator.model_, tmp_path / name / "network")
    for path in (tmp_path / "a").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes(), path.name

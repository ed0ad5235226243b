"""Evaluation: the loss and the score of a model, in one pass, with every gated weight computed once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import awn
from awn.errors import ArgumentError
from awn.training import Data, FitOptions, fit
from awn.training.evaluate import accuracy, all_outputs, as_loss, mean_loss, score_and_loss

MODELS: dict[str, Any] = {
    "plain": lambda: nn.Linear(2, 3),
    "adaptive": lambda: awn.AdaptiveMLP(2, 3, 2, importance=awn.Exponential.for_units(40)),
    "batch norm": lambda: awn.AdaptiveMLP(2, 3, 2, batch_norm=True, importance=awn.PowerLaw.for_units(9)),
}


def samples(number: int, *, weighted: bool) -> Data:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(number, 2, generator=generator)
    weight = torch.rand(number, generator=generator) + 0.1 if weighted else None
    return Data(x, torch.randint(3, (number,), generator=generator), weight)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("number", [5, 1024, 2500])
@pytest.mark.parametrize("name", MODELS)
def test_evaluation_is_the_plain_formula(name: str, number: int, weighted: bool) -> None:
    model, data = MODELS[name]().eval(), samples(number, weighted=weighted)
    with torch.no_grad():
        output = torch.cat([model(x) for x in data.x.split(7)])  # through the gates, at every call
    weight = torch.ones(number) if data.weight is None else data.weight
    right = ((output.argmax(1) == data.y) * weight).sum().item() / weight.sum().item()
    torch.testing.assert_close(all_outputs(model, data.x), output)
    assert accuracy(model, data) == pytest.approx(right, rel=1e-5)
    parts = zip(output.split(1024), data.y.split(1024), weight.split(1024), strict=True)
    losses = [len(y) * awn.likelihood.categorical(z, y, w if weighted else None).item() for z, y, w in parts]
    assert mean_loss(model, data, awn.likelihood.categorical) == pytest.approx(sum(losses) / number, rel=1e-5)


@pytest.mark.parametrize("score", [None, accuracy, lambda model, data: model(data.x).mean().item()])
@pytest.mark.parametrize("weighted", [False, True])
def test_score_and_loss_are_those_of_separate_passes(score: Any, weighted: bool) -> None:
    model, data = MODELS["adaptive"](), samples(2500, weighted=weighted)
    merit, found = score_and_loss(model, data, score, awn.likelihood.categorical)
    assert found == mean_loss(model, data, awn.likelihood.categorical)
    assert merit == (-found if score is None else score(model, data))


def test_one_pass_reads_every_sample_and_every_importance_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = MODELS["adaptive"](), samples(2500, weighted=False)
    read: list[int] = []
    importances: list[Any] = []
    plain = awn.advanced.Width.importance
    model.register_forward_pre_hook(lambda _, inputs: read.append(len(inputs[0])))
    monkeypatch.setattr(
        awn.advanced.Width, "importance", lambda self, **how: (importances.append(self), plain(self, **how))[1]
    )
    score_and_loss(model, data, accuracy, awn.likelihood.categorical)
    assert sum(read) == 2500
    assert len(importances) == len(set(importances)) == 2


def test_evaluation_sees_the_weights_of_now_and_leaves_gradients_on() -> None:
    model, data = MODELS["adaptive"](), samples(9, weighted=False)
    all_outputs(model, data.x)
    with torch.no_grad():
        model.output.bias += 1
        for parameter in (model.output._parameters["weight"], model.hidden[1].width.log_nu):
            assert parameter is not None
            parameter *= 1.5
    torch.testing.assert_close(all_outputs(model, data.x), model(data.x).detach())
    assert model(data.x).requires_grad

    def fails(*_: Any) -> Tensor:
        raise KeyError

    with pytest.raises(KeyError):
        mean_loss(model, data, fails)
    assert torch.is_grad_enabled()
    assert model.output.weight is not model.output.weight


def test_fit_records_both() -> None:
    model, data = MODELS["adaptive"](), samples(60, weighted=True)
    options = FitOptions(epochs=1, choose=None)
    row = fit(model, data, data, loss=awn.likelihood.categorical, score=accuracy, options=options)[0]
    assert row["score"] == accuracy(model, data)
    assert row["validation_loss"] == mean_loss(model, data, awn.likelihood.categorical)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), F.cross_entropy, lambda output, y: F.cross_entropy(output, y)])
def test_losses_of_two_arguments_are_those_without_weights(loss: Any) -> None:
    output, y = torch.randn(6, 3), torch.arange(6) % 3
    expected = awn.likelihood.categorical(output, y)
    torch.testing.assert_close(as_loss(loss, weighted=False)(output, y, None), expected)
    with pytest.raises(ArgumentError, match="the samples have weights, but the loss"):
        as_loss(loss, weighted=True)


def test_a_loss_of_three_arguments_is_taken_as_it_is() -> None:
    """The step by hand knows the likelihoods by their identity."""
    assert as_loss(awn.likelihood.categorical, weighted=True) is awn.likelihood.categorical


def test_fit_takes_a_loss_of_torch() -> None:
    data = Data(torch.randn(12, 2), torch.arange(12) % 2)
    ends = []
    for loss in (nn.CrossEntropyLoss(), awn.likelihood.categorical):
        model = awn.AdaptiveMLP(2, 2, generator=torch.Generator().manual_seed(0))
        fit(model, data, loss=loss, options=FitOptions(epochs=2, by_hand=False))
        ends.append(model(data.x))
    torch.testing.assert_close(*ends)

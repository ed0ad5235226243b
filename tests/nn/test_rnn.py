"""AdaptiveRNN: the paper's recurrent network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import awn


def small(**options: object) -> awn.nn.AdaptiveRNN:
    torch.manual_seed(0)
    return awn.nn.AdaptiveRNN(3, 8, importance=awn.Exponential.for_units(12, scale="unit"), **options)  # type: ignore[arg-type]


def test_a_step_is_the_sum_of_two_perceptrons() -> None:
    rnn, x = small(), torch.randn(4, 2, 3)
    outputs, last = rnn(x)
    state = torch.zeros(2, 8)
    for step, entering in enumerate(x):
        state = torch.tanh(rnn.input_to_hidden(entering) + rnn.hidden_to_hidden(state))
        torch.testing.assert_close(outputs[step], state)
    torch.testing.assert_close(last, state[None])


def test_batch_first_and_a_given_state() -> None:
    rnn, x, begin = small(), torch.randn(4, 2, 3), torch.randn(1, 2, 8)
    outputs, last = rnn(x, begin)
    rnn.batch_first = True
    swapped, same = rnn(x.transpose(0, 1), begin)
    torch.testing.assert_close(swapped.transpose(0, 1), outputs)
    torch.testing.assert_close(same, last)
    one, middle = rnn(x.transpose(0, 1)[:, :2], begin)
    two, end = rnn(x.transpose(0, 1)[:, 2:], middle)
    torch.testing.assert_close(torch.cat([one, two], dim=1), swapped)
    torch.testing.assert_close(end, last)


def test_wrong_inputs_are_named() -> None:
    with pytest.raises(awn.AwnError, match=r"\[steps, samples, features\] with 3 features, got \(4, 3\)"):
        small()(torch.randn(4, 3))
    with pytest.raises(awn.AwnError, match="with 3 features"):
        small()(torch.randn(4, 2, 5))


def test_widths_learn_and_everything_follows(tmp_path: Path) -> None:
    """A sum over a sequence is learned while the widths move; the model is saved, loaded, cut and finalised."""
    rnn = small()
    model = nn.ModuleDict({"rnn": rnn, "head": nn.Linear(8, 1)})
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.01, width_lr=0.03))
    before, losses = awn.widths(model), []
    for _ in range(200):
        x = torch.randn(6, 32, 3)
        predicted = model["head"](rnn(x)[1][0])[:, 0]
        nll = (predicted - x.sum((0, 2)).tanh()).square().mean()
        loss = awn.objective(nll, model, n_samples=1000)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        awn.resize_(model, optimizer)
        losses.append(nll.item())
    assert sum(losses[-20:]) < 0.3 * sum(losses[:20])
    assert awn.widths(model) != before
    x = torch.randn(6, 5, 3)
    expected = rnn(x)[0]
    awn.save(rnn, tmp_path / "rnn")
    torch.testing.assert_close(awn.load(tmp_path / "rnn", small())(x)[0], expected)
    plain = awn.finalize(rnn)
    torch.testing.assert_close(plain(x)[0], expected)
    assert not awn.advanced.find_groups(plain)
    assert sum(awn.widths(awn.truncate(rnn, keep=0.5)).values()) < sum(awn.widths(rnn).values())

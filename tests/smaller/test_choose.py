"""Choosing a width: a ladder of repaired cuts, judged on held-out rows."""

from __future__ import annotations

import copy
import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import awn
from awn.basics.random_states import random_states
from awn.smaller.held_out import HeldOut, Losses
from awn.smaller.ladder import CuttableNetwork

LOSS = awn.likelihood.gaussian


def network(units: int = 24, layers: int = 2, **options) -> awn.AdaptiveMLP:
    generator = torch.Generator().manual_seed(0)
    family = awn.Exponential.for_units(units)
    return awn.AdaptiveMLP(3, 2, hidden_layers=layers, importance=family, generator=generator, **options)


def rows(model: nn.Module, number: int = 300, noise: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and what a model makes of them."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(number, 3, generator=generator)
    with torch.no_grad():
        y = model(x)
    return x, y + noise * torch.randn(y.shape, generator=generator)


def with_silent_tail(model: awn.AdaptiveMLP, units: int) -> awn.AdaptiveMLP:
    """The model, whose units from `units` on are read by nobody."""
    with torch.no_grad():
        for layer in [*model.hidden[1:], model.output]:
            layer._parameters["weight"][:, units:] = 0
    return model


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("repair", [None, False])
def test_units_that_nothing_reads_are_cut_and_no_others(layers, repair):
    model = with_silent_tail(network(24, layers), 9)
    choice = awn.choose(model, rows(model), LOSS, repair=repair)
    # 24 → 19 → 15 → 12 → 9: the ladder has a rung at the very size.
    assert choice.widths == {f"hidden.{number}": 9 for number in range(layers)}


def test_units_that_others_can_stand_in_for_are_cut_with_repair_alone():
    model = network(24, 1)
    with torch.no_grad():  # units 6 to 23 are copies of the first six
        layer = model.hidden[0]
        for copied in range(6, 24):
            layer.weight[copied], layer.bias[copied] = layer.weight[copied % 6], layer.bias[copied % 6]
    data = rows(model, noise=0.01)
    assert awn.choose(model, data, LOSS, step=0.25).widths["hidden.0"] == 6
    assert awn.choose(model, data, LOSS, step=0.25, repair=False).widths["hidden.0"] > 6


def test_the_curve_is_what_the_models_on_it_score():
    model, data = network(), rows(network(30))
    choice = awn.choose(model, data, LOSS, score=lambda net: -LOSS(net(data[0]), data[1], None).item())
    assert [point.total_units for point in choice.curve] == sorted({p.total_units for p in choice.curve}, reverse=True)
    assert choice.curve[0].units == awn.widths(model)
    assert set(choice.curve[-1].units.values()) == {1}
    for place in (0, 3, len(choice.curve) // 2, -1):
        built, point = choice.model(place), choice.curve[place]
        loss = LOSS(built.eval()(data[0]), data[1], None).item()
        assert loss == pytest.approx(point.loss, rel=1e-4)
        assert point.score == pytest.approx(-loss, rel=1e-4)
        assert awn.widths(built) == point.units
        assert awn.advanced.count_parameters(built) == point.parameters
        assert point.loss <= point.plain_loss


def test_the_choice_is_the_smallest_within_the_slack():
    model, data = network(), rows(network(30), noise=0.5)
    for slack in (0.0, 0.25, 2.0, 50.0):
        choice = awn.choose(model, data, LOSS, slack=slack)
        best = min(choice.curve, key=lambda point: point.loss)
        good = [point for point in choice.curve if point.loss <= best.loss + slack * best.error]
        assert choice.point.parameters == min(point.parameters for point in good)
        assert choice.point in good


@pytest.mark.parametrize("limit", [{"max_units": 20}, {"max_params": 60}, {"max_flops": 150.0}, {"max_latency": 1e3}])
def test_limits_hold(limit):
    model = network()
    choice = awn.choose(model, rows(network(30)), LOSS, slack=0.0, **limit)
    flops = 2 * sum(w.numel() for w in awn.finalize(choice.model()).parameters() if w.dim() > 1)
    assert choice.point.flops == (flops if "max_flops" in limit else None)
    assert choice.point.total_units <= limit.get("max_units", math.inf)
    assert choice.point.parameters <= limit.get("max_params", math.inf)
    assert flops <= limit.get("max_flops", math.inf)


def test_the_flops_of_convolutions_count_every_pixel():
    torch.manual_seed(0)
    x, y = torch.randn(64, 2, 9, 9), torch.randn(64, 1)
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(125, 1))
    awn.adapt_(model, example_input=x[:2])
    choice = awn.choose(model, (x, y), LOSS, max_flops=20_000)
    plain = awn.finalize(choice.model())
    with FlopCounterMode(display=False) as counter:
        plain(x)
    assert choice.point.flops == counter.get_total_flops() / len(x) <= 20_000


def test_flops_that_nobody_asks_for_are_not_counted():
    """A layer that is used another number of times than there are samples matters to no other limit."""

    class Tabled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.read, self.table = nn.Conv1d(2, 5, 3), nn.Linear(5, 1), nn.Linear(1, 1)
            self.register_buffer("places", torch.arange(7.0)[:, None])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.read(torch.relu(self.convolution(x)).mean(2)) + self.table(self.places).mean()

    torch.manual_seed(0)
    x, y = torch.randn(40, 2, 9), torch.randn(40, 1)
    model = Tabled()
    awn.adapt_(model, example_input=x[:2])
    assert awn.choose(model, (x, y), LOSS, max_units=3).point.flops is None
    with pytest.raises(awn.AwnError, match="layer 'table' was used 7 times for 40 samples"):
        awn.choose(model, (x, y), LOSS, max_flops=1e3)
    given = awn.choose(model, (x, y), LOSS, max_flops=1e3, positions={"convolution": 7})
    assert given.point.flops == 2 * sum(given.widths.values()) * (7 * 6 + 1) <= 1e3


def test_max_drop_gives_the_smallest_whose_score_is_within_it():
    model, data = network(), rows(network(30))

    def score(net: nn.Module) -> float:
        return min(1.0, sum(awn.widths(net).values()) / 20)

    choice = awn.choose(model, data, LOSS, score=score, max_drop=0.2)
    assert choice.point.score >= 0.8
    assert all(point.score < 0.8 for point in choice.curve if point.parameters < choice.point.parameters)


def test_nothing_else_changes():
    model, data = network().train(), rows(network(30))
    before, states = copy.deepcopy(model.state_dict()), random_states()["torch"]
    awn.choose(model, data, LOSS).model()
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(random_states()["torch"], states)


def test_a_chosen_model_keeps_its_width_in_training():
    model, data = with_silent_tail(network(24, 1), 9), rows(network(30))
    chosen = awn.choose(model, rows(model), LOSS).model()
    optimizer = torch.optim.Adam(awn.param_groups(chosen, 1e-6))
    LOSS(chosen(data[0]), data[1], None).backward()
    optimizer.step()
    assert awn.resize_(chosen, optimizer) == {}


def test_a_layer_that_cannot_be_repaired_is_cut_all_the_same():
    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2, bias=False))
    awn.adapt_(model)
    data = rows(model)
    assert awn.choose(model, data, LOSS, repair=False).curve[-1].total_units == 1


def test_batches_and_weights_are_read_as_rows():
    model, (x, y) = network(), rows(network(30))
    weight = torch.rand(len(x)) + 0.5
    whole = awn.choose(model, (x, y, weight), LOSS)
    parts = awn.choose(model, list(zip(x.split(100), y.split(100), weight.split(100), strict=True)), LOSS, repair=x)
    assert whole.curve[0].loss == pytest.approx(parts.curve[0].loss)


def test_a_choice_prints_as_a_table():
    text = str(awn.choose(network(), rows(network(30)), LOSS))
    lines = text.splitlines()
    assert "parameters" in lines[0]
    assert sum(line.startswith("→") for line in lines) == 1
    assert lines[-1].startswith("Chosen: the smallest with a loss of at most")


def test_a_choice_draws_itself_with_the_chosen_point_on_the_curve():
    from xml.etree import ElementTree

    model = network()
    choice = awn.choose(model, rows(model, noise=0.5), LOSS)
    drawn = ElementTree.fromstring(choice.svg())
    name = "{http://www.w3.org/2000/svg}"
    circle, line = drawn.find(f"{name}circle"), drawn.find(f".//{name}polyline")
    assert circle is not None
    assert line is not None
    places = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert (float(circle.attrib["cx"]), float(circle.attrib["cy"])) in places
    assert [x for x, _ in places] == sorted(x for x, _ in places), "larger networks are further to the right"
    assert f"chosen: {choice.point.total_units} units" in choice.svg()
    assert choice._repr_svg_() == choice.svg(), "a notebook shows it"


def test_the_standard_error_of_equal_chunks_is_that_of_their_means():
    means = torch.tensor([1.0, 2.0, 4.0, 9.0], dtype=torch.float64)
    losses = Losses(means, torch.full((4,), 5.0, dtype=torch.float64))
    assert losses.mean == 4.0
    assert losses.error == pytest.approx(means.std().item() / 2)


def test_held_out_losses_are_those_of_all_rows():
    model, (x, y) = network(), rows(network(30), number=173, noise=1.0)
    judged = HeldOut.of((x, y), LOSS).judge(model)
    assert judged.rows.sum() == 173
    assert judged.mean == pytest.approx(LOSS(model(x), y, None).item(), rel=1e-5)
    by_row = torch.stack([LOSS(model(x[i : i + 1]), y[i : i + 1], None) for i in range(173)])
    assert judged.error == pytest.approx(by_row.std().item() / math.sqrt(173), rel=0.3)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ((torch.zeros(0, 3), torch.zeros(0, 2)), {}, "needs held-out rows"),
        ((torch.zeros(1, 3), torch.zeros(1, 2)), {}, "at least two; got 1"),
        (torch.zeros(5, 3), {}, "held-out data must be"),
        ([torch.zeros(5, 3)], {}, "must be .inputs, targets."),
        ((torch.zeros(5, 4), torch.zeros(5, 2)), {}, "data"),
        ((torch.zeros(5, 3), torch.zeros(5, 2)), {"slack": -1.0}, "slack"),
        ((torch.zeros(5, 3), torch.zeros(5, 2)), {"step": 1.0}, "step must lie strictly"),
        ((torch.zeros(5, 3), torch.zeros(5, 2)), {"max_drop": 0.1}, "needs score"),
        ((torch.zeros(5, 3), torch.zeros(5, 2)), {"max_params": 1}, "no version of the network meets the limits"),
    ],
)
def test_bad_input_is_refused(data, options, message):
    with pytest.raises(awn.AwnError, match=message):
        awn.choose(network(), data, LOSS, **options)


def test_a_loss_that_is_not_finite_is_refused():
    with pytest.raises(awn.AwnError, match="held-out loss is nan"):
        awn.choose(network(), (torch.zeros(5, 3), torch.full((5, 2), math.nan)), LOSS)


@pytest.mark.parametrize("number", [7, 50, 333, 5000])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_judged_alike_at_once_and_chunk_by_chunk(number, weighted):
    model = network()
    data = rows(network(30), number)
    given = (*data, torch.rand(number, generator=torch.Generator().manual_seed(2))) if weighted else data
    at_once, by_chunk = (HeldOut.of(given, loss).judge(model) for loss in (LOSS, lambda *each: LOSS(*each)))
    torch.testing.assert_close(at_once.means, by_chunk.means, rtol=1e-5, atol=1e-6)
    assert torch.equal(at_once.rows, by_chunk.rows)


def test_the_first_layer_is_computed_once_and_the_curve_is_the_same(monkeypatch):
    model, data = network(), rows(network(30), noise=0.1)
    known = awn.choose(model, data, LOSS)
    assert "forward" not in vars(known.model(3).hidden[0])
    monkeypatch.setattr(CuttableNetwork, "first_layer_known", lambda *_: nullcontext())
    assert awn.choose(model, data, LOSS).curve == known.curve


def test_batch_norms_have_the_statistics_of_every_rung():
    """The statistics of a chosen network are those of its own activations on the rows of the repair."""
    torch.manual_seed(0)
    x = torch.randn(1500, 4)
    model = awn.AdaptiveMLP(4, 1, 2, importance=awn.Exponential.for_units(32), batch_norm=True)
    y = x.prod(1, keepdim=True)
    model.train()(x)
    choice = awn.choose(model.eval(), (x[:500], y[:500]), awn.likelihood.gaussian, repair=x[500:])
    small = choice.model(len(choice.curve) // 2)
    units = small.hidden[1].width.units
    with torch.no_grad():
        before_norm = small.hidden[1](small.activation(small.norms[0](small.hidden[0](x))))
    means = small.norms[1].running_mean[:units] - before_norm.mean(0)[:units]
    spread = before_norm.std(0)[:units]
    assert (means.abs() / spread).max() < 0.2  # by sampling alone
    stale = model.norms[1].running_mean[:units] - before_norm.mean(0)[:units]
    assert (stale.abs() / spread).max() > 0.5

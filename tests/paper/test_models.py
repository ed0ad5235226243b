"""The paper's models: what they compute, that every perceptron inside learns its width, and that all of them train."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import Tensor, nn

import awn
from awn.core.families import Exponential
from awn.errors import ArgumentError
from awn.training.data import Data
from awn_paper import run as run_module
from awn_paper.data.alike import DistinctNodes, distinct_nodes
from awn_paper.data.dataset import Dataset
from awn_paper.data.graphs import pack
from awn_paper.experiments.channels import BUDGETS
from awn_paper.measures import flops
from awn_paper.models import (
    GIN,
    MLP,
    RNN,
    Budgeted,
    BudgetedUnevenly,
    ChannelResNet20,
    Fixed,
    Learned,
    LearnedEvenly,
    ResNet20,
    Transformer,
    build,
)
from awn_paper.models import mlp as mlp_module
from awn_paper.models.resnet import Prepare, _shifted_and_flipped
from awn_paper.run import Job, layer_widths, loss_of, make_optimizer, train
from awn_paper.settings import OneCycle, Settings, Training

LEARNED = Learned(Exponential(rate=0.2, scale="mass"))
PADDING = 9


def parts(x: Tensor, y: Tensor) -> tuple[Data, Data, Data]:
    return tuple(Data(x[rows], y[rows]) for rows in torch.arange(len(y)).split([len(y) - 16, 8, 8]))


def images() -> Dataset:
    y = torch.arange(48) % 2
    x = torch.randint(0, 100, (48, 3, 8, 8)) + 100 * y[:, None, None, None]
    return Dataset("images", *parts(x.to(torch.uint8), y), inputs=3, outputs=2)


def sequences() -> Dataset:
    y = torch.arange(48) % 2
    x = torch.randint(0, 100, (48, 5, 4)) + 100 * y[:, None, None]
    return Dataset("sequences", *parts(x.to(torch.uint8), y), inputs=4, outputs=2)


def points() -> Dataset:
    x = torch.randn(48, 3)
    return Dataset("points", *parts(x, (x[:, 0] > 0).long()), inputs=3, outputs=2)


def graphs() -> Dataset:
    """Cycles of three or of six nodes."""
    y = torch.arange(48) % 2
    sizes = 3 + 3 * y
    owner = torch.arange(48).repeat_interleave(sizes)
    nodes = torch.arange(len(owner))
    starts = (sizes.cumsum(0) - sizes)[owner]
    following = starts + (nodes - starts + 1) % sizes[owner]
    edges = torch.stack([torch.cat([nodes, following]), torch.cat([following, nodes])])
    packed = pack(torch.ones(len(owner), 2), owner, edges)
    return Dataset("graphs", *parts(torch.arange(48), y), inputs=2, outputs=2, graphs=packed)


def sentences() -> Dataset:
    """Say what you read: source and target are the same, up to five tokens of 0 … 7, between ends of 8."""
    x, y = torch.full((48, 7 + 6), PADDING), torch.full((48, 6), PADDING)
    for row in range(48):
        said = torch.randint(0, 8, (1 + row % 5,))
        x[row, : len(said) + 2] = torch.cat([torch.tensor([8]), said, torch.tensor([8])])
        x[row, 7 : 7 + len(said) + 1] = torch.cat([torch.tensor([8]), said])
        y[row, : len(said) + 1] = torch.cat([said, torch.tensor([8])])
    return Dataset("sentences", *parts(x, y), inputs=7, outputs=10, padding=PADDING)


CASES = {
    "mlp": (MLP(layers=2), points, 2),
    "resnet": (ResNet20(), images, 1),
    "rnn": (RNN(layers=2, state=8), sequences, 4),
    "gin": (GIN(convolutions=2, embedding=8), graphs, 3),
    "gin, mean": (GIN(convolutions=1, embedding=8, pooling="mean"), graphs, 2),
    "transformer": (Transformer(depth=1, embedding=8, heads=2), sentences, 2),
}
cases = pytest.mark.parametrize(("network", "data", "layers"), CASES.values(), ids=CASES)


@cases
def test_every_perceptron_inside_has_the_width_that_is_asked_for(network, data, layers):
    found = data()
    fixed, learned = build(network, found, Fixed(5)), build(network, found, LEARNED)
    assert list(layer_widths(fixed).values()) == [5] * layers
    if not isinstance(network, MLP):  # its fixed widths are those of a family that does not change
        assert awn.widths(fixed) == {}
    assert list(awn.widths(learned).values()) == [12] * layers
    if not isinstance(network, MLP):  # an AdaptiveMLP, with names of its own
        assert layer_widths(learned).keys() == layer_widths(fixed).keys()
    assert learned(found.train.x).shape == fixed(found.train.x).shape


@cases
@pytest.mark.parametrize("widths", [Fixed(6), LEARNED], ids=["fixed", "learned"])
def test_a_run_trains_and_is_recorded(network, data, layers, widths, monkeypatch):
    found = data()
    monkeypatch.setattr(run_module, "load", lambda name, fold: found)
    settings = Settings(found.name, network, widths, Training(3, 16, lr=0.02))
    record = train(Job(settings, 0, final=True))
    first, *_, last = record["history"]["data"]
    assert last < first
    assert record["test"].keys() == ({"score", "loss"} if found.padding else {"score", "accuracy", "loss"})
    assert len(record["widths"]) == layers
    assert bool(record["history"]["widths"]) == (widths is LEARNED)


@cases
def test_an_adaptive_network_becomes_a_plain_one_of_the_same_function(network, data, layers):
    found = data()
    model = build(network, found, LEARNED).eval()
    plain = awn.finalize(model)
    torch.testing.assert_close(plain(found.test.x), model(found.test.x), rtol=1e-4, atol=1e-5)
    assert not awn.advanced.find_groups(plain)


def test_images_train_over_one_cycle_in_bfloat16(monkeypatch):
    found = images()
    monkeypatch.setattr(run_module, "load", lambda name, fold: found)
    training = OneCycle(3, 16, optimizer="sgd", lr=0.1, momentum=0.9, warmup=1, precision="bfloat16")
    record = train(Job(Settings("images", ResNet20(), LEARNED, training), 0, final=True))
    assert record["settings"]["training"]["kind"] == "OneCycle"
    assert record["history"]["data"][-1] < record["history"]["data"][0]


def test_a_fixed_perceptron_trains_as_a_plain_one_does(monkeypatch):
    """Without autograd or with it: the same scores up to rounding, and widths that stay."""
    found = points()
    monkeypatch.setattr(run_module, "load", lambda name, fold: found)
    job = Job(Settings("points", MLP(layers=2), Fixed(6), Training(20, 16, lr=0.02)), 0, final=True)
    by_hand = train(job)
    monkeypatch.setattr(mlp_module, "fixed_without_autograd", lambda plain, activation: plain)
    plain = train(job)
    assert list(by_hand["widths"].values()) == list(plain["widths"].values()) == [6, 6]
    assert by_hand["parameters"] == plain["parameters"]
    assert by_hand["history"]["widths"] == {}
    assert by_hand["history"]["data"] == pytest.approx(plain["history"]["data"], rel=1e-3)


def test_no_hidden_layer_is_a_linear_model():
    model = build(ResNet20(), images(), Fixed(0))
    assert [type(layer) for layer in model[-1]] == [nn.Linear]
    assert layer_widths(model) == {}


def test_a_resnet_of_twenty_layers_has_twenty_layers_with_weights():
    data = dataclasses.replace(images(), outputs=10)
    model = build(ResNet20(), data, Fixed(0))
    weighted = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(weighted) == 20
    assert awn.advanced.count_parameters(model) == 269_722  # as is known for CIFAR-10, where shortcuts have no weights


CHANNELS = Learned(Exponential.for_units(4), new_units="zero", weight_scale=1.0)
STAGES = [4] * 4 + [8] * 4 + [16] * 4  # of each: what runs along the shortcuts, and inside of three blocks


def test_all_channels_of_a_resnet_are_learned_each_layer_from_its_own_number():
    data = images()
    learned, fixed = (build(ChannelResNet20(), data, widths) for widths in (CHANNELS, Fixed(4)))
    assert sorted(awn.widths(learned).values()) == STAGES
    assert awn.advanced.count_parameters(learned) == awn.advanced.count_parameters(fixed)
    plain = awn.finalize(learned.eval())
    torch.testing.assert_close(plain(data.test.x), learned(data.test.x), rtol=1e-4, atol=1e-5)


def test_flops_are_those_of_the_channels_that_are_used():
    data = images()
    learned, wide, narrow = (build(ChannelResNet20(), data, widths) for widths in (CHANNELS, Fixed(4), Fixed(2)))
    assert flops(learned, data) == flops(wide, data)
    halved = {name: units // 2 for name, units in awn.widths(learned).items()}
    assert flops(awn.truncate(learned, units=halved), data) == flops(narrow, data)
    first_stage = 2 * 64 * 9 * (3 * 2 + 6 * 2 * 2)  # 64 pixels, kernels of 3 × 3
    second_stage = 2 * 16 * (9 * (2 * 4 + 5 * 4 * 4) + 2 * 4)  # and the shortcut's of 1 × 1
    third_stage = 2 * 4 * (9 * (4 * 8 + 5 * 8 * 8) + 4 * 8)
    assert flops(narrow, data) == {"forward": first_stage + second_stage + third_stage + 2 * 8 * 2}


def test_the_budgets_of_the_channels_study_are_the_flops_of_its_fixed_networks():
    x = torch.zeros(16, 3, 32, 32, dtype=torch.uint8)
    data = Dataset("images", *[Data(x, torch.arange(16) % 10)] * 3, inputs=3, outputs=10)
    for channels, budget in BUDGETS.items():
        assert flops(build(ChannelResNet20(), data, Fixed(channels)), data)["forward"] == pytest.approx(
            budget, rel=2e-3
        )


def test_a_budget_brings_the_flops_of_channels_down_to_its_cap(monkeypatch):
    found = images()
    monkeypatch.setattr(run_module, "load", lambda name, fold: found)
    cap = flops(build(ChannelResNet20(), found, Fixed(4)), found)["forward"] / 2
    widths = Budgeted(CHANNELS.importance, new_units="zero", weight_scale=1.0, max_flops=cap)
    training = Training(30, 16, optimizer="sgd", lr=0.1, momentum=0.9)
    settings = Settings("images", ChannelResNet20(), widths, training, measure=("flops",))
    record = train(Job(settings, 0, final=True))
    assert record["last"]["measured"]["flops"]["forward"] < 1.1 * cap


def test_a_budget_comes_with_even_steps_and_a_learning_rate_of_its_own_for_the_widths():
    widths = Budgeted(CHANNELS.importance, width_lr=0.02, max_flops=1.0)
    model = build(ChannelResNet20(), images(), widths)
    optimizer = make_optimizer(model, Training(1, optimizer="sgd", lr=0.1), widths)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.02]
    assert len(optimizer._optimizer_step_pre_hooks) == 1


@pytest.mark.parametrize(
    ("widths", "hooks"),
    [
        (LEARNED, 0),
        (LearnedEvenly(LEARNED.importance), 1),
        (Budgeted(LEARNED.importance, max_flops=1.0), 1),
        (BudgetedUnevenly(LEARNED.importance, max_flops=1.0), 0),
    ],
)
def test_sgd_takes_even_steps_where_the_settings_ask_for_them(widths, hooks):
    optimizer = make_optimizer(build(ResNet20(), images(), widths), Training(1, optimizer="sgd", lr=0.1), widths)
    assert len(optimizer._optimizer_step_pre_hooks) == hooks


@pytest.mark.parametrize("widths", [Fixed(4), CHANNELS], ids=["fixed", "learned"])
def test_channels_train_and_their_flops_are_recorded(widths, monkeypatch):
    found = images()
    monkeypatch.setattr(run_module, "load", lambda name, fold: found)
    training = OneCycle(3, 16, optimizer="sgd", lr=0.1, momentum=0.9, warmup=1, precision="bfloat16")
    record = train(Job(Settings("images", ChannelResNet20(), widths, training, measure=("flops",)), 0, final=True))
    assert record["history"]["data"][-1] < record["history"]["data"][0]
    assert record["measured"]["flops"]["forward"] > 0
    assert bool(record["history"]["widths"]) == (widths is CHANNELS)


def test_images_are_shifted_and_flipped_while_training_alone():
    x = torch.rand(64, 2, 8, 8) + 1
    moved = _shifted_and_flipped(x)
    assert moved.shape == x.shape
    assert not torch.equal(moved, x)
    # Whatever the shift, pixels come from the image or from the zeros around it, in both channels alike.
    for sample in range(4):
        inside = moved[sample] > 0
        assert torch.equal(inside[0], inside[1])
        assert set(moved[sample][inside].tolist()) <= set(x[sample].flatten().tolist())
    prepare = Prepare(torch.zeros(2), torch.ones(2), augment=True)
    assert torch.equal(prepare.eval()(x), x)
    assert not torch.equal(prepare.train()(x), x)


def test_a_graph_is_judged_alone_whatever_is_beside_it():
    data = graphs()
    model = build(GIN(convolutions=2, embedding=8), data, LEARNED).eval()
    together = model(torch.tensor([3, 4, 7]))
    alone = torch.cat([model(torch.tensor([number])) for number in (3, 4, 7)])
    torch.testing.assert_close(together, alone)


def random_graphs() -> Dataset:
    """Graphs of up to nine nodes of two kinds: some have no neighbours, some several edges or one to themselves."""
    sizes = torch.arange(48) % 9 + 1
    owner = torch.arange(48).repeat_interleave(sizes)
    edges = torch.randint(len(owner), (2, 6000))
    edges = edges[:, owner[edges[0]] == owner[edges[1]]]
    packed = pack(torch.eye(2)[torch.randint(2, (len(owner),))], owner, torch.cat([edges, edges.flip(0)], dim=1))
    return Dataset("graphs", *parts(torch.arange(48), torch.arange(48) % 2), inputs=2, outputs=2, graphs=packed)


def on_all_nodes(model: nn.Module, numbers: torch.Tensor) -> torch.Tensor:
    """What a graph network computes, over every node and in the formula of the paper."""
    batch = model.graphs.batch(numbers)
    of_graph = torch.nn.functional.one_hot(batch.graph).to(torch.float64)
    adjacency = torch.zeros(len(batch.x), len(batch.x), dtype=torch.float64)
    adjacency.index_put_((batch.edges[1], batch.edges[0]), torch.ones(1, dtype=torch.float64), accumulate=True)
    sizes = of_graph.sum(0)[:, None] if model.pooling == "mean" else 1
    x = model.first(batch.x.double())
    logits = model.readouts[0](of_graph.T @ x / sizes)
    for layer, readout, epsilon in zip(model.layers, model.readouts[1:], model.epsilon, strict=True):
        x = layer((1 + epsilon) * x + adjacency @ x)
        logits = logits + readout(of_graph.T @ x / sizes)
    return logits


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("widths", [Fixed(4), LEARNED], ids=["fixed", "learned"])
def test_a_graph_network_computes_what_it_would_on_all_nodes(pooling: str, widths: Fixed | Learned, monkeypatch):
    torch.manual_seed(0)
    data = random_graphs()
    distinct = distinct_nodes(data.graphs, 3)
    exact = [dataclasses.replace(one, counts=one.counts.double(), times=one.times.double()) for one in distinct.levels]
    doubled = DistinctNodes(distinct.features.double(), tuple(exact))
    monkeypatch.setattr("awn_paper.models.gin.distinct_nodes", lambda graphs, convolutions: doubled)
    few = build(GIN(convolutions=3, embedding=8, pooling=pooling), data, widths).double()
    with torch.no_grad():
        few.epsilon.copy_(torch.tensor([0.5, -0.25, 2.0]))
    every = copy.deepcopy(few)
    numbers = torch.tensor([5, 40, 7, 17, 0, 26, 35])
    assert len(doubled.batch(numbers)[0]) < len(data.graphs.batch(numbers).x)  # some nodes are alike
    for training in (True, False):
        logits, expected = few.train(training)(numbers), on_all_nodes(every.train(training), numbers)
        torch.testing.assert_close(logits, expected)
        few.zero_grad(), every.zero_grad()
        logits.square().sum().backward(), expected.square().sum().backward()
        for (name, one), other in zip(few.named_parameters(), every.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, msg=lambda text, name=name: f"{name}: {text}")
        for one, other in zip(few.buffers(), every.buffers(), strict=True):
            torch.testing.assert_close(one, other)


def test_a_recurrent_network_is_its_formula():
    data = sequences()
    model = build(RNN(layers=1, state=8), data, Fixed(4))
    x = data.train.x.float() / 255
    with torch.no_grad():
        state = torch.zeros(len(x), 8)
        for step in range(5):
            before = model.from_state(state) if step else 0.0
            state = torch.tanh(model.from_input(x[:, step]) + before)
        torch.testing.assert_close(model(data.train.x), model.output(state))


def test_a_translator_sees_no_later_word_and_no_padding():
    data = sentences()
    model = build(Transformer(depth=2, embedding=8, heads=2), data, Fixed(4)).eval()
    row = data.train.x[4:5].clone()  # five tokens, the longest
    logits = model(row)
    assert logits.shape == (6, 10)
    later = row.clone()
    later[0, 7 + 5] = (later[0, 7 + 5] + 1) % 8
    torch.testing.assert_close(model(later)[:5], logits[:5])
    assert not torch.allclose(model(later)[5], logits[5])
    short = data.train.x[1:2]
    torch.testing.assert_close(model(torch.cat([short, row]))[:3], model(short), rtol=1e-4, atol=1e-5)


def test_the_loss_of_sentences_is_the_mean_over_real_tokens():
    data = sentences()
    model = build(Transformer(depth=1, embedding=8, heads=2), data, Fixed(4)).eval()
    part = data.train.rows(torch.arange(6))
    with torch.no_grad():
        logits = model(part.x).log_softmax(-1)
    real = part.y[part.y != PADDING]
    by_hand = -sum(logits[place, token] for place, token in enumerate(real)) / len(real)
    assert loss_of(data)(logits, part.y, None).item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_a_model_for_other_data_is_refused():
    with pytest.raises(ArgumentError, match="data set of graphs"):
        build(GIN(), points(), LEARNED)
    with pytest.raises(ArgumentError, match="data set of sentences"):
        build(Transformer(), points(), LEARNED)


def test_kaiming_draws_without_knowing_of_the_importance():
    data = points()
    wide = Learned(Exponential(rate=0.01, scale="mass"), start="kaiming")
    plus, plain = (build(MLP(layers=3), data, dataclasses.replace(wide, start=s)) for s in ("kaiming+", "kaiming"))
    weights = [m.hidden[1]._parameters["weight"][:231, :231].std().item() for m in (plus, plain)]
    importance = plus.hidden[0].width.importance().detach()
    assert weights[0] == pytest.approx((2 / importance.square().sum().item()) ** 0.5, rel=0.02)
    assert weights[1] == pytest.approx((2 / 231) ** 0.5, rel=0.02)

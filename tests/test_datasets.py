"""The synthetic data: points lie on their curves but for the noise, classes are balanced, splits are fair."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from awn.datasets import Samples, double_moon, spiral, spiral_hard, split

NOISE = 0.3


def off_the_spiral(x: Tensor, turns: int) -> tuple[Tensor, Tensor]:
    """Radii in units of the angle, and how far each point lies outside the winding that its angle puts it on."""
    radius = x.norm(dim=1) * turns
    angle = torch.atan2(x[:, 1], -x[:, 0])  # (−t cos t, t sin t) lies at angle t
    winding = torch.round((radius - angle) / (2 * math.pi))
    return radius, radius - angle - 2 * math.pi * winding


@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("arm", [0, 1])
def test_the_radius_of_a_spiral_is_its_angle(turns, arm):
    x, y = spiral(seed=0, per_class=4000, turns=turns)
    points = x[y == arm] * (1 if arm == 0 else -1)  # the other arm is the first one turned by half a turn
    radius, off = off_the_spiral(points, turns)
    outer = radius > 2 * math.pi  # there noise along the arm moves the angle by 0.3/6 at most
    assert off[outer].std().item() == pytest.approx(NOISE, rel=0.06)
    assert abs(off[outer].mean().item()) < 4 * NOISE / math.sqrt(outer.sum())
    assert radius.max() < turns * 4 * math.pi + 5 * NOISE


def test_the_arms_are_not_each_other():
    x, y = spiral(per_class=1000)
    _, wrong = off_the_spiral(x[y == 1], 1)
    assert wrong.abs().median() > math.pi / 2  # half a winding away, at π


@pytest.mark.parametrize("turns", [1, 2])
def test_points_are_spread_evenly_over_the_spirals_area(turns):
    x, _ = spiral(seed=1, per_class=5000, turns=turns)
    longest = turns * 4 * math.pi
    share = (x.norm(dim=1) * turns / longest).square()
    # √U · longest: the squared share is uniform, and noise adds 2 · 0.3² / longest² to its mean.
    noise = 2 * (NOISE / longest) ** 2
    assert share.mean().item() == pytest.approx(0.5 + noise, abs=4 * math.sqrt(1 / 12 / 10_000))


def test_the_hard_spiral_has_twice_the_turns_in_the_same_space():
    hard, twice = spiral_hard(seed=3), spiral(seed=3, per_class=5000, turns=2)
    assert torch.equal(hard.x, twice.x)
    assert hard.x.abs().max().item() == pytest.approx(spiral(seed=3).x.abs().max().item(), rel=0.1)
    assert len(hard.y) == 10_000


@pytest.mark.parametrize(("label", "centre", "side"), [(0, (-5.0, 0.0), 1), (1, (5.0, 5.0), -1)])
def test_moons_are_half_circles(label, centre, side):
    x, y = double_moon(seed=0)
    from_centre = x[y == label] - torch.tensor(centre)
    radius = from_centre.norm(dim=1)
    assert radius.mean().item() == pytest.approx(10, abs=0.05)
    assert radius.std().item() == pytest.approx(NOISE, rel=0.06)
    assert (side * from_centre[:, 1] > -5 * NOISE).all()
    angle = torch.atan2(side * from_centre[:, 1], side * from_centre[:, 0])
    assert angle.mean().item() == pytest.approx(math.pi / 2, abs=4 * math.pi / math.sqrt(12 * 2500))


@pytest.mark.parametrize("make", [double_moon, spiral, spiral_hard])
def test_classes_are_balanced(make):
    samples = make(seed=0, per_class=700)
    assert samples.y.bincount().tolist() == [700, 700]
    assert samples.x.shape == (1400, 2)
    assert samples.x.dtype == torch.float32
    assert samples.y.dtype == torch.int64


@pytest.mark.parametrize("make", [double_moon, spiral, spiral_hard])
def test_a_seed_decides(make):
    torch.manual_seed(0)
    first = make(seed=5, per_class=20)
    torch.manual_seed(1)
    assert torch.equal(first.x, make(seed=5, per_class=20).x)
    assert not torch.equal(first.x, make(seed=6, per_class=20).x)
    assert not torch.equal(first.x[:20], first.x[20:])


@pytest.mark.parametrize(
    ("make", "sizes"),
    [(double_moon, (3600, 400, 1000)), (spiral, (3600, 400, 1000)), (spiral_hard, (7200, 800, 2000))],
)
def test_splits_have_the_papers_sizes_with_classes_in_equal_shares(make, sizes):
    parts = split(make())
    assert tuple(len(part.y) for part in parts) == sizes
    for part in parts:
        assert part.y.bincount().tolist() == [len(part.y) // 2] * 2
        assert len(part.x) == len(part.y)


def numbered(per_class: int) -> Samples:
    """Samples that carry their own number: in the first column; the second says the class."""
    y = torch.arange(2).repeat_interleave(per_class)
    return Samples(torch.stack([torch.arange(2.0 * per_class), y.float()], dim=1), y)


def test_splits_are_disjoint_and_complete_and_keep_points_with_their_classes():
    parts = split(numbered(500))
    numbers = torch.cat([part.x[:, 0] for part in parts])
    assert sorted(numbers.tolist()) == list(range(1000))
    for part in parts:
        assert torch.equal(part.x[:, 1].long(), part.y)


def test_splits_are_drawn_by_their_seed():
    one, two, other = split(numbered(500), seed=0), split(numbered(500), seed=0), split(numbered(500), seed=1)
    assert torch.equal(one.train.x, two.train.x)
    assert set(one.test.x[:, 0].tolist()) != set(other.test.x[:, 0].tolist())
    # Not simply the first of each class.
    assert one.test.x[:, 0].mean().item() == pytest.approx(499.5, abs=4 * 289 / math.sqrt(200))


def test_splits_of_uneven_classes_keep_their_shares():
    y = torch.tensor([0] * 900 + [1] * 100)
    parts = split(Samples(torch.zeros(1000, 2), y))
    assert [part.y.bincount().tolist() for part in parts] == [[648, 72], [72, 8], [180, 20]]

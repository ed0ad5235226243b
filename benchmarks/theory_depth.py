"""Second moments of activations and gradients over depth, for benchmarks/theory.py."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

import awn
from awn.core.groups import find_groups
from awn.core.importance import Scale

LAYERS, DRAWS, SAMPLES, INPUTS = 16, 80, 64, 32
EVEN = [256] * LAYERS
TAPERED = [round(512 * (64 / 512) ** (layer / (LAYERS - 1))) for layer in range(LAYERS)]
CASES: list[tuple[str, Scale, list[int], bool]] = [
    ("Kaiming+, equal widths", "anchored", EVEN, True),
    ("Kaiming+, 512 to 64 units", "anchored", TAPERED, True),
    ("Kaiming, anchored scale", "anchored", EVEN, False),
    ("Kaiming, mass scale", "mass", EVEN, False),
]


def over_depth(seed: int) -> list[dict[str, Any]]:
    """Per case: mean squares of the activations, relative to the first layer, and of the gradients, to the last.

    Gradients are summed over the units of a layer (`gradient_sum`), or divided by f² and averaged (`gradient_unit`).
    """
    return [_mean_moments(seed, *case) for case in CASES]


def _mean_moments(seed: int, name: str, scale: Scale, units: list[int], plus: bool) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    families = [awn.Exponential.for_units(number, scale=scale) for number in units]
    for _ in range(DRAWS):
        model = awn.AdaptiveMLP(
            INPUTS, 1, LAYERS, importance=families, bias=False, block=1, dtype=torch.float64, generator=generator
        )
        importances = [group.width.importance().detach() for group in find_groups(model)]
        if not plus:
            _to_kaiming_(model, importances)
        x = torch.randn(SAMPLES, INPUTS, dtype=torch.float64, generator=generator)
        drawn.append(torch.stack(_moments(model, importances, x)))
    activations, sums, singles = (
        (one / one[place]).tolist() for one, place in zip(torch.stack(drawn).mean(0), (0, -1, -1), strict=True)
    )
    relative = torch.stack([one[0] / one[0, 0] for one in drawn])
    spread = [importance.square().sum().item() for importance in importances]
    shares = [1.0 if plus else square / number for square, number in zip(spread, units, strict=True)]
    return {
        "name": name,
        "units": [units[0], units[-1]],
        "activation": activations,
        "activation_error": (relative.std(0) / math.sqrt(DRAWS)).tolist(),
        "activation_law": math.prod(shares[:-1]),
        "gradient_sum": sums,
        # Back through layer ℓ + 1, the sum changes by Var[w] Σ f_ℓ²/2, whatever the widths.
        "gradient_sum_law": math.prod(shares[:-1]),
        "gradient_unit": singles,
        "gradient_unit_law": math.prod(shares[:-1]) * spread[-1] / spread[0],
    }


def _to_kaiming_(model: awn.AdaptiveMLP, importances: list[Tensor]) -> None:
    """Kaiming's deviation √(2/units) in place of √(2/Σ f²)."""
    for layer, importance in zip([*model.hidden[1:], model.output], importances, strict=True):
        weight = layer._parameters["weight"]
        assert isinstance(weight, nn.Parameter)
        weight.data *= math.sqrt(importance.square().mean().item())


def _moments(model: awn.AdaptiveMLP, importances: list[Tensor], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mean square of every layer's activations α, and of the gradients with respect to them."""
    activations = []
    for layer in model.hidden:
        x = layer(x).relu()
        x.retain_grad()
        activations.append(x)
    model.output(x).sum().backward()
    gradients = [activation.grad for activation in activations]
    squares = [gradient.square().mean(0) for gradient in gradients if gradient is not None]
    return (
        torch.stack([activation.detach().square().mean() for activation in activations]),
        torch.stack([square.sum() for square in squares]),
        torch.stack([(square / f.square()).mean() for square, f in zip(squares, importances, strict=True)]),
    )

"""Priors over the weights and the widths, and a schedule that tightens the prior on the widths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from awn.basics.checks import check_number
from awn.core.groups import WidthGroup, tensor_names
from awn.core.importance import Importance
from awn.errors import ArgumentError
from awn.loss.cost import Cost, differentiable, entries_by_tensor
from awn.loss.price import Price

FamilyT = TypeVar("FamilyT", bound=Importance)
Shape = Literal["linear", "geometric"]


@dataclass(frozen=True)
class Anneal:
    """A schedule for a standard deviation, from `start` to `end` between two times, in steps or epochs.

    Before `begin` there is no prior; after `finish` the standard deviation stays at `end`.

    >>> schedule = Anneal(start=1.0, end=0.1, begin=1000, finish=2500)
    >>> schedule.at(500), schedule.at(1000), round(schedule.at(1750), 3), schedule.at(9999)
    (None, 1.0, 0.55, 0.1)
    """

    start: float
    end: float
    begin: float
    finish: float
    shape: Shape = "linear"

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            check_number(name, getattr(self, name))
        if not 0 <= self.begin < self.finish:
            raise ArgumentError(f"begin ({self.begin}) must be at least 0 and before finish ({self.finish}).")
        if self.shape not in get_args(Shape):
            raise ArgumentError(f"shape must be 'linear' or 'geometric', got {self.shape!r}.")

    def at(self, time: float) -> float | None:
        """The standard deviation at a time; None before `begin`."""
        if time < self.begin:
            return None
        done = min(1.0, (time - self.begin) / (self.finish - self.begin))
        if self.shape == "geometric":
            return self.start * math.pow(self.end / self.start, done)
        return (1 - done) * self.start + done * self.end


@dataclass(frozen=True)
class Prior:
    """Gaussian priors over the weights of the adaptive layers and, optionally, over ν.

    `weight_scale` is σ_θ, the standard deviation of the weights: one number, or a number per layer by name patterns,
    of which the first match counts. None means no prior, for all layers or for one. `width_mean` and `width_scale` are
    μ_λ and σ_λ, the mean and the standard deviation of ν; None means no prior on ν. `folded` uses a folded normal
    distribution for ν, which respects its lower bound. `price` adds what the ELBO charges for each weight of a unit,
    whatever its value; None leaves it out, as the paper does. It acts on ν, as the prior on ν does.

    >>> Prior(weight_scale={"hidden.*": 10.0, "output": 1.0}, width_mean=0.05, width_scale=Anneal(1.0, 0.1, 1000, 2500))
    Prior(weight_scale={'hidden.*': 10.0, 'output': 1.0}, width_mean=0.05, ...)
    """

    weight_scale: float | Mapping[str, float | None] | None = 0.6
    width_mean: float | None = None
    width_scale: float | Anneal | None = None
    folded: bool = False
    price: Price | None = None

    def __post_init__(self) -> None:
        scales = self.weight_scale if isinstance(self.weight_scale, Mapping) else {"weight_scale": self.weight_scale}
        for name, scale in scales.items():
            if scale is not None:
                check_number(name, scale)
        if (self.width_mean is None) != (self.width_scale is None):
            raise ArgumentError(
                "width_mean and width_scale go together: give both, or neither for an uninformative prior."
            )
        if self.width_mean is not None and not math.isfinite(self.width_mean):
            raise ArgumentError(f"width_mean must be a finite number, got {self.width_mean}.")
        if not isinstance(self.width_scale, Anneal | None):
            check_number("width_scale", self.width_scale)
        if not isinstance(self.price, Price | None):
            raise ArgumentError(f"price must be an awn.loss.Price or None, got {self.price!r}.")
        if self.price is not None and all(scale is None for scale in scales.values()):
            raise ArgumentError("a price follows from the prior on the weights: set weight_scale, or price=None.")

    def draw(self, family: FamilyT, generator: torch.Generator | None = None) -> FamilyT:
        """The family with its initial value drawn from the prior on ν.

        >>> from awn import Exponential
        >>> prior = Prior(width_mean=0.02, width_scale=0.005)
        >>> prior.draw(Exponential(), generator=torch.Generator().manual_seed(0))
        Exponential(scale='anchored', rate=0.027...)
        """
        if self.width_mean is None or not isinstance(self.width_scale, float | int):
            raise ArgumentError("drawing an initial ν needs a prior with a width_mean and a fixed width_scale.")
        drawn = self.width_mean + self.width_scale * torch.randn((), generator=generator, dtype=torch.float64).item()
        above = abs(drawn - family.lower)  # folded at the bound, since a value below it is invalid
        return family.starting_at(family.lower + max(above, 1e-6))

    def width_term(self, model: nn.Module, groups: Sequence[WidthGroup], time: float | None) -> Tensor | None:
        """Σ −log p(ν), up to a constant, and the price of all weights; None with neither."""
        terms = [] if (density := self._log_density(groups, time)) is None else [density]
        if cost := self.price_cost(model, groups):
            terms.append(differentiable(cost, groups))
        return sum(terms[1:], start=terms[0]) if terms else None

    def _log_density(self, groups: Sequence[WidthGroup], time: float | None) -> Tensor | None:
        scale: float | None
        if isinstance(self.width_scale, Anneal):
            if time is None:
                raise ArgumentError("this prior is annealed, so objective() needs the time, e.g. time=epoch.")
            scale = self.width_scale.at(time)
        else:
            scale = self.width_scale
        if scale is None or self.width_mean is None:
            return None
        nu = torch.stack([group.width.nu for group in groups])
        term = (nu - self.width_mean).square() / (2 * scale**2)
        if self.folded:
            lower = torch.tensor([group.width.family.lower for group in groups], dtype=nu.dtype, device=nu.device)
            term = term - F.softplus(-2 * (self.width_mean - lower) * (nu - lower) / scale**2)
        return term.sum()

    def weight_factors(
        self, model: nn.Module, groups: Sequence[WidthGroup], n_samples: int
    ) -> dict[nn.Parameter, float]:
        """1 / (σ_θ² N) for every weight with a prior: the gradient of the prior is this factor times the weight."""
        return {weight: 1 / (scale**2 * n_samples) for weight, scale in self._scales_of(model, groups).items()}

    def price_cost(self, model: nn.Module, groups: Sequence[WidthGroup]) -> Cost:
        """The price of all weights that a width governs, in nats, as a cost."""
        if self.price is None:
            return []
        scales = self._scales_of(model, groups)
        prices = {weight: self.price.of(scale) for weight, scale in scales.items()}
        entries = entries_by_tensor(groups)
        return [
            (prices[tensor] * factor, used)
            for tensor, products in entries.items()
            if isinstance(tensor, nn.Parameter) and tensor in prices
            for factor, used in products
        ]

    def _scales_of(self, model: nn.Module, groups: Sequence[WidthGroup]) -> dict[nn.Parameter, float]:
        """The standard deviation of every weight with a prior."""
        if self.weight_scale is None:
            return {}
        if not isinstance(self.weight_scale, Mapping):
            return {weight: self.weight_scale for group in groups for weight in group.weights()}
        weights = list(dict.fromkeys(weight for group in groups for weight in group.weights()))
        return _scales(model, weights, self.weight_scale)


def is_left_to_optimizer(prior: Prior, groups: Sequence[WidthGroup], n_samples: int) -> bool:
    """Whether an optimizer applies the prior on the weights, which must then be the same prior."""
    given = groups[0].width.prior_decay
    if any(group.width.prior_decay != given for group in groups):
        raise ArgumentError(
            "an optimizer applies the prior on the weights of some adaptive layers only. Call awn.param_groups again, "
            "on the whole model, and build the optimizer from its groups."
        )
    if given is not None and given != (prior.weight_scale, n_samples):
        raise ArgumentError(
            f"awn.param_groups gave the optimizer a prior with weight_scale={given[0]} for {given[1]} samples, but "
            f"this loss has weight_scale={prior.weight_scale} and {n_samples} samples. Give both the same."
        )
    return given is not None


def weight_term(factors: Mapping[nn.Parameter, float]) -> Tensor | None:
    """½ Σ factor · ‖weight‖², as a tensor that gradients flow through; None without weights.

    Inert units hold zeros, so whole tensors can be used.

    >>> weight_term({nn.Parameter(torch.ones(2, 3)): 0.1}).item()
    0.3...
    """
    by_factor: dict[float, list[nn.Parameter]] = {}
    for weight, factor in factors.items():
        by_factor.setdefault(factor, []).append(weight)
    found = [_ScaledSquares.apply(factor, *weights) for factor, weights in by_factor.items()]  # type: ignore[no-untyped-call]
    total: Tensor | None = sum(found[1:], start=found[0]) if found else None
    return total


class _ScaledSquares(torch.autograd.Function):
    """½ factor · Σ ‖weight‖², with its gradient in closed form."""

    @staticmethod
    def forward(ctx: Any, factor: float, *weights: Tensor) -> Tensor:
        ctx.factor = factor
        ctx.save_for_backward(*weights)
        half = weights[0].dtype in (torch.float16, torch.bfloat16)
        norms = torch._foreach_norm(weights, dtype=torch.float32 if half else None)
        scaled = torch.stack(norms) * math.sqrt(factor / 2)
        return scaled.dot(scaled)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad: Tensor) -> tuple[Any, ...]:
        return (None, *torch._foreach_mul(ctx.saved_tensors, grad[0] * ctx.factor))


def holds_weight_prior(loss: Tensor) -> bool:
    """Whether a loss includes the prior on the weights, according to its autograd graph.

    >>> weight = nn.Parameter(torch.ones(2))
    >>> term = weight_term({weight: 0.1})
    >>> holds_weight_prior(3 * (weight.sum() + term)), holds_weight_prior(weight.sum())
    (True, False)
    """
    nodes, seen = [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        if node.name() == f"{_ScaledSquares.__name__}Backward":
            return True
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
    return False


def _scales(
    model: nn.Module, weights: Sequence[nn.Parameter], patterns: Mapping[str, float | None]
) -> dict[nn.Parameter, float]:
    """The scale of every weight with a prior: that of the first pattern that matches its layer."""
    names = tensor_names(model)
    layers = {weight: names[weight].rpartition(".")[0] for weight in weights}
    for pattern in patterns:
        if not any(fnmatchcase(layer, pattern) for layer in layers.values()):
            raise ArgumentError(
                f"weight_scale names {pattern!r}, which matches none of {sorted(set(layers.values()))}."
            )
    scales = {}
    for weight, layer in layers.items():
        matching = [scale for pattern, scale in patterns.items() if fnmatchcase(layer, pattern)]
        if not matching:
            raise ArgumentError(
                f"weight_scale has no entry for layer {layer!r}; it has {', '.join(map(repr, patterns))}. "
                "Add '*' for the rest."
            )
        if matching[0] is not None:
            scales[weight] = matching[0]
    return scales

"""Width: a learned number of units."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from awn.basics.checks import check_number, check_quantile, check_share, check_units
from awn.core.axis import Axis
from awn.core.families import Exponential
from awn.core.importance import Importance, round_up
from awn.core.prefix import prefix_units
from awn.errors import ArgumentError, CheckpointError, GateError, NonFiniteError

NewUnits = Literal["normal", "rescaled", "zero"]

# Below this soft width one unit has nearly all the importance, and the learned value need not move further.
_SMALLEST_SOFT_WIDTH = 0.1
# With equal weights on all units, an exponential's ν rests at a quantile of 1 − e⁻² = 0.865. Below that, later units
# must carry more than earlier ones for it to rest, and below this quantile widths were seen to collapse.
_LOWEST_STEADY_QUANTILE = 0.8


# The key under which a copy keeps the widths whose axes are yet to be copied.
_WAITING = "widths without axes"


class Width(nn.Module):
    """A layer's learned number of units: the width of an importance family at a quantile.

    >>> width = Width(Exponential.for_units(128))
    >>> width.units, width.capacity
    (128, 128)

    Tensors are allocated for a `capacity` of units, the width rounded up to a multiple of `block`, so that most changes
    of width replace no Parameter. Slots beyond the width are inert. `block=1` gives exact shapes. `new_units` is the
    initialisation of added units, see `awn.core.initialise`. `gain` is √2 after a ReLU, 1 after a tanh. `amplitude`
    multiplies every importance; with `even_amplitude`, their mean square is 1. `ordered` is the share of the training
    steps that also use a random prefix of the units, see `awn.core.ordered`.
    """

    log_nu: nn.Parameter
    index: Tensor
    active: Tensor
    prefix: Tensor | None
    _counted: Tensor

    # Ordered training, see `awn.core.ordered`.
    #: The number of the draw in force, and the units of its prefix; all units if that draw leaves none out.
    draw = prefix_units = 0
    #: Whether this step has had forwards of the whole network and of the prefix.
    in_two_passes = False
    #: The batch norms that do not track statistics while forwards use the prefix, and the prefixes unused in a row.
    paused_norms: Sequence[Any] = ()
    unused_prefixes = 0
    #: Whether the next optimizer is yet to be checked: at first, and after changes without one at hand.
    optimizer_may_be_stale = True

    def __init__(
        self,
        importance: Importance | None = None,
        *,
        quantile: float = 0.9,
        min_units: int = 1,
        max_units: int | None = None,
        block: int = 8,
        new_units: NewUnits = "zero",
        gain: float = math.sqrt(2),
        amplitude: float = 1.0,
        ordered: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        family = Exponential() if importance is None else importance
        if not isinstance(family, Importance):
            raise ArgumentError(f"importance must be a family such as awn.Exponential(), got {importance!r}.")
        check_quantile(quantile)
        _warn_of_collapse(quantile)
        check_units("min_units", min_units)
        check_units("block", block)
        if max_units is not None:
            check_units("max_units", max_units)
            if max_units < min_units:
                raise ArgumentError(f"max_units ({max_units}) is below min_units ({min_units}).")
        if new_units not in get_args(NewUnits):
            raise ArgumentError(f"new_units must be one of {', '.join(get_args(NewUnits))}; got {new_units!r}.")
        check_number("gain", gain)
        check_number("amplitude", amplitude)
        check_share("ordered", ordered)
        self.family = family
        self.quantile = quantile
        self.min_units = min_units
        self.max_units = max_units
        self.block = block
        self.new_units: NewUnits = new_units
        self.gain = gain
        self.amplitude = amplitude
        self.ordered = float(ordered)
        #: Whether training forwards use the prefix. Set here: compiled code depends on where it finds an attribute.
        self.uses_prefix = False
        #: Every tensor dimension that has this width; filled in by `awn.core.groups.connect_`.
        self.axes: tuple[Axis, ...] = ()
        #: The numbers that follow this width, each an `awn.core.attribute.Attribute`.
        self.attributes: tuple[Any, ...] = ()
        #: The prior on the weights that an optimizer applies as weight decay, (scale, samples); None if none does.
        self.prior_decay: tuple[Any, int] | None = None
        self.units, log_nu = self.settle(self._stored(family.start))
        self.capacity = self.capacity_for(self.units)
        # The logarithm makes an optimizer's step a relative change of ν, whatever its size.
        self.log_nu = nn.Parameter(
            torch.tensor(log_nu, device=device, dtype=at_least_single(dtype or torch.get_default_dtype()))
        )
        self.register_buffer("index", torch.empty(0, device=device), persistent=False)
        self.register_buffer("active", torch.empty(0, device=device), persistent=False)
        self.register_buffer("prefix", None, persistent=False)
        self.set_units(self.units, self.capacity)

    @property
    def nu(self) -> Tensor:
        """ν, the family's learned value, as a tensor that gradients flow through."""
        above = self.log_nu.exp()
        return above + self.family.lower if self.family.lower else above

    @property
    def value(self) -> float:
        """ν as a number."""
        return self._value(self.log_nu.item())

    def importance(self, *, in_forward: bool = False) -> Tensor:
        """The importance of every slot of the capacity, exactly 0 for inert slots.

        `in_forward`: also 0 beyond the prefix, in a training forward that uses it.

        >>> Width(Exponential.for_units(2, scale="unit"), block=4).importance()
        tensor([1.0000, 0.2154, 0.0000, 0.0000], grad_fn=<MulBackward0>)
        """
        # Read from their dicts: as attributes, these tensors would take as long to find as to use.
        buffers: dict[str, Any] = self._buffers
        parameters: dict[str, Any] = self._parameters
        index, log_nu, family = buffers["index"], parameters["log_nu"], self.family
        emptied = index is not self._counted or index.is_meta != log_nu.is_meta
        if emptied and not torch.compiler.is_compiling():  # by a loader such as from_pretrained
            self._count()
            index = buffers["index"]
        nu = log_nu.exp()
        mask = "prefix" if in_forward and self.ordered and self._is_cut() else "active"
        importance: Tensor = family.profile(index, nu + family.lower if family.lower else nu) * buffers[mask]
        return importance

    def _is_cut(self) -> bool:
        """Whether a forward uses the prefix."""
        # Not while compiling, which would then depend on the kind of step.
        if not torch.compiler.is_compiling() and self.in_two_passes and torch._C._current_graph_task_id() != -1:
            raise GateError(
                "gradient checkpointing repeats a forward of ordered_loss in the backward pass, which cannot tell "
                "whether it was that of the prefix. Train without gradient checkpointing, or without ordered_loss."
            )
        return self.uses_prefix and self.training

    def soft_units(self) -> Tensor:
        """The soft width S⁻¹(1 − k), as a tensor that gradients flow through."""
        # In double precision: an exponent just above 1 has few digits left in single.
        exact = torch.float64 if self.log_nu.device.type != "mps" else torch.float32
        nu = self.log_nu.to(exact).exp() + self.family.lower
        p = torch.tensor(1 - self.quantile, dtype=exact, device=nu.device)
        return self.family.inverse_survival(p, nu).to(self.log_nu.dtype)

    def settle(self, log_nu: float) -> tuple[int, float]:
        """The number of units for a stored value, and the value, moved back if it is beyond a bound.

        >>> Width(max_units=100).settle(math.log(0.001))
        (100, -3.77...)
        """
        value = self._value(log_nu)
        try:
            soft = self.family.number_beyond(1 - self.quantile, value)
        except ArithmeticError:  # overflow
            soft = math.inf
        if math.isnan(soft):
            raise NonFiniteError(f"ν = {value:g} gives no width")
        lowest = max(self.min_units - 1.0, _SMALLEST_SOFT_WIDTH)
        bounded = max(lowest, soft if self.max_units is None else min(soft, self.max_units))
        if not math.isfinite(bounded):
            raise NonFiniteError(f"ν = {value:g} gives no finite width")
        if bounded != soft:
            log_nu = self._stored(self.family.value_for(bounded, self.quantile))
        return max(self.min_units, round_up(bounded)), log_nu

    def keeps(self, log_nu: float, units: int) -> bool:
        """Whether a stored value asks for this number of units, and is past no bound: a quick look before `settle`.

        >>> width = Width(Exponential.for_units(128))
        >>> width.keeps(width.log_nu.item(), 128), width.keeps(width.log_nu.item(), 127)
        (True, False)
        """
        try:
            soft = self.family.number_beyond(1 - self.quantile, self.family.lower + math.exp(log_nu))
        except ArithmeticError:
            return False
        most = units if self.max_units is None else min(units, self.max_units)
        return max(units - 1, self.min_units - 1, _SMALLEST_SOFT_WIDTH) < soft * (1 - 1e-12) and soft <= most

    def move_(self, log_nu: float) -> None:
        """Set the stored value of ν."""
        with torch.no_grad():
            self.log_nu.fill_(log_nu)

    def move_to_(self, units: int) -> None:
        """Set ν so that the next resize gives `units` units.

        >>> width = Width(Exponential.for_units(128))
        >>> width.move_to_(64)
        >>> width.settle(width.log_nu.item())[0]
        64
        """
        check_units("units", units)
        self.move_(self._stored(self.family.value_inside(units, self.quantile)))

    def hold_(self) -> None:
        """Lower the quantile to the share of the present units, so that ν asks for exactly these units."""
        self.quantile = min(self.family.share(self.units - 0.5, self.value), math.nextafter(1.0, 0.0))
        self.min_units = min(self.min_units, self.units)

    def set_units(self, units: int, capacity: int) -> None:
        """Record a width and a capacity. The tensors must have that size, so only `awn.core.resize` calls this."""
        if self.index.numel() != capacity or self.index.device != self.log_nu.device:
            self.index = torch.arange(capacity, dtype=self.log_nu.dtype, device=self.log_nu.device)
            self.active = torch.empty_like(self.index)
            self._counted = self.index
            self.prefix = None
        # In place: a compiled or data-parallel forward sees the new width without being rebuilt.
        torch.lt(self.index, units, out=self.active)
        self.active *= self.amplitude * self.family.anchor
        self.units, self.capacity = units, capacity
        self.draw_(self.draw)

    def draw_(self, number: int) -> None:
        """Set the prefix to the one that draw `number` gives."""
        self.draw, self.in_two_passes = number, False
        self.prefix_units = prefix_units(self.units, self.ordered, number) if self.ordered else self.units
        if not self.ordered:
            return
        if self.prefix is None:
            self.prefix = torch.empty_like(self.index)
        torch.lt(self.index, self.prefix_units, out=self.prefix)  # in place, for the same reason
        self.prefix *= self.amplitude * self.family.anchor

    def snapshot(self) -> tuple[int, int, Tensor, Tensor]:
        """What `restore` needs to undo `set_units`."""
        return self.units, self.capacity, self.index, self.active.clone()

    def restore(self, snapshot: tuple[int, int, Tensor, Tensor]) -> None:
        """Undo `set_units`."""
        self.units, self.capacity, self.index, self.active = snapshot
        self._counted, self.prefix = self.index, None
        self.draw_(self.draw)

    def capacity_for(self, units: int) -> int:
        """The capacity to allocate for a width: the next multiple of the block.

        Wide layers round up to a sixteenth of their width, so that adding a unit costs the same at any width.

        >>> Width(block=8).capacity_for(231), Width(block=1).capacity_for(231)
        (232, 231)
        """
        step = self._allocation_step(units)
        return math.ceil(units / step) * step

    def fits(self, units: int, capacity: int | None = None) -> bool:
        """Whether a width stays in a capacity, the present one: not above it, and not more than two steps below."""
        capacity = self.capacity if capacity is None else capacity
        if units > capacity:
            return False
        # By the capacity's step, and not the width's: where the step changes, a swing must not reallocate.
        return capacity - units <= (0 if self.block == 1 else 2 * self._allocation_step(capacity))

    def get_extra_state(self) -> Tensor:
        """The state besides ν: the number of units, the quantile, the amplitude and, if ordered, the draw in force."""
        state = [float(self.units), self.quantile, self.amplitude, *([float(self.draw)] if self.ordered else [])]
        return torch.tensor(state, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Set the number of units, the quantile, the amplitude and the draw from a state dict."""
        units, quantile, amplitude, *draw = state.tolist()
        if units > self.capacity:
            raise CheckpointError(
                f"the state dict gives a layer {int(units)} units, but its tensors have room for {self.capacity}. "
                "Load the whole model, with awn.advanced.load_state_dict_(model, state)."
            )
        self.quantile, self.amplitude = quantile, amplitude
        self.draw = int(draw[0]) if draw else 0
        self.set_units(int(units), self.capacity)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        now = f"{self.family.learned}={self.family.lower + math.exp(min(self.log_nu.item(), 700.0)):.4g}"
        family = type(self.family).__name__
        order = f", ordered={self.ordered:g}" if self.ordered else ""
        return f"units={self.units}, capacity={self.capacity}, quantile={self.quantile:g}, {family}, {now}{order}"

    def __deepcopy__(self, memo: dict[Any, Any]) -> Width:
        """Copy the axes last: they lead to further layers and their widths, too many in a deep network to recurse."""
        copied = memo[id(self)] = type(self).__new__(type(self))
        state = dict(self.__dict__)
        links = state.pop("axes"), state.pop("attributes")
        copied.__dict__.update(copy.deepcopy(state, memo), axes=(), attributes=())
        if _WAITING in memo:  # inside the copy of another width
            memo[_WAITING].append((copied, links))
            return copied
        waiting = memo[_WAITING] = [(copied, links)]
        try:
            while waiting:
                one, links = waiting.pop()
                one.axes, one.attributes = copy.deepcopy(links, memo)
        finally:
            del memo[_WAITING]
        return copied

    def _stored(self, value: float) -> float:
        return math.log(value - self.family.lower)

    def _value(self, log_nu: float) -> float:
        if not math.isfinite(log_nu):
            raise NonFiniteError(f"ν is {log_nu}")
        return self.family.lower + math.exp(min(log_nu, 700.0))  # e^710 overflows a double

    def _allocation_step(self, units: int) -> int:
        return self.block if self.block == 1 else self.block * max(1, units // (16 * self.block))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Width:
        """Move or cast, but keep at least single precision: half precision cannot count beyond 2048 units."""
        before = self.log_nu.detach()
        gradient = None if self.log_nu.grad is None else self.log_nu.grad.clone()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        dtype = at_least_single(self.log_nu.dtype)
        if self.log_nu.dtype != dtype:
            self.log_nu.data = before.to(self.log_nu.device, dtype)
            self.log_nu.grad = None if gradient is None else gradient.to(self.log_nu.device, dtype)
        self._count()  # moved buffers may be rounded or, from the meta device, empty
        return self

    def _count(self) -> None:
        """Refill the buffers."""
        self.index, self.active = self.index[:0], self.active[:0]
        self.set_units(self.units, self.capacity)


def _warn_of_collapse(quantile: float) -> None:
    if quantile < _LOWEST_STEADY_QUANTILE:
        warnings.warn(
            f"quantile={quantile:g} is below {_LOWEST_STEADY_QUANTILE}, where widths collapse: the units that a layer "
            "keeps are too few for the prior on the weights to leave ν at rest. Use 0.9 or more, and truncate the "
            "trained network if it is to be smaller.",
            UserWarning,
            stacklevel=3,
        )


def even_amplitude(family: Importance, units: int) -> float:
    """The amplitude at which the mean square of the importance of `units` units is 1.

    The weights that read them can then keep their initialisation.

    >>> round(even_amplitude(Exponential.for_units(128), 128), 2)
    2.14
    """
    value = torch.tensor(family.start, dtype=torch.float64)
    importance = family.importance(torch.arange(units, dtype=torch.float64), value)
    return importance.square().mean().rsqrt().item()


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """The dtype, or single precision if that is more precise."""
    return torch.promote_types(dtype, torch.float32)


def as_options(width: Width) -> dict[str, Any]:
    """The keyword arguments that make a width like this one, apart from its importance family."""
    return {
        "quantile": width.quantile,
        "min_units": width.min_units,
        "max_units": width.max_units,
        "block": width.block,
        "new_units": width.new_units,
        "gain": width.gain,
        "amplitude": width.amplitude,
        "ordered": width.ordered,
    }

"""Readers: the layers that read a group's units, as linear regressions on what they read.

A row is a position at which the layer computes outputs: a sample, a token, a pixel. A row's columns are the inputs that
the layer weighs there, those of the first unit first, so that a prefix of the units is a prefix of the columns. Inputs
that belong to no unit, such as channels that a shortcut pads, come after them, and the bias last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from awn.core.axes import Layout, layout_of
from awn.core.axis import Axis, Blocks
from awn.core.gate import gates_of, plain_class
from awn.core.groups import WidthGroup, find_groups
from awn.core.places import active_entries, extent, spans, units_of

#: With more columns, the Gram matrix in single precision would take more than 1.6 GB.
MOST_COLUMNS = 20_000

#: Places along a dimension.
Places: TypeAlias = slice | Tensor


@dataclass(frozen=True, eq=False)
class Reader:
    """One weight that reads a group's units, in the layer, or the several layers, that have it.

    `makes` is the axis of its outputs, if these are units of a learned width themselves, with the group of that width.
    """

    name: str
    layers: tuple[nn.Module, ...]
    group: WidthGroup
    axis: Axis
    layout: Layout
    makes: tuple[WidthGroup, Axis] | None

    @property
    def columns_per_unit(self) -> int:
        """The columns that belong to a unit: more than one after a flatten, and for a convolution's kernel."""
        return self.axis.per_unit * math.prod(self.axis.tensor.shape[2:])

    @property
    def columns(self) -> int:
        """The columns of all units, without those that come after them."""
        return self.group.width.units * self.columns_per_unit

    @property
    def last_columns(self) -> int:
        """The columns after those of the units: of inputs that belong to none, and of the bias."""
        kernel = math.prod(self.axis.tensor.shape[2:])
        fixed = sum(block.entries for block in self.axis.blocks if block.fixed)
        return fixed * kernel + (self.bias is not None)

    @property
    def inputs(self) -> Places:
        """The places of the inputs along their dimension of the weight, in the order of the columns."""
        width = self.group.width
        if self.axis.is_plain:
            return slice(width.units * self.axis.per_unit)
        found = list(spans(self.axis.blocks_of(width)))
        units = [torch.arange(one.length(units_of)).view(width.units, -1) + one.start for one in found if one.width]
        rest = [torch.arange(one.entries) + one.start for one in found if one.width is None]
        return torch.cat([torch.cat(units, 1).flatten(), *rest]).to(self.axis.tensor.device)

    @property
    def made(self) -> Places:
        """The places of the outputs along their dimension of the weight, without those of inert units."""
        if self.makes is None or self.makes[1].is_plain:
            return slice(self.outputs)
        return active_entries(self.output_blocks).to(self.axis.tensor.device)

    @property
    def output_blocks(self) -> Blocks:
        """The blocks of the outputs."""
        if self.makes is None:
            return ((None, self.axis.tensor.shape[self.layout.out_dim]),)
        group, axis = self.makes
        return axis.blocks_of(group.width)

    @property
    def outputs(self) -> int:
        """The number of outputs, without those of inert units."""
        return extent(self.output_blocks, units_of)

    @property
    def bias(self) -> Tensor | None:
        """The bias, if the layer has one, and all layers with the same weight have the same bias."""
        first: Tensor | None = self.layers[0]._parameters.get("bias")
        return first if all(layer._parameters.get("bias") is first for layer in self.layers) else None

    def count(self, outputs: Tensor) -> int:
        """The number of positions of a layer's outputs."""
        return outputs.numel() // max(1, self.axis.tensor.shape[self.layout.out_dim])

    def rows(self, layer: nn.Module, inputs: Tensor, most: int) -> Tensor:
        """What a layer reads, at up to `most` positions: [positions, columns], and a last column of ones for a bias."""
        if self.axis.tensor.dim() == 2:
            every = inputs.reshape(-1, inputs.shape[-1])
            found = every[:, self.inputs][sampled(len(every), most, every.device)]
        else:
            found = _patches(layer, inputs, most)[:, self.inputs].flatten(1)
        return found if self.bias is None else torch.cat([found, found.new_ones(len(found), 1)], 1)

    def results(self, layer: nn.Module, outputs: Tensor, most: int) -> Tensor:
        """What a layer computes at the same positions, [positions, outputs]; without a bias that is not fitted."""
        dims = self.axis.tensor.dim() - 2
        every = (outputs.movedim(-1 - dims, -1) if dims else outputs).flatten(0, -2)
        chosen = every[sampled(len(every), most, every.device)]
        own: Tensor | None = layer._parameters.get("bias") if self.bias is None else None
        return (chosen if own is None else chosen - own)[:, self.made]

    def weights(self) -> Tensor:
        """The weights times the importance, [columns, outputs], with the bias as the last row, in double precision."""
        weights = self._importance()[:, None] * self._raw()
        if self.bias is None:
            return weights
        return torch.cat([weights, self.bias.detach()[self.made].to(weights)[None]])

    @torch.no_grad()
    def set_weights_(self, weights: Tensor) -> None:
        """Set the weights and the bias; a weight without any importance stays as it is."""
        importance, before = self._importance().to(weights)[:, None], self._raw().to(weights)
        raw = torch.where(importance > 0, weights[: len(importance)] / importance, before)
        kernel, turned = self._kernel()
        tensor = self._by_input(self.axis.tensor)
        tensor[self._places()] = raw.view(-1, *kernel, self.outputs).flip(turned).movedim(-1, 1).to(tensor)
        if self.bias is not None:
            self.bias[self.made] = weights[-1].to(self.bias.dtype)

    def _raw(self) -> Tensor:
        """The stored weights, [columns, outputs], in double precision."""
        found = self._by_input(self.axis.tensor.detach())[self._places()].double()
        return found.movedim(1, -1).flip(self._kernel()[1]).flatten(0, -2)

    def _by_input(self, weight: Tensor) -> Tensor:
        return weight.transpose(0, 1) if self.layout.in_dim else weight

    def _places(self) -> tuple[Places, Places]:
        read, made = self.inputs, self.made
        if isinstance(read, slice) and isinstance(made, slice):
            return read, made
        weight = self._by_input(self.axis.tensor)
        rows, columns = (torch.arange(size, device=weight.device) for size in weight.shape[:2])
        return rows[read][:, None], columns[made]

    def _kernel(self) -> tuple[list[int], list[int]]:
        """The sizes of the kernel, and its dimensions among [inputs, kernel…, outputs] that have to be turned.

        A transposed convolution is a convolution with the kernel in reverse, over inputs with zeros between them.
        """
        sizes = list(self.axis.tensor.shape[2:])
        return sizes, [1 + dim for dim in range(len(sizes))] if self.layout.in_dim == 0 else []

    def _importance(self) -> Tensor:
        """The importance of every column but the bias's; 1 if it belongs to no unit."""
        importance = self.group.width.importance().detach()[: self.group.width.units].double()
        further = self.last_columns - (self.bias is not None)
        return torch.cat([importance.repeat_interleave(self.columns_per_unit), importance.new_ones(further)])


def find_readers(model: nn.Module) -> tuple[dict[str, Reader], dict[str, str]]:
    """The readers of a model's groups by name, and the layers that are no linear regressions, with the reason.

    >>> import awn
    >>> readers, others = find_readers(awn.AdaptiveMLP(2, 2, hidden_layers=2))
    >>> list(readers), others
    (['hidden.1', 'output'], {})
    """
    groups, paths = find_groups(model), {module: path for path, module in model.named_modules()}
    made = {
        (axis.tensor, axis.dim): (group, axis) for group in groups for axis in group.axes if axis.role == "producer"
    }
    owners: dict[Tensor, list[nn.Module]] = {}
    for module in model.modules():
        for tensor in module.parameters(recurse=False):
            owners.setdefault(tensor, []).append(module)
    readers: dict[str, Reader] = {}
    others: dict[str, str] = {}
    for group in groups:
        by_weight: dict[Tensor, list[Axis]] = {}
        for axis in group.consumers:
            by_weight.setdefault(axis.tensor, []).append(axis)
        for weight, axes in by_weight.items():
            name = paths[axes[0].module]
            layout, reason = _layout(axes, owners[weight])
            if layout is None:
                others[name] = reason
                continue
            makes = made.get((weight, layout.out_dim))
            reader = Reader(name, tuple(axis.module for axis in axes), group, axes[0], layout, makes)
            if (read := reader.columns + reader.last_columns) > MOST_COLUMNS:
                others[name] = f"it reads {read:,} numbers at a time, and {MOST_COLUMNS:,} are the most"
            else:
                readers[name] = reader
    return readers, others


def _layout(axes: Sequence[Axis], owners: Sequence[nn.Module]) -> tuple[Layout | None, str]:
    """The layout of a weight that can be fitted by least squares; otherwise the reason."""
    for axis in axes:
        layer, kind = axis.module, plain_class(axis.module).__name__
        layout = layout_of(layer)
        if layout is None or axis.name != "weight" or axis.dim != layout.in_dim:
            return None, f"{kind} is not known to be a weighted sum of what it reads"
        if getattr(layer, "groups", 1) != 1:
            return None, f"{kind} has groups, so each output reads some of the units"
        if sum(len(gates) for gates in gates_of(layer).values()) != 1:
            return None, "more than one learned width gates its weights"
    if set(owners) != {axis.module for axis in axes}:
        return None, "its weight is shared with a layer that reads something else"
    return layout_of(axes[0].module), ""


def sampled(positions: int, most: int, device: torch.device) -> Tensor:
    """Up to `most` of the positions, drawn at random but always the same, in order.

    >>> sampled(3, 5, torch.device("cpu"))
    tensor([0, 1, 2])
    """
    if positions <= most:
        return torch.arange(positions, device=device)
    drawn = torch.randperm(positions, generator=torch.Generator().manual_seed(positions))[:most]
    return drawn.sort().values.to(device)


def _patches(layer: Any, inputs: Tensor, most: int) -> Tensor:
    """The inputs of a convolution at some of its positions: [positions, channels, kernel…]."""
    dims = len(layer.kernel_size)
    inputs = inputs[None] if inputs.dim() == dims + 1 else inputs
    stride = layer.stride
    if layer.transposed:
        inputs, stride = _spread(layer, inputs), (1,) * dims
    elif any(layer._reversed_padding_repeated_twice):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        inputs = F.pad(inputs, layer._reversed_padding_repeated_twice, mode=mode)
    windows = inputs
    for dim in range(dims):  # views: only the chosen positions are copied
        windows = windows.unfold(2 + dim, layer.dilation[dim] * (layer.kernel_size[dim] - 1) + 1, stride[dim])
        windows = windows[..., :: layer.dilation[dim]]
    by_position = windows.movedim(1, dims + 1)
    shape = by_position.shape[: dims + 1]
    return by_position[torch.unravel_index(sampled(math.prod(shape), most, inputs.device), shape)]


def _spread(layer: Any, inputs: Tensor) -> Tensor:
    """The inputs of a transposed convolution with zeros between and around them, for an ordinary convolution."""
    sizes = [(size - 1) * step + 1 for size, step in zip(inputs.shape[2:], layer.stride, strict=True)]
    spread = inputs.new_zeros(*inputs.shape[:2], *sizes)
    every: list[Any] = [slice(None, None, step) for step in layer.stride]
    spread[(..., *every)] = inputs
    around = []
    for dim in reversed(range(len(sizes))):
        reach = layer.dilation[dim] * (layer.kernel_size[dim] - 1) - layer.padding[dim]
        around += [reach, reach + layer.output_padding[dim]]
    return F.pad(spread, around)


@dataclass(frozen=True)
class Sample:
    """Some of the positions of a call of a layer: their number, and a row for each that was chosen."""

    positions: int
    rows: Tensor


Samples = dict[str, list[Sample]]


@contextmanager
def recording(
    readers: Iterable[Reader], take: Callable[[Reader, nn.Module, Tensor, Tensor], Sample]
) -> Iterator[Samples]:
    """While this is open, every call of a reader adds a sample to the result, in the order of the first calls."""
    found: Samples = {}
    hooks: list[RemovableHandle] = []

    def note(reader: Reader) -> Callable[..., None]:
        def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> None:
            inputs = args[0] if args else next(iter(kwargs.values()))
            found.setdefault(reader.name, []).append(take(reader, layer, inputs.detach(), result.detach()))

        return hook

    try:
        for reader in readers:
            hooks += [layer.register_forward_hook(note(reader), with_kwargs=True) for layer in reader.layers]
        yield found
    finally:
        for handle in hooks:
            handle.remove()

"""An epoch by hand: its steps, and why it may have to go through autograd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from awn.core.gate import gates_of, plain_class
from awn.core.groups import non_finite_tensors
from awn.core.resize import catch_up_, lost_number
from awn.errors import NonFiniteError
from awn.loss.budget import Budget
from awn.loss.prior import Prior, is_left_to_optimizer
from awn.nn.mlp import AdaptiveMLP
from awn.parallel.torchrun import several_ranks
from awn.training.by_hand.activations import activation_by_hand
from awn.training.by_hand.likelihoods import term_by_hand
from awn.training.by_hand.network import LostNumber, Network, Recipe
from awn.training.by_hand.optimizers import optimizer_by_hand
from awn.training.by_hand.passes import Between
from awn.training.by_hand.structure import Structure
from awn.training.by_hand.width_terms import WidthTerms
from awn.training.callbacks import Callback
from awn.training.evaluate import Loss
from awn.training.run import Run


def why_not(run: Run, loss: Loss, callbacks: Sequence[Callback]) -> str | None:
    """What stands against the next epoch being by hand, the first such thing, or None."""
    return next(_obstacles(run, loss, callbacks), None)


def train_epoch(run: Run, loss: Loss, prior: Prior, budget: Budget | None) -> Tensor:
    """All steps of an epoch, by hand; returns the data term of each. The model has to be one that `why_not` passes.

    During the epoch its weights and the optimizer's moments are in the network, and nowhere else. The model has them
    again at the end, after an exception or an interruption too, and no gradients.
    """
    assert isinstance(run.model, AdaptiveMLP)
    progress, every, model = run.progress, run.options.resize_every, run.model.train()
    structure = Structure.of(model)
    catch_up_(model, structure.groups, [run.optimizer])
    data_terms: list[float] = []
    lost = None
    network = make_network(run, structure, loss, prior, budget)
    try:
        # What is not finite is found by `LostNumber`.
        with torch.inference_mode(), np.errstate(all="ignore"):
            network.take_()
            for batch in network.batches(*run.shuffled()):
                data_terms.append(network.step(batch, resize=(progress.step + 1) % every == 0))
                progress.step += 1
    except LostNumber as error:
        lost = error
    finally:
        network.give_back_()
    if lost is not None:
        raise NonFiniteError(_what_is_lost(run, structure, lost))
    return torch.tensor(data_terms, dtype=run.train.x.dtype)


def make_network(run: Run, structure: Structure, loss: Loss, prior: Prior, budget: Budget | None) -> Network:
    """The network that trains a model by hand, as the options, the optimizer and the epoch of a run have it."""
    model, samples = structure.model, len(run.train.y)
    by_optimizer = is_left_to_optimizer(prior, structure.groups, samples)
    factors = {} if by_optimizer else prior.weight_factors(model, structure.groups, samples)
    make_optimizer = optimizer_by_hand(run.optimizer, structure)
    make_term = term_by_hand(loss, run.train, model.options["out_features"])
    activation = activation_by_hand(model.activation)
    assert activation is not None
    assert not isinstance(make_optimizer, str)
    assert not isinstance(make_term, str)
    recipe = Recipe(
        Between(activation, model.options["dropout"]),
        make_term,
        WidthTerms(structure, prior, budget, samples, time=run.progress.epoch),
        [
            (factors.get(weight, 0.0), 0.0 if bias is None else factors.get(bias, 0.0))
            for weight, bias in (layer.parameters() for layer in structure.layers)
        ],
        run.options.clip,
    )
    return Network(structure, run.optimizer, make_optimizer, recipe, run.train)


def _what_is_lost(run: Run, structure: Structure, lost: LostNumber) -> str:
    group = structure.groups[lost.width]
    if not lost.in_gradient:
        return lost_number(run.model, group, [run.optimizer], lost.what)
    tensors = non_finite_tensors(run.model)
    where = (
        f"not finite: {', '.join(tensors)}"
        if tensors
        else "all weights are finite, so the cause is the data or the range of the output layer"
    )
    return (
        f"the loss is not finite at step {run.progress.step + 1}: {lost.what}, in layer {group.name!r}; {where}. "
        "This step changed nothing. Lower the learning rate, clip gradients, or check the data."
    )


def _obstacles(run: Run, loss: Loss, callbacks: Sequence[Callback]) -> Iterator[str]:
    model, data = run.model, run.train
    if type(model) is not AdaptiveMLP or run.parallel is not model:
        yield f"the model is a {type(run.parallel).__name__}, not an AdaptiveMLP"
        return
    structure = Structure.of(model)
    yield from _obstacles_of_the_model(structure)
    yield from _obstacles_of_the_run(run, callbacks)
    dtype = next(model.parameters()).dtype
    if data.x.shape[1:] != (model.options["in_features"],) or data.x.dtype != dtype:
        yield "the inputs are not [samples, features] in the precision of the model"
    elif not all(tensor is None or (type(tensor) is Tensor and tensor.is_cpu) for tensor in data):
        yield "the data are not plain tensors on the CPU"
    elif isinstance(term := term_by_hand(loss, data, model.options["out_features"]), str):
        yield term
    if isinstance(optimizer := optimizer_by_hand(run.optimizer, structure), str):
        yield optimizer


def _obstacles_of_the_run(run: Run, callbacks: Sequence[Callback]) -> Iterator[str]:
    if run.options.precision == "bfloat16" or torch.is_autocast_enabled("cpu"):
        yield "autocast is on"
    if several_ranks():
        yield "several processes train"
    for callback in callbacks:
        if type(callback).on_step_end is not Callback.on_step_end:
            yield f"{type(callback).__name__}.on_step_end may look at the model after every step"


def _obstacles_of_the_model(structure: Structure) -> Iterator[str]:
    model = structure.model
    parameters = list(model.parameters())
    if model.options["batch_norm"]:
        yield "the model has batch norm"
    if len({p.dtype for p in parameters}) > 1 or parameters[0].dtype not in (torch.float32, torch.float64):
        yield "the model is not in single or double precision"
    if not all(p.is_cpu and p.requires_grad and type(p) is nn.Parameter for p in parameters):
        yield "some parameters are frozen, or not on the CPU"
    if activation_by_hand(model.activation) is None:
        yield f"the activation {type(model.activation).__name__} is not known by hand"
    if not _is_as_built(structure, len(parameters)):
        yield "layers have been replaced or changed since the model was made"
    if any(p._backward_hooks or p._post_accumulate_grad_hooks for p in parameters) or _has_hooks(model):
        yield "the model has hooks"
    for width in (group.width for group in structure.groups):
        if width.family.importance_and_slope(width.index[:1], width.nu.detach()) is None:
            yield f"the family {type(width.family).__name__} states no slope"


def _is_as_built(structure: Structure, parameters: int) -> bool:
    """Whether the layers are those of `AdaptiveMLP`, each reading the units of the layer before it and no others."""
    above = [layer.makes for layer in structure.layers[:-1]]
    gates = [gates_of(layer.linear) for layer in structure.layers[1:]]
    return (
        all(plain_class(layer.linear) is nn.Linear for layer in structure.layers)
        and all("forward" not in vars(module) for module in structure.model.modules())
        and [layer.reads for layer in structure.layers] == [None, *above]
        and None not in above
        and not gates_of(structure.layers[0].linear)
        and all(list(gate) == ["weight"] and len(gate["weight"]) == 1 for gate in gates)
        and all((layer.linear.bias is None) == (structure.lead == 0) for layer in structure.layers)
        and parameters == len(structure.groups) + (1 + structure.lead) * len(structure.layers)
    )


def _has_hooks(model: nn.Module) -> bool:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    shared = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
    return any(getattr(module, kind) for module in model.modules() for kind in kinds) or any(
        getattr(torch_module, kind) for kind in (*shared, "_global_backward_pre_hooks")
    )

"""Searches for a width, as one would make them without awn: plain PyTorch, Optuna and scikit-learn.

The networks in plain PyTorch have the inputs, batches, epochs, optimizer, schedule and kept epoch of the estimators.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F

from awn.nn.fixed import fixed_mlp
from awn.tabular.encode.preprocess import Preprocessor

WIDTHS = (16, 32, 64, 128, 256)
TRIALS = 8
_MOST_EPOCHS = 60  # of scikit-learn, whose learning rate is lower
_BETAS, _HELD_OUT = (0.9, 0.95), 0.2


@dataclass(frozen=True)
class Task:
    """Rows to learn from and rows to judge by, the number of hidden layers, and the most epochs."""

    train: tuple[pd.DataFrame, pd.Series]
    test: tuple[pd.DataFrame, pd.Series]
    classifies: bool
    layers: int
    epochs: int


@dataclass(frozen=True)
class Answer:
    """The score of the network that was found, on rows that it was not found by, and its hidden units."""

    score: float
    units: int


class Rows:
    """The rows of a task as tensors: some to train on, some to choose by, and those of the test."""

    def __init__(self, task: Task, seed: int) -> None:
        x, y = task.train
        stratify = y if task.classifies else None
        x, held, y, held_y = train_test_split(x, y, test_size=_HELD_OUT, random_state=seed, stratify=stratify)
        if task.classifies:
            names = np.unique(y)
            targets = [torch.from_numpy(np.searchsorted(names, part)) for part in (y, held_y, task.test[1])]
        else:
            mean, std = y.mean(), y.std()
            scaled = [(np.asarray(part) - mean) / std for part in (y, held_y, task.test[1])]
            targets = [torch.from_numpy(part).float()[:, None] for part in scaled]
        self.targets, self.held_targets, self.test_targets = targets
        encode = Preprocessor(bins=16 if task.classifies else 24).fit(x, targets[0].numpy())
        self.inputs, self.held, self.test = (
            torch.from_numpy(encode.transform(part)) for part in (x, held, task.test[0])
        )
        self.rate = 0.01 if task.classifies else 0.007
        self.outputs = len(names) if task.classifies else 1
        self.loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy if task.classifies else F.mse_loss

    def score(self, network: nn.Module) -> float:
        """Accuracy or R² on the rows of the test."""
        with torch.no_grad():
            found, wanted = network(self.test), self.test_targets
        if wanted.dim() == 1:
            return float((found.argmax(1) == wanted).float().mean())
        return float(1 - (found - wanted).square().mean() / wanted.var(correction=0))


def trained(
    rows: Rows, widths: list[int], epochs: int, seed: int, tell: Callable[[int, float], None] = lambda *_: None
) -> tuple[nn.Module, float]:
    """A network in plain PyTorch, as it was after its best epoch, and its loss on the held-out rows.

    `tell` gets this loss after every epoch.
    """
    torch.manual_seed(seed)
    network = fixed_mlp(rows.inputs.shape[1], rows.outputs, widths, activation="silu")
    optimizer = torch.optim.Adam(network.parameters(), lr=rows.rate, betas=_BETAS, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs, eta_min=rows.rate / 100)
    size = max(16, min(128, len(rows.inputs) // 32))
    lowest, best = math.inf, network.state_dict()
    for epoch in range(epochs):
        for batch in torch.randperm(len(rows.inputs)).split(size):
            loss = rows.loss(network(rows.inputs[batch]), rows.targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        with torch.no_grad():
            found = float(rows.loss(network(rows.held), rows.held_targets))
        if found < lowest:
            lowest, best = found, copy.deepcopy(network.state_dict())
        tell(epoch, found)
    network.load_state_dict(best)
    return network, lowest


def five_widths(task: Task, seed: int) -> Answer:
    """One training in plain PyTorch for each of five widths; the best on the held-out rows."""
    rows = Rows(task, seed)
    found = {width: trained(rows, [width] * task.layers, task.epochs, seed) for width in WIDTHS}
    best = min(WIDTHS, key=lambda width: found[width][1])
    return Answer(rows.score(found[best][0]), best * task.layers)


def optuna_search(task: Task, seed: int) -> Answer:
    """Trials of Optuna over the width of every layer, in plain PyTorch; its median pruner ends the worse ones."""
    import optuna

    rows = Rows(task, seed)
    networks: dict[int, nn.Module] = {}

    def objective(trial: Any) -> float:
        def tell(epoch: int, loss: float) -> None:
            trial.report(loss, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

        sizes = [trial.suggest_int(f"width {place}", WIDTHS[0], WIDTHS[-1], log=True) for place in range(task.layers)]
        networks[trial.number], lowest = trained(rows, sizes, task.epochs, seed, tell)
        return lowest

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=task.epochs // 5),
    )
    study.optimize(objective, n_trials=TRIALS)
    return Answer(rows.score(networks[study.best_trial.number]), sum(study.best_params.values()))


def sklearn_search(task: Task, seed: int) -> Answer:
    """scikit-learn's MLP with early stopping, for each of five widths; the best on the rows that it held out."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def fit(width: int) -> Any:
        kind = MLPClassifier if task.classifies else MLPRegressor
        sizes = (width,) * task.layers
        network: Any = kind(hidden_layer_sizes=sizes, max_iter=_MOST_EPOCHS, early_stopping=True, random_state=seed)
        if not task.classifies:
            network = TransformedTargetRegressor(network, transformer=StandardScaler())
        return make_pipeline(StandardScaler(), network).fit(*task.train)

    def merit(model: Any) -> float:
        last = model.steps[-1][1]
        return float((last if task.classifies else last.regressor_).best_validation_score_)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a training that ends at its last epoch
        found = {width: fit(width) for width in WIDTHS}
    best = max(WIDTHS, key=lambda width: merit(found[width]))
    return Answer(float(found[best].score(*task.test)), best * task.layers)

"""The constructor parameters that both estimators share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from awn.core.importance import Scale
from awn.tabular.encode.columns import ColumnKind
from awn.training import Callback
from awn.training.options import Chooses, ScheduleName
from awn.training.schedule import Schedule


# As scikit-learn asks, estimators compare by identity, `BaseEstimator` prints them, and `fit` checks the values.
@dataclass(eq=False, repr=False)
class NetworkParameters:
    """Parameters of the network, its prior and its training. `AdaptiveClassifier` describes each of them.

    >>> from sklearn.base import clone
    >>> from awn import AdaptiveRegressor
    >>> clone(AdaptiveRegressor(3, lr=0.02))
    AdaptiveRegressor(hidden_layers=3, lr=0.02)
    """

    hidden_layers: int = 2
    _: KW_ONLY
    activation: str = "silu"
    units: int = 64
    scale: Scale = "anchored"
    quantile: float = 0.97
    max_units: int | None = None
    max_params: int | None = None
    ordered: float = 0.0
    weight_scale: float | None = 3.2
    members: int | None = None
    bins: int | None = None
    dropout: float = 0.0
    batch_norm: bool = False
    lr: float | None = None
    width_lr: float | None = None
    batch_size: int | None = None
    epochs: int | None = None
    patience: int | None = None
    schedule: ScheduleName | Schedule = "cosine"
    clip: float | None = None
    resize_every: int = 1
    validation_fraction: float = 0.2
    choose: Chooses | None = "smallest"
    narrow: int | None = 32
    fresh: bool = False
    kinds: Mapping[str, ColumnKind] | None = None
    fixed_widths: Sequence[int] | None = None
    device: str = "cpu"
    callbacks: Sequence[Callback] = ()
    random_state: int | np.random.RandomState | None = None

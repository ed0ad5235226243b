"""HeldOutputs: what networks predict for rows that they were not trained on, for calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from awn.training import Data
from awn.training.evaluate import all_outputs

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class HeldOutputs:
    """Outputs, [rows, outputs], the targets and the weights of the same rows.

    >>> import torch
    >>> rows = Data(torch.ones(3, 2), torch.zeros(3))
    >>> HeldOutputs.of([nn.Linear(2, 1), nn.Linear(2, 1)], [rows, rows]).outputs.shape
    (6, 1)
    """

    outputs: Array
    targets: Array
    weights: Array | None = None

    @classmethod
    def of(cls, networks: Sequence[nn.Module], rows: Sequence[Data | None]) -> HeldOutputs:
        """The outputs of each network for the rows that were held out of its training, if any.

        The mean of all networks would not do: the rows that one network holds out, the others were trained on.
        """
        held = [(network.eval(), data) for network, data in zip(networks, rows, strict=True) if data is not None]
        if not held:
            return cls(np.empty((0, 1)), np.empty(0))
        outputs = [np.asarray(all_outputs(network, data.x).double().cpu()) for network, data in held]
        weights = [data.weight for _, data in held if data.weight is not None]
        targets = np.concatenate([_array(data.y) for _, data in held])
        return cls(np.concatenate(outputs), targets, np.concatenate([_array(w) for w in weights]) if weights else None)

    def __len__(self) -> int:
        return len(self.targets)


def _array(tensor: Tensor) -> Array:
    return np.asarray(tensor.cpu())

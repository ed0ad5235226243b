"""Ridge least squares from sums over rows: solved for any of the columns, without the rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: More columns than these are summed in single precision, at half the memory.
MOST_DOUBLE_COLUMNS = 4096


@dataclass(frozen=True, eq=False)
class Moments:
    """The sums of a regression of Z [rows, outputs] on X [rows, columns]: G = XᵀX and C = XᵀZ.

    >>> x, wanted = torch.randn(50, 3).double(), torch.randn(3, 2).double()
    >>> moments = Moments.of(3, 2)
    >>> moments.add_(x, x @ wanted)
    >>> torch.allclose(moments.solve(torch.zeros(3, 2), ridge=0.0), wanted)
    True
    """

    gram: Tensor
    cross: Tensor

    @classmethod
    def of(cls, columns: int, outputs: int, device: torch.device | None = None) -> Moments:
        """Empty sums."""
        double = columns <= MOST_DOUBLE_COLUMNS and (device is None or device.type != "mps")
        made = {"device": device, "dtype": torch.float64 if double else torch.float32}
        return cls(torch.zeros(columns, columns, **made), torch.zeros(columns, outputs, **made))  # type: ignore[arg-type]

    def add_(self, x: Tensor, z: Tensor) -> None:
        """Add rows."""
        x, z = x.to(self.gram.dtype), z.to(self.gram.dtype)
        self.gram.addmm_(x.T, x)
        self.cross.addmm_(x.T, z)

    @property
    def is_finite(self) -> bool:
        """Whether all rows were."""
        return bool(torch.isfinite(self.gram.diagonal()).all() and torch.isfinite(self.cross).all())

    def solve(self, now: Tensor, columns: Tensor | None = None, ridge: float = 1e-3) -> Tensor:
        """The weights W with the least ‖X W − Z‖² + λ ‖W − now‖², where λ is `ridge` times the mean diagonal of G.

        `columns`, all by default, are those that W and `now` have: the others are cut. If the system is singular, the
        result is the solution that is nearest to `now`.
        """
        gram, cross = self.gram, self.cross
        if columns is not None:
            gram, cross = gram[columns][:, columns], cross[columns]
        now = now.to(gram.dtype)
        residual = cross - gram @ now
        damped = gram.clone()
        damped.diagonal().add_(ridge * gram.diagonal().mean())
        factor, failed = torch.linalg.cholesky_ex(damped)
        if failed:
            change: Tensor = torch.linalg.pinv(damped, hermitian=True) @ residual
        else:
            change = torch.cholesky_solve(residual, factor)
        return now + change

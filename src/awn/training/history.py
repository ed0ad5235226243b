"""History: one row per epoch of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from awn.errors import CheckpointError
from awn.files.read import parse_json
from awn.files.write import write_files
from awn.smaller.choose import Choice

#: The measurements of one epoch, by name.
EpochRow = dict[str, Any]


@dataclass
class History:
    """One row per epoch: the loss and its terms, the score, widths and ν of all layers, learning rate, time.

    `best` marks the epochs after which the state of the model was kept as the best so far. `choice` is the curve of
    validation loss against size, with the chosen size, if `fit` chose one.

    >>> history = History([{"epoch": 1, "score": 0.9, "widths": {"hidden.0": 231}}])
    >>> history.column("score"), history.widths("hidden.0")
    ([0.9], [231])
    """

    rows: list[EpochRow] = field(default_factory=list)
    choice: Choice[Any] | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[EpochRow]:
        return iter(self.rows)

    def __getitem__(self, number: int) -> EpochRow:
        return self.rows[number]

    @property
    def kept_epoch(self) -> int:
        """The epoch whose state a run keeps: the last one marked as best, or the last if none is marked.

        >>> History([{"epoch": 1, "best": True}, {"epoch": 2, "best": True}, {"epoch": 3, "best": False}]).kept_epoch
        2
        """
        best = [int(row["epoch"]) for row in self.rows if row.get("best")]
        return best[-1] if best else len(self.rows)

    @property
    def kept(self) -> EpochRow:
        """The row of the kept epoch."""
        return self.rows[self.kept_epoch - 1]

    @property
    def path(self) -> str:
        """How the last epoch was trained: "by hand", without autograd, or "autograd".

        >>> History([{"epoch": 1, "path": "by hand"}]).path
        'by hand'
        """
        return str(self.rows[-1].get("path", "autograd")) if self.rows else "autograd"

    def column(self, name: str) -> list[Any]:
        """One entry per row."""
        return [row[name] for row in self.rows]

    def widths(self, layer: str) -> list[int]:
        """The width of a layer after each epoch."""
        return [row["widths"][layer] for row in self.rows]

    def save(self, path: str | Path) -> None:
        """Write the rows as JSON, one per line."""
        write_files({Path(path): b"".join(json_line(row) for row in self.rows)})

    @classmethod
    def load(cls, path: str | Path) -> History:
        """Read a file that `save`, or a run with a folder, wrote."""
        try:
            lines = Path(path).read_bytes().splitlines()
        except OSError as error:
            raise CheckpointError(f"{path} is not a readable history: {error}") from None
        rows = [parse_json(line, f"{path} is not a readable history: line {at}") for at, line in enumerate(lines, 1)]
        if not all(isinstance(row, dict) for row in rows):
            raise CheckpointError(f"{path} is not a readable history: each line must be an object.")
        return cls(rows)


def json_line(row: EpochRow) -> bytes:
    """A row as one line of JSON."""
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"

"""Progress of a run: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from awn.cli.output import score_text
from awn.training import Callback, Progress

# Deep networks have more layers than a terminal has columns.
_LAYERS_SHOWN = 8
_SECONDS_BETWEEN_LINES = 2.0


class LiveDisplay(Callback):
    """A progress bar, the loss, the validation score and the width of every layer."""

    #: The name of the validation score.
    score_name = "score"

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("epoch"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Bar(*columns, console=console)
        self._live = Live(self._bar, console=console, refresh_per_second=8, transient=True)

    def on_fit_start(self, progress: Progress) -> None:
        """Show the bar, from the epoch at which the run starts or resumes."""
        self._task = self._bar.add_task("", total=progress.options.epochs, completed=progress.epoch)
        self._live.start()

    def on_epoch_end(self, progress: Progress) -> None:
        """Show the epoch."""
        row = progress.history[-1]
        layers = list(row["widths"].items())
        table = Table("loss", f"validation {self.score_name}", *(name for name, _ in layers[:_LAYERS_SHOWN]), "total")
        widths = [str(units) for _, units in layers[:_LAYERS_SHOWN]]
        table.add_row(f"{row['data']:.4f}", score_text(row["score"]), *widths, str(sum(row["widths"].values())))
        self._bar.update(self._task, completed=progress.epoch)
        self._live.update(Group(table, self._bar))
        if progress.stop or progress.epoch == progress.options.epochs:
            self._live.stop()

    def close(self) -> None:
        """Release the terminal, after an error too."""
        self._live.stop()


class PlainDisplay(Callback):
    """A line every few seconds, for logs and pipes."""

    #: The name of the validation score.
    score_name = "score"

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = -math.inf

    def on_epoch_end(self, progress: Progress) -> None:
        """Print the epoch if it is the last one or the previous line is old enough."""
        ends = progress.stop or progress.epoch == progress.options.epochs
        if not ends and time.monotonic() - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = time.monotonic()
        row = progress.history[-1]
        widths = " ".join(str(units) for units in row["widths"].values())
        self._console.print(
            f"epoch {row['epoch']}  loss {row['data']:.4f}  validation {self.score_name} {score_text(row['score'])}  "
            f"widths {widths}",
            highlight=False,
            soft_wrap=True,
        )

    def close(self) -> None:
        """Do nothing; there is no terminal to release."""

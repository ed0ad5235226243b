"""No regularisation: neither a prior on the weights nor a bounded activation, on the tables."""

from __future__ import annotations

from typing import NamedTuple

from awn_paper.experiments.table1 import LEARNED, LONG_GRIDS, PAPER_GRIDS, SMALL_GRIDS, Grid
from awn_paper.models import MLP
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings, Training
from awn_paper.show import Results, Shown, Table, scores, widths


class UnregularisedRow(NamedTuple):
    """A row of the paper's table."""

    accuracy: str
    width: str


PAPER = {
    "DoubleMoon": UnregularisedRow("100.0 (0.2)", "17 (16.6)"),
    "Spiral": UnregularisedRow("100.0 (0.0)", "108 (26.8)"),
    "SpiralHard": UnregularisedRow("100.0 (0.0)", "539 (809.8)"),
    "pol": UnregularisedRow("99.2 (0.1)", "2335 (552.8)"),
    "MiniBooNE": UnregularisedRow("93.8 (0.2)", "4907 (1141)"),
    "credit card": UnregularisedRow("81.8 (0.1)", "53 (13)"),
}


#: Those of Table 1's long profile, with one depth on SpiralHard.
_LONG_GRIDS = {**LONG_GRIDS, "SpiralHard": LONG_GRIDS["SpiralHard"]._replace(layers=(2,))}


def unregularised(grids: dict[str, Grid]) -> tuple[Case, ...]:
    """σ_θ = 100, unbounded activations, at most 5,000 units a layer."""
    cases = []
    for name, grid in grids.items():
        training = Training(grid.epochs, grid.batch, patience=grid.patience)
        base = Settings(name, MLP(), LEARNED, training).change(weight_scale=100.0, max_units=5000)
        activations = tuple(activation for activation in grid.activations if activation != "relu6") or ("leaky_relu",)
        grid_of_settings = base.vary(layers=grid.layers, activation=activations)
        cases.append(Case("NoReg", grid_of_settings))
    return tuple(cases)


def show(results: Results) -> list[Shown]:
    """Ours beside the paper's."""
    rows = []
    for name, paper in PAPER.items():
        runs = results.final(name, "NoReg")
        rows.append((name, scores(runs), paper.accuracy, widths(runs), paper.width, str(len(runs))))
    return [Table(("data set", "accuracy", "paper", "total width", "paper", "runs"), tuple(rows))]


REGULARISATION = Experiment(
    name="regularisation",
    title="Without regularisation",
    says="σ_θ = 100, which is nearly no prior on the weights, and no bounded activation. The paper: about the same "
    "accuracy, and wider layers.",
    paper=Protocol(unregularised(PAPER_GRIDS), seeds=10, says="The paper's grids and epochs, ten final runs."),
    small=Protocol(
        unregularised(SMALL_GRIDS),
        seeds=3,
        says="Grids and epochs of Table 1's small profile without ReLU6, three final runs.",
    ),
    long=Protocol(
        unregularised(_LONG_GRIDS),
        seeds=5,
        says="Grids, epochs and early stopping of Table 1's long profile without ReLU6; five final runs.",
        details={"SpiralHard": "Two layers of LeakyReLU."},
    ),
)

"""The price of a weight that the ELBO implies, as a term of the objective."""

from __future__ import annotations

import dataclasses

from awn.loss.price import Approximation, Price
from awn_paper.experiments.table1 import LEARNED, PATIENCE
from awn_paper.models import MLP, Priced
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings, Training
from awn_paper.show import Results, Shown, Table, at_end, scores, widths

FREE = "no price"
PRICES: dict[str, Approximation] = {"first order": "first order", "Kullback-Leibler": "kl"}
#: The number of layers of each data set.
LAYERS = {"Spiral": 1, "SpiralHard": 4, "pol": 2, "credit card": 2}
_EPOCHS = {"Spiral": 1000}
_SIGMA = 10.0  # the standard deviation of the weights' prior in Table 1's settings


def _priced(approximation: Approximation) -> Priced:
    fields = {field.name: getattr(LEARNED, field.name) for field in dataclasses.fields(LEARNED)}
    return Priced(**fields, price=Price(approximation))


def _cases(name: str, training: Training) -> tuple[Case, ...]:
    free = Settings(name, MLP(layers=LAYERS[name], activation="relu6"), LEARNED, training)
    priced = {label: free.change(widths=_priced(approximation)) for label, approximation in PRICES.items()}
    return tuple(Case(label, (settings,)) for label, settings in {FREE: free, **priced}.items())


def show(results: Results) -> list[Shown]:
    """Accuracy and width by price, at the kept epoch and at the last."""
    prices = {FREE: 0.0} | {label: Price(kind).of(_SIGMA) for label, kind in PRICES.items()}
    rows = []
    for name in LAYERS:
        for label, price in prices.items():
            runs = results.final(name, label)
            ends = [at_end(run) for run in runs]
            found = (scores(runs), widths(runs), scores(ends), widths(ends))
            rows.append((f"{name}, {label}", f"{price:.2f}", *found, str(len(runs))))
    head = ("", "nats per weight", "accuracy", "total width", "accuracy, last epoch", "total width", "runs")
    return [Table(head, tuple(rows))]


PRICE_STUDY = Experiment(
    name="price",
    title="The price of a unit",
    says="The paper's objective leaves out a part of the ELBO that is constant at a fixed width: what each weight "
    "costs besides its square. Here it is added, at first order as the paper approximates the ELBO, and as the "
    "Kullback-Leibler divergence. The paper has no such trial.",
    paper=Protocol(
        tuple(case for name in LAYERS for case in _cases(name, Training(_EPOCHS.get(name, 5000), patience=PATIENCE))),
        seeds=5,
        says="Epochs and early stopping of Table 1's long profile, ReLU6, σ_θ = 10, five runs. Spiral has one layer, "
        "SpiralHard four, pol and credit card two.",
    ),
    small=Protocol(
        _cases("Spiral", Training(300)), seeds=1, says="Spiral alone, 300 epochs, ReLU6, σ_θ = 10, one run."
    ),
    folder="table1",  # which has the networks without a price
)

"""The paper's tables and figures, one file each: what is run, what the paper found, and how both are shown."""

from __future__ import annotations

from collections.abc import Callable

from awn.errors import ArgumentError
from awn_paper.experiments import (
    anneal,
    batch,
    channels,
    difficulty,
    images,
    importance,
    initialisation,
    layers,
    price,
    quantile,
    regularisation,
    remove,
    retrain,
    search,
    sequences,
    start,
    table1,
    text,
    time,
    truncate,
)
from awn_paper.protocol import Experiment, Profile
from awn_paper.show import Results, Shown

Show = Callable[[Results], list[Shown]]

#: Every experiment with the function that shows its results.
EXPERIMENTS: dict[str, tuple[Experiment, Show]] = {
    experiment.name: (experiment, show)
    for experiment, show in (
        (table1.TABLE1, table1.show),
        (retrain.RETRAIN, retrain.show),
        (importance.IMPORTANCE, importance.show),
        (regularisation.REGULARISATION, regularisation.show),
        (search.SEARCH, search.show),
        (difficulty.DIFFICULTY, difficulty.show),
        (start.START, start.show),
        (batch.BATCH, batch.show),
        (anneal.ANNEAL, anneal.show),
        (truncate.TRUNCATE, truncate.show),
        (remove.REMOVE, remove.show),
        (initialisation.INITIALISATION, initialisation.show),
        (quantile.QUANTILE, quantile.show),
        (sequences.SEQUENCES_STUDY, sequences.show),
        (images.IMAGES_STUDY, images.show),
        (price.PRICE_STUDY, price.show),
        (text.TEXT_STUDY, text.show),
        (channels.CHANNELS, channels.show),
        (layers.LAYERS, layers.show),
        (time.TIME, time.show),
    )
}


def find_experiment(name: str) -> Experiment:
    """An experiment by its name."""
    if name not in EXPERIMENTS:
        raise ArgumentError(f"no experiment is called {name!r}. There are: {', '.join(EXPERIMENTS)}, and all.")
    return EXPERIMENTS[name][0]


def find_experiments(name: str, profile: Profile) -> list[Experiment]:
    """The experiment of a name, or with `all` every one that has a protocol of the profile.

    >>> [len(find_experiments(name, "small")) for name in ("table1", "all")] == [1, len(EXPERIMENTS)]
    True
    """
    if name != "all":
        return [find_experiment(name)]
    return [experiment for experiment, _ in EXPERIMENTS.values() if profile != "long" or experiment.long is not None]

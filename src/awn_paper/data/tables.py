"""The three real tables: pol, MiniBooNE, credit card clients."""

from __future__ import annotations

import io

import numpy as np
import torch
from numpy.typing import NDArray

from awn.errors import DataError
from awn.training.data import Data
from awn_paper.data.dataset import Dataset, stratified
from awn_paper.data.source import Source

POL = Source(
    "pol/201_pol.tsv.gz",
    "https://github.com/EpistasisLab/pmlb (data set 201_pol)",
    "0b118a037decec073762ceca7610e61b39e9207717fa9612457ed17d4662dcf7",
    "https://media.githubusercontent.com/media/EpistasisLab/pmlb/master/datasets/201_pol/201_pol.tsv.gz",
)
CREDIT = Source(
    "credit-default/UCI_Credit_Card.csv.gz",
    "https://archive.ics.uci.edu/dataset/350 (as UCI_Credit_Card.csv on Kaggle)",
    "e3d893c1b4a9dc73220d01e18975ea04adb79fd8e0cebed1aea739e77797224e",
)
MINIBOONE = Source(
    "miniboone/MiniBooNE_PID.txt.gz",
    "https://archive.ics.uci.edu/dataset/199 (MiniBooNE_PID.txt)",
    url="https://archive.ics.uci.edu/static/public/199/miniboone+particle+identification.zip",
    member="MiniBooNE_PID.txt",
)

Array = NDArray[np.float64]


def load_pol() -> Dataset:
    """Whether the target, a share in per cent, is below its mean."""
    table = _numbers(POL, delimiter="\t", skiprows=1)
    target = table[:, -1]
    return _dataset("pol", table[:, :-1], target < target.mean())


def load_credit() -> Dataset:
    """Whether a client fails to pay next month."""
    table = _numbers(CREDIT, delimiter=",", skiprows=1)
    return _dataset("credit card", table[:, 1:-1], table[:, -1] == 1)  # the first column is a number of the row


def load_miniboone() -> Dataset:
    """Signal or background; the file's first line says how many rows of each follow."""
    table = _numbers(MINIBOONE, skiprows=1)
    counts = [int(word) for word in MINIBOONE.read().split(b"\n", 1)[0].split()]
    if len(counts) != 2 or sum(counts) != len(table):
        raise DataError(f"{MINIBOONE.path} announces {counts} rows of signal and background, but has {len(table)}.")
    return _dataset("MiniBooNE", table, np.arange(len(table)) < counts[0])


def _numbers(source: Source, **options: object) -> Array:
    text = io.StringIO(source.read().decode(), newline=None)  # lines may end in any of the three ways
    return np.loadtxt(text, ndmin=2, **options)  # type: ignore[call-overload,no-any-return]


def _dataset(name: str, features: Array, positive: NDArray[np.bool_]) -> Dataset:
    """72 % / 8 % / 20 %, with features of mean 0 and standard deviation 1 over the training part."""
    y = torch.from_numpy(positive.astype(np.int64))
    x = torch.from_numpy(features)
    parts = stratified(y, (0.72, 0.08, 0.2), seed=0)
    known = x[parts[0]]
    scaled = ((x - known.mean(0)) / known.std(0).clamp(min=1e-12)).float()
    train, validation, test = (Data(scaled[rows], y[rows]) for rows in parts)
    return Dataset(name, train, validation, test, inputs=x.shape[1], outputs=2)

"""Modules whose width is learned from the start; any other model becomes adaptive by `awn.adapt_`."""

from awn.nn.mlp import AdaptiveMLP
from awn.nn.rnn import AdaptiveRNN

__all__ = ["AdaptiveMLP", "AdaptiveRNN"]

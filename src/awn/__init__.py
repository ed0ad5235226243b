"""awn: neural networks that learn the width of their layers while they train."""

import importlib as _importlib
import typing as _typing

from awn import likelihood, nn
from awn._version import __version__
from awn.average import follow_widths_
from awn.axis import Axis
from awn.budget import Budget
from awn.checkpoint import load, resume_run_, save, save_run
from awn.convert import adapt_
from awn.errors import AwnError
from awn.finalize import finalize
from awn.groups import WidthGroup, connect_, count_parameters, find_groups
from awn.importance import Exponential, Importance, PowerLaw, Sigmoid
from awn.mlp import AdaptiveMLP
from awn.objective import Objective, objective
from awn.prior import Anneal, Prior
from awn.shrink import activation_magnitudes, compress, remove_units, truncate, unit_activations
from awn.state import load_state_dict_
from awn.summary import param_groups, summary, widths
from awn.surgery import Resize, resize_, set_units_
from awn.width import Width

if _typing.TYPE_CHECKING:
    from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor

__all__ = [
    "AdaptiveClassifier",
    "AdaptiveMLP",
    "AdaptiveRegressor",
    "Anneal",
    "AwnError",
    "Axis",
    "Budget",
    "Exponential",
    "Importance",
    "Objective",
    "PowerLaw",
    "Prior",
    "Resize",
    "Sigmoid",
    "Width",
    "WidthGroup",
    "__version__",
    "activation_magnitudes",
    "adapt_",
    "compress",
    "connect_",
    "count_parameters",
    "finalize",
    "find_groups",
    "follow_widths_",
    "likelihood",
    "load",
    "load_state_dict_",
    "nn",
    "objective",
    "param_groups",
    "remove_units",
    "resize_",
    "resume_run_",
    "save",
    "save_run",
    "set_units_",
    "summary",
    "truncate",
    "unit_activations",
    "widths",
]


# Imported when they are first used: most need more than torch.
_PARTS = ("bench", "convert", "export", "huggingface", "lightning", "paper", "tabular", "training")


def __getattr__(name: str) -> _typing.Any:
    """The estimators, which need scikit-learn, and the parts `awn.export`, `awn.training`, …, when first used."""
    if name in ("AdaptiveClassifier", "AdaptiveRegressor"):
        return getattr(_importlib.import_module("awn.tabular.estimators"), name)
    if name in _PARTS:
        return _importlib.import_module(f"awn.{name}")
    raise AttributeError(f"module 'awn' has no attribute {name!r}")

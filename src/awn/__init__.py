"""awn: neural networks that learn the width of their layers while they train."""

import importlib as _importlib
import typing as _typing

from awn import nn
from awn._version import __version__
from awn.adapt import adapt_
from awn.core.average import follow_widths_
from awn.core.axis import Axis
from awn.core.count import count_parameters
from awn.core.groups import WidthGroup, connect_, find_groups
from awn.core.importance import Exponential, Importance, PowerLaw, Sigmoid
from awn.core.resize import Resize, resize_, set_units_
from awn.core.state import load_state_dict_
from awn.core.summary import summary, widths
from awn.core.width import Width
from awn.errors import AwnError
from awn.files.model_folder import load, save
from awn.files.run_file import resume_run_, save_run
from awn.loss import likelihood
from awn.loss.budget import Budget
from awn.loss.objective import Objective, objective
from awn.loss.param_groups import param_groups
from awn.loss.prior import Anneal, Prior
from awn.nn.mlp import AdaptiveMLP
from awn.smaller.activations import activation_magnitudes, unit_activations
from awn.smaller.finalize import finalize
from awn.smaller.remove import remove_units
from awn.smaller.truncate import compress, truncate

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

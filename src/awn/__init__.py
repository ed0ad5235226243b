"""awn: neural networks that learn the width of their layers while they train.

The front door. Every name is imported when it is first used, so that `awn --help` need not wait for torch.
"""

import importlib as _importlib
import typing as _typing

from awn._version import __version__

if _typing.TYPE_CHECKING:
    from awn import nn as nn
    from awn.adapt.adapt import adapt_ as adapt_
    from awn.core.families import Exponential as Exponential
    from awn.core.families import PowerLaw as PowerLaw
    from awn.core.families import Sigmoid as Sigmoid
    from awn.core.resize import resize_ as resize_
    from awn.core.summary import summary as summary
    from awn.core.summary import widths as widths
    from awn.errors import AwnError as AwnError
    from awn.files.model_folder import load as load
    from awn.files.model_folder import save as save
    from awn.files.run_file import resume_run_ as resume_run_
    from awn.files.run_file import save_run as save_run
    from awn.loss import likelihood as likelihood
    from awn.loss.budget import Budget as Budget
    from awn.loss.objective import objective as objective
    from awn.loss.param_groups import param_groups as param_groups
    from awn.loss.prior import Anneal as Anneal
    from awn.loss.prior import Prior as Prior
    from awn.nn.mlp import AdaptiveMLP as AdaptiveMLP
    from awn.smaller.choose import Choice as Choice
    from awn.smaller.choose import choose as choose
    from awn.smaller.finalize import finalize as finalize
    from awn.smaller.truncate import compress as compress
    from awn.smaller.truncate import truncate as truncate
    from awn.tabular.estimators import AdaptiveClassifier as AdaptiveClassifier
    from awn.tabular.estimators import AdaptiveRegressor as AdaptiveRegressor

__all__ = [
    "AdaptiveClassifier",
    "AdaptiveMLP",
    "AdaptiveRegressor",
    "Anneal",
    "AwnError",
    "Budget",
    "Choice",
    "Exponential",
    "PowerLaw",
    "Prior",
    "Sigmoid",
    "__version__",
    "adapt_",
    "choose",
    "compress",
    "finalize",
    "likelihood",
    "load",
    "nn",
    "objective",
    "param_groups",
    "resize_",
    "resume_run_",
    "save",
    "save_run",
    "summary",
    "truncate",
    "widths",
]

# Where each name lives.
_HOMES = {
    "AdaptiveClassifier": "awn.tabular.estimators",
    "AdaptiveMLP": "awn.nn.mlp",
    "AdaptiveRegressor": "awn.tabular.estimators",
    "Anneal": "awn.loss.prior",
    "AwnError": "awn.errors",
    "Budget": "awn.loss.budget",
    "Choice": "awn.smaller.choose",
    "Exponential": "awn.core.families",
    "PowerLaw": "awn.core.families",
    "Prior": "awn.loss.prior",
    "Sigmoid": "awn.core.families",
    "adapt_": "awn.adapt.adapt",
    "choose": "awn.smaller.choose",
    "compress": "awn.smaller.truncate",
    "finalize": "awn.smaller.finalize",
    "load": "awn.files.model_folder",
    "objective": "awn.loss.objective",
    "param_groups": "awn.loss.param_groups",
    "resize_": "awn.core.resize",
    "resume_run_": "awn.files.run_file",
    "save": "awn.files.model_folder",
    "save_run": "awn.files.run_file",
    "summary": "awn.core.summary",
    "truncate": "awn.smaller.truncate",
    "widths": "awn.core.summary",
}
# Modules that are used by their own names: `awn.training.fit`, `awn.advanced.connect_`.
_MODULES = {
    name: f"awn.{name}"
    for name in (
        "adapt",
        "advanced",
        "datasets",
        "export",
        "huggingface",
        "lightning",
        "loss",
        "nn",
        "tabular",
        "training",
    )
} | {"likelihood": "awn.loss.likelihood"}


def __getattr__(name: str) -> _typing.Any:
    if name in _HOMES:
        found = getattr(_importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        found = _importlib.import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'awn' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})

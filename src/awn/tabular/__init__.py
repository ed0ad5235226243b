"""Tables: read a file, encode its columns, train a network on them, and save, predict and export."""

from awn.errors import MissingExtraError

try:
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401
    import sklearn  # noqa: F401
except ImportError as error:
    raise MissingExtraError(f'Tables need {error.name}: pip install "awn[tabular]"') from None

from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.folder import load_estimator, save_estimator
from awn.tabular.read.table import read_table

__all__ = ["AdaptiveClassifier", "AdaptiveRegressor", "load_estimator", "read_table", "save_estimator"]

"""Tables: read a file, encode its columns, train a network on them, and save, predict and export."""

from awn.basics.extra import needs_extra

with needs_extra("Tables need pandas, pyarrow and scikit-learn", "tabular", "pandas", "pyarrow", "sklearn"):
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401
    import sklearn  # noqa: F401

from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.folder import load_estimator, save_estimator
from awn.tabular.read.table import read_table

__all__ = ["AdaptiveClassifier", "AdaptiveRegressor", "load_estimator", "read_table", "save_estimator"]

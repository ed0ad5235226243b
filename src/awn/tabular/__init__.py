"""Tables: read them, decide what each column holds, turn them into numbers, and train a network on them."""

from awn.errors import MissingExtraError

try:
    import pandas  # noqa: F401
    import sklearn  # noqa: F401
except ImportError as error:
    raise MissingExtraError(f'tables need {error.name}: pip install "awn[tabular]"') from None

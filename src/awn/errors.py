"""The errors of awn. Each says what is wrong, why, and what to do."""


class AwnError(Exception):
    """The base class of every error that awn raises on purpose.

    >>> import awn
    >>> try:
    ...     awn.Exponential(rate=-1.0)
    ... except awn.AwnError as error:
    ...     print(error)
    rate must be a finite number above 0, got -1.0: ...
    """


class ArgumentError(AwnError, ValueError):
    """An argument that cannot be used.

    If the message begins with the argument's name, `argument` repeats it: the command line shows the option instead.
    """

    def __init__(self, message: str, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class OptimizerError(AwnError, ValueError):
    """An optimizer that does not fit the model, or whose state cannot follow a change of width."""


class ResizeError(AwnError, RuntimeError):
    """A change of width that cannot be made."""


class GateError(AwnError, RuntimeError):
    """A gated weight is read or written in a way that a gate does not support."""


class RankError(AwnError, RuntimeError):
    """Processes that are out of step, or a distributed model that cannot follow a change of width."""


class WorkerError(AwnError, RuntimeError):
    """A worker process that ended before its task was done."""


class NonFiniteError(AwnError, ArithmeticError):
    """A loss, a weight or a learned width that is not finite."""


class FileError(AwnError, ValueError):
    """A file that cannot be read: missing, damaged, edited, too large, or written by something else.

    Whatever is in a file, awn reads it or raises this error.
    """


class CheckpointError(FileError):
    """A file or a state dict that cannot be read, or does not belong to the model."""


class MissingExtraError(AwnError, ImportError):
    """An optional dependency that is not installed."""


class TableError(FileError):
    """A table that cannot be read, or a column of it that cannot be used."""


class DataError(AwnError, OSError):
    """A public data set that is missing, or whose file has the wrong content."""


class ColumnWarning(UserWarning):
    """Columns of a table that are left out: free text and identifiers."""

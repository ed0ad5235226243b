"""The command line's front door: `awn`, or `python -m awn`."""

import sys

_PACKAGES = ("typer", "rich", "numpy", "pandas", "pyarrow", "sklearn", "plotly")


def main() -> None:
    """Run the command line, which needs the extra `awn[tabular]`."""
    from awn.basics.extra import is_missing

    try:
        from awn.cli.app import main as run
    except ModuleNotFoundError as error:
        if not is_missing(error, *_PACKAGES):  # an import inside another file, such as one of the user's
            raise
        print(f'error: the command line needs {error.name}: pip install "awn[tabular]"', file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()

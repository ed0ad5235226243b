"""The command line's front door: `awn`, or `python -m awn`."""

import sys


def main() -> None:
    """Run the command line, which needs the extra `awn[tabular]`."""
    try:
        from awn.cli.app import main as run
    except ModuleNotFoundError as error:
        print(f'error: the command line needs {error.name}: pip install "awn[tabular]"', file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()

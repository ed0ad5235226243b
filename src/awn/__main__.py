"""`python -m awn`: the command line."""

from awn.cli.app import main

if __name__ == "__main__":
    main()

"""Options from a JSON or TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from awn.errors import ArgumentError


def read_config(path: Path | None) -> dict[str, Any]:
    """The options in a JSON or TOML file; none without a file."""
    if path is None:
        return {}
    try:
        if path.suffix.lower() == ".toml":
            import tomllib  # Python 3.11 and later

            return tomllib.loads(path.read_text(encoding="utf-8"))
        from awn.files.read import read_json

        content = read_json(path)
    except ImportError:
        raise ArgumentError(f"{path}: TOML needs Python 3.11 or later. Write the options as JSON instead.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(f"The config file {path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise ArgumentError(f"The config file {path} must hold a JSON object of options.")
    return content

"""Options from a file, JSON or TOML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from awn.errors import ArgumentError


def read_config(path: Path | None) -> dict[str, Any]:
    """The options in a JSON or TOML file."""
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".toml":
            import tomllib  # Python 3.11 and later

            return tomllib.loads(text)
        content = json.loads(text)
    except ImportError:
        raise ArgumentError(f"{path}: TOML needs Python 3.11 or later; write the options as JSON.") from None
    except (OSError, ValueError) as error:
        raise ArgumentError(f"the options file {path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise ArgumentError(f"the options file {path} must hold one JSON object of options.")
    return content

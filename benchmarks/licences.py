"""The licences of the installed dependencies, from their own metadata.

Run: python benchmarks/licences.py
"""

from __future__ import annotations

from importlib.metadata import Distribution, distributions
from typing import Any

_OSI = "License :: OSI Approved :: "


def licence_of(found: Distribution) -> str:
    """The SPDX expression, or the classifiers, or the first line of the field, whichever the package states."""
    facts: Any = found.metadata
    classifiers = [one.removeprefix(_OSI) for one in facts.get_all("Classifier") or [] if one.startswith(_OSI)]
    lines = (facts.get("License") or "").strip().splitlines()
    return str(facts.get("License-Expression") or ", ".join(classifiers) or (lines[0][:60] if lines else "not stated"))


def main() -> None:
    rows = {(found.metadata["Name"], found.version, licence_of(found)) for found in distributions()}
    for name, version, licence in sorted(rows, key=lambda row: row[0].lower()):
        print(f"{name:32} {version:16} {licence}")


if __name__ == "__main__":
    main()

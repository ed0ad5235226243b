"""The licences of the distributions that awn's extras install, from their own metadata.

Run: python benchmarks/licences.py
Writes results/licences.json, on which docs/trust.md reports: the packages of every licence, for everything that `awn`
needs, and for all that the development of it needs besides.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from awn.files.provenance import provenance
from awn.files.write import json_file, write_files

OUT = Path("results/licences.json")
_OSI = "License :: OSI Approved :: "
#: What a user installs; the rest is for those who develop awn.
FOR_USERS = ("", "tabular", "onnx", "tensorboard", "examples", "lightning", "transformers", "graph", "paper", "ray")
FOR_DEVELOPERS = (*FOR_USERS, "docs", "dev")
_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


def licence_of(found: Distribution) -> str:
    """The SPDX expression, or the classifiers, or the first line of the field, whichever the package states."""
    facts: Any = found.metadata
    classifiers = [one.removeprefix(_OSI) for one in facts.get_all("Classifier") or [] if one.startswith(_OSI)]
    lines = (facts.get("License") or "").strip().splitlines()
    return str(facts.get("License-Expression") or ", ".join(classifiers) or (lines[0][:60] if lines else "not stated"))


def installed(name: str, extras: tuple[str, ...], seen: dict[str, Distribution]) -> None:
    """Add the distributions that a distribution requires with some extras, and all that these require."""
    try:
        found = distribution(name)
    except PackageNotFoundError:  # for another system, or not installed
        return
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen and key != "awn":
        return
    seen[key] = found
    for required in _required(found, extras):
        installed(required, (), seen)


def _required(found: Distribution, extras: tuple[str, ...]) -> Iterator[str]:
    for line in found.requires or ():
        wanted = _EXTRA.search(line)
        match = _NAME.match(line)
        if match is not None and (wanted is None or wanted[1] in extras):
            yield match[0]


def packages_by_licence(extras: tuple[str, ...]) -> dict[str, list[str]]:
    seen: dict[str, Distribution] = {}
    installed("awn", extras, seen)
    seen.pop("awn", None)
    found: dict[str, list[str]] = defaultdict(list)
    for name, one in sorted(seen.items()):
        found[licence_of(one)].append(f"{name} {one.version}")
    return dict(sorted(found.items(), key=lambda entry: -len(entry[1])))


def main() -> None:
    users, developers = packages_by_licence(FOR_USERS), packages_by_licence(FOR_DEVELOPERS)
    for licence, names in users.items():
        print(f"{licence:50} {', '.join(names)}")
    write_files({OUT: json_file({"from": provenance(), "awn": users, "development": developers})})


if __name__ == "__main__":
    main()

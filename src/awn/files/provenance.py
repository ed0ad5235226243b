"""Provenance: the command, commit, date and machine that every file under results/ records."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from awn._version import __version__


def provenance(**facts: Any) -> dict[str, Any]:
    """The command, commit, date and machine of this process, with additional facts such as a seed.

    >>> sorted(provenance(seed=0))
    ['awn', 'command', 'commit', 'cores', 'date', 'machine', 'processor', 'python', 'seed', ...]
    """
    return {
        **origin(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "awn": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        **facts,
    }


def origin() -> dict[str, Any]:
    """The command and the commit of this process, for results that its workers produce elsewhere.

    >>> sorted(origin())
    ['command', 'commit']
    """
    return {"command": _command(sys.argv), "commit": _commit()}


def _command(words: Sequence[str]) -> str:
    """The command as typed, or an equivalent one.

    >>> _command(["/usr/lib/python/awn/__main__.py", "paper", "list"]), _command(["bench.py", "--only", "credit card"])
    ('awn paper list', "python bench.py --only 'credit card'")
    """
    program = Path(words[0])
    own = program.stem == "awn" or program.parts[-2:] == ("awn", "__main__.py")
    return shlex.join([*(["awn"] if own else ["python", _relative(words[0])]), *map(_relative, words[1:])])


def _relative(word: str) -> str:
    path = Path(word)
    return os.path.relpath(path) if path.is_absolute() else word


def _processor() -> str:
    """The name of the processor, which Python itself knows on few systems."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _commit() -> str | None:
    """The commit of the working folder, marked if files differ from it; None without git or a repository.

    Results and documents are ignored, because commands write them.
    """
    try:
        commit = _git("rev-parse", "--short=12", "HEAD").stdout.strip()
        if not commit:
            return None
        differs = _git("diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)results", ":(top,exclude)docs").returncode
    except OSError:  # no git here
        return None
    return f"{commit}+changes" if differs else commit


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False)

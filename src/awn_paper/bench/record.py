"""Running benchmarks, and writing what they find: a JSON file each under a folder, with where it comes from."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from awn.basics.text_table import as_table, markdown_table
from awn.errors import ArgumentError
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn_paper.bench import after, answer, memory, resize, step

BENCHMARKS: dict[str, ModuleType] = {
    "step": step,
    "resize": resize,
    "answer": answer,
    "after": after,
    "memory": memory,
}
BenchmarkRows = list[dict[str, Any]]


def record(
    folder: Path,
    only: Sequence[str] = (),
    *,
    quick: bool = False,
    then: Callable[[str, BenchmarkRows], None] | None = None,
) -> dict[str, BenchmarkRows]:
    """Run benchmarks, all or `only` some, and write each one's rows; `then` is told of each as it ends.

    >>> import tempfile
    >>> record(Path(tempfile.mkdtemp()), ["memory"], quick=True)["memory"][0]["network"]
    '2→9→2, batch 4'
    """
    for name in only:
        if name not in BENCHMARKS:
            raise ArgumentError(f"there is no benchmark {name!r}. There are: {', '.join(BENCHMARKS)}, tables.")
    found: dict[str, BenchmarkRows] = {}
    for name, benchmark in BENCHMARKS.items():
        if only and name not in only:
            continue
        made = provenance(quick=quick, threads=getattr(benchmark, "THREADS", 1))
        found[name] = []
        for row in benchmark.run(quick=quick):  # an interrupted benchmark leaves the rows that it has found
            found[name].append(row)
            write_files({folder / f"{name}.json": json_file({"from": made, "rows": found[name]})})
        if then is not None:
            then(name, found[name])
    return found


def markdown(folder: Path) -> str:
    """The tables of all results of a folder."""
    parts = []
    for name, benchmark in BENCHMARKS.items():
        path = folder / f"{name}.json"
        if path.is_file():
            content = json.loads(path.read_text(encoding="utf-8"))
            made = content["from"]
            machine = f"{made['cores']} cores" + (f" ({made['processor']})" if "processor" in made else "")
            facts = f"`{path.as_posix()}`, commit {made['commit']}, {made['date']}, {machine}"
            # Rows that measure different things have different columns, and get a table each.
            alike = [list(rows) for _, rows in itertools.groupby(content["rows"], key=tuple)]
            tables = "\n\n".join(markdown_table(*as_table(rows)) for rows in alike)
            parts.append(f"## {benchmark.TITLE}\n\n{facts}\n\n{tables}\n")
    if not parts:
        raise ArgumentError(f"there are no results of `awn bench` in {folder}: measure first, without --show.")
    return "\n".join(parts)

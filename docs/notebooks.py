"""Write every tutorial of docs/learn as a notebook, docs/notebooks/<name>.ipynb, from the same source.

    python docs/notebooks.py

Prose becomes Markdown cells, and each example with prompts becomes a code cell without them. Files and commands that a
page shows become cells that write the file (`%%writefile`) and run the command (`!`). The tests check that the
notebooks are those of the pages, whose code they run.
"""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGES = sorted((DOCS / "learn").glob("*.md"))
FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()((?!https?:)[^)#\s]+\.md)")


def main() -> None:
    for page in PAGES:
        path = DOCS / "notebooks" / f"{page.stem}.ipynb"
        path.write_text(json.dumps(notebook(page.read_text(encoding="utf-8")), indent=1, ensure_ascii=False) + "\n")


def notebook(page: str) -> dict[str, Any]:
    """A page as a notebook, without outputs."""
    found: list[dict[str, Any]] = []
    end = 0
    for block in FENCE.finditer(page):
        code = cell_code(*block.groups())
        if code is None:
            continue
        found.append(cell("markdown", page[end : block.start()]))
        found.append(cell("code", code))
        end = block.end()
    found.append(cell("markdown", page[end:]))
    cells = [{**one, "id": f"cell-{place}"} for place, one in enumerate(one for one in found if one["source"])]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def cell_code(language: str, title: str | None, text: str) -> str | None:
    r"""The code of a fenced block; None for one that only shows something.

    >>> cell_code("python", None, ">>> for x in (1, 2):\n...     print(x)\n1\n2\n")
    'for x in (1, 2):\n    print(x)\n'
    >>> cell_code("python", "train.py", "import awn\n"), cell_code("console", None, "$ ls\ntrain.py\n")
    ('%%writefile train.py\nimport awn\n', '!ls\n')
    """
    if language == "python" and title:
        return f"%%writefile {title}\n{text}"
    if language == "python" and ">>> " in text:
        return "".join(example.source for example in doctest.DocTestParser().get_examples(text))
    if language == "console":
        return "".join(f"!{line[2:]}\n" for line in text.splitlines() if line.startswith("$ "))
    return None


def cell(kind: str, text: str) -> dict[str, Any]:
    """A cell; links of a page's prose lead from docs/notebooks to where they led from docs/learn."""
    if kind == "markdown":
        text = LINK.sub(r"\1../learn/\2", text)
    more = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, **more, "source": text.strip("\n").splitlines(keepends=True)}


if __name__ == "__main__":
    main()

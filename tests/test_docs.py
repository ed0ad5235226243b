"""The documentation holds: its links, its files and commands, its notebooks, its pictures, its list of names.

Examples with prompts run as doctests, like those of the code. This file runs what doctests do not: the files and the
commands that a page shows, in order, in a folder of their own.
"""

from __future__ import annotations

import doctest
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import awn
import awn.advanced

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
#: The pages whose every block runs. Older pages show commands on tables that only a reader has.
STRICT = [ROOT / "README.md", *sorted([*DOCS.glob("learn/*.md"), *DOCS.glob("howto/*.md")]), DOCS / "faq.md"]
FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
#: They set a machine up, or run all of this; a reader types them once.
SETTING_UP = ("pip", "git", "make", "cd")
LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page: Path) -> list[tuple[str, str | None, str]]:
    """The fenced blocks of a page: the language, the title, the text."""
    return [(found[1], found[2], found[3]) for found in FENCE.finditer(page.read_text(encoding="utf-8"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Blocks


@pytest.mark.parametrize("page", STRICT, ids=name_of)
def test_every_block_is_of_a_kind_that_runs(page: Path) -> None:
    wrong = [
        text
        for language, title, text in blocks(page)
        if not (
            (language == "python" and (title or text.startswith(">>> ")))
            or (language == "console" and text.startswith("$ "))
            or language == "text"
        )
    ]
    assert not wrong, f"neither an example with prompts, nor a file, nor commands: {wrong}"


def with_commands(page: Path) -> bool:
    return any(language == "console" and commands(text) for language, _, text in blocks(page))


def commands(text: str) -> list[tuple[list[str], str]]:
    """The commands of a block that are not setting up, with what the page says they print."""
    parts = re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]
    split = [(shlex.split(command, comments=True), said) for command, _, said in (one.partition("\n") for one in parts)]
    return [(words, said) for words, said in split if words[0] not in SETTING_UP]


@pytest.mark.parametrize("page", list(filter(with_commands, STRICT)), ids=name_of)
def test_the_files_and_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for language, title, text in blocks(page):
        if language == "python" and title:
            (tmp_path / title).write_text(text, encoding="utf-8")
        for words, said in commands(text) if language == "console" else ():
            shown = output_of(words, tmp_path)
            assert not said.strip() or doctest.OutputChecker().check_output(said, shown, LIKE), shown


def output_of(words: list[str], folder: Path) -> str:
    """Run a command as the reader would, with the Python and the awn of the tests."""
    programs = {"awn": ["-m", "awn"], "python": [], "torchrun": ["-m", "torch.distributed.run"]}
    known = [sys.executable, *programs[words[0]], *words[1:]] if words[0] in programs else words
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(known, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Links


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(link)
    assert not broken


def test_every_page_has_a_place_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    places = re.findall(r"([\w/-]+\.md)$", listed, flags=re.MULTILINE)
    assert len(places) == len(set(places))
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} <= set(places)


# What is written from something else


def test_the_notebooks_are_those_of_the_pages() -> None:
    made = script("docs/notebooks.py")
    assert len(made.PAGES) >= 9
    assert {path.stem for path in DOCS.glob("notebooks/*.ipynb")} == {page.stem for page in made.PAGES}
    for page in made.PAGES:
        written = json.loads((DOCS / f"notebooks/{page.stem}.ipynb").read_text(encoding="utf-8"))
        assert written == made.notebook(page.read_text(encoding="utf-8")), f"run python docs/notebooks.py: {page.stem}"


def test_the_animation_is_that_of_the_run() -> None:
    found = json.loads((ROOT / "results/idea.json").read_text())
    drawn = script("docs/images/idea.py").animation(found["starts"]["4"])
    assert drawn == (DOCS / "images/growth.svg").read_text(encoding="utf-8")
    assert len(drawn) < 200_000


def test_the_first_page_tells_of_the_run() -> None:
    found = json.loads((ROOT / "results/idea.json").read_text())
    page = (DOCS / "learn/fifteen-minutes.md").read_text(encoding="utf-8").replace("\n", " ")
    last = {start: training["rows"][-1] for start, training in found["starts"].items()}
    assert f"One layer grows to {last['4']['units']} units, the other shrinks to {last['128']['units']}." in page
    assert min(row["score"] for row in last.values()) > 0.99
    assert f"It learned {found['curve'][0]['units']} units, and {found['chosen']} are as good." in page


def test_the_comparison_shows_the_results() -> None:
    rows = json.loads((ROOT / "results/side_by_side.json").read_text())["rows"]
    page = (DOCS / "compare.md").read_text(encoding="utf-8")
    table = page.partition("<!-- side by side -->\n")[2].partition("<!-- end -->")[0]
    assert table.strip() == script("benchmarks/side_by_side.py").shown(rows).strip()


def test_the_reference_has_every_public_name() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("reference/*.md"))
    listed = {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)$", text, flags=re.MULTILINE)}
    assert "errors" in listed  # the module, with AwnError
    public = {*awn.__all__, *awn.advanced.__all__} - {"__version__", "nn", "likelihood", "AwnError"}
    assert public <= listed, f"not in docs/reference: {sorted(public - listed)}"

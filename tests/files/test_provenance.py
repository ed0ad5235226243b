"""Where a result comes from: the commit that it names is that of the code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from awn.files.provenance import origin


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for path in ("code.py", "results/one.json", "docs/paper.md", "inside/more.py"):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text("1")
    git("init", "--quiet")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "first")
    return tmp_path


def git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout.strip()


def test_results_that_are_written_do_not_change_the_commit(repository: Path) -> None:
    for path in ("results/one.json", "results/two.json", "docs/paper.md"):
        (repository / path).write_text("2")
    assert origin()["commit"] == git("rev-parse", "--short=12", "HEAD")


@pytest.mark.parametrize("changed", ["code.py", "inside/more.py"])
@pytest.mark.parametrize("where", [".", "inside"])
def test_code_that_was_changed_marks_the_commit(
    repository: Path, changed: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / changed).write_text("2")
    monkeypatch.chdir(repository / where)
    assert origin()["commit"] == git("rev-parse", "--short=12", "HEAD") + "+changes"


def test_there_need_be_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert origin()["commit"] is None
    monkeypatch.setenv("PATH", "")
    assert origin()["commit"] is None

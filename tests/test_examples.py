"""The examples run as they are shown, at a small size."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(*words: object) -> str:
    """Run a script as a user would, from the project's root."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, *map(str, words)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_spiral_hard_leaves_a_model_a_history_and_a_picture(tmp_path: Path) -> None:
    folder, results, picture = tmp_path / "runs", tmp_path / "results", tmp_path / "widths.svg"
    shown = run("examples/spiral_hard.py", "--seeds", 3, "--epochs", 2, "--out", folder, "--results", results)
    assert "Learned" in shown
    assert (folder / "seed-3/model/model.safetensors").is_file()
    summary = json.loads((results / "summary.json").read_text())
    assert summary["from"]["seeds"] == [3]
    history = [json.loads(line) for line in (results / "seed-3.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in history] == [1, 2]
    assert summary["runs"][0]["total_width"] == sum(summary["runs"][0]["widths"].values())

    run("examples/draw_widths.py", results / "seed-3.jsonl", picture)
    assert "<svg" in picture.read_text()

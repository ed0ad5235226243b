"""Build the distribution, install it into empty environments, and try it there.

- `python -m build` and `twine check`; the wheel has py.typed and the files of the report.
- The wheel alone, and with each extra alone, in an environment of its own: an import and a small task. Exact versions
  are those of constraints.txt.
- A part of the tests, from the source distribution, with the wheel that it was built with.
- The same tests with other interpreters, whose environments have torch and the extra `tabular` already: --also PYTHON.
- `pip-audit` on constraints.txt, where its services can be reached.

Run: python benchmarks/package_check.py [--also PYTHON …] [--only NAME …]
Writes results/package.json, on which docs/trust.md reports.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from awn.files.provenance import provenance
from awn.files.write import json_file, write_files

ROOT = Path(__file__).parents[1]
OUT = ROOT / "results/package.json"
IN_WHEEL = ("awn/py.typed", "awn/report/page.css", "awn_paper/commands.py")
#: Quick, and they touch every room but the integrations.
TESTS = (
    *(f"tests/{room}" for room in ("basics", "core", "loss", "nn", "files")),
    *(f"tests/{name}.py" for name in ("test_numbers", "tabular/test_folder", "training/test_fit")),
)
FOR_TESTS = ("pytest", "pytest-xdist", "hypothesis")
_TIMEOUT = 3600

_TRAIN = """
import tempfile, torch, awn
from awn.training import Data, FitOptions, fit
x = torch.randn(64, 2)
data, model = Data(x, (x[:, 0] > 0).long()), awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(8))
history = fit(model, data, data, loss=awn.likelihood.categorical, options=FitOptions(epochs=2))
folder = tempfile.mkdtemp()
awn.save(model, folder)
assert torch.equal(awn.load(folder).eval()(x), model.eval()(x))
"""
_FIT = """
import subprocess, sys, tempfile
words = ["fit", "examples/tables/breast_cancer.csv", "--target", "diagnosis", "--epochs", "2", "--no-compare"]
subprocess.run([sys.executable, "-m", "awn", *words, "--out", tempfile.mkdtemp() + "/run"], check=True)
"""
_LIST = "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'awn', 'paper', 'list'], check=True)"
#: A small task for each extra; the empty name is the wheel without any.
TASKS = {
    "": _TRAIN,
    "tabular": _TRAIN + _FIT,
    "onnx": _TRAIN + "import awn.export; awn.export.onnx(model, folder + '/model.onnx', x)",
    "tensorboard": _TRAIN + "from awn.training import TensorBoardLogger as Log\n"
    "fit(model, data, loss=awn.likelihood.categorical, options=FitOptions(epochs=1), callbacks=[Log(folder)])",
    "mlflow": _TRAIN + "import mlflow; from awn.training import MLflowLogger",
    "examples": _TRAIN + "import rich, matplotlib",
    "lightning": _TRAIN + "import awn.lightning",
    "transformers": _TRAIN + "import awn.huggingface",
    "graph": _TRAIN + "import torch_geometric",
    "paper": _TRAIN + _LIST,
    "ray": _TRAIN + "import ray; from awn.runs.workers import ray_workers",
    "docs": "import mkdocs, material, mkdocstrings",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--also", nargs="*", default=(), type=Path, help="interpreters to run the tests with as well")
    parser.add_argument("--only", nargs="*", default=None, help="extras to try; '' is the wheel alone")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    content: dict[str, Any] = {"from": provenance()}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tools = environment(folder / "tools")
        install(tools, "build", "twine", "pip-audit")
        content |= built(tools, folder / "dist")
        wheel = next((folder / "dist").glob("*.whl"))
        base = environment(folder / "base")
        install(base, str(wheel))
        extras = TASKS if options.only is None else options.only
        content["extras"] = {extra or "none": tried(extra, wheel, base, folder / "extra") for extra in extras}
        source = unpacked(next((folder / "dist").glob("*.tar.gz")), folder / "source")
        install(base, f"{wheel}[tabular]", *FOR_TESTS)
        content["tests"] = [tested(python, source) for python in (base, *options.also)]
        content["pip-audit"] = outcome(lambda: run(tools, "-m", "pip_audit", "-r", "constraints.txt", "--no-deps"))
    write_files({options.out: json_file(content)})
    print(json.dumps(content, indent=1))
    sys.exit(0 if "failed" not in json.dumps({**content, "pip-audit": None}) else 1)


def built(tools: Path, folder: Path) -> dict[str, Any]:
    """Build both distributions, and look at them."""
    run(tools, "-m", "build", "--outdir", str(folder), str(ROOT))
    found: dict[str, Any] = {"build": {path.name: path.stat().st_size for path in sorted(folder.iterdir())}}
    names = set(zipfile.ZipFile(next(folder.glob("*.whl"))).namelist())
    found["wheel has"] = {name: name in names or "failed: missing" for name in IN_WHEEL}
    found["twine check"] = outcome(lambda: run(tools, "-m", "twine", "check", "--strict", *map(str, folder.iterdir())))
    return found


def tried(extra: str, wheel: Path, base: Path, folder: Path) -> Any:
    """Install the wheel with an extra into a copy of the environment that has the wheel alone, and use it."""
    # A copy by links saves unpacking torch again; pip replaces files, and writes into none.
    shutil.copytree(base.parents[1], folder, copy_function=os.link, symlinks=True)
    python = folder / "bin" / "python"
    try:

        def attempt() -> None:
            if extra:
                install(python, f"{wheel}[{extra}]")
            run(python, "-c", TASKS[extra])

        return outcome(attempt)
    finally:
        shutil.rmtree(folder)


def unpacked(source: Path, folder: Path) -> Path:
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.iterdir())


def tested(python: Path, source: Path) -> dict[str, Any]:
    """Run the tests of the source distribution, against its own sources, and count them."""
    facts = "import json, platform, torch; print(json.dumps([platform.python_version(), torch.__version__]))"
    versions = json.loads(run(python, "-W", "ignore", "-c", facts).splitlines()[-1])
    words = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning", *TESTS]
    said = run(python, *words, cwd=source, check=False, PYTHONPATH=str(source / "src"))
    counts = {kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|skipped|errors?)", said)}
    failures = re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", said, flags=re.MULTILINE)
    return {"python": versions[0], "torch": versions[1], **counts, "failures": sorted(set(failures))}


def environment(folder: Path) -> Path:
    """A new, empty environment; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / "bin" / "python"


def install(python: Path, *what: str) -> None:
    run(python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), *what)


def outcome(attempt: Callable[[], object]) -> str:
    started = time.perf_counter()
    try:
        attempt()
    except (subprocess.SubprocessError, OSError) as error:
        lines: Sequence[str] = (getattr(error, "output", None) or str(error)).strip().splitlines()
        return f"failed: {lines[-1] if lines else error}"
    return f"passed in {time.perf_counter() - started:.0f} s"


def run(python: Path, *words: str, cwd: Path = ROOT, check: bool = True, **variables: str) -> str:
    """Run an interpreter, outside of the environment of this one; returns what it printed."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(python), *words],
        cwd=cwd,
        check=check,
        timeout=_TIMEOUT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**clean, "OMP_NUM_THREADS": "1", **variables},
    )
    return done.stdout


if __name__ == "__main__":
    main()

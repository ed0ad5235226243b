"""Build the distribution, install it into empty environments, and try it there.

- `python -m build` and `twine check`; the wheel has py.typed and the files of the report.
- The wheel alone, and with each extra alone, in an environment of its own: an import and a small task. Exact versions
  are those of constraints.txt.
- A part of the tests, those of the source distribution against its own sources, with this interpreter and with others,
  whose environments have torch and what the tests need: --also PYTHON.
- `pip-audit` on constraints.txt, where its services can be reached.

Run: python benchmarks/package_check.py [--parts NAME …] [--also PYTHON …]
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
PARTS = ("distributions", "extras", "tests", "audit")
IN_WHEEL = ("awn/py.typed", "awn/report/page.css", "awn_paper/py.typed")
#: Quick, and they touch most rooms.
TESTS = (
    *(f"tests/{room}" for room in ("basics", "loss", "nn", "files")),
    *(f"tests/core/test_{name}.py" for name in ("importance", "resize", "width")),
    *("tests/training/test_fit.py", "tests/test_numbers.py"),
)
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


#: Extras whose own bounds exclude versions in constraints.txt.
ELSEWHERE = ("mlflow",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS, help="others keep what the file says")
    parser.add_argument("--also", nargs="*", default=(), type=Path, help="interpreters to run the tests with as well")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    made_by = provenance()  # before: the commit may change while this runs
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tools = environment(folder / "tools")
        install(tools, "build", "twine", "pip-audit")
        run(tools, "-m", "build", "--outdir", str(folder / "dist"), str(ROOT))
        wheel, source = (next((folder / "dist").glob(kind)) for kind in ("*.whl", "*.tar.gz"))
        if "distributions" in options.parts:
            found["distributions"] = looked_at(tools, wheel, source)
        if "extras" in options.parts:
            base = environment(folder / "base")
            install(base, str(wheel))
            found["extras"] = {extra or "none": tried(extra, wheel, base, folder / "extra") for extra in TASKS}
        if "tests" in options.parts:
            place = unpacked(source, folder / "source")
            # In the suite every warning is an error; other versions of the dependencies warn of other things.
            runs = [
                tested(Path(sys.executable), place),
                *(tested(python, place, "-W", "default") for python in options.also),
            ]
            found["tests"] = {"runs": runs}
        if "audit" in options.parts:
            found["audit"] = audited(tools)
    before = json.loads(options.out.read_bytes()) if options.out.is_file() else {}
    content = {**before, **{part: {"from": made_by, **said} for part, said in found.items()}}
    write_files({options.out: json_file({part: without_paths(said) for part, said in content.items()})})
    print(json.dumps(found, indent=1))
    sys.exit(1 if "failed: " in json.dumps(found) else 0)


def without_paths(said: dict[str, Any]) -> dict[str, Any]:
    """The same with other interpreters named by their versions alone: where they lie is of no use to others."""
    command = re.sub(r"(?<= )\S*[.][.]/\S*|(?<= )/\S*", "PYTHON", said["from"]["command"])
    return {**said, "from": {**said["from"], "command": command}}


def looked_at(tools: Path, wheel: Path, source: Path) -> dict[str, Any]:
    """What is in both distributions, and what twine says of them."""
    names = set(zipfile.ZipFile(wheel).namelist())
    return {
        "bytes": {path.name: path.stat().st_size for path in (wheel, source)},
        "wheel has": {name: name in names or "failed: missing" for name in IN_WHEEL},
        "twine check": outcome(lambda: run(tools, "-m", "twine", "check", "--strict", str(wheel), str(source))),
    }


def audited(tools: Path) -> dict[str, Any]:
    """Known vulnerabilities of the exact versions in constraints.txt, as far as the services of pip-audit answer."""
    said = run(tools, "-m", "pip_audit", "-r", "constraints.txt", "--no-deps", "-f", "json", check=False)
    line = next((line for line in said.splitlines() if line.startswith("{")), None)
    if line is None:
        return {"reachable": False, "says": said.strip().splitlines()[-1:]}
    packages = json.loads(line)["dependencies"]
    skipped = [one["name"] for one in packages if "skip_reason" in one]
    vulnerable = {one["name"]: [each["id"] for each in one["vulns"]] for one in packages if one.get("vulns")}
    audited = len(packages) - len(skipped)
    return {"reachable": audited > 0, "audited": audited, "skipped": len(skipped), "vulnerable": vulnerable}


def tried(extra: str, wheel: Path, base: Path, folder: Path) -> Any:
    """Install the wheel with an extra into a copy of the environment that has the wheel alone, and use it."""
    # A copy by links saves unpacking torch again; pip replaces files, and writes into none.
    shutil.copytree(base.parents[1], folder, copy_function=os.link, symlinks=True)
    python = folder / "bin" / "python"
    try:

        def attempt() -> None:
            if extra:
                install(python, f"{wheel}[{extra}]", exact=extra not in ELSEWHERE)
            run(python, "-c", TASKS[extra])

        return outcome(attempt)
    finally:
        shutil.rmtree(folder)


def unpacked(source: Path, folder: Path) -> Path:
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.iterdir())


def tested(python: Path, source: Path, *options: str) -> dict[str, Any]:
    """Run the tests of the source distribution, against its own sources, and count them."""
    facts = "import json, platform, torch; print(json.dumps([platform.python_version(), torch.__version__]))"
    versions = json.loads(run(python, "-W", "ignore", "-c", facts).splitlines()[-1])
    words = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *options, *TESTS]
    said = run(python, *words, cwd=source, check=False, PYTHONPATH=str(source / "src"))
    counts = {kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|skipped|errors?)", said)}
    failures = re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", said, flags=re.MULTILINE)
    return {"python": versions[0], "torch": versions[1], **counts, "failures": sorted(set(failures))}


def environment(folder: Path) -> Path:
    """A new, empty environment; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / "bin" / "python"


def install(python: Path, *what: str, exact: bool = True) -> None:
    constraints = ["-c", str(ROOT / "constraints.txt")] if exact else []
    run(python, "-m", "pip", "install", "--quiet", *constraints, *what)


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

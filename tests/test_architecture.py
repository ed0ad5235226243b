"""The shape of the code itself: imports go one way, files and functions stay short, `import awn` stays light."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import awn
from awn.errors import MissingExtraError

PACKAGE = Path(awn.__file__).parent

# A module may import those before it in this list, and none after it. A new file takes a place here.
CORE = [
    "_version",
    "errors",
    "names",
    "example",
    "distributed",
    "importance",
    "axis",
    "width",
    "gate",
    "groups",
    "initialise",
    "optimizers",
    "surgery",
    "average",
    "state",
    "likelihood",
    "prior",
    "budget",
    "objective",
    "mlp",
    "rnn",
    "nn",
    "shrink",
    "finalize",
    "tree",
    "files",
    "checkpoint",
    "summary",
    "provenance",
]

# Packages stand on the core, each on those before it. The front door, awn/__init__.py, opens the core.
PACKAGES = [
    "convert",
    "export",
    "training",
    "lightning",
    "huggingface",
    "report",
    "workers",
    "paper",
    "tabular",
    "bench",
    "cli",
    "__main__",
]

HEAVY = [
    "safetensors",
    "sklearn",
    "pandas",
    "rich",
    "typer",
    "plotly",
    "matplotlib",
    "lightning",
    "transformers",
    "accelerate",
    "torch_geometric",
    "optuna",
    "ray",
    "onnx",
    "tensorboard",
]


def modules() -> dict[str, Path]:
    """Every module of the package by its name inside it: `groups`, `paper.synthetic`, `paper` for its __init__."""
    named = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    del named[""]
    return named


def imports_of(path: Path, name: str) -> set[str]:
    """The modules of the package that a file imports, wherever in it the import stands."""
    known, found = modules(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        targets = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import; write from awn… in full"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        for target in targets:
            if target.split(".")[0] != "awn":
                continue
            inside = target.removeprefix("awn").removeprefix(".")
            while inside and inside not in known:
                inside = inside.rpartition(".")[0]
            found.add(inside)  # "" is the front door itself
    return found - {name}


GRAPH = {name: imports_of(path, name) for name, path in modules().items()}


def rank(name: str) -> int:
    top = name.split(".")[0]
    return CORE.index(top) if top in CORE else len(CORE) + PACKAGES.index(top)


def test_the_graph_sees_imports() -> None:
    """Facts about files that are known to import each other, so that an empty graph cannot pass."""
    assert {"axis", "importance"} <= GRAPH["width"]
    assert "surgery" in GRAPH["shrink"]
    assert imports_of(PACKAGE / "__init__.py", "") >= {"mlp", "checkpoint", "likelihood"}


@pytest.mark.parametrize("name", GRAPH)
def test_every_module_has_its_place(name: str) -> None:
    assert name.split(".")[0] in [*CORE, *PACKAGES], f"give {name} a place in the order, and say it in docs/design.md"


@pytest.mark.parametrize("name", GRAPH)
def test_imports_go_one_way(name: str) -> None:
    for other in GRAPH[name]:
        if other == "":
            assert name not in CORE, f"{name} imports the front door, which imports it"
            continue
        if name.split(".")[0] == other.split(".")[0]:
            continue  # within a package, that there is no cycle is enough
        assert rank(other) < rank(name), f"{name} imports {other}, which comes after it"


def test_there_is_no_cycle() -> None:
    left = dict(GRAPH)
    while left:
        free = [name for name, needed in left.items() if not needed & left.keys()]
        assert free, f"these import each other: {sorted(left)}"
        for name in free:
            del left[name]


def test_the_core_does_not_import_packages() -> None:
    for name, needed in GRAPH.items():
        if name in CORE:
            assert {other.split(".")[0] for other in needed} <= set(CORE), name
    # The estimators are imported when they are first used; what `import awn` loads is tested below.
    assert imports_of(PACKAGE / "__init__.py", "") - {"convert", "tabular", "tabular.estimators"} <= set(CORE)


@pytest.mark.parametrize(("name", "path"), modules().items(), ids=modules())
def test_files_stay_short(name: str, path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize(("name", "path"), modules().items(), ids=modules())
def test_functions_stay_short(name: str, path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, (
                f"{name}.{node.name} is {node.end_lineno - node.lineno + 1} lines"
            )


@pytest.mark.parametrize(("name", "path"), modules().items(), ids=modules())
def test_every_file_says_what_it_is(name: str, path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


IMPORTED = """
import sys
import torch
before = set(sys.modules)
import awn
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""


def test_importing_awn_loads_nothing_heavy() -> None:
    """Nothing but itself and the standard library beyond what torch has loaded already."""
    child = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, timeout=120)
    loaded = set(child.stdout.split())
    assert "awn" in loaded
    assert not loaded & set(HEAVY)
    assert loaded - {"awn"} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [("awn.lightning", "lightning.pytorch", "lightning"), ("awn.huggingface", "transformers", "transformers")],
)
def test_a_missing_extra_is_named(module: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf'pip install "awn\[{extra}\]"'):
        importlib.import_module(module)


# The front door


def public() -> dict[str, Any]:
    names = {name: getattr(awn, name) for name in awn.__all__ if name != "__version__"}
    for module_name, module in list(names.items()):
        if isinstance(module, ModuleType):
            members = inspect.getmembers(module, inspect.isfunction)
            own = {n: f for n, f in members if f.__module__ == module.__name__ and not n.startswith("_")}
            names.update({f"{module_name}.{name}": function for name, function in own.items()})
    return names


def test_every_public_name_exists_once_and_in_order() -> None:
    assert len(set(awn.__all__)) == len(awn.__all__)
    assert list(awn.__all__) == sorted(awn.__all__)
    assert isinstance(awn.__version__, str)
    reexported = {name for name in vars(awn) if not name.startswith("_") and name not in modules()}
    assert reexported <= set(awn.__all__)


@pytest.mark.parametrize("name", public())
def test_every_public_name_has_a_docstring(name: str) -> None:
    documented = public()[name].__doc__
    assert documented
    assert len(documented.strip().splitlines()[0]) > 10
    assert not documented.startswith(f"{name}("), "a docstring that dataclass made from the signature says nothing"


@pytest.mark.parametrize("name", [name for name, value in public().items() if inspect.isfunction(value)])
def test_every_public_function_has_an_example(name: str) -> None:
    examples = doctest.DocTestParser().get_examples(public()[name].__doc__ or "")
    assert examples, f"awn.{name} shows no example"
    assert any(example.want for example in examples) or len(examples) > 1


@pytest.mark.parametrize("name", [name for name, value in public().items() if inspect.isclass(value)])
def test_every_public_method_has_a_docstring(name: str) -> None:
    for method_name, method in vars(public()[name]).items():
        if inspect.isfunction(method) and not method_name.startswith("_"):
            assert method.__doc__, f"{name}.{method_name}"


def test_no_pickle_anywhere_in_the_package() -> None:
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not imported & {"pickle", "dill", "cloudpickle", "joblib"}, name
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert called not in {"torch.load", "torch.save", "eval", "exec"}, f"{name} calls {called}"

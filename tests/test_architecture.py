"""The shape of the code itself: imports go one way, functions stay short, `import awn` stays light.

Every rule is one test over all files, which names whatever breaks it.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import awn
from awn.errors import MissingExtraError

SOURCE = Path(awn.__file__).parents[1]

# A room imports rooms before it in this list, and none after it. A new room takes a place here and in docs/design.md.
ROOMS = [
    "_version",
    "errors",
    "basics",
    "datasets",
    "parallel",
    "core",
    "loss",
    "nn",
    "adapt",
    "smaller",
    "files",
    "export",
    "training",
    "integrations",
    "report",
    "runs",
    "tabular",
    "cli",
]

# Modules that open the rooms to users. No room imports them. `__init__` comes first: the others may import awn.
FRONT_DOOR = ["__init__", "advanced", "lightning", "huggingface", "__main__"]


def modules() -> dict[str, Path]:
    """Every module of awn and awn_paper by its name; a package's is that of its __init__."""
    named = {}
    for package in ("awn", "awn_paper"):
        for path in sorted((SOURCE / package).rglob("*.py")):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


MODULES = modules()
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imports_of(name: str) -> set[str]:
    """The modules of awn and awn_paper that a module imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(TREES[name]):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        for target in targets:
            while target and target not in MODULES:
                target = target.rpartition(".")[0]
            found.add(target)
    return found - {"", name}


GRAPH = {name: imports_of(name) for name in MODULES}


def room_of(name: str) -> str:
    """The room of a module of awn; the modules of the front door are rooms of their own."""
    return "__init__" if name == "awn" else name.split(".")[1]


def in_awn(name: str) -> bool:
    return name.split(".")[0] == "awn"


# Imports


def test_the_graph_sees_imports() -> None:
    """Facts about files that are known to import each other, so that an empty graph cannot pass."""
    assert {"awn.core.axis", "awn.core.importance"} <= GRAPH["awn.core.width"]
    assert "awn.core.resize" in GRAPH["awn.smaller.truncate"]
    assert GRAPH["awn"] >= {"awn.nn.mlp", "awn.files.model_folder", "awn.loss.likelihood"}
    assert "awn.training" in GRAPH["awn_paper.run"]


def test_every_module_has_a_room() -> None:
    homeless = [name for name in MODULES if in_awn(name) and room_of(name) not in [*ROOMS, *FRONT_DOOR]]
    assert not homeless, f"no room in ROOMS: {homeless}"


def test_imports_go_one_way() -> None:
    order = [*ROOMS, *FRONT_DOOR]
    wrong = [
        f"{name} imports {other}"
        for name in filter(in_awn, MODULES)
        for other in filter(in_awn, GRAPH[name])
        if order.index(room_of(other)) > order.index(room_of(name))
    ]
    assert not wrong, "these imports go against the order of the rooms:\n" + "\n".join(wrong)


def test_there_is_no_cycle_of_modules() -> None:
    left = dict(GRAPH)
    while left:
        free = [name for name, needed in left.items() if not needed & left.keys()]
        assert free, f"these import each other: {sorted(left)}"
        for name in free:
            del left[name]


def test_awn_never_imports_awn_paper() -> None:
    wrong = [name for name in filter(in_awn, MODULES) if not all(map(in_awn, GRAPH[name]))]
    assert not wrong, f"these import awn_paper: {wrong}"


def test_imports_are_written_in_full() -> None:
    wrong = [
        f"{name}, line {node.lineno}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not wrong, f"relative imports: {wrong}"


IMPORTED = """
import sys
import torch
before = set(sys.modules)
import awn
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""


def test_importing_awn_loads_torch_and_nothing_else() -> None:
    """Nothing but itself and the standard library beyond what torch has loaded already."""
    child = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, timeout=120)
    loaded = set(child.stdout.split())
    assert "awn" in loaded
    assert loaded - {"awn"} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("awn.integrations.lightning", "lightning.pytorch", "lightning"),
        ("awn.integrations.huggingface", "transformers", "transformers"),
    ],
)
def test_a_missing_extra_is_named(module: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf'pip install "awn\[{extra}\]"'):
        importlib.import_module(module)


# Files and functions


def test_every_file_says_what_it_is() -> None:
    silent = [name for name, tree in TREES.items() if not ast.get_docstring(tree)]
    assert not silent, f"without a docstring: {silent}"


def test_functions_stay_short() -> None:
    lengths = {
        f"{name}.{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    long = {name: lines for name, lines in lengths.items() if lines > 60}
    assert not long, f"longer than 60 lines: {long}"


def defined_in(tree: ast.Module) -> Iterator[str]:
    """The names of functions, classes and values at the top of a module."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_no_private_name_is_dead() -> None:
    """What starts with an underscore serves its own module: it is used there, or it goes."""
    dead = []
    for name, tree in TREES.items():
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        private = {one for one in defined_in(tree) if one.startswith("_") and not one.startswith("__")}
        dead += [f"{name}.{one}" for one in sorted(private - used)]
    assert not dead, f"nothing in its module uses {dead}"


PICKLES = {"pickle", "dill", "cloudpickle", "joblib"}
# Functions of torch, pandas and NumPy that pickle what they are given.
SENDS_PICKLE = {
    *("broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list", "send_object_list"),
    *("read_pickle", "to_pickle"),
}
# A benchmark compares the sizes of models of other libraries on disk: it writes pickle to memory and reads none.
WEIGHS_PICKLES = ["awn_paper.bench.table_methods"]


def test_nothing_pickles_or_runs_text() -> None:
    wrong = []
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                wrong += [f"{name} imports {one}" for one in imported & PICKLES]
            elif isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                runs = called in {"torch.load", "torch.save", "eval", "exec"} or called.split(".")[-1] in SENDS_PICKLE
                wrong += [f"{name} calls {called}"] if runs else []
    assert set(wrong) == {f"{name} imports pickle" for name in WEIGHS_PICKLES}, "\n".join(wrong)


@pytest.mark.parametrize("name", WEIGHS_PICKLES)
def test_a_pickle_that_is_weighed_is_never_read(name: str) -> None:
    used = {ast.unparse(node) for node in ast.walk(TREES[name]) if isinstance(node, ast.Attribute)}
    assert {one for one in used if one.startswith("pickle.")} == {"pickle.dump"}


# The front door


DOORS = [importlib.import_module(name) for name in ("awn", "awn.advanced") if name in MODULES]


def public() -> dict[str, Any]:
    """Every public name, and the functions of the modules among them."""
    names = {name: getattr(door, name) for door in DOORS for name in door.__all__ if name != "__version__"}
    for module_name, module in list(names.items()):
        if isinstance(module, ModuleType):
            members = inspect.getmembers(module, inspect.isfunction)
            own = {n: f for n, f in members if f.__module__ == module.__name__ and not n.startswith("_")}
            names.update({f"{module_name}.{name}": function for name, function in own.items()})
    return names


def test_every_public_name_exists_once_and_in_order() -> None:
    listed = [name for door in DOORS for name in door.__all__]
    assert len(set(listed)) == len(listed)
    for door in DOORS:
        assert list(door.__all__) == sorted(door.__all__)
        own = {name for name, value in vars(door).items() if not isinstance(value, ModuleType)}
        assert {name for name in own if not name.startswith("_")} <= set(door.__all__)
    assert isinstance(awn.__version__, str)


def test_every_public_name_has_a_docstring() -> None:
    found = {name: (value.__doc__ or "").strip() for name, value in public().items()}
    # A docstring that dataclass made from the signature says nothing.
    poor = [name for name, said in found.items() if len(said.split("\n")[0]) <= 10 or said.startswith(f"{name}(")]
    assert found
    assert not poor, f"without a docstring of their own: {poor}"


def test_every_public_function_has_an_example() -> None:
    functions = {name: value for name, value in public().items() if inspect.isfunction(value)}
    examples = {name: doctest.DocTestParser().get_examples(one.__doc__ or "") for name, one in functions.items()}
    poor = [name for name, shown in examples.items() if len(shown) < 2 and not any(each.want for each in shown)]
    assert functions
    assert not poor, f"without an example that shows a result: {poor}"


def test_every_public_method_has_a_docstring() -> None:
    methods = {
        f"{name}.{method_name}": method
        for name, value in public().items()
        if inspect.isclass(value)
        for method_name, method in vars(value).items()
        if inspect.isfunction(method) and not method_name.startswith("_")
    }
    silent = [name for name, method in methods.items() if not method.__doc__]
    assert methods
    assert not silent, f"without a docstring: {silent}"

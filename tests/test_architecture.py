"""The floor plan, checked: imports go one way, nothing runs in a circle, and each module says what is public."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "potstill"

# Each imports only from those before it. A new module or package of the top level gets its place here.
ORDER = (
    "errors",
    "progress",
    "storage",
    "config",
    "metrics",
    "data",
    "models",
    "losses",
    "tasks",
    "engines",
    "inference",
    "training",
    "evaluation",
    "export",
    "recipes",
    "compression",
    "report",
    "pipeline",
    "cli",
)
# Settings stop at the run function: below it, plain arguments.
KNOWS_SETTINGS = {"config", "pipeline", "cli"}
WITHOUT_TORCH = (
    "errors",
    "progress",
    "storage",
    "config",
    "metrics",
    "data",
    "inference",
    "report",
    "cli",
    "engines.onnxruntime",
    "engines.openvino",
)
OPTIONAL = {"matplotlib", "nncf", "onnx", "onnxruntime", "onnxscript", "openvino"}
FORBIDDEN = {"pickle", "shelve", "marshal", "dill", "joblib"}

MODULES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in MODULES}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in MODULES}
each_module = pytest.mark.parametrize("path", MODULES, ids=name_of)


def top_of(name: str) -> str | None:
    """The part of the floor plan that a module belongs to; None for the package itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else None


def imports(path: Path, nodes: Iterator[ast.AST] | None = None) -> Iterator[str]:
    """Every module that a file imports, by full name; `from a import b` is `a.b` where that is a module."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    for node in nodes or ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            inner = [f"{module}.{alias.name}" for alias in node.names if f"{module}.{alias.name}" in NAMES]
            yield from inner
            if len(inner) < len(node.names):
                yield module


def at_import(path: Path) -> Iterator[str]:
    """The modules imported when the file is: not those inside functions or under TYPE_CHECKING."""
    todo: list[ast.AST] = [TREES[path]]
    found: list[ast.AST] = []
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo.extend(node.orelse)
            continue
        found.append(node)
        todo.extend(ast.iter_child_nodes(node))
    return imports(path, iter(found))


def test_the_plan_names_every_part_of_the_package():
    parts = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert parts - {"__init__"} <= set(ORDER), "give the new part its place in ORDER"


@each_module
def test_imports_go_one_way(path):
    own = top_of(name_of(path))
    if own is None:
        return
    for name in imports(path):
        if name.split(".")[0] != "potstill":
            continue
        other = top_of(name)
        if other is None or other == own:
            continue
        assert ORDER.index(other) < ORDER.index(own), f"{name_of(path)} imports {name}, which comes after it"


def test_the_package_itself_imports_nothing_heavy():
    assert not [name for name in imports(SOURCE / "__init__.py") if name.split(".")[0] in {"torch", "transformers"}]


def test_no_module_imports_itself_through_others():
    graph = {
        name: {found for found in at_import(path) if found in NAMES and found != name} for name, path in NAMES.items()
    }
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " imports ".join([*above[above.index(name) :], name])
        if name not in done:
            for found in sorted(graph[name]):
                visit(found, (*above, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@each_module
def test_settings_stop_at_the_run_function(path):
    if top_of(name_of(path)) not in KNOWS_SETTINGS:
        assert not [name for name in imports(path) if name.startswith("potstill.config")]


@each_module
def test_public_names_are_listed_and_exist(path):
    listed = [
        ast.literal_eval(node.value)
        for node in TREES[path].body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert len(listed) == 1, f"{name_of(path)} has no __all__"
    assert len(listed[0]) == len(set(listed[0]))
    missing = set(listed[0]) - set(bound_names(TREES[path]))
    assert not missing, f"{name_of(path)} lists {missing} in __all__ and does not have them"


def bound_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


@each_module
def test_no_module_of_leftovers(path):
    assert path.stem not in {"utils", "util", "common", "base", "helpers", "misc"}


@each_module
def test_optional_dependencies_are_imported_where_they_are_used(path):
    assert not {name.split(".")[0] for name in at_import(path)} & OPTIONAL


@each_module
def test_nothing_unpickles_or_runs_code_from_a_model(path):
    assert not {name.split(".")[0] for name in imports(path)} & FORBIDDEN
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
            assert ast.unparse(node.value) == "False"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"torch.load", "eval", "exec"}:
            pytest.fail(f"{name_of(path)}:{node.lineno} calls {ast.unparse(node.func)}")


@pytest.mark.parametrize("part", WITHOUT_TORCH)
def test_imports_without_torch(part):
    names = [name for name in NAMES if name == f"potstill.{part}" or name.startswith(f"potstill.{part}.")]
    if not names:
        pytest.skip(f"potstill.{part} does not exist")
    script = f"import sys, importlib; [importlib.import_module(n) for n in {names}]; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr or f"one of {names} imports torch"

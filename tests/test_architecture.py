"""The floor plan, checked: imports go one way, nothing runs in a circle, and each module says what is public."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
    "pretraining",
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


def test_imports_go_one_way():
    upward = []
    for own_name, path in NAMES.items():
        own = top_of(own_name)
        for name in imports(path):
            other = top_of(name) if name.split(".")[0] == "potstill" else None
            if own is not None and other not in (None, own) and ORDER.index(other) >= ORDER.index(own):
                upward.append(f"{own_name} imports {name}, which comes after it")
    assert not upward


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


def test_settings_stop_at_the_run_function():
    below = {name: path for name, path in NAMES.items() if top_of(name) not in KNOWS_SETTINGS}
    assert not [
        name for name, path in below.items() if any(found.startswith("potstill.config") for found in imports(path))
    ]


def test_public_names_are_listed_and_exist():
    problems = []
    for name, path in NAMES.items():
        listed = [
            ast.literal_eval(node.value)
            for node in TREES[path].body
            if (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
            or (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "__all__" and node.value)
        ]
        if len(listed) != 1:
            problems.append(f"{name} has no __all__")
        elif len(listed[0]) != len(set(listed[0])) or set(listed[0]) - set(bound_names(TREES[path])):
            problems.append(f"{name} lists a name twice, or one that it does not have")
    assert not problems


def bound_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_no_module_of_leftovers():
    assert not {path.stem for path in MODULES} & {"utils", "util", "common", "base", "helpers", "misc"}


def test_optional_dependencies_are_imported_where_they_are_used():
    found = {name: {one.split(".")[0] for one in at_import(path)} & OPTIONAL for name, path in NAMES.items()}
    assert not {name: optional for name, optional in found.items() if optional}


def test_nothing_unpickles_or_runs_code_from_a_model():
    problems = []
    for name, path in NAMES.items():
        if {found.split(".")[0] for found in imports(path)} & FORBIDDEN:
            problems.append(f"{name} imports one of {FORBIDDEN}")
        for node in ast.walk(TREES[path]):
            if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
                if not (isinstance(node.value, ast.Constant) and node.value.value is False):
                    problems.append(f"{name}:{node.value.lineno} trusts remote code")
            elif isinstance(node, ast.Name) and node.id in {"eval", "exec"} and isinstance(node.ctx, ast.Load):
                problems.append(f"{name}:{node.lineno} uses {node.id}")
            elif isinstance(node, ast.Attribute) and node.attr == "load" and ast.unparse(node.value) == "torch":
                problems.append(f"{name}:{node.lineno} unpickles with torch.load")
    assert not problems


def test_imports_without_torch():
    names = [
        name
        for name in NAMES
        if any(name == f"potstill.{part}" or name.startswith(f"potstill.{part}.") for part in WITHOUT_TORCH)
    ]
    script = (
        f"import sys, importlib\nfor name in {names}:\n    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules: sys.exit(f'{name} imports torch')"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr

"""What is declared, pinned, documented and imported is the same; the scripts are what they say they are."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from potstill.config import load_settings

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PINS = {
    canonicalize_name(requirement.name): requirement
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
    for requirement in [Requirement(line)]
}
NEEDED = [Requirement(one) for one in PROJECT["dependencies"]]
OPTIONAL = [Requirement(one) for extra, listed in EXTRAS.items() if extra != "all" for one in listed]
SCRIPTS = ["scripts/install", "scripts/test", "scripts/check", "scripts/demo", ".ci/run"]


@pytest.mark.parametrize("requirement", NEEDED + OPTIONAL, ids=str)
def test_every_dependency_is_pinned_inside_its_range_and_documented(requirement):
    pin = PINS[canonicalize_name(requirement.name)]
    (exact,) = pin.specifier
    assert exact.operator == "=="
    assert requirement.specifier.contains(exact.version)
    assert re.search(rf"\b{re.escape(requirement.name)}\b", (ROOT / "docs" / "dependencies.md").read_text())


def test_torch_is_pinned():
    assert str(PINS["torch"].specifier) == "==2.13.0"
    assert "torch==2.13.0" in (ROOT / "scripts" / "install").read_text()


def test_all_takes_in_every_extra_for_users():
    (every,) = [Requirement(one) for one in EXTRAS["all"]]
    assert every.extras == set(EXTRAS) - {"all", "dev"}


def test_whatever_is_imported_is_declared():
    owners = importlib.metadata.packages_distributions()
    declared = {canonicalize_name(one.name) for one in NEEDED}
    declared |= {
        canonicalize_name(Requirement(one).name) for extra in ("onnx", "openvino", "report") for one in EXTRAS[extra]
    }
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"potstill"}:
                found = {canonicalize_name(owner) for owner in owners.get(name, [name])}
                assert found & declared, (
                    f"{path.relative_to(ROOT)} imports {name}, which pyproject.toml does not declare"
                )


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts(script):
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in path.read_text()
    subprocess.run(["bash", "-n", str(path)], check=True, timeout=30)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_example_settings_load(path):
    assert load_settings(path).data.train


def test_no_file_names_a_place_on_somebody_s_machine():
    # A path below a home folder or a mount, an address of a package index: neither means anything elsewhere.
    place = re.compile(
        r"(?<![\w.~-])/(?:work|root|home|Users|mnt)/\w|file://|://[\w.]*pypi[\w.]*/|://[\w.]*pytorch[\w.]*/"
    )
    folders = ["src", "docs", "examples", "scripts", "benchmarks", ".ci"]
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("*.txt")]
    for path in files:
        if path.suffix in {".py", ".md", ".toml", ".txt", ".html", ".json", ".css", ""}:
            found = place.search(path.read_text(encoding="utf-8"))
            assert found is None, f"{path.relative_to(ROOT)}: {found.group()}"

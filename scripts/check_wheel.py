"""Run by scripts/check inside a fresh environment: the installed wheel is whole, and every module of it imports."""

import importlib
import pkgutil
import sys
from pathlib import Path


def main() -> int:
    """Return 0 where the installed package has every file of the source tree given and all its modules import."""
    import potstill

    installed, source = Path(potstill.__file__).parent, Path(sys.argv[1])
    if installed == source or "site-packages" not in installed.parts:
        sys.stderr.write(f"potstill was imported from {installed}, not from the wheel\n")
        return 1
    missing = _files(source) - _files(installed)
    if missing:
        sys.stderr.write(f"the wheel lacks {', '.join(sorted(missing))}\n")
        return 1
    names = [found.name for found in pkgutil.walk_packages(potstill.__path__, "potstill.")]
    for name in names:
        importlib.import_module(name)
    sys.stdout.write(f"{len(names)} modules import from the wheel\n")
    return 0


def _files(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }


if __name__ == "__main__":
    sys.exit(main())

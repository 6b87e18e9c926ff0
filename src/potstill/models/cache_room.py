"""How much room teachers' caches take, and how they make room for one another. Knows folders, not what is in them.

One folder a teacher below a root. Whoever reads one holds its lock, shared; only folders that nobody holds are removed,
those used longest ago first.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from potstill.errors import StorageError
from potstill.storage import read_json, told, write_json

__all__ = ["Kept", "clear", "free_bytes", "held_folder", "kept_folders", "make_room"]

_LOCK, _ABOUT = ".lock", "about.json"


@dataclass(frozen=True)
class Kept:
    """A teacher's folder.

    Attributes:
        folder: Where it is.
        size: Bytes of its files.
        used: When it was used last, in seconds since 1970.
        about: Whose it is, in words.
    """

    folder: Path
    size: int
    used: float
    about: str


@contextlib.contextmanager
def held_folder(folder: Path, about: str) -> Iterator[None]:
    """Hold a teacher's folder for reading and writing, with others who do; `about` says in words whose it is."""
    with told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _LOCK).open("a+")
    with file:
        fcntl.flock(file, fcntl.LOCK_SH)
        os.utime(folder / _LOCK)
        if not (folder / _ABOUT).is_file():
            write_json(folder / _ABOUT, {"schema_version": 1, "teacher": about})
        yield


def kept_folders(root: Path) -> list[Kept]:
    """Every teacher's folder below `root`, those used longest ago first."""
    found = []
    for folder in root.iterdir() if root.is_dir() else ():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # another process may be removing it
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            found.append(Kept(folder, size, (folder / _LOCK).stat().st_mtime, _about(folder / _ABOUT)))
    return sorted(found, key=lambda kept: (kept.used, kept.folder))


def _about(path: Path) -> str:
    try:
        return str(read_json(path)["teacher"])
    except (StorageError, KeyError, TypeError):
        return "unknown"


def clear(root: Path) -> list[Kept]:
    """Remove every teacher's folder that nobody holds; returns those that stay."""
    return [kept for kept in kept_folders(root) if not _removed(kept)]


def _removed(kept: Kept) -> bool:
    """Remove a folder, unless someone holds it."""
    try:
        with (kept.folder / _LOCK).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(kept.folder)
    except OSError:
        return False
    return True


def free_bytes(folder: Path) -> int:
    """Bytes free on the file system that will hold `folder`."""
    existing = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())
    return shutil.disk_usage(existing).free


def make_room(folder: Path, needed: int, most: int) -> bool:
    """Remove other teachers' folders until `needed` bytes more fit: among all at most `most`, and on the disk.

    Args:
        folder: The teacher's that needs room; its own files stay.
        needed: Bytes that it will write.
        most: Bytes that all folders beside it may take together.

    Returns:
        Whether they fit now. Nothing is removed where all of it would not be enough.
    """
    kept = kept_folders(folder.parent)
    others = [one for one in kept if one.folder != folder]
    taken = needed + sum(one.size for one in kept)
    if taken - sum(one.size for one in others) > most or needed > free_bytes(folder) + sum(o.size for o in others):
        return False
    for one in others:
        if taken <= most and needed <= free_bytes(folder):
            break
        taken -= one.size * _removed(one)
    return taken <= most and needed <= free_bytes(folder)

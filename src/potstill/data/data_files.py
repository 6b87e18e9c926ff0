"""Which files a path, a folder or a repository's list of names stands for as data.

Knows names and suffixes: not what stands in the files, and no network.
"""

import glob
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from potstill.errors import SourceError

__all__ = [
    "DATA_SUFFIXES",
    "is_data_file",
    "local_data_files",
    "path_exists",
    "refuse_mixed_splits",
    "select_data_files",
]

DATA_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".tab", ".txt")
"""Suffixes of the files that a folder is read for."""

_BESIDE_DATA = re.compile(r"\..*|(readme|licen[cs]e|requirements|dataset_infos?|manifest)\.[a-z]+", re.IGNORECASE)
_SHARD = re.compile(r"\d+-of-\d+")
_SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_SPLITS |= dict.fromkeys(("dev", "val", "valid", "validation"), "dev")


def is_data_file(name: str) -> bool:
    """Whether a file of this name is read when its folder is named: by its suffix, but no README and the like."""
    path = PurePosixPath(name)
    return path.suffix.lower() in DATA_SUFFIXES and not any(_BESIDE_DATA.fullmatch(part) for part in path.parts)


def path_exists(source: str) -> bool:
    """Whether there is a file or folder of this name; a name that no file can have is a `SourceError`."""
    try:
        return Path(source).expanduser().exists()
    except (OSError, RuntimeError) as error:
        raise SourceError(f"{source[:200]} cannot be a path: {error}") from error


def local_data_files(source: str) -> list[Path]:
    """The absolute paths that a path, a folder or a pattern (`*`, `?`, `[…]`, `**`) stands for, sorted.

    A folder stands for the data files directly in it.

    Raises:
        SourceError: There is none, or a folder has files of several splits.
    """
    exists = path_exists(source)
    path = Path(source).expanduser().absolute()
    if path.is_dir():
        found = [p for p in sorted(path.iterdir()) if p.is_file() and is_data_file(p.name)]
        if not found:
            raise SourceError(f"{source} is a folder without data files", expected=f"files {', '.join(DATA_SUFFIXES)}")
        refuse_mixed_splits(source, [p.name for p in found], f"{source.rstrip('/')}/")
        return found
    if exists and not path.is_file():
        raise SourceError(f"{source} is no file", expected="a file of rows or a folder of them")
    if exists:
        return [path]
    if path.is_symlink():
        raise SourceError(f"{source} is a link to nothing", fix="mend the link")
    found = [Path(p) for p in sorted(glob.glob(str(path), recursive=True)) if Path(p).is_file()]
    if not found:
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = get_close_matches(path.name, names, 1, cutoff=0.7)
        raise SourceError(f"no such file: {source}", fix=f"did you mean {near[0]}?" if near else "check the path")
    return found


def select_data_files(source: str, path: str, names: Sequence[str]) -> list[str]:
    """The data files at `path` in a repository or wheel that has the files `names`.

    Args:
        source: What the user wrote, for messages; without `path` at its end it names the whole.
        path: A file, a folder (everything below it), a pattern, or "" for all.
        names: Every file there is.

    Raises:
        SourceError: There is none, or they are files of several splits.
    """
    if path in names:
        return [path]
    if glob.has_magic(path):
        found = [name for name in names if fnmatchcase(name, path)]
    else:
        found = [name for name in names if is_data_file(name) and name.startswith(f"{path}/" if path else "")]
        refuse_mixed_splits(source, found, f"{source.removesuffix(path).rstrip('/')}/")
    if not found:
        near = get_close_matches(path, names, 1, cutoff=0.3) if path else []
        fix = f"did you mean {near[0]}?" if near else f"it has {', '.join(names[:5]) or 'no files'}"
        raise SourceError(f"{source} has no data files", expected=f"files {', '.join(DATA_SUFFIXES)}", fix=fix)
    return sorted(found)


def refuse_mixed_splits(source: str, names: Iterable[str], prefix: str) -> None:
    """Refuse to read files together that are named as several splits of one set (`train.tsv`, `test.tsv`).

    Args:
        source: What the user wrote.
        names: The files it stands for.
        prefix: What stands before a name to make a source of it.

    Raises:
        SourceError: They are; it names one to write instead.
    """
    split_of: dict[str, str] = {}
    for name in names:
        for word in reversed(re.split(r"[^a-z]+", name.lower())):
            if word in _SPLITS:
                split_of[name] = _SPLITS[word]
                break
    if len(set(split_of.values())) > 1:
        example = next((name for name, split in split_of.items() if split == "train"), next(iter(split_of)))
        raise SourceError(
            f"{source} holds files of several splits: {', '.join(split_of)[:300]}",
            expected="one split",
            fix=f"name it, for example {prefix}{_SHARD.sub('*', example)}",
        )

"""Files that are whole or absent: digests, atomic writes, manifests, the lock of a run folder.

Knows nothing of what the files mean.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from potstill.errors import LockHeld, StorageError

__all__ = [
    "LOCK",
    "MANIFEST",
    "atomic_folder",
    "check_run_folder",
    "digest",
    "digest_array",
    "digest_file",
    "digest_folder",
    "ensure_space",
    "lock",
    "read_json",
    "read_manifest",
    "told",
    "verify_folder",
    "write_arrays",
    "write_bytes",
    "write_json",
]

MANIFEST = "manifest.json"
LOCK = ".potstill.lock"
"""Held while a run works; what stays of it marks a run's folder."""


def digest(value: Any) -> str:
    """SHA-256 (hex) of a JSON-able value, independent of key order."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_array(array: np.ndarray, piece: int = 1 << 24) -> str:
    """SHA-256 (hex) of an array's bytes, `piece` values at a time: it may be larger than memory, or a broadcast."""
    found = hashlib.sha256()
    flat = array if array.ndim == 1 else array.reshape(-1)
    for start in range(0, len(flat), piece):
        found.update(np.ascontiguousarray(flat[start : start + piece]).data)
    return found.hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)


def digest_folder(folder: Path) -> str:
    """SHA-256 (hex) over the relative names and digests of every file below `folder`, its manifest apart."""
    return digest({str(path.relative_to(folder)): digest_file(path) for path in _files_below(folder)})


def read_json(path: Path) -> Any:
    """The value in a JSON file; a `StorageError` names a file that cannot be read as JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be read: {error}", fix="remove it and run again") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: temporary file beside it, fsync, rename."""
    name: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        if name is not None:
            Path(name).unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, whole or not at all. NaN and infinity are refused."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays as safetensors, which stores strided ones (a column, a transpose) wrong: they are made whole.

    For files inside an `atomic_folder`: it syncs them.
    """
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(folder: Path) -> None:
    for path in _files_below(folder):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    for path in [*(p for p in folder.rglob("*") if p.is_dir()), folder]:
        _sync_folder(path)


def _unwritable(path: Path, error: OSError) -> StorageError:
    fix = "free space" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "choose another folder"
    return StorageError(f"{path} cannot be written: {error.strerror or error}", fix=fix)


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """An operating system's refusal, as a `StorageError`."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


@contextlib.contextmanager
def atomic_folder(final: Path, facts: Mapping[str, Any]) -> Iterator[Path]:
    """A folder that appears whole, with a manifest, or not at all.

    Yields a temporary folder on the same file system. When the block ends well, every file is fsynced, a manifest with
    `facts` (read then) and the SHA-256 of each file is written last, and the folder takes the place of `final`. When it
    does not, the temporary folder is removed and `final` is as it was.
    """
    with told(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=final.parent, prefix=f".{final.name}.tmp-"))
    try:
        yield work
        files = {str(p.relative_to(work)): digest_file(p) for p in _files_below(work)}
        _sync_tree(work)
        write_json(work / MANIFEST, {"schema_version": 1, **facts, "files": files})
        work.chmod(0o755)
        old = Path(f"{work}.old")
        if final.exists():
            os.replace(final, old)
        os.replace(work, final)
        _sync_folder(final.parent)
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink(missing_ok=True)
    except OSError as error:
        shutil.rmtree(work, ignore_errors=True)
        raise _unwritable(final, error) from error
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder made by `atomic_folder`; None where the folder or its manifest is absent.

    Raises:
        StorageError: A manifest that is none.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return None
    manifest = read_json(path)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise StorageError(f"{path} is damaged", expected="an object with files", fix="remove its folder and run again")
    return manifest


def verify_folder(folder: Path) -> dict[str, Any]:
    """The manifest, after every file in it was found with the digest it should have.

    Raises:
        StorageError: No manifest, a missing file, or a file whose digest differs.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise StorageError(f"{folder} has no {MANIFEST}", fix="remove the folder and run again")
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file() or digest_file(path) != expected:
            raise StorageError(
                f"{path} is missing or damaged", expected=f"SHA-256 {expected}", fix="remove its folder and run again"
            )
    return manifest


def ensure_space(folder: Path, needed: int) -> None:
    """Raise `StorageError` unless the file system that will hold `folder` has `needed` bytes free."""
    existing = next(p for p in [folder.absolute(), *folder.absolute().parents] if p.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise StorageError(
            f"{free / 1e6:,.0f} MB free for {folder}",
            expected=f"{needed / 1e6:,.0f} MB",
            fix="free space or choose another --out",
        )


def check_run_folder(folder: Path) -> None:
    """Raise `StorageError` unless `folder` is absent, empty or a run's: what `lock` leaves there marks it.

    A run replaces and removes what it made; files of anyone else's must never be among them.
    """
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder} is a file", expected="a folder for the run", fix="choose another --out")
    with told(folder):
        held = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if held and LOCK not in held:
        raise StorageError(
            f"{folder} holds files that no run made ({', '.join(held[:4])})",
            expected="a new or empty folder, or that of a run",
            fix="choose another --out",
        )


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold a run folder for this process; the kernel lets go of it when the process ends, however it ends.

    Raises:
        LockHeld: Another process holds it; its process id is named.
        StorageError: The folder cannot be made or written.
    """
    with told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            fix = "wait for it, or choose another --out"
            raise LockHeld(f"{folder} is in use by process {holder}", fix=fix) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield

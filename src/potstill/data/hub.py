"""Files out of repositories on the Hugging Face hub, pinned to a commit and checked on every use.

`HF_ENDPOINT` and the user's own hub token are honoured. Knows nothing of models or tables: the caller says which of a
repository's files it wants. Files are kept below Potstill's own cache folder, so that nothing else's are among them.
"""

import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

from potstill.errors import PotstillError, SourceError, StorageError
from potstill.progress import SILENT, Reporter
from potstill.storage import digest, digest_file, ensure_space, read_json, write_json

__all__ = ["HubCopy", "HubName", "fetch_repository", "parse_hub_name"]

RepositoryKind = Literal["model", "dataset"]
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_T = TypeVar("_T")
_REVISION = r"@(?P<revision>[^/@\s]+)"
_OWNED = re.compile(rf"(?P<repository>{_PART}/{_PART})(?:{_REVISION})?(?:/(?P<path>.+))?")
_PLAIN = re.compile(rf"(?P<repository>{_PART})(?:{_REVISION}(?:/(?P<path>.+))?)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubName:
    """A repository, a revision and a place in it.

    Attributes:
        repository: `owner/name`, or `name` for those of the hub's first years.
        revision: A branch, tag or commit.
        path: A file, a folder or a pattern in the repository; "" is all of it.
    """

    repository: str
    revision: str = "main"
    path: str = ""

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision}"
        return f"hub:{self.repository}{revision}" + (f"/{self.path}" if self.path else "")


@dataclass(frozen=True)
class HubCopy:
    """A repository's files on this machine.

    Attributes:
        folder: Where they are.
        files: SHA-256 by name relative to `folder`.
        commit: The commit they belong to, 40 hex digits.
        licence: What the repository's card says; None where it says nothing.
    """

    folder: Path
    files: dict[str, str]
    commit: str
    licence: str | None


def parse_hub_name(text: str) -> HubName | None:
    """`owner/name[@revision][/path]` or `name[@revision[/path]]`, without `hub:`; None where it cannot be one.

    A slash in a revision is written `%2F`.
    """
    found = _OWNED.fullmatch(text) or _PLAIN.fullmatch(text)
    if found is None or "--" in found["repository"] or ".." in text or text.endswith("/"):
        return None
    return HubName(found["repository"], unquote(found["revision"] or "main"), found["path"] or "")


def fetch_repository(
    name: HubName,
    kind: RepositoryKind,
    select: Callable[[list[str]], list[str]],
    *,
    cache: Path,
    offline: bool,
    report: Reporter = SILENT,
) -> HubCopy:
    """The selected files of a repository, from the cache or from the hub.

    A branch or tag is looked up on every call, so that it is the present one; a commit that is in the cache needs no
    network. Each file is checked against the SHA-256 that it had when it came, and against the hub's own where the hub
    gives one.

    Args:
        name: The repository and revision.
        kind: `model` or `dataset`.
        select: The names to fetch, out of all file names in the repository; may raise.
        cache: Folder that keeps them.
        offline: Whether the hub may not be asked.
        report: Told about downloads.

    Raises:
        SourceError: No such repository, revision or file; no permission; the hub cannot be reached; not in the cache
            while `offline` is set.
        StorageError: No space, or a damaged copy while `offline` is set.
    """
    record = _record_path(name, kind, cache)
    kept = _read_record(record, cache)
    pinned = _COMMIT.fullmatch(name.revision) is not None
    if offline and kept is None:
        raise SourceError(
            f"{name} is not in the cache {cache}, and this run is offline", fix="run once without POTSTILL_OFFLINE"
        )
    damaged = _damaged(kept) if kept is not None else None
    if kept is not None and damaged is None and (offline or pinned):
        return kept
    if damaged is not None:
        if offline:
            raise StorageError(f"{damaged} is missing or damaged", fix="run once without POTSTILL_OFFLINE")
        report.warn(f"{damaged} is missing or damaged; fetching it again")
    info = _asked(name, lambda: _repository_info(name, kind))
    wanted = sorted(select([sibling.rfilename for sibling in info.siblings or []]))
    if kept is not None and damaged is None and kept.commit == info.sha and sorted(kept.files) == wanted:
        return kept
    copy = _download(name, kind, info, wanted, cache, report, force=damaged is not None)
    facts = {"repository": name.repository, "revision": name.revision, "commit": copy.commit, "licence": copy.licence}
    folder = str(copy.folder.relative_to(cache))
    write_json(record, {"schema_version": 1, **facts, "folder": folder, "files": copy.files})
    return copy


def _endpoint() -> str | None:
    # Passed by hand: the library reads the variable once, when it is imported.
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


def _record_path(name: HubName, kind: RepositoryKind, cache: Path) -> Path:
    key = digest([_endpoint(), kind, name.repository, name.revision, name.path])[:16]
    return cache / "hub" / "records" / f"{kind}--{name.repository.replace('/', '--')}--{key}.json"


def _read_record(record: Path, cache: Path) -> HubCopy | None:
    if not record.is_file():
        return None
    facts = read_json(record)
    try:
        return HubCopy(cache / facts["folder"], dict(facts["files"]), facts["commit"], facts["licence"])
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{record} does not hold what it should", fix="remove it and run again") from error


def _damaged(copy: HubCopy) -> Path | None:
    for name, expected in copy.files.items():
        path = copy.folder / name
        if not path.is_file() or digest_file(path) != expected:
            return path
    return None


def _repository_info(name: HubName, kind: RepositoryKind) -> Any:
    from huggingface_hub import HfApi

    api = HfApi(endpoint=_endpoint(), library_name="potstill")
    return api.repo_info(name.repository, repo_type=kind, revision=name.revision, files_metadata=True)


def _download(
    name: HubName,
    kind: RepositoryKind,
    info: Any,
    wanted: Sequence[str],
    cache: Path,
    report: Reporter,
    *,
    force: bool,
) -> HubCopy:
    from huggingface_hub import snapshot_download

    siblings = {sibling.rfilename: sibling for sibling in info.siblings}
    total = sum(siblings[file].size or 0 for file in wanted)
    ensure_space(cache, total + total // 10)
    report.note(f"fetching {name}: {len(wanted)} files, {total / 1e6:,.1f} MB")
    folder = _asked(
        name,
        lambda: snapshot_download(
            name.repository,
            repo_type=kind,
            revision=info.sha,
            cache_dir=cache / "hub",
            endpoint=_endpoint(),
            library_name="potstill",
            allow_patterns=[escape(file) for file in wanted],
            force_download=force,
            tqdm_class=_bar(report, total),
        ),
    )
    files = {file: digest_file(Path(folder) / file) for file in wanted}
    for file, got in files.items():
        large = siblings[file].lfs
        if large is not None and large.sha256 != got:
            (Path(folder) / file).resolve().unlink(missing_ok=True)
            raise SourceError(f"{file} of {name} has SHA-256 {got}", expected=f"{large.sha256}, as the hub says")
    card = info.card_data
    licence = card.get("license") if card is not None else None
    text = ", ".join(licence) if isinstance(licence, list) else licence
    # Below `cache` as given, so that the record holds a relative path whatever links lead there.
    return HubCopy(cache / Path(folder).relative_to(cache.resolve()), files, info.sha, text)


def _asked(name: HubName, ask: Callable[[], _T]) -> _T:
    """What the hub answers; each way in which it may fail becomes one line."""
    from huggingface_hub import errors

    try:
        return ask()
    except PotstillError:
        raise
    except errors.GatedRepoError as error:
        raise SourceError(
            f"{name} is gated on the hub", fix="accept its terms there and log in with `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise SourceError(
            f"the hub has no {name}, or it is private", fix="check the name; a local path needs to exist"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise SourceError(
            f"{name.repository} has no revision {name.revision!r}", fix="name a branch, tag or commit"
        ) from error
    except OSError as error:
        if error.errno is not None and not isinstance(error, ConnectionError):
            raise StorageError(
                f"{name} cannot be kept: {error.strerror}", fix="free space or set POTSTILL_CACHE"
            ) from error
        raise _unreachable(name, error) from error
    except Exception as error:  # The HTTP library's own errors share no base with anything that is imported here.
        raise _unreachable(name, error) from error


def _unreachable(name: HubName, error: Exception) -> SourceError:
    reason = " ".join(str(error).partition("For more information")[0].split())[:200] or type(error).__name__
    return SourceError(
        f"{name} cannot be had from the hub: {reason}",
        fix="check the network and HF_ENDPOINT; a copy in the cache is used with POTSTILL_OFFLINE=1",
    )


def _bar(report: Reporter, total: int) -> type[Any]:
    """A progress bar that draws nothing and passes on the bytes that have come."""
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

    guard = threading.Lock()
    most = 0

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.bytes_done = 0 if kwargs.get("unit") == "B" else None
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            # Two bars count bytes, those received and those written: the one that is ahead is shown.
            nonlocal most
            with guard:
                if self.bytes_done is not None:
                    self.bytes_done += int(n or 0)
                    if most < min(self.bytes_done, total):
                        most = min(self.bytes_done, total)
                        report.progress(most, total)
            return None

    return Bar

"""A small Hugging Face hub on loopback, for tests: `with Hub() as hub`, then `HF_ENDPOINT=hub.url`.

It answers what `huggingface_hub` asks when it lists and downloads: repository info, tree, HEAD and GET of files (large
ones through a redirect with the linked headers, as the real one does), ranges, renamed repositories, and the error
codes for what is missing or gated. It keeps the requests it got.
"""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["Hub"]

_LARGE = (".safetensors", ".parquet", ".bin")


@dataclass
class _Repository:
    revisions: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    licence: str | None = None
    gated: bool = False


class Hub:
    """Repositories in memory, served while the context is open.

    Attributes:
        url: What to set `HF_ENDPOINT` to.
        requests: (method, path) of every request so far.
        down: While true, every request is answered with 503.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.down = False
        self.repositories: dict[tuple[str, str], _Repository] = {}
        self.renamed: dict[tuple[str, str], str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        # Large files are redirected to another host, and the client does not follow there before it has the headers.
        self.elsewhere = f"http://localhost:{self._server.server_port}"

    def __enter__(self) -> "Hub":
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(
        self,
        kind: str,
        name: str,
        files: Mapping[str, bytes],
        *,
        revision: str = "main",
        licence: str | None = None,
        gated: bool = False,
    ) -> str:
        """Commit `files` as the whole content of a `model` or `dataset`; returns the commit."""
        repository = self.repositories.setdefault((kind, name), _Repository())
        content = b"".join(path.encode() + hashlib.sha1(files[path]).digest() for path in sorted(files))
        commit = hashlib.sha1(name.encode() + content).hexdigest()
        repository.commits[commit] = dict(files)
        repository.revisions[revision] = commit
        repository.licence, repository.gated = licence, gated
        return commit

    def rename(self, kind: str, old: str, new: str) -> None:
        """Answer for `old` with a redirect to `new`."""
        self.renamed[kind, old] = new

    def contents(self) -> list[bytes]:
        """Every file of every commit."""
        commits = [files for repository in self.repositories.values() for files in repository.commits.values()]
        return [content for files in commits for content in files.values()]

    @property
    def downloads(self) -> list[str]:
        """The files whose content was sent, by path in their repository or SHA-256."""
        return [path.rpartition("/")[2] for method, path in self.requests if method == "GET" and "/api/" not in path]


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            self.respond(body=True)

        def do_HEAD(self) -> None:
            self.respond(body=False)

        def respond(self, *, body: bool) -> None:
            path = urlsplit(self.path).path
            hub.requests.append((self.command, path))
            status, headers, content = (503, {}, b"") if hub.down else _answer(hub, path)
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if status == 200 and wanted:
                status, content = 206, content[int(wanted[1]) :]
            self.send_response(status)
            for key, value in {"Content-Length": str(len(content)), "Connection": "close", **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

    return Handler


_Answer = tuple[int, dict[str, str], bytes]
_API = re.compile(r"/api/(model|dataset)s/((?:[^/]+/)?[^/]+?)(?:/(revision|tree)/([^/]+))?")
_FILE = re.compile(r"/(datasets/)?((?:[^/]+/)?[^/]+)/resolve/([^/]+)/(.+)")


def _answer(hub: Hub, path: str) -> _Answer:
    if found := _API.fullmatch(path):
        return _about(hub, path, found[1], found[2], found[3] or "revision", unquote(found[4] or "main"), "")
    if found := _FILE.fullmatch(path):
        kind = "dataset" if found[1] else "model"
        return _about(hub, path, kind, found[2], "resolve", unquote(found[3]), unquote(found[4]))
    if found := re.fullmatch(r"/content/([0-9a-f]{64})", path):
        for content in hub.contents():
            if hashlib.sha256(content).hexdigest() == found[1]:
                return 200, {"ETag": f'"{found[1]}"'}, content
    return _error(404, "EntryNotFound")


def _about(hub: Hub, path: str, kind: str, name: str, verb: str, revision: str, file: str) -> _Answer:
    if (kind, name) in hub.renamed:
        return 307, {"Location": path.replace(name, hub.renamed[kind, name], 1)}, b""
    repository = hub.repositories.get((kind, name))
    if repository is None:
        return _error(404, "RepoNotFound")
    commit = repository.revisions.get(revision, revision)
    if commit not in repository.commits:
        return _error(404, "RevisionNotFound")
    files = repository.commits[commit]
    if verb == "resolve":
        return _error(403, "GatedRepo") if repository.gated else _file(hub, files, file, commit)
    if verb == "tree":
        return _json([{"type": "file", "path": each, **_facts(each, files[each], "oid")} for each in sorted(files)])
    card = {"license": repository.licence} if repository.licence else None
    siblings = [{"rfilename": each, **_facts(each, files[each], "sha256")} for each in sorted(files)]
    return _json({"id": name, "sha": commit, "siblings": siblings, "cardData": card, "tags": []})


def _facts(path: str, content: bytes, key: str) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    facts: dict[str, Any] = {"size": len(content), "oid": blob, "blobId": blob}
    if path.endswith(_LARGE):
        facts["lfs"] = {key: hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return facts


def _file(hub: Hub, files: Mapping[str, bytes], path: str, commit: str) -> _Answer:
    if path not in files:
        return _error(404, "EntryNotFound")
    content = files[path]
    headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
    if path.endswith(_LARGE):
        sha256 = hashlib.sha256(content).hexdigest()
        headers |= {"X-Linked-Etag": f'"{sha256}"', "X-Linked-Size": str(len(content))}
        return 302, {**headers, "Location": f"{hub.elsewhere}/content/{sha256}"}, b""
    return 200, {**headers, "ETag": f'"{_facts(path, content, "oid")["oid"]}"'}, content


def _json(value: Any) -> _Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _error(status: int, code: str) -> _Answer:
    return status, {"X-Error-Code": code, "X-Error-Message": code}, b""

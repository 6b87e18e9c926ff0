"""Which files make a model, and whether a folder of them can be opened without running anybody's code.

Knows file names and JSON: no network, no torch, no `transformers`.
"""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from potstill.errors import ModelError
from potstill.storage import MANIFEST

__all__ = ["card_licence", "check_model_folder", "is_model_file", "model_files", "select_model_files"]

_PATTERNS = ("*.json", "*.model", "vocab.txt", "merges.txt", "model.safetensors", "model-*-of-*.safetensors")
_WEIGHTS, _INDEX, _ADAPTER = "model.safetensors", "model.safetensors.index.json", "adapter_config.json"
_ATTENTION = frozenset({None, "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"})
_PICKLED = frozenset({".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack"})
_JSON_LIMIT = 64 << 20


def is_model_file(name: str) -> bool:
    """Whether a path relative to a model's folder is a configuration, tokenizer or safetensors file of that model.

    Weights count at the top of the folder only (deeper ones are other checkpoints); JSON one level deeper too
    (`1_Pooling/config.json`). Pickle weights, Python files and adapters are never among them.
    """
    path = PurePosixPath(name)
    if path.name == _ADAPTER or any(part.startswith(".") for part in path.parts):
        return False
    if len(path.parts) == 2:
        return path.name == "config.json"
    return len(path.parts) == 1 and path.name != MANIFEST and any(fnmatchcase(path.name, p) for p in _PATTERNS)


def model_files(folder: Path) -> list[str]:
    """The relative names of the files in a local folder that make the model, sorted."""
    found = [path for pattern in ("*", "*/config.json") for path in folder.glob(pattern) if path.is_file()]
    return sorted(name for name in {path.relative_to(folder).as_posix() for path in found} if is_model_file(name))


def select_model_files(source: str, names: list[str]) -> list[str]:
    """The files of a model, and its README, out of all file names of a repository.

    Args:
        source: What the user wrote, for messages.
        names: Every file in the repository.

    Raises:
        ModelError: No `config.json` among them, or no safetensors weights.
    """
    if "config.json" not in names:
        raise ModelError(f"{source} has no config.json", expected="a model's repository")
    if _WEIGHTS not in names and _INDEX not in names:
        raise _without_weights(source, names)
    whole = _WEIGHTS in names
    chosen = [name for name in names if is_model_file(name) or name == "README.md"]
    return [name for name in chosen if not (whole and fnmatchcase(name, "model-*-of-*.safetensors"))]


def _without_weights(source: str, names: list[str]) -> ModelError:
    others = sorted(name for name in names if PurePosixPath(name).suffix in _PICKLED)
    return ModelError(
        f"{source} has no {_WEIGHTS}" + (f", only {', '.join(others[:3])}" if others else ""),
        expected="safetensors weights; pickle weights are not read",
        fix="have it saved with save_pretrained of a recent transformers",
    )


def check_model_folder(folder: Path) -> None:
    """Refuse a folder that is no model, has pickle weights only, or asks for code from elsewhere.

    Raises:
        ModelError: No `config.json`; no `model.safetensors`, nor an index of shards beside it; a file that cannot be
            read; a key that makes `transformers` fetch or run code; a shard outside the folder.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json", expected="a model's folder, as save_pretrained writes it")
    if (folder / _ADAPTER).is_file():
        raise ModelError(
            f"{folder} holds an adapter, which names its base model", fix="merge it into the model and save that"
        )
    for path in sorted(folder.glob("*config*.json")):
        for key, value in _settings(_json(path)):
            if reason := _runs_code(key, value):
                raise ModelError(f"{path}: the key {key!r} {reason}", fix="use a model that transformers holds itself")
    for weights in _weights(folder):
        _check_safetensors(weights)


def _json(path: Path) -> Any:
    try:
        if path.stat().st_size > _JSON_LIMIT:
            raise ModelError(f"{path} has {path.stat().st_size:,} bytes", expected=f"at most {_JSON_LIMIT:,}")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def _settings(value: Any) -> Iterator[tuple[str, Any]]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value.items()
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _runs_code(key: str, value: Any) -> str | None:
    if key in ("auto_map", "custom_pipelines") and value:
        return "names code of its own, which is never run"
    if key.endswith("_implementation_internal"):
        return "reaches past the public settings, and can make a library run code from elsewhere"
    if key.lstrip("_") in ("attn_implementation", "experts_implementation"):
        names = value.values() if isinstance(value, dict) else [value]
        if any(not (name is None or isinstance(name, str)) or name not in _ATTENTION for name in names):
            return f"asks for {value!r}, a kernel from elsewhere"
    if key == "transformers_weights" and value is not None:
        return "names another weights file"
    return None


def _weights(folder: Path) -> list[Path]:
    if (folder / _WEIGHTS).is_file():
        return [folder / _WEIGHTS]
    if not (folder / _INDEX).is_file():
        raise _without_weights(str(folder), [path.name for path in folder.iterdir()])
    index = _json(folder / _INDEX)
    names = (
        set(index["weight_map"].values())
        if isinstance(index, dict) and isinstance(index.get("weight_map"), dict)
        else set()
    )
    if not names:
        raise ModelError(f"{folder / _INDEX} names no shard", expected="a weight_map of file names")
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[\w-][\w.-]*\.safetensors", name):
            raise ModelError(
                f"{folder / _INDEX} names the shard {name!r}", expected="a safetensors file in the same folder"
            )
        if not (folder / name).is_file():
            raise ModelError(f"{folder} lacks the shard {name}", fix="download the model again")
    return [folder / name for name in sorted(names)]


def _check_safetensors(path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
    header = int.from_bytes(start, "little")
    if len(start) < 8 or header > size - 8:
        pointer = ", a git-lfs pointer" if start == b"version " else ""
        raise ModelError(f"{path} holds no safetensors weights{pointer}", fix="download the file itself")


def card_licence(folder: Path) -> str | None:
    """The `license` in the front matter of a folder's README.md; None where there is none."""
    card = folder / "README.md"
    if not card.is_file():
        return None
    with card.open(encoding="utf-8", errors="replace") as file:
        lines = [line.rstrip() for line, _ in zip(file, range(400), strict=False)]
    if not lines or lines[0] != "---":
        return None
    for line in lines[1:]:
        if line == "---":
            break
        if found := re.fullmatch(r"license:\s*['\"]?([\w .+-]+?)['\"]?\s*", line):
            return found[1]
    return None

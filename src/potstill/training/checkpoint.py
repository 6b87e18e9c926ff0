"""A training's state on disk: whole or absent, found by its digests, never a pickle.

A checkpoint is a folder: `state.safetensors` (master weights and moments of student *and projections*, averages) and
`progress.json` (position, curve, environment). Randomness needs no state: it is counted, see `potstill.training.loop`.
"""

import platform
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from potstill.errors import StorageError
from potstill.storage import atomic_folder, ensure_space, read_json, read_manifest, verify_folder, write_json

__all__ = ["environment", "load_checkpoint", "save_checkpoint"]

_FILES = {"state.safetensors", "progress.json"}


def environment() -> dict[str, Any]:
    """What rounding depends on beside the state: library versions, instruction set, thread count."""
    capabilities = torch.cpu.get_capabilities()
    return {
        "torch": version("torch"),
        "transformers": version("transformers"),
        "machine": platform.machine(),
        "instructions": sorted(name for name, present in capabilities.items() if present is True),
        "threads": torch.get_num_threads(),
    }


def save_checkpoint(folder: Path, step: int, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
    """Write the state after `step` updates into `folder/step-NNNNNNNN`; older ones are removed after.

    Raises:
        StorageError: It cannot be written; the checkpoint before it is as it was.
    """
    ensure_space(folder, sum(tensor.nbytes for tensor in tensors.values()) + 10_000_000)
    final = folder / f"step-{step:08d}"
    try:
        with atomic_folder(final, {"step": step}) as work:
            whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
            save_file(whole, work / "state.safetensors")
            write_json(work / "progress.json", {**progress, "environment": environment()})
    except (OSError, SafetensorError) as error:  # the second is what safetensors makes of the first
        raise StorageError(f"{final} cannot be written: {error}", fix="free space or another --out") from error
    # Older checkpoints, and what a process that was killed within a save left.
    for old in (*folder.glob("step-*"), *folder.glob(".step-*")):
        if old != final:
            shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest state in `folder`, after its digests were checked; None where there is none.

    Raises:
        StorageError: The newest checkpoint is damaged (the message names the file), or was written by other library
            versions, another instruction set or thread count: it would not go on to the same bytes.
    """
    found = sorted(path for path in folder.glob("step-*") if read_manifest(path) is not None)
    if not found:
        return None
    newest, fix = found[-1], "remove the folder and run again"
    manifest = read_manifest(newest)
    names = {"step": int(newest.name.removeprefix("step-")), "schema_version": 1, "files": _FILES}
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or {**(manifest or {}), "files": set(files)} != names:
        raise StorageError(f"{newest}/manifest.json is damaged", expected="the manifest of this checkpoint", fix=fix)
    verify_folder(newest)
    progress = read_json(newest / "progress.json")
    if not isinstance(progress, dict):
        raise StorageError(f"{newest}/progress.json holds no object", fix=fix)
    theirs, here = progress.get("environment", {}), environment()
    if differing := [name for name in here if theirs.get(name) != here[name]]:
        raise StorageError(
            f"{newest} was written with {_shown(theirs, here, differing)}",
            expected=_shown(here, theirs, differing),
            fix="go on there, or remove the folder and begin anew",
        )
    return load_file(newest / "state.safetensors"), progress


def _shown(side: dict[str, Any], other: dict[str, Any], names: list[str]) -> str:
    def value(name: str) -> str:
        found = side.get(name)
        if isinstance(found, list):  # instruction sets are long: only what the other has not
            return " ".join(sorted(set(found) - set(other.get(name) or []))) or "fewer"
        return str(found)

    return ", ".join(f"{name} {value(name)}" for name in names)

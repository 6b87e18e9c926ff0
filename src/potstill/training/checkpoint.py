"""A training's state on disk: whole or absent, found by its digests, never a pickle.

A checkpoint is a folder: `state.safetensors` (master weights and moments of student *and projections*, averages) and
`progress.json` (position, curve, environment). Randomness needs no state: it is counted, see `potstill.training.loop`.
"""

import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from potstill.errors import StorageError
from potstill.storage import atomic_folder, ensure_space, read_json, read_manifest, verify_folder, write_json

__all__ = ["load_checkpoint", "save_checkpoint"]


def save_checkpoint(folder: Path, step: int, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
    """Write the state after `step` updates into `folder/step-NNNNNNNN`; older ones are removed after."""
    ensure_space(folder, sum(tensor.nbytes for tensor in tensors.values()) + 10_000_000)
    final = folder / f"step-{step:08d}"
    with atomic_folder(final, {"step": step}) as work:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, work / "state.safetensors")
        write_json(work / "progress.json", progress)
    for old in folder.glob("step-*"):
        if old != final:
            shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest state in `folder`, after its digests were checked; None where there is none.

    Raises:
        StorageError: The newest checkpoint is damaged; the message names the file.
    """
    found = sorted(path for path in folder.glob("step-*") if read_manifest(path) is not None)
    if not found:
        return None
    verify_folder(found[-1])
    progress = read_json(found[-1] / "progress.json")
    if not isinstance(progress, dict):
        raise StorageError(f"{found[-1]}/progress.json holds no object", fix="remove the folder and run again")
    return load_file(found[-1] / "state.safetensors"), progress

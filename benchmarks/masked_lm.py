"""A masked LM of our own: `potstill pretrain` on about 30 MB of text, and what it learned, as a table.

    python benchmarks/masked_lm.py TEXT [TEXT ...] --budget 50

Texts are read in the order given, up to --max-tokens (7 M are about 30 MB of English).
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "masked_lm.md"


def table(found: dict[str, object], command: str, note: str) -> str:
    """The result as Markdown."""
    judged, model, text = found["held_out"], found["model"], found["text"]
    training, machine = found["training"], found["environment"]
    curve = [point for point in training["curve"] if point["dev"] is not None]
    lines = [
        "# A masked LM on plain text",
        "",
        f"{machine['cpu']}, {machine['threads']} threads, torch {machine['torch']}. {model['source']} "
        f"({model['shape']}, {model['parameters'] / 1e6:.1f} M parameters), "
        f"{'a fresh head tied to its embeddings' if model['fresh_head'] else 'its own head'}. "
        f"{text['train']['tokens'] / 1e6:.1f} M tokens read {training['epochs']:.2f} times, in windows of "
        f"{text['window']}, {training['seconds'] / 60:.0f} minutes of training, {found['seconds']['total'] / 60:.0f} "
        f"in all. Judged on {judged['places']:,} masked places of text that was kept apart.",
        "",
        "| | loss, nats | perplexity | best word right, % |",
        "|---|---|---|---|",
        f"| by frequency alone (unigram entropy) | {judged['unigram_entropy']:.3f} | – "
        f"| {100 * judged['unigram_accuracy']:.1f} |",
        f"| the masked LM | {judged['loss']:.3f} | {judged['perplexity']:.1f} | {100 * judged['accuracy']:.1f} |",
        "",
        "On the way (a part of the held-out text): "
        + ", ".join(f"{point['dev']:.2f} after {point['seconds'] / 60:.0f} min" for point in curve)
        + ".",
        "",
        *([note, ""] if note else []),
        f"Command: `{command}`",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run it, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--model", default="pypi:minilm")
    parser.add_argument("--out", default="runs/masked-lm")
    parser.add_argument("--budget", default="50", help="minutes")
    parser.add_argument("--max-tokens", default="7000000")
    parser.add_argument("--set", action="append", default=[], help="a further setting, section.key=value")
    parser.add_argument("--note", default="", help="what else must be known")
    args = parser.parse_args()
    call = ["potstill", "pretrain", "--objective", "masked", "--model", args.model, "--out", args.out]
    call += ["--budget", args.budget, "--set", f"text.max_tokens={args.max_tokens}"]
    call += [part for name in args.set for part in ("--set", name)]
    call += [part for text in args.texts for part in ("--text", text)]
    subprocess.run([str(Path(sys.executable).parent / call[0]), *call[1:]], check=True)
    found = json.loads((Path(args.out) / "pretrain.json").read_text())
    shown = f"python benchmarks/masked_lm.py {' '.join(Path(text).name for text in args.texts)} --budget {args.budget}"
    shown += "".join(f" --set {name}" for name in args.set)
    RESULTS.write_text(table(found, shown, args.note))


if __name__ == "__main__":
    main()

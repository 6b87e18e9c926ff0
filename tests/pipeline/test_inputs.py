"""Other kinds of input through the whole job: pairs, long texts in windows, unlabelled texts, overlaps."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.pipeline.tiny_job import BAD, GOOD, OTHER, tiny_settings, write_rows

from potstill.data.examples import UNLABELLED
from potstill.inference import Predictor
from potstill.pipeline import distill, plan
from potstill.pipeline.checked import checked_job
from potstill.pipeline.results import read_split, task_facts
from potstill.progress import SILENT
from potstill.storage import digest_file


def write_pairs(path: Path, rows: int, seed: int) -> Path:
    """The label says whether the second text is good or bad; the first is noise."""
    draw = random.Random(seed)
    lines = ["a\tb\tlabel"]
    for number in range(rows):
        first = " ".join(draw.choice(OTHER) for _ in range(draw.randint(2, 5)))
        second = f"{draw.choice(OTHER)} {draw.choice(GOOD if number % 2 else BAD)} {draw.choice(OTHER)}"
        lines.append(f"{first}\t{second}\t{'pos' if number % 2 else 'neg'}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_pairs(tmp_path: Path) -> None:
    tiny_settings(tmp_path)
    train, dev = write_pairs(tmp_path / "p.tsv", 240, 5), write_pairs(tmp_path / "q.tsv", 80, 6)
    settings = tiny_settings(
        tmp_path,
        f'data.train="{train}"',
        f'data.dev="{dev}"',
        "data.test=",
        "data.text=a",
        "data.pair=b",
        "export.formats=[]",
        "evaluate.hard_labels=false",
    )
    report = distill(settings)
    assert report["task"]["pair"]
    assert report["judged_on"] == "dev"
    assert report["teacher"]["score"]["value"] > 0.9
    (answer,) = Predictor.load(tmp_path / "run" / "student").predict(["the film was"], ["a great story"])
    assert set(answer.probabilities) == {"neg", "pos"}


def test_the_plan_counts_both_sides_of_a_pair(tmp_path: Path) -> None:
    train = write_pairs(tmp_path / "p.tsv", 240, 5)
    settings = tiny_settings(
        *(
            tmp_path,
            f'data.train="{train}"',
            "data.dev=",
            "data.test=",
            "data.text=a",
            "data.pair=b",
            "augment.copies=3",
        )
    )
    (line,) = [note for note in plan(settings)["notes"] if note.startswith("data: ")]
    sides = [line.split("\t")[:2] for line in train.read_text().splitlines()[1:]]
    words = sum(len(" ".join(pair).split()) for pair in sides) / len(sides)
    assert line == f"data: 240 rows, {words + 3:.0f} tokens each"  # [CLS], two [SEP]
    augmenting = checked_job(settings, SILENT).augmenting
    assert augmenting.texts(240, pairs=True) == 240 * 7
    assert replace(augmenting, methods=("recombine", "ngram")).texts(10, pairs=True) == 10 * (1 + 3 + 6)
    assert replace(augmenting, methods=("recombine", "ngram")).texts(10, pairs=False) == 10 * 7


def test_long_texts_are_windowed_and_counted(tmp_path: Path) -> None:
    settings = tiny_settings(
        tmp_path,
        "data.max_length=8",
        "data.long_text=window",
        "distill.epochs=1",
        "export.formats=[]",
        "evaluate.hard_labels=false",
        'student.assistants=["1x32x64x4"]',
    )
    report = distill(settings)
    assert report["data"]["windowed"]["test"] > 0
    assert report["data"]["truncated"]["test"] == 0
    logits = load_file(tmp_path / "run" / "stages" / "score" / "logits.safetensors")
    assert logits["student/test"].shape == (report["data"]["test"], 2)


def test_unlabelled_texts_are_learned_from_and_overlaps_are_taken_out(tmp_path: Path) -> None:
    tiny_settings(tmp_path)
    plain = write_rows(tmp_path / "more.tsv", 40, 8)
    test_rows = (tmp_path / "test.tsv").read_text().splitlines()[1:6]
    plain.write_text(plain.read_text() + "\n".join(test_rows) + "\n")
    settings = tiny_settings(
        tmp_path,
        f'data.unlabelled="{plain}"',
        "distill.epochs=1",
        "export.formats=[]",
        'student.assistants=["1x32x64x4"]',
    )
    report = distill(settings)
    unlabelled = read_split(tmp_path / "run" / "stages" / "data", "unlabelled")
    assert unlabelled is not None
    assert np.all(unlabelled.labels == UNLABELLED)
    held = set((tmp_path / "test.tsv").read_text().splitlines())
    assert not any(f"{text}\tpos" in held or f"{text}\tneg" in held for text in unlabelled.texts)
    assert any(row["between"] == ["unlabelled", "test"] and row["removed"] >= 5 for row in report["data"]["overlaps"])


def test_rare_labels_count_more(tmp_path: Path) -> None:
    """One positive in five texts: both classes weigh the same in what learns from labels."""
    tiny_settings(tmp_path)
    lines = write_rows(tmp_path / "even.tsv", 960, 4).read_text().splitlines()
    rare = [lines[0], *(line for n, line in enumerate(lines[1:]) if line.endswith("neg") or n % 8 == 1)]
    (tmp_path / "rare.tsv").write_text("\n".join(rare) + "\n")
    own = [f'data.train="{tmp_path}/rare.tsv"', "export.formats=[]", "teacher.epochs=16", "distill.epochs=2"]
    report = distill(tiny_settings(tmp_path, *own, "data.class_weights=balanced"))
    facts = task_facts(tmp_path / "run" / "stages" / "data")
    assert facts["class_weights"] == pytest.approx([600 / (2 * 480), 600 / (2 * 120)])
    assert report["teacher"]["score"]["value"] > 0.9
    stages = tmp_path / "run" / "stages"
    weighted = digest_file(stages / "teacher" / "model" / "model.safetensors")
    distill(tiny_settings(tmp_path, *own))
    assert task_facts(tmp_path / "run" / "stages" / "data")["class_weights"] == []
    # The seed is the same: without an effect the weights would be the same, bit by bit.
    assert weighted != digest_file(stages / "teacher" / "model" / "model.safetensors")

"""Files checked before a run, against what the run itself finds in them and against plain Python."""

import json
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import TEXTS, tiny_model
from transformers import AutoTokenizer

from potstill.data import tables
from potstill.data.checking import Lengths, check_files
from potstill.data.encoding import TextEncoder
from potstill.data.labels import LabelRule
from potstill.data.overlaps import count_repeats, remove_overlaps
from potstill.data.parts import Columns, read_part
from potstill.data.scores import ScoreRule
from potstill.data.sources import resolve_data
from potstill.data.tables import read_blocks, read_table
from potstill.errors import DataError

WORDS = "good bad dull fine great awful funny sad slow fast".split()


def write(path: Path, rows: int, seed: int, labels: tuple[str, ...] = ("neg", "pos")) -> Path:
    draw = random.Random(seed)
    lines = ["text\tlabel"]
    for number in range(rows):
        text = "" if number % 50 == 7 else " ".join(draw.choices(WORDS, k=draw.randint(1, 4)))
        lines.append(f"{text}\t{'' if number % 50 == 9 else draw.choice(labels)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def checked(*paths: Path, rule=None, columns=None, **options):
    sources = [resolve_data(str(path)) for path in paths]
    return check_files(sources, columns or Columns("text"), rule or LabelRule(), **options)


@pytest.mark.parametrize("block", [1 << 16, 13])
def test_it_finds_what_a_run_finds(tmp_path, monkeypatch, block):
    paths = [write(tmp_path / f"{name}.tsv", rows, rows) for name, rows in (("train", 300), ("dev", 90), ("test", 80))]
    whole = [read_table([path], columns=["text", "label"]) for path in paths]
    monkeypatch.setattr(tables, "_BLOCK", block)
    found = checked(*paths)
    for one, table in zip(found["files"], whole, strict=True):
        rows = [
            (text, label)
            for text, label in zip(table.column("text"), table.column("label"), strict=True)
            if text and label
        ]
        lengths = [len(text) for text, _ in rows]
        assert (one["rows"], one["usable"]) == (len(table) + len(table.bad), len(rows))
        assert one["columns"] == ["text", "label"]
        assert one["labels"] == {name: sum(label == name for _, label in rows) for name in one["labels"]}
        characters = one["characters"]["text"]
        assert (characters["shortest"], characters["longest"]) == (min(lengths), max(lengths))
        assert characters["mean"] == pytest.approx(np.mean(lengths))
        bad = {(row.row, row.reason.split(" ")[0]) for row in table.bad}
        assert {row["row"] for row in one["set_aside"]} == {row for row, _ in bad}
        assert one["set_aside_total"] == len(table.bad) > 0
    # A run takes what two of them share out of the lesser one, row by row.
    parts = {
        "train": read_part(whole[0], "train", Columns("text"), LabelRule(), 0.1),
        "dev": read_part(whole[1], "dev", Columns("text"), LabelRule(), 0.1),
    }
    repeats = count_repeats(parts["train"])
    assert {name: found["files"][0][name] for name in repeats} == repeats
    (removed,) = remove_overlaps(parts)
    shared = next(one for one in found["overlaps"] if one["between"] == [str(paths[0]), str(paths[1])])
    assert removed["removed"] == shared["rows"][0] > 0


def test_tokens_are_those_of_the_model(tmp_path):
    model = tiny_model(tmp_path / "model", kind="bert")
    lines = [f"{one}\t{two}\t{'pos' if number else 'neg'}" for number, one in enumerate(TEXTS) for two in TEXTS]
    (tmp_path / "pairs.tsv").write_text("one\ttwo\tlabel\n" + "\n".join(lines) + "\n")
    encoder = TextEncoder.from_folder(model, max_length=72)
    found = checked(tmp_path / "pairs.tsv", columns=Columns("one", "two"), encoder=encoder)
    tokenizer = AutoTokenizer.from_pretrained(model)
    lengths = [len(tokenizer(*line.split("\t")[:2]).input_ids) for line in lines]
    tokens = found["files"][0]["tokens"]
    assert (tokens["shortest"], tokens["longest"]) == (min(lengths), max(lengths))
    assert tokens["cut"] == {"64": 0, "72": 0}
    assert set(found["files"][0]["characters"]) == {"text", "pair"}
    short = TextEncoder.from_folder(model, max_length=20)
    cut = checked(tmp_path / "pairs.tsv", columns=Columns("one", "two"), encoder=short)["files"][0]["tokens"]["cut"]
    assert cut == {"20": sum(length > 20 for length in lengths)}
    assert cut["20"] == short.encode(*map(list, zip(*(line.split("\t")[:2] for line in lines), strict=True))).truncated


def test_scores(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\none\t1.5\ntwo\t4\nthree\tn/a\none\t2\n")
    found = checked(tmp_path / "a.tsv", rule=ScoreRule())
    (one,) = found["files"]
    assert one["scores"] == {"low": 1.5, "mean": 2.5, "high": 4.0}
    assert one["labels"] is None
    assert (one["conflicting_texts"], one["conflicting_rows"]) == (1, 2)
    assert [(bad["row"], bad["reason"]) for bad in one["set_aside"]] == [(3, "score 'n/a' is no number")]


def test_what_a_run_would_refuse(tmp_path):
    files = {
        "train": "good\tpos\nbad\tneg\nsad\tNeg\n",
        "dev": "fine\tother\n",
        "test": "dull\n",
        "bad": "\tpos\nfine\tneg\n",
    }
    for name, rows in files.items():
        (tmp_path / f"{name}.tsv").write_text(("text\n" if name == "test" else "text\tlabel\n") + rows)
    found = checked(*(tmp_path / f"{name}.tsv" for name in files), needs_label=False)
    told = found["refused"]
    assert [part for part in told if "1 of 2 rows cannot be used" in part]
    assert [part for part in told if "labels 'Neg' and 'neg' differ only in spelling" in part]
    assert [part for part in told if "dev.tsv has labels that" in part and part.endswith("'other'")]
    assert [part for part in told if "test.tsv has no labels" in part]
    assert len(told) == 4
    assert found["files"][2]["labels"] is None
    with pytest.raises(DataError, match="no column 'label'"):
        checked(tmp_path / "test.tsv")


def test_nothing_is_refused_of_good_files(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\ngood\tpos\nbad\tneg\n")
    (tmp_path / "b.tsv").write_text("text\tlabel\nfine\tpos\n")
    found = checked(tmp_path / "a.tsv", tmp_path / "b.tsv")
    assert (found["refused"], found["overlaps"]) == ([], [])


def test_a_file_of_bad_rows_alone(tmp_path):
    (tmp_path / "a.jsonl").write_text("x\ny\n")
    (one,) = checked(tmp_path / "a.jsonl", needs_label=False)["files"]
    assert (one["rows"], one["usable"], one["set_aside_total"]) == (2, 0, 2)


def test_blocks_are_the_table_in_pieces(tmp_path, monkeypatch):
    labels = [{"label": 1} if number < 20 else {} for number in range(50)]
    lines = [json.dumps({"text": str(number), **label}) for number, label in enumerate(labels)]
    lines[3] = lines[30] = "no JSON"
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    whole = read_table([tmp_path / "a.jsonl"])
    monkeypatch.setattr(tables, "_BLOCK", 8)
    blocks = list(read_blocks([tmp_path / "a.jsonl"]))
    assert len(blocks) == 7
    assert [value for block in blocks for value in block.column("text")] == whole.column("text")
    assert [value for block in blocks for value in block.column("label")] == whole.column("label")
    assert [number for block in blocks for number in block.row_numbers.tolist()] == whole.row_numbers.tolist()
    assert tuple(bad for block in blocks for bad in block.bad) == whole.bad


def test_memory_is_flat(tmp_path, monkeypatch):
    """Eight times the rows take hardly more: not their texts, and not a key a row."""
    monkeypatch.setattr(tables, "_BLOCK", 500)
    peaks = []
    for size in (1_500, 9_000):
        path = tmp_path / f"{size}.tsv"
        path.write_text("text\tlabel\n" + "".join(f"{n}{' word' * 40}\t{n % 3}\n" for n in range(size)))
        source = resolve_data(str(path))
        tracemalloc.start()
        check_files([source], Columns("text"), LabelRule())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.25 * peaks[0]


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=20), min_size=1, max_size=4), st.integers(0, 70))
def test_lengths(parts, limit):
    lengths, every = Lengths(), sorted(value for part in parts for value in part)
    for part in parts:
        lengths.add(np.array(part, np.int64))
    facts = lengths.facts()
    assert facts is not None
    assert (facts["shortest"], facts["longest"]) == (every[0], every[-1])
    assert facts["mean"] == pytest.approx(sum(every) / len(every))
    for share, found in ((0.5, facts["median"]), (0.95, facts["most"])):
        assert found == next(x for x in every if sum(y <= x for y in every) >= share * len(every))
    assert lengths.over(limit) == sum(value > limit for value in every)
    assert Lengths().facts() is None

"""Students that do not read as their teacher does, and several teachers: whole runs, and what is refused beforehand."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.pipeline.tiny_job import BAD, GOOD, OTHER, tiny_settings
from tests.tiny import tiny_model
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForSequenceClassification, AutoTokenizer, RobertaConfig

from potstill.data.alignment import Alignment
from potstill.data.encoding import TextEncoder
from potstill.data.examples import Examples
from potstill.errors import ModelError, SettingsError
from potstill.models.student import Shape
from potstill.pipeline import distill, plan
from potstill.pipeline.budget import Budget
from potstill.pipeline.caching import expected
from potstill.pipeline.job import prepare_job
from potstill.pipeline.stages import build_stages
from potstill.progress import SILENT


def bpe_model(folder: Path, *, layers=2, hidden=32, heads=4, positions=80) -> Path:
    """A bare RoBERTa with a byte-level BPE of its own over the words of the tiny job."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([" ".join([*GOOD, *BAD, *OTHER])] * 3, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=False)
    config = RobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=2 * hidden,
        max_position_embeddings=positions,
        type_vocab_size=1,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = AutoModelForSequenceClassification.from_config(config)
    folder.mkdir(parents=True)
    model.roberta.save_pretrained(folder)  # without a head
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {f"{n}_token": t for n, t in {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "mask": "<mask>"}.items()}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}), encoding="utf-8"
    )
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("sides")
    tiny_settings(made)
    bpe_model(made / "bpe")
    tiny_model(made / "other", kind="mpnet", layers=1, hidden=32, heads=4, labels=("LABEL_0", "LABEL_1"), seed=3)
    return made


def across(folder, *overrides):
    return tiny_settings(folder, f'student.start="{folder}/bpe"', *overrides)


@pytest.fixture(scope="module")
def run(folder):
    """Two teachers of other tokenizers, and a student cut from a small model that keeps its own."""
    settings = across(
        folder,
        f'teacher.more=["{folder}/other"]',
        "teacher.shares=[3, 1]",
        "augment.copies=1",
        "distill.epochs=8",
        "student.max_length=24",
        "export.formats=[]",
        "evaluate.tfidf=false",
        f'run.out="{folder}/across"',
    )
    return settings, distill(settings, SILENT)


def test_a_student_with_its_own_tokenizer_learns_from_two_teachers(folder, run):
    settings, report = run
    student, teacher = report["student"], report["teacher"]
    assert student["score"]["value"] > 0.9
    assert teacher["score"]["value"] > 0.9
    assert (student["model_type"], student["shape"]) == ("roberta", "1x16x32x4")
    assert student["start"] == f"shrunk from {folder}/bpe"
    terms = {
        term["name"] for stage in report["recipe"]["stages"] if stage["name"] == "student" for term in stage["terms"]
    }
    assert terms == {"hidden", "logits", "hard"}
    assert report["recipe"]["notes"] == [line for line in plan(settings)["notes"] if "left out" in line]
    assert "attention loss of potstill is left out" in report["recipe"]["notes"][0]
    page = (folder / "across" / "report.html").read_text()
    assert "The attention loss of potstill is left out" in page
    assert "Teachers together" in page
    # The student's own ids: its folder reads itself, and answers as the run says.
    out = folder / "across" / "student"
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = AutoModelForSequenceClassification.from_pretrained(out)
    texts = ["the film was great", "we hated the dull plot"]
    with torch.no_grad():
        answers = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.argmax(1)
    assert [model.config.id2label[int(n)] for n in answers] == ["pos", "neg"]
    assert json.loads((out / "potstill.json").read_text())["max_length"] == 24


def test_the_teachers_answers_are_averaged_by_their_shares(folder, run):
    settings, report = run
    stages = folder / "across" / "stages"
    assert report["teachers"]["shares"] == [0.75, 0.25]
    assert report["teachers"]["more"][0]["model_type"] == "mpnet"
    scores = load_file(stages / "score" / "logits.safetensors")
    raised = [np.exp(scores[f"{name}/test"].astype(float)) for name in ("teacher", "teacher-2")]
    mean = sum(w * r / r.sum(axis=1, keepdims=True) for w, r in zip((0.75, 0.25), raised, strict=True))
    gold = Examples.read(stages / "data" / "test.arrow").labels
    assert report["teachers"]["together"]["score"]["value"] == pytest.approx((mean.argmax(axis=1) == gold).mean())
    assert {"teacher-check", "teacher-2-check", "teacher-2-logits"} <= {path.name for path in stages.iterdir()}
    # What the second teacher says of the texts is in its own windows, by its own tokenizer.
    texts = Examples.read(stages / "augment" / "train.arrow").texts
    length = json.loads((stages / "teacher-2" / "task.json").read_text())["max_length"]
    theirs = TextEncoder.from_folder(stages / "teacher-2" / "model", max_length=length).encode(texts, with_spans=True)
    known = load_file(stages / "teacher-2-logits" / "logits.safetensors")["augmented"]
    assert len(known) == len(theirs)
    own = TextEncoder.from_folder(stages / "start" / "model", max_length=24).encode(texts, with_spans=True)
    assert Alignment(own, theirs).answers(known) == pytest.approx(known)
    assert distill(settings, SILENT) == report  # and a second call has nothing to do


def test_a_model_to_start_from_is_taken_whole_or_cut(folder):
    whole = tiny_settings(folder).model_copy(
        update={"student": across(folder).student.model_copy(update={"shape": None})}
    )
    job = prepare_job(whole, SILENT)
    assert (str(job.shape), job.side.cut, job.side.own_tokenizer) == ("2x32x64x4", False, True)
    assert prepare_job(across(folder), SILENT).side.cut
    nothing = tiny_settings(folder)
    unset = nothing.model_copy(update={"student": nothing.student.model_copy(update={"shape": None})})
    with pytest.raises(ModelError, match="a student of 4 layers under a teacher of 2"):  # 4x312
        prepare_job(unset, SILENT)


def test_the_same_vocabulary_under_other_names_is_another_tokenizer(folder):
    settings = tiny_settings(folder, f'teacher.source="{folder}/other"', f'student.start="{folder}/teacher"')
    assert prepare_job(settings, SILENT).side.own_tokenizer
    same = tiny_settings(folder, f'student.start="{folder}/teacher"')
    job = prepare_job(same, SILENT)
    assert not job.side.joined
    assert "attention" in {term.name for phase in job.recipe.phases for term in phase.terms if term.weight}


REFUSED = {
    "distill.weights.attention=0.5": "distill.weights.attention = 0.5 between a teacher and a student .* of different",
    "distill.weights.attention=[1, 0]": r"distill.weights.attention = \[1, 0\] between a teacher and a student",
    "distill.mode=reference": "distill.mode = reference .*different tokenizers.*fix: choose distill.mode = paper",
    "distill.mode=minilm2": "distillation on plain text between .*different tokenizers",
    'general.texts=["{folder}/train.tsv"]': "distillation on plain text between .*different tokenizers",
    "student.shape=1x64x32x4": "starts from .*/bpe, 2x32x64x4; expected 2x32x64x4, or no dimension larger",
    "student.max_length=900": "student.max_length = 900 with 78 positions; expected at most 78",
    "teacher.shares=[1, 2]": "teacher.shares of 2 numbers for 1 teachers",
    "teacher.shares=[0]": "teacher.shares = ",
    'teacher.more=["{folder}/none"]': "none",
    "teacher.states=some": "teacher.states",
    "teacher.states=all": "teacher.states = all with one teacher; expected further ones",
    'teacher.more=["{folder}/teacher"]': "the teachers 1 and 2 .* are the same model",
}


@pytest.mark.parametrize("override", REFUSED)
def test_what_cannot_be_is_refused_before_any_work(folder, override):
    with pytest.raises((SettingsError, ModelError, Exception), match=REFUSED[override]) as caught:
        prepare_job(across(folder, override.format(folder=folder)), SILENT)
    assert type(caught.value).__module__ == "potstill.errors"


IMPOSSIBLE = {
    "attention across tokenizers": (("distill.weights.attention=1",), "weights.attention = 1 between"),
    "hidden without projection": (
        ("student.start=random", "distill.projection=none"),
        "set distill.projection to each",
    ),
    "N < M": (("student.start=random", "student.shape=3x16x32x4"), "3 layers under a teacher of 2"),
    "width not divisible by heads": (("student.shape=1x18x32x4",), "18 is not divisible by 4 heads; fix: choose heads"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_the_impossible_four_are_refused_with_the_way_out(folder, case):
    overrides, message = IMPOSSIBLE[case]
    with pytest.raises((SettingsError, ModelError), match=message) as caught:
        prepare_job(across(folder, *overrides), SILENT)
    assert "fix: " in str(caught.value)


STATES_OF_ALL = {
    "distill.mode=logits": "distill.mode = logits, which learns no hidden states; fix: leave teacher.states out",
    "distill.mode=reference": "distill.mode = reference: .* padding .*; fix: choose distill.mode = paper",
    "student.shape=2x32x32x4": "teacher.states = all, teacher 2: a student of 2 layers under a teacher of 1",
    "distill.projection=none": "teacher.states = all, teacher 2: .*set distill.projection to each",
}


@pytest.mark.parametrize("override", STATES_OF_ALL)
def test_hidden_states_of_all_teachers_where_that_cannot_be(folder, override):
    wide = "student.shape=1x32x32x4" if "projection" in override else "student.shape=1x16x32x4"
    tiny_model(folder / "wide", kind="mpnet", layers=1, hidden=48, heads=4, labels=("LABEL_0", "LABEL_1"), seed=3)
    more = f'teacher.more=["{folder}/{"wide" if "projection" in override else "other"}"]'
    with pytest.raises((SettingsError, ModelError), match=STATES_OF_ALL[override]):
        prepare_job(tiny_settings(folder, more, "teacher.states=all", wide, override), SILENT)


@pytest.mark.parametrize("cache", ["none", "states"])
def test_the_hidden_states_of_all_teachers(folder, cache):
    """Each has its own terms and projections; the run says so, and another choice is another student."""
    settings = tiny_settings(
        folder,
        f'teacher.more=["{folder}/other"]',
        "teacher.shares=[3, 1]",
        "teacher.states=all",
        f"teacher.cache={cache}",
        "evaluate.hard_labels=false",
        "evaluate.tfidf=false",
        "augment.method=none",
        "export.formats=[]",
        f'run.out="{folder}/all-{cache}"',
    )
    assert any(layer for _, fields, _ in expected(prepare_job(settings, SILENT), 100, 10.0) for layer in fields) == (
        cache == "states"
    )
    report = distill(settings, SILENT)
    stage = next(stage for stage in report["recipe"]["stages"] if stage["name"] == "student")
    weights = {term["name"]: term["weight"] for term in stage["terms"]}
    assert (weights["hidden"], weights["hidden-2"], weights["attention"]) == (75.0, 25.0, 10.0)
    assert report["student"]["score"]["value"] > 0.9
    learned = load_file(folder / f"all-{cache}" / "stages" / "student" / "projections.safetensors")
    assert {name: tuple(array.shape) for name, array in learned.items()} == {
        "hidden.weight": (32, 16),
        "hidden-2.weight": (32, 16),
    }
    first = settings.model_copy(update={"teacher": settings.teacher.model_copy(update={"states": "first"})})
    stages = [
        {
            stage.name: stage.depends
            for stage in build_stages(prepare_job(chosen, SILENT), Budget(None, 0.0, lambda: 0.0, {}))
        }
        for chosen in (settings, first)
    ]
    assert {name for name in stages[0] if stages[0][name] != stages[1][name]} == {"student"}


def test_a_shorter_student_leaves_attention_out_and_says_so(folder):
    job = prepare_job(tiny_settings(folder, "student.max_length=12"), SILENT)
    assert job.side.joined
    assert not job.side.own_tokenizer
    assert "student.max_length = 12" in job.notes[0]
    assert Shape.of(job.side.config) == Shape.of(job.config)


def test_hidden_states_of_all_teachers_where_the_weights_leave_none(folder):
    """Labels or answers alone are asked for by weights of 0; then no further teacher answers what nobody reads."""
    more = (f'teacher.more=["{folder}/other"]', "teacher.states=all")
    job = prepare_job(tiny_settings(folder, *more, "distill.weights.hidden=0"), SILENT)
    assert "teacher-2-logits" in {stage.name for stage in build_stages(job, Budget(None, 0.0, lambda: 0.0, {}))}
    states = prepare_job(tiny_settings(folder, *more, "distill.weights.logits=0"), SILENT)
    assert "teacher-2-logits" not in {stage.name for stage in build_stages(states, Budget(None, 0.0, lambda: 0.0, {}))}

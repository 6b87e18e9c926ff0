"""Every method through the whole job, and combinations that cannot be, refused before work with the way out."""

from pathlib import Path

import pytest
import torch
from tests.pipeline.tiny_job import tiny_settings, with_trained_teacher, write_rows
from tests.tiny import tiny_model
from transformers import BertForMaskedLM

from potstill.config import Settings
from potstill.errors import ModelError, SettingsError
from potstill.pipeline import distill, plan
from potstill.pipeline.job import prepare_job
from potstill.progress import SILENT
from potstill.recipes import RECIPES

OTHERS = [name for name in RECIPES if name not in ("potstill", "paper", "reference")]  # those: test_distill
QUICK = ("distill.epochs=1", "export.formats=[]", "general.max_length=16", "general.epochs=1", "general.batch_size=8")


@pytest.fixture
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a tiny job whose teacher is fine-tuned, once for all tests."""
    with_trained_teacher(tmp_path, "bert", tmp_path_factory.mktemp)
    return tmp_path


def settings_of(folder: Path, mode: str, *overrides: str, kind: str = "bert") -> Settings:
    recipe = RECIPES[mode]
    shape = "1x32x64x4" if recipe.start == "layers" else "1x16x32x4"
    texts = [f'general.texts="{write_rows(folder / "plain.tsv", 60, 9)}"'] if recipe.general else []
    chosen = (f"distill.mode={mode}", f"student.shape={shape}")
    # A masked LM has no classifier: it is fine-tuned in the run, from an encoder that knows the task already.
    trained = "teacher.trained=true" if mode != "distilbert" else "teacher.epochs=5"
    settings = tiny_settings(
        folder, *chosen, *QUICK, *([trained] if kind == "bert" else []), *texts, *overrides, kind=kind
    )
    if mode == "distilbert":
        masked_lm(folder / "teacher")
    return settings


def masked_lm(folder: Path) -> None:
    """The tiny teacher with a masked-LM head in the place of its classifier's."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertForMaskedLM.from_pretrained(folder).save_pretrained(folder)


@pytest.mark.parametrize("mode", OTHERS)
def test_every_method_runs(folder: Path, mode: str) -> None:
    report = distill(settings_of(folder, mode))
    recipe = RECIPES[mode]
    names = [stage["name"] for stage in report["recipe"]["stages"]]
    assert ("general" in names) == (recipe.general is not None)
    phases = [name.split(": ")[-1] for name in names if name.startswith("student")]
    assert len(phases) == len(recipe.phases)
    assert report["recipe"]["mode"] == mode
    assert report["student"]["start"] == recipe.start
    # Of a student that is only fine-tuned from the teacher's layers, the baseline would be the student.
    assert ("hard_labels" in report["baselines"]) == (recipe.teaches_the_task or recipe.general is not None)
    terms = {term["name"]: term for stage in report["recipe"]["stages"] for term in stage["terms"]}
    assert set(terms) >= {term.name for phase in recipe.phases for term in phase.terms if term.weight}
    if mode == "pkd":
        assert terms["logits"]["temperature"] == 10.0


def test_a_projection_lets_a_narrow_student_learn_patiently(folder: Path) -> None:
    narrow = ("student.shape=1x16x32x4", "student.start=shrunk")
    with pytest.raises(ModelError, match=r"the cls loss compares hidden states as they are; .*projection to each"):
        distill(settings_of(folder, "pkd", *narrow))
    report = distill(settings_of(folder, "pkd", *narrow, "distill.projection=each", "distill.temperature=2"))
    assert report["student"]["shape"] == "1x16x32x4"


def test_patience_starts_from_the_first_layers_and_is_taught_by_those_of_the_mapping(folder: Path) -> None:
    job = prepare_job(settings_of(folder, "pkd"), SILENT)
    assert (job.layers, job.start_layers) == (None, (1,))
    named = prepare_job(settings_of(folder, "pkd", "student.layers=top"), SILENT)
    assert named.layers == named.start_layers == (2,)
    assert prepare_job(settings_of(folder, "potstill"), SILENT).start_layers is None


def test_relations_need_no_equal_heads(folder: Path) -> None:
    heads = ("student.shape=1x16x32x2",)
    with pytest.raises(ModelError, match=r"compares head with head.*minilm2"):
        distill(settings_of(folder, "minilm", *heads))
    assert distill(settings_of(folder, "minilm2", *heads))["student"]["shape"] == "1x16x32x2"


@pytest.mark.parametrize(
    ("mode", "overrides", "error", "match"),
    [
        (
            "minilm",
            ["general.texts="],
            SettingsError,
            "on plain text alone; .*; fix: set general.texts",
        ),
        ("poor-mans", ["student.shape=3x32x64x4"], ModelError, "2 layers or fewer"),
        ("logits", ['general.texts="{0}/plain.tsv"'], SettingsError, "leave general.texts out"),
        ("poor-mans", ["student.shape=1x16x32x4"], ModelError, 'set student.start to "shrunk"'),
        ("minilm2", ["distill.weights.cls=1"], SettingsError, "no such term"),
        ("fitnets", ["student.shape=3x16x32x4"], ModelError, "2 layers or fewer"),
    ],
)
def test_what_cannot_be_is_refused_before_work(folder: Path, mode: str, overrides, error, match: str) -> None:
    write_rows(folder / "plain.tsv", 60, 9)
    with pytest.raises(error, match=match):
        distill(settings_of(folder, mode, *(text.format(folder) for text in overrides)))
    assert not (folder / "run" / "stages").exists()


def test_texts_that_are_compared_with_one_another_stand_in_one_part(folder: Path) -> None:
    parts = settings_of(folder, "vectors", "distill.accumulate=2")
    for run in (distill, plan):
        with pytest.raises(SettingsError, match=r"distill.accumulate = 2 with the similarity loss.*fix: leave"):
            run(parts)
    assert not (folder / "run" / "stages").exists()
    for more in ("distill.weights.similarity=0", "distill.accumulate=1"):
        assert plan(settings_of(folder, "vectors", "distill.accumulate=2", more))["stages"]


def test_minilm_under_a_teacher_with_a_relative_bias(tmp_path: Path) -> None:
    report = distill(settings_of(tmp_path, "minilm", kind="mpnet"))
    assert report["student"]["model_type"] == "mpnet"


def test_words_need_a_teacher_that_has_some(folder: Path) -> None:
    settings = settings_of(folder, "distilbert")
    tiny_model(folder / "teacher", kind="bert", layers=2, hidden=32, heads=4, labels=("LABEL_0", "LABEL_1"))
    with pytest.raises(ModelError, match="has no masked-LM head, whose words distilbert learns; fix: train one"):
        distill(settings)


def test_a_masked_lm_of_fewer_words(folder: Path) -> None:
    report = distill(settings_of(folder, "distilbert", "student.vocabulary=used"))
    assert report["student"]["vocabulary"]["pieces"] < report["student"]["vocabulary"]["before"]

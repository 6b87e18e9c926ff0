"""Augmentation in a run: a masked LM of its own, candidates kept for later, several methods, what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.models.test_masked_lm import masked_lm
from tests.pipeline.tiny_job import tiny_settings, write_rows
from tests.tiny import tiny_model, tiny_tokenizer

from potstill.config import Settings
from potstill.data.augment import ByPieces, augment
from potstill.data.examples import Examples
from potstill.data.neighbours import StaticNeighbours
from potstill.data.schema import text_key
from potstill.errors import ModelError, PotstillError, SettingsError, SourceError
from potstill.models.masked_lm import MaskedLMProposer
from potstill.models.vocabulary import whole_words, word_rows
from potstill.pipeline import augment_stages, distill, plan
from potstill.pipeline.augmenting import check_masks
from potstill.pipeline.budget import Budget
from potstill.pipeline.job import prepare_job
from potstill.pipeline.run import Run
from potstill.pipeline.stages import build_stages
from potstill.progress import SILENT, Reporter

STAGES = ("data", "conditional-masked-lm", "candidates", "augment")


class Told:
    """Remembers stages and notes."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.notes: list[str] = []

    def stage(self, name: str, detail: str = "") -> None:
        self.stages.append(name)

    def progress(self, done: float, total: float, **values: float) -> None: ...

    def note(self, message: str) -> None:
        self.notes.append(message)

    def warn(self, message: str) -> None: ...


def with_masked_lm(folder: Path, *overrides: str) -> Settings:
    if not (folder / "lm").is_dir():
        masked_lm(folder / "lm")
    return tiny_settings(folder, f'augment.model="{folder}/lm"', *overrides)


def run_augmenting(settings: Settings, report: Reporter = SILENT) -> None:
    """The stages that make texts, of the run that `distill` would do: none of them needs the teacher's."""
    run = Run(Path(settings.run.out), report)
    for stage in build_stages(prepare_job(settings, report), Budget(None, 0.0, lambda: 0.0, {})):
        if stage.name in STAGES:
            run.execute(stage)


def stale(settings: Settings) -> list[str]:
    return [stage["name"] for stage in plan(settings)["stages"] if not stage["done"] and stage["name"] in STAGES]


def test_other_copies_seeds_and_probabilities_never_run_the_masked_lm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_augmenting(with_masked_lm(tmp_path, "augment.copies=2"))
    stages = tmp_path / "run" / "stages"
    train = Examples.read(stages / "data" / "train.arrow")
    tokenizer = tiny_tokenizer()
    words, rows = word_rows(tmp_path / "lm", tokenizer)
    proposer = ByPieces(
        MaskedLMProposer.load(tmp_path / "lm", candidates=15),
        StaticNeighbours.from_vectors(words, np.asarray(rows)),
        whole_words(tokenizer),
    )

    def check(seed: int, copies: int, probability: float = 0.4) -> None:
        wanted = augment(train, proposer, seed=seed, copies=copies, probability=probability)
        found = Examples.read(stages / "augment" / "train.arrow")
        judged = {text_key(t) for s in ("dev", "test") for t in Examples.read(stages / "data" / f"{s}.arrow").texts}
        kept = [text_key(text) not in judged for text in wanted.texts]
        wanted = wanted.select(np.flatnonzero(kept))
        assert (found.example_id.tolist(), found.texts) == (wanted.example_id.tolist(), wanted.texts)
        assert found.labels.tolist() == wanted.labels.tolist()
        assert len(found) > 1.5 * len(train)

    check(0, 2)

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("a masked LM was loaded")

    monkeypatch.setattr(augment_stages, "load_masked_lm", never)
    monkeypatch.setattr(MaskedLMProposer, "load", never)
    told = Told()
    run_augmenting(with_masked_lm(tmp_path, "augment.copies=4", "augment.probability=0.7"), told)
    assert set(told.stages) == {"augment"}
    check(0, 4, 0.7)
    (tmp_path / "run" / ".potstill.lock").touch()
    assert stale(with_masked_lm(tmp_path, "run.seed=5", "augment.copies=1")) == ["augment"]
    assert stale(with_masked_lm(tmp_path, 'augment.method=["masked-lm","ngram"]', "augment.copies=4")) == ["augment"]
    assert stale(with_masked_lm(tmp_path, "augment.candidates=3")) == ["candidates", "augment"]


def test_a_run_stopped_among_candidates_goes_on_with_the_next_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plainly, propose = augment_stages.write_candidates, MaskedLMProposer.propose
    monkeypatch.setattr(augment_stages, "write_candidates", lambda *a, **k: plainly(*a, shard=60, **k))
    run_augmenting(with_masked_lm(tmp_path / "whole"))
    calls: list[int] = []

    def stops(self: MaskedLMProposer, sentences: list, positions: list) -> list:
        calls.append(len(positions))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return propose(self, sentences, positions)

    monkeypatch.setattr(MaskedLMProposer, "propose", stops)
    with pytest.raises(KeyboardInterrupt):
        run_augmenting(with_masked_lm(tmp_path / "parts"))
    told = Told()
    run_augmenting(with_masked_lm(tmp_path / "parts"), told)
    assert any(note.startswith("masked-lm: 120 of ") for note in told.notes)
    files = [sorted((tmp_path / name / "run" / "stages").glob("*/**/*.arrow")) for name in ("whole", "parts")]
    assert len(files[0]) > 4
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


def test_several_methods_at_once_and_the_labels_of_what_they_make(tmp_path: Path) -> None:
    methods = '["conditional-masked-lm","embeddings","masking","ngram"]'
    told = Told()
    run_augmenting(with_masked_lm(tmp_path, f"augment.method={methods}", "augment.copies=2", "augment.epochs=1"), told)
    assert [n for n in told.stages if n in ("conditional-masked-lm", "candidates")][:2] == [
        "conditional-masked-lm",
        "candidates",
    ]
    stages = tmp_path / "run" / "stages"
    found = Examples.read(stages / "augment" / "train.arrow")
    train = Examples.read(stages / "data" / "train.arrow")
    facts = json.loads((stages / "augment" / "facts.json").read_text())
    new = found.example_id >= 2**62
    number = (found.example_id - 2**62) >> 57
    for method, own in ((1, True), (3, True), (4, False), (5, False)):
        part = new & (number == method)
        assert part.sum() > 50, method
        assert (found.labels[part] >= 0).all() == own
    assert facts["made"] == new.sum()
    assert facts["labelled"] == (new & (found.labels >= 0)).sum()
    assert any("[MASK]" in text for text in found.texts)
    judged = {text_key(t) for s in ("dev", "test") for t in Examples.read(stages / "data" / f"{s}.arrow").texts}
    assert not judged & {text_key(text) for text in found.texts}
    assert len(train) < (found.labels >= 0).sum() < len(found)


def test_pairs_are_recombined(tmp_path: Path) -> None:
    rows = [line.split("\t") for line in write_rows(tmp_path / "rows.tsv", 240, 4).read_text().splitlines()[1:]]
    table = ["text\tother\tlabel", *(f"{text}\tthe plot of {i % 17}\t{label}" for i, (text, label) in enumerate(rows))]
    (tmp_path / "pairs.tsv").write_text("\n".join(table) + "\n")
    given = [f'data.train="{tmp_path}/pairs.tsv"', "data.dev=", "data.test=", "data.pair=other"]
    run_augmenting(tiny_settings(tmp_path, *given, "augment.method=recombine", "augment.copies=3"))
    found = Examples.read(tmp_path / "run" / "stages" / "augment" / "train.arrow")
    new = found.example_id >= 2**62
    assert (found.labels[new] == -1).all()
    assert new.sum() > 200


@pytest.mark.slow
def test_a_whole_run_on_texts_that_have_no_labels(tmp_path: Path) -> None:
    methods = ['augment.method=["masking","ngram"]', "augment.copies=3", "export.formats=[]"]
    report = distill(tiny_settings(tmp_path, *methods))
    found = Examples.read(tmp_path / "run" / "stages" / "augment" / "train.arrow")
    assert (found.labels == -1).sum() == report["data"]["augmented"] > 400
    assert report["student"]["score"]["value"] > 0.8
    assert report["baselines"]["hard_labels"]["score"]["value"] > 0.8  # it reads what has labels alone


REFUSED = [
    ("a teacher without a head", ["augment.method=masked-lm"], ModelError, "no masked-LM head; fix: train one with"),
    ("conditional without a head", ["augment.method=conditional-masked-lm"], ModelError, "masked-LM head"),
    ("a model without a head", ['augment.model="{folder}/teacher"'], ModelError, "masked-LM head"),
    ("no such model", ['augment.model="./nothing"'], SourceError, "nothing"),
    ("no such vectors", ['augment.vectors="./nothing"'], SourceError, "nothing"),
    ("twice", ['augment.method=["ngram","ngram"]'], SettingsError, "ngram twice"),
    ("glove without vectors", ['augment.method=["ngram","glove"]'], SettingsError, "augment.vectors"),
    ("model for nothing", ["augment.method=ngram", 'augment.model="x"'], SettingsError, "leave augment.model out"),
    ("no method", ["augment.method=maskedlm"], SettingsError, "masked-lm"),
    ("auto among others", ['augment.method=["auto","ngram"]'], SettingsError, "augment.method"),
    ("an empty list", ["augment.method=[]"], SettingsError, "augment.method"),
    ("too many copies", ["augment.copies=5000"], SettingsError, "4096"),
]


@pytest.mark.parametrize(("name", "overrides", "error", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused_before_any_work(
    tmp_path: Path, name: str, overrides: list[str], error: type[PotstillError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        distill(tiny_settings(tmp_path, *(text.replace("{folder}", str(tmp_path)) for text in overrides)))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "stages").exists()


def test_masked_texts_need_one_mask_token(tmp_path: Path) -> None:
    bert, mpnet = tiny_model(tmp_path / "bert", kind="bert"), tiny_model(tmp_path / "mpnet", kind="mpnet")
    check_masks([bert, bert])
    with pytest.raises(SettingsError, match=r"mask tokens are \[MASK\] and <mask>"):
        check_masks([bert, mpnet])

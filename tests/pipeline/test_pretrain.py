"""Pre-training as a whole: text in, a masked LM out that opens in plain `transformers`; resume, refusals, budgets."""

import random
from pathlib import Path

import pytest
import torch
from tests.pipeline.tiny_job import tiny_settings
from tests.tiny import WORDS, tiny_model
from tokenizers import Tokenizer
from transformers import AutoModelForMaskedLM

from potstill.config import PretrainSettings, read_settings
from potstill.errors import DataError, ModelError, SettingsError, SourceError, StorageError
from potstill.models.masked_lm import MaskedLMProposer
from potstill.pipeline import distill, pretrain
from potstill.storage import digest_folder, read_json

NOUNS, VERBS = ("film", "movie", "plot", "actor", "story"), ("is", "was", "loved", "hated", "watched")


def write_text(path: Path, rows: int = 400, seed: int = 0) -> Path:
    """Sentences in which a word often follows from its neighbours."""
    draw = random.Random(seed)
    lines = []
    for _ in range(rows):
        number = draw.randrange(len(NOUNS))
        end = draw.choice(WORDS[:20])
        lines.append(
            f"the {NOUNS[number]} {VERBS[number]} so very {end} , and we {VERBS[number]} it {draw.choice(WORDS[:20])} ."
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def settings_of(folder: Path, *overrides: str) -> PretrainSettings:
    folder.mkdir(exist_ok=True)
    if not (folder / "text.txt").exists():
        write_text(folder / "text.txt")
        tiny_model(folder / "model", kind="bert", layers=1, hidden=32)
    own = [
        f'model.source="{folder}/model"',
        f'text.sources="{folder}/text.txt"',
        "text.max_length=24",
        "text.held_out_share=0.1",
        "training.epochs=40",
        "training.batch_size=16",
        "training.learning_rate=0.005",
        "training.precision=float32",
        "run.threads=1",
        f'run.out="{folder}/run"',
    ]
    return read_settings(PretrainSettings, None, [*own, *overrides])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrain")
    pretrain(settings_of(folder))
    return folder


def test_it_learns_and_says_so(made: Path) -> None:
    found = read_json(made / "run" / "pretrain.json")
    judged = found["held_out"]
    assert judged["loss"] < 0.7 * judged["unigram_entropy"]
    assert judged["accuracy"] > judged["unigram_accuracy"] + 0.2
    assert judged["perplexity"] == pytest.approx(2.718281828459045 ** judged["loss"])
    assert found["before"] is None
    assert found["model"]["fresh_head"]
    assert found["training"]["curve"][-1]["dev"] < found["training"]["curve"][0]["terms"]["masked"]
    assert found["text"]["train"]["tokens"] > 5 * found["text"]["held_out"]["tokens"] > 0


def test_the_model_is_plain_transformers_and_proposes_words(made: Path) -> None:
    folder = made / "run" / "model"
    model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    right = 0
    for noun, verb in zip(NOUNS, VERBS, strict=True):
        ids = torch.tensor([tokenizer.encode(f"the {noun} {verb} [MASK] very good , and we {verb} it bad .").ids])
        with torch.no_grad():
            best = model(ids).logits[0, 4].argmax()
        right += tokenizer.id_to_token(int(best)) == "so"
    assert right >= 4
    found = MaskedLMProposer.load(folder, candidates=5).propose(["the film was so".split()], [2])
    assert len(found[0]) > 0


def test_a_second_call_changes_nothing(made: Path) -> None:
    before = digest_folder(made / "run")
    again = pretrain(settings_of(made))
    assert again == read_json(made / "run" / "pretrain.json")
    assert digest_folder(made / "run") == before


def test_a_damaged_result_is_put_right(made: Path) -> None:
    weights = made / "run" / "model" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-8])
    (made / "run" / "pretrain.json").write_text("{")
    found = pretrain(settings_of(made))
    assert weights.read_bytes() == whole
    assert found == read_json(made / "run" / "pretrain.json")


def test_going_on_from_its_own_result(made: Path, tmp_path: Path) -> None:
    more = settings_of(
        made,
        f'model.source="{made}/run/model"',
        f'run.out="{tmp_path}/run"',
        "training.epochs=1",
        "masking.whole_words=true",
    )
    found = pretrain(more)
    assert not found["model"]["fresh_head"]
    assert found["before"]["loss"] < found["held_out"]["unigram_entropy"]


def test_from_scratch_at_another_size(made: Path, tmp_path: Path) -> None:
    settings = settings_of(
        made, "model.start=random", "model.shape=1x16x24x4", f'run.out="{tmp_path}/run"', "training.epochs=1"
    )
    found = pretrain(settings)
    assert found["model"]["shape"] == "1x16x24x4"
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "run" / "model").config.hidden_size == 16


def test_an_interrupted_run_ends_in_the_same_bytes(made: Path, tmp_path: Path) -> None:
    class Stops:
        left = 25

        def progress(self, *_args: float, **_values: float) -> None:
            if "masked" in _values:
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt

        stage = note = warn = lambda *_args: None

    settings = settings_of(made, f'run.out="{tmp_path}/run"', "run.checkpoint_minutes=0.0001")
    with pytest.raises(KeyboardInterrupt):
        pretrain(settings, Stops())
    assert list((tmp_path / "run" / "scratch").rglob("step-*"))
    pretrain(settings)
    one, other = (folder / "run" / "model" / "model.safetensors" for folder in (made, tmp_path))
    assert one.read_bytes() == other.read_bytes()
    assert not (tmp_path / "run" / "scratch").exists()


def test_held_out_text_of_its_own(made: Path, tmp_path: Path) -> None:
    kept = write_text(tmp_path / "kept.txt", rows=30, seed=9)
    lines = (made / "text.txt").read_text().splitlines()
    kept.write_text(kept.read_text() + lines[0] + "\n")
    shared = sum(line in kept.read_text().splitlines() for line in lines)
    found = pretrain(settings_of(made, f'text.held_out="{kept}"', f'run.out="{tmp_path}/run"', "training.epochs=1"))
    whole = pretrain(settings_of(made))
    total = whole["text"]["train"]["tokens"] + whole["text"]["held_out"]["tokens"]
    gone = total - found["text"]["train"]["tokens"]
    assert shared * 10 < gone < shared * 22  # a line is 14 words and a separator, some words in two pieces
    assert len(found["text"]["sources"]) == 2


def test_a_budget_sets_the_steps(made: Path, tmp_path: Path) -> None:
    found = pretrain(settings_of(made, "run.budget=0.55", f'run.out="{tmp_path}/run"'))
    assert found["training"]["steps"] != 40 * -(-found["text"]["train"]["windows"] // 16)


REFUSED = {
    "the same text": ((DataError, "is one of text.sources"), ['text.held_out="{0}/text.txt"']),
    "no such text": ((SourceError, "no such file"), ['text.sources="{0}/nothing.txt"']),
    "an empty text": ((DataError, "empty|no text"), ['text.sources="{0}/empty.txt"']),
    "no mask token": ((ModelError, "mask token"), ['model.source="{0}/maskless"']),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_any_work(made: Path, tmp_path: Path, name: str) -> None:
    (made / "empty.txt").write_text("\n")
    if not (made / "maskless").exists():
        tiny_model(made / "maskless", kind="bert")
        path = made / "maskless" / "tokenizer.json"
        path.write_text(path.read_text().replace("[MASK]", "[NONE]"))
    (error, match), overrides = REFUSED[name]
    with pytest.raises(error, match=match):
        pretrain(settings_of(made, f'run.out="{tmp_path}/run"', *(text.format(made) for text in overrides)))
    assert not (tmp_path / "run" / "settings.toml").exists()


@pytest.mark.parametrize(
    ("override", "match"),
    [
        ("model.shape=4x312", "model.start"),
        ("masking.random=0.3", "together 1"),
        ("training.objective=maskd", 'did you mean "masked"'),
        ("training.epoch=3", "training.epochs"),
        ("text.sources=[]", "text.sources"),
    ],
)
def test_settings_that_cannot_be(made: Path, override: str, match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        settings_of(made, override)


def test_run_folders_are_kept_apart(made: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="another command's run"):
        distill(tiny_settings(tmp_path, f'run.out="{made}/run"'))
    (tmp_path / "stages" / "data").mkdir(parents=True)
    (tmp_path / ".potstill.lock").touch()
    with pytest.raises(StorageError, match="another command's run"):
        pretrain(settings_of(made, f'run.out="{tmp_path}"'))

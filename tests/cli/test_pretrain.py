"""`potstill pretrain`, on a tiny model and a real text."""

import json

from tests.pipeline.test_pretrain import write_text
from tests.tiny import tiny_model

QUICK = (
    "text.max_length=24",
    "text.held_out_share=0.1",
    "training.epochs=1",
    "training.batch_size=16",
    "run.threads=1",
)


def given(folder):
    tiny_model(folder / "model", kind="bert", layers=1)
    write_text(folder / "text.txt", rows=120)
    settings = [part for setting in QUICK for part in ("--set", setting)]
    return ["pretrain", "--objective", "masked", "--model", "model", "--text", "text.txt", "--out", "run", *settings]


def test_json_is_the_file_and_the_only_output(run, tmp_path):
    ran = run(*given(tmp_path), "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found == json.loads((tmp_path / "run" / "pretrain.json").read_text())
    assert {"loss", "perplexity", "accuracy", "unigram_entropy", "unigram_accuracy", "places"} == set(found["held_out"])
    assert "pretrain: 1x32x64x4, masked" in ran.err
    assert (tmp_path / "run" / "settings.toml").is_file()
    assert "pretrain" in (tmp_path / "run" / "log.txt").read_text()


def test_a_summary_and_the_settings_that_it_left(run, tmp_path):
    first = run(*given(tmp_path))
    assert first.code == 0, first.err
    assert "by frequency alone" in first.out
    assert first.out.endswith("model: run/model\n")
    again = run("pretrain", "run/settings.toml", "--quiet")
    assert (again.code, again.out) == (0, "model: run/model\n")


def test_refusals_are_one_line(run, tmp_path):
    arguments = given(tmp_path)
    for more, told in (
        (["--shape", "2x16"], 'model.shape = "2x16" with the model\'s own weights'),
        (["--objective", "spans"], 'training.objective = "spans"; expected "masked"'),
        (["--held-out", "text.txt"], "is one of text.sources"),
        (["--text", "none.txt"], "no such file"),
    ):
        ran = run(*arguments, *more)
        assert (ran.code, ran.out) == (2, ""), more
        assert told in ran.err.splitlines()[-1]
        assert not (tmp_path / "run" / "pretrain.json").exists()


def test_a_settings_file_to_start_from(run, tmp_path):
    ran = run("init", "--job", "pretrain", "p.toml")
    assert ran.code == 0
    assert "then: potstill pretrain p.toml" in ran.out
    text = (tmp_path / "p.toml").read_text()
    assert "potstill pretrain THIS_FILE" in text
    assert "# Share of the tokens to guess." in text
    assert run("init", "--job", "nothing", "q.toml").code == 2

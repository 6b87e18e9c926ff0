"""TOML and --set to settings, and what a wrong one is answered with."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from potstill.config import AblateSettings, PretrainSettings, Settings, load_settings, read_settings
from potstill.config.fields import field_at
from potstill.errors import SettingsError

LEAST = ["data.train=train.tsv", "teacher.source=bert-base-uncased"]
MOVIES = Path(__file__).parents[2] / "examples" / "movies.toml"


def load(*overrides):
    return load_settings(None, [*LEAST, *overrides])


def refusal(*overrides, least=LEAST, path=None):
    with pytest.raises(SettingsError) as caught:
        load_settings(path, [*least, *overrides])
    assert "\n" not in str(caught.value)
    return caught.value


def write(folder, text):
    path = folder / "a run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_and_overrides(tmp_path):
    path = write(tmp_path, '[data]\ntrain = "a.tsv"\n[teacher]\nsource = "b"\nepochs = 2\n')
    settings = load_settings(path, ["teacher.epochs=5", "distill.weights.hidden=0.5"])
    assert (settings.data.train, settings.teacher.epochs, settings.distill.weights.hidden) == ("a.tsv", 5, 0.5)


def test_values_of_overrides():
    settings = load(
        "data.text=1",  # a column may be called 1
        "data.label='a=b'",
        "data.unlabelled=more.txt",
        "general.texts=['a.txt', 'b.txt']",
        "teacher.grid=true",
        "teacher.trained=false",
        "teacher.learning_rate=5e-5",
        "student.layers=[0, 2, 4, 5]",
        "distill.mode=paper",
        "run.out = runs/with space",
    )
    assert (settings.data.text, settings.data.label, settings.data.unlabelled) == ("1", "a=b", ("more.txt",))
    assert settings.general.texts == ("a.txt", "b.txt")
    assert (settings.teacher.grid, settings.teacher.trained, settings.teacher.learning_rate) == (True, False, 5e-5)
    assert (settings.student.layers, settings.distill.mode) == ((0, 2, 4, 5), "paper")
    assert settings.run.out == "runs/with space"


def test_the_last_override_holds_and_an_empty_one_gives_the_default():
    assert load("run.seed=1", "run.seed=2").run.seed == 2
    assert load("run.seed=1", "run.seed=").run.seed == 0
    assert "did you mean run.seed?" in str(refusal("run.sed="))


def test_a_run_is_named_after_its_file_or_its_folder(tmp_path):
    path = write(tmp_path, '[data]\ntrain = "a"\n[teacher]\nsource = "b"\n')
    assert (load_settings(path).run.name, load_settings(path).run.out) == ("a run", "runs/a run")
    named = load_settings(path, ["run.name=x"])
    assert (named.run.name, named.run.out) == ("x", "runs/x")
    assert load("run.out=deep/down").run.name == "down"
    assert (load().run.name, load().run.out) == ("potstill", "runs/potstill")


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("teacher.epoch", "teacher.epochs?"),
        ("student.temperature", "distill.temperature?"),
        ("seed", "run.seed?"),
        ("distil.mode", "distill.mode"),
        ("distill.weights.hiden", "distill.weights.hidden?"),
        ("dist", "[distill]"),
    ],
)
def test_an_unknown_key_names_the_nearest(key, nearest):
    message = str(refusal(f"{key}=1"))
    assert message.startswith(f"unknown key {key.split('.')[0]}")
    assert nearest in message or nearest.split(".")[0] in message


def test_an_unknown_key_that_is_near_nothing_gets_the_list():
    assert "expected one of source, scores, scores_form, more" in str(refusal("teacher.qqqqqqqq=1"))


def test_an_unknown_key_comes_before_what_is_wrong_because_of_it():
    message = str(refusal(least=["data.trian=x", "teacher.source=y"]))
    assert message.startswith("unknown key data.trian; fix: did you mean data.train?")
    assert "also wrong: data.train" in message


def test_what_is_missing():
    message = str(refusal(least=[]))
    assert message.startswith("data.train is not set")
    assert 'fix: give --train SOURCE, or under [data] write train = "train.tsv"' in message
    assert "also wrong: teacher.source" in message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "distill.mode=papr",
            '"minilm", "minilm2", "pkd", "distilbert", "well-read", "logits", "fitnets", "poor-mans" or "vectors"; '
            'fix: did you mean "paper"?',
        ),
        (
            "teacher.epochs=-1",
            "teacher.epochs = -1; expected a whole number from 1; fix: leave it out for the default, 3",
        ),
        ("teacher.epochs=1.5", "teacher.epochs = 1.5; expected a whole number from 1; "),
        ("data.dev_share=1", "data.dev_share = 1; expected a number above 0, below 1; "),
        ("data.bad_rows=2", "data.bad_rows = 2; expected a number from 0 to 1; "),
        ("data.header=True", 'data.header = "True"; expected true or false; '),
        ("teacher.trained=yes", 'teacher.trained = "yes"; expected "auto", true or false; '),
        ("run.budget=nan", "run.budget = NaN; expected a number above 0; fix: leave it out"),
        ("run.seed=-3", "run.seed = -3; expected a whole number from 0 to 4294967295; "),
        (
            "student.layers=[0, -1, 2, 3]",
            'student.layers = [0, -1, 2, 3]; expected "every-other", "top", "bottom", "ends" or a list',
        ),
        ("student.shape=4-312", 'student.shape = "4-312"; expected layers x width, as in 4x312'),
        ("student.assistants=['6y3']", 'student.assistants = ["6y3"]; expected "auto", "none" or a list of shapes'),
        ("export.formats=onnx-int4", 'did you mean "onnx-int8"?'),
        ("run.out=''", 'run.out = ""; expected a path, not empty'),
        ("data.text=''", 'data.text = ""; expected text in quotes, not empty'),
        ("teacher.source=''", 'teacher.source = ""; expected a path, hub:owner/name'),
        ("data.label_margin=1", "data.label_margin = 1.0 without data.label_threshold; fix: set"),
        ("distill.weights=1", "distill.weights = 1; expected a section with embedding, hidden"),
        ("evaluate=3", "evaluate = 3; expected a section with baseline"),
        ("distill.weights.hidden=[1]", "; fix: write 1, or two numbers"),
        ("distill.temperature=[4.0]", "; fix: write 4.0, or two numbers"),
        ('augment.method=["none", "ngram"]', '; fix: "none" stands alone, not in a list'),
        ('student.assistants=["6x384", "none"]', '; fix: "none" stands alone, not in a list'),
        ("teacher.shares=[1, 2]", "; fix: name as many shares as teachers, or leave teacher.shares out"),
        ("student.layers=[0, 2]", "; fix: name as many, or change student.shape"),
    ],
)
def test_a_wrong_value_is_answered_with_got_expected_and_fix(override, message):
    assert message in str(refusal(override))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("teacher.epochs", "expected section.key=value"),
        ("=3", "expected section.key=value"),
        ("teacher..epochs=3", "expected section.key=value"),
        ("export.formats=[1", "is not TOML"),
        ("general.texts=[a.txt, b.txt]", 'fix: text stands in quotes, as in ["a.txt", "b.txt"]'),
        ("teacher.source.x=1", "source holds a value; expected a section"),
        ("teacher.epochs=3\nbatch_size=4", "more than one value"),
    ],
)
def test_a_malformed_override(override, message):
    assert message in str(refusal(override))


def test_settings_of_another_command(tmp_path):
    path = write(tmp_path, '[data]\ntrain = "a"\n[teacher]\nsource = "b"\n[ablate]\nseeds = 2\n')
    assert "unknown section [ablate]; expected one of data, " in str(refusal(path=path))
    assert "; fix: these are settings of potstill ablate: give them to it" in str(refusal(path=path))
    assert read_settings(AblateSettings, path).ablate.seeds == 2
    with pytest.raises(SettingsError, match=r"fix: these are settings of potstill ablate"):
        read_settings(PretrainSettings, path)
    assert "did you mean data.text?" in str(refusal("text=sentence"))


def test_files_that_cannot_be_read(tmp_path):
    assert "No such file" in str(refusal(path=tmp_path / "absent.toml"))
    assert "is a folder; expected a settings file" in str(refusal(path=tmp_path))
    assert "is not TOML: " in str(refusal(path=write(tmp_path, "[data]\ntrain = a.tsv\n")))
    path = tmp_path / "latin.toml"
    path.write_bytes(b'[data]\ntrain = "\xe9"\n')
    assert "is not UTF-8 text at byte 16" in str(refusal(path=path))


def test_a_mark_and_windows_line_ends_are_no_harm(tmp_path):
    path = tmp_path / "notepad.toml"
    path.write_bytes(b'\xef\xbb\xbf[data]\r\ntrain = "a"\r\n[teacher]\r\nsource = "b"\r\n')
    assert load_settings(path).data.train == "a"


def test_the_demo_settings():
    settings = load_settings(MOVIES)
    assert (settings.data.train, settings.data.label, settings.data.label_threshold) == (
        "pypi:movie-snippets",
        "sentiment",
        0,
    )
    assert settings.run.out == "runs/demo"


def outcome(key, value):
    try:
        load(f"{key}={value}")
    except SettingsError as error:
        return str(error)
    return None


@given(st.text(min_size=1), st.text())
def test_any_key_is_known_or_refused(key, value):
    # Hypothesis draws words of the sources too: now and then a key that there is.
    assume(field_at(Settings, tuple(name.strip() for name in key.split("."))) is None)
    message = outcome(key, value)
    assert message is not None
    assert "\n" not in message or "\n" in key + value


@given(st.sampled_from(["teacher.epochs", "data.text", "student.layers", "run.budget", "export.formats"]), st.text())
def test_any_value_is_read_or_refused(key, value):
    message = outcome(key, value)
    assert message is None or key in message

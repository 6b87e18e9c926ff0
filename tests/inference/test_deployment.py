"""potstill.json: what is read from it, and what is refused."""

import json

import pytest

from potstill.errors import ModelError, StorageError
from potstill.inference import Deployment, read_deployment
from potstill.metrics import Threshold

RIGHT = {
    "schema_version": 1,
    "task": "classification",
    "labels": ["no", "yes"],
    "pair": False,
    "max_length": 64,
    "long_text": "window",
    "step": None,
    "source": {"anything": 1},
    "deploy": {"engine": "openvino", "precision": "int8"},
}


ROWS = [
    {"confidence": 0.0, "coverage": 1.0, "precision": 0.9, "at_least": 0.85},
    {"confidence": 0.75, "coverage": 0.5, "precision": 0.97, "at_least": 0.92},
]


def write(folder, **changed):
    (folder / "potstill.json").write_text(json.dumps({**RIGHT, **changed}))
    return folder


def test_right(tmp_path):
    expected = Deployment(("no", "yes"), False, 64, "window", None, ("openvino", "int8"))
    assert read_deployment(write(tmp_path)) == expected
    assert read_deployment(write(tmp_path, deploy=None, step=3)).deploy is None


def test_scores(tmp_path):
    found = read_deployment(write(tmp_path, task="regression", labels=[]))
    assert (found.task, found.labels) == ("regression", ())


def test_temperature_and_abstention(tmp_path):
    found = read_deployment(write(tmp_path, temperature=1.4, abstention=ROWS))
    assert found.temperature == 1.4
    assert found.abstention == tuple(Threshold(**row) for row in ROWS)


def test_a_folder_of_before_has_neither(tmp_path):
    found = read_deployment(write(tmp_path))
    assert (found.temperature, found.abstention) == (1.0, ())


def test_sets_of_labels_have_thresholds_by_label(tmp_path):
    found = read_deployment(write(tmp_path, task="multilabel", thresholds={"yes": 0.25, "no": 1}))
    assert (found.task, found.labels, found.tuned) == (
        "multilabel",
        ("no", "yes"),
        {"thresholds": {"no": 1.0, "yes": 0.25}},
    )
    assert found.made_task().thresholds == (1.0, 0.25)
    for wrong in (None, {}, {"yes": 0.5}, {"yes": 0.5, "no": 1.5}, {"yes": 0.5, "no": True}, [0.5, 0.5]):
        with pytest.raises(ModelError, match=r"thresholds is .* expected for each of the labels a number from 0 to 1"):
            read_deployment(write(tmp_path, task="multilabel", thresholds=wrong))


def test_no_engine_named(tmp_path):
    (tmp_path / "potstill.json").write_text(json.dumps({key: RIGHT[key] for key in RIGHT if key != "deploy"}))
    assert read_deployment(tmp_path).deploy is None


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"schema_version": True}, "schema_version is True"),
        ({"pair": None}, "pair is None; expected true or false"),
        ({"deploy": {"engine": ["x"], "precision": "int8"}}, "deploy is"),
        ({"schema_version": 2}, "schema_version is 2; expected 1"),
        ({"task": "tagging"}, "task is 'tagging'; expected 'classification' or 'regression'"),
        ({"task": ["regression"]}, "task is"),
        ({"task": "regression"}, "labels is .*; expected an empty list: an answer is a score"),
        ({"labels": ["a", "a"]}, "labels is .*; expected a list of two or more different names"),
        ({"labels": ["a", ""]}, "labels is"),
        ({"labels": ["a"]}, "labels is"),
        ({"labels": "ab"}, "labels is 'ab'"),
        ({"max_length": 0}, "max_length is 0; expected a number of tokens"),
        ({"max_length": True}, "max_length is True"),
        ({"max_length": 64.0}, "max_length is 64.0"),
        ({"long_text": "drop"}, "long_text is 'drop'; expected 'cut' or 'window'"),
        ({"step": 0}, "step is 0"),
        ({"temperature": 0}, "temperature is 0; expected a number above 0"),
        ({"temperature": True}, "temperature is True"),
        ({"temperature": "1.2"}, "temperature is '1.2'"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"abstention": {}}, "abstention is .*; expected a list of objects with confidence, coverage, precision"),
        ({"abstention": ROWS[::-1]}, "by rising confidence"),
        ({"abstention": [{"confidence": 0.5}]}, "abstention is"),
        ({"abstention": [{**ROWS[0], "at_least": 85}]}, "each from 0 to 1"),
        ({"deploy": {"engine": "torch", "precision": "int8"}}, "deploy is .*; expected null, or engine and precision"),
        ({"deploy": ["torch", "float32"]}, "deploy is"),
    ],
)
def test_wrong(tmp_path, changed, told):
    with pytest.raises(ModelError, match=told):
        read_deployment(write(tmp_path, **changed))


def test_absent(tmp_path):
    with pytest.raises(
        ModelError,
        match=r"has no potstill.json; expected a folder that `potstill distill` or",
    ):
        read_deployment(tmp_path)


@pytest.mark.parametrize(("content", "error"), [("{", StorageError), ("[]", ModelError)])
def test_damaged(tmp_path, content, error):
    (tmp_path / "potstill.json").write_text(content)
    with pytest.raises(error, match=r"potstill\.json"):
        read_deployment(tmp_path)


def test_a_length_beyond_the_models_positions(tmp_path):
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 60}')
    with pytest.raises(ModelError, match="max_length is 64; expected 60 or less"):
        read_deployment(write(tmp_path))


def test_a_run_is_not_its_student(tmp_path):
    (tmp_path / "student").mkdir()
    write(tmp_path / "student")
    with pytest.raises(ModelError, match=r"is a run, not its student; fix: give .*student"):
        read_deployment(tmp_path)
    with pytest.raises(ModelError, match="is no folder"):
        read_deployment(tmp_path / "student" / "potstill.json")

"""The settings' own rules: frozen, typed, and agreeing with one another."""

import pytest
from pydantic import ValidationError

from potstill.config import DataSettings, DistillSettings, ExportSettings, Settings, StudentSettings, WeightSettings
from potstill.config.fields import allowed_values, field_at
from potstill.data.rows import FORMATS
from potstill.errors import SettingsError

LEAST = {"data": {"train": "train.tsv"}, "teacher": {"source": "bert-base-uncased"}}


def test_defaults_are_those_of_the_paper_where_it_has_them():
    settings = Settings.model_validate(LEAST)
    assert settings.general.max_length == 128  # epochs, batch size and rate are each mode's own: tests/recipes
    assert (settings.augment.probability, settings.augment.candidates) == (0.4, 15)
    assert (settings.student.shape, settings.distill.mapping, settings.distill.temperature) == (
        None,  # 4x312, or that of the model it starts from: tests/pipeline
        "uniform",
        None,
    )


def test_frozen():
    settings = Settings.model_validate(LEAST)
    with pytest.raises(ValidationError, match="frozen"):
        settings.run.seed = 1


def test_every_key_has_a_description_and_says_what_it_may_hold():
    for section in Settings.model_fields:
        for key, field in field_at(Settings, (section,)).annotation.model_fields.items():
            assert field.description.endswith("."), (section, key)
            assert allowed_values(field), (section, key)


def test_formats_are_those_that_can_be_read():
    assert all(f'"{name}"' in allowed_values(field_at(Settings, ("data", "format"))) for name in FORMATS)


@pytest.mark.parametrize("shape", ["4x312", "1x2", "12x768x3072x12"])
def test_shapes(shape):
    assert StudentSettings(shape=shape).shape == shape


@pytest.mark.parametrize(
    "shape", ["", "4", "4x", "x312", "0x312", "4x312x1200", "4X312", "4x312x1200x12x1", "4x-3", "4x312\n"]
)
def test_no_shapes(shape):
    with pytest.raises(ValidationError):
        StudentSettings(shape=shape)


def test_one_text_is_a_list_of_one():
    assert DataSettings(train="a", unlabelled="b").unlabelled == ("b",)
    assert DataSettings(train="a", unlabelled=["b", "c"]).unlabelled == ("b", "c")
    assert StudentSettings(assistants="6x384").assistants == ("6x384",)
    assert StudentSettings(assistants="none").assistants == "none"


def test_types_are_strict():
    for wrong in ({"header": "yes"}, {"max_length": 64.0}, {"max_length": True}, {"bad_rows": "0.1"}, {"train": ["a"]}):
        with pytest.raises(ValidationError):
            DataSettings(**{"train": "a", **wrong})


def test_shares_leave_something_to_learn_from():
    with pytest.raises(SettingsError, match="leave nothing"):
        DataSettings(train="a", dev_share=0.5, test_share=0.5)
    assert DataSettings(train="a", dev="b", dev_share=0.5, test_share=0.4).dev == "b"


def test_shares_of_splits_that_are_given_do_not_count():
    assert DataSettings(train="a", dev="d", dev_share=0.9, test_share=0.9).test_share == 0.9


def test_margin_needs_a_threshold():
    with pytest.raises(SettingsError, match="label_threshold"):
        DataSettings(train="a", label_margin=0.5)


def test_layers_are_as_many_as_the_shape_has():
    assert StudentSettings(shape="2x8", layers=[0, 5]).layers == (0, 5)
    with pytest.raises(SettingsError, match="expected 4, one for each layer"):
        StudentSettings(layers=[0, 1])


def test_a_misspelt_start_is_not_taken_for_a_model():
    with pytest.raises(SettingsError, match='did you mean "shrunk"'):
        StudentSettings(start="shrunken")
    for source in ("layers", "hub:shrunken", "./shrunken", "pypi:minilm", "bert-base-uncased"):
        assert StudentSettings(start=source).start == source


def test_weights_must_leave_a_term():
    with pytest.raises(SettingsError, match="every weight"):
        WeightSettings(**dict.fromkeys(WeightSettings.model_fields, 0))
    with pytest.raises(SettingsError, match="every weight"):
        WeightSettings(**{name: [0, 0] for name in WeightSettings.model_fields})
    assert WeightSettings(embedding=0).hidden is None


def test_weights_and_temperature_may_move():
    assert WeightSettings(hidden=[1, 0.5]).hidden == (1, 0.5)
    assert DistillSettings(temperature=[4, 1]).temperature == (4, 1)
    assert (WeightSettings(hidden=[0, 0]).hidden, DistillSettings(temperature=[2, 2]).temperature) == (0, 2)
    for wrong in ([1], [1, 2, 3], [-1, 0], "1"):
        with pytest.raises(ValueError, match="hidden"):
            WeightSettings(hidden=wrong)
    for wrong in ([4, 0], 0, [4]):
        with pytest.raises(ValueError, match="temperature"):
            DistillSettings(temperature=wrong)


def test_an_export_twice():
    with pytest.raises(SettingsError, match="onnx-int8"):
        ExportSettings(formats=["onnx-int8", "onnx-float32", "onnx-int8"])
    assert ExportSettings(formats=[]).formats == ()

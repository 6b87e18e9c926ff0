"""Settings written as TOML are the same settings when read."""

import re

from hypothesis import given
from hypothesis import strategies as st

from potstill.config import (
    DataSettings,
    DistillSettings,
    ExportSettings,
    GeneralSettings,
    RunSettings,
    Settings,
    StudentSettings,
    TeacherSettings,
    WeightSettings,
    commented_settings,
    load_settings,
    write_settings,
)

# TOML files are UTF-8: no lone surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
settings = st.builds(
    Settings,
    data=st.builds(
        DataSettings,
        train=texts,
        pair=st.none() | texts,
        unlabelled=st.lists(texts, max_size=3),
        label_threshold=st.none() | st.floats(-1e6, 1e6),
    ),
    teacher=st.builds(
        TeacherSettings,
        source=texts,
        trained=st.sampled_from(["auto", True, False]),
        learning_rate=st.floats(1e-9, 0.5),
    ),
    student=st.builds(StudentSettings, assistants=st.sampled_from(["none", ["6x384", "4x256x512x4"]])),
    general=st.builds(GeneralSettings, max_tokens=st.none() | st.integers(1, 10**12)),
    distill=st.builds(
        DistillSettings,
        weights=st.builds(WeightSettings, hidden=st.none() | st.floats(0, 10), hard=st.none() | st.just(0)),
    ),
    export=st.builds(ExportSettings, formats=st.sampled_from([[], ["onnx-int8"], ["openvino-int8", "onnx-float32"]])),
    run=st.builds(
        RunSettings, out=texts.filter(lambda text: "\0" not in text), name=texts, seed=st.integers(0, 2**32 - 1)
    ),
)


@given(settings)
def test_written_settings_read_back(tmp_path_factory, chosen):
    path = tmp_path_factory.mktemp("settings") / "settings.toml"
    write_settings(chosen, path)
    assert load_settings(path) == chosen


@given(settings)
def test_commented_settings_read_back(tmp_path_factory, chosen):
    path = tmp_path_factory.mktemp("settings") / "settings.toml"
    path.write_text(commented_settings(chosen), encoding="utf-8", newline="")
    back = load_settings(path)
    # Name and folder that have their default are left to follow from the file's name.
    assert back.model_copy(update={"run": chosen.run}) == chosen


def test_commented_settings_name_every_key_and_follow_the_file_name(tmp_path):
    path = tmp_path / "sst2.toml"
    path.write_text(commented_settings(), encoding="utf-8")
    text = path.read_text()
    for name in re.findall(r"^\[([\w.]+)\]$", text, re.MULTILINE):
        assert name == "distill.weights" or name in Settings.model_fields
    for section, field in Settings.model_fields.items():
        for key, inner in field.annotation.model_fields.items():
            if key != "weights":
                assert re.search(rf"^(# )?{key} = ", text, re.MULTILINE), (section, key)
                assert inner.description.split()[0] in text
    read = load_settings(path)
    assert (read.run.name, read.run.out, read.data.train) == ("sst2", "runs/sst2", "train.tsv")
    assert read.distill == DistillSettings()


def test_what_is_not_set_can_be_uncommented(tmp_path):
    # Every example is allowed; texts that belong together are chosen to fit.
    lines = [
        line.removeprefix("# ") if re.match(r"# [a-z_]+ = ", line) else line
        for line in commented_settings().split("\n")
        if not line.startswith("# scores = ")  # in place of teacher.source
    ]
    path = tmp_path / "all.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    read = load_settings(path)
    assert (read.data.dev, read.distill.weights.hard, read.student.layers) == ("dev.tsv", 0.3, (0, 2, 4, 5))
    assert all(value is not None for value in read.data.model_dump().values())

import pytest
import yaml

from potstill.errors import DataError
from potstill.report import render_card, write_card


def front_matter(card):
    start, front, body = card.split("---\n", 2)
    assert start == ""
    return yaml.safe_load(front), body


def test_front_matter(full):
    front, body = front_matter(render_card(full))
    assert front["license"] == "apache-2.0"
    assert front["base_model"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert front["library_name"] == "transformers"
    assert front["pipeline_tag"] == "text-classification"
    assert front["metrics"] == ["accuracy", "f1", "matthews_correlation"]
    assert "language" not in front
    (result,) = front["model-index"][0]["results"]
    assert result["task"] == {"type": "text-classification"}
    assert result["dataset"]["split"] == "test"
    assert {"type": "accuracy", "name": "accuracy", "value": 0.8797} in result["metrics"]
    assert body.startswith("\n# movie-snippets\n\nThe student keeps 98.6 %")


def test_front_matter_is_yaml_for_every_sample_and_any_name(any_report):
    name = 'x: "y" # z\n--- \u2028 é 🙂 {a: [b]} \x07'
    front, _ = front_matter(render_card(any_report | {"name": name}))
    assert front["model-index"][0]["name"] == name.replace("\x07", "␇")


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("MIT", {"license": "mit"}),
        (None, {"license": "unknown"}),
        ("My Own Licence 2.0", {"license": "other", "license_name": "my-own-licence-2.0"}),
    ],
)
def test_licence(full, licence, expected):
    full["student"]["licence"] = full["teacher"]["licence"] = licence
    front, _ = front_matter(render_card(full))
    assert {key: value for key, value in front.items() if key.startswith("license")} == expected


@pytest.mark.parametrize(
    ("source", "origin", "expected"),
    [
        ("hub:owner/name@0123abc", None, "owner/name"),
        ("bert-base-uncased", None, "bert-base-uncased"),
        ("/srv/models/teacher", None, None),
        ("../models/teacher", None, None),
        ("pypi:mpnet", "hub:owner/other", "owner/other"),
        ("pypi:mpnet", "somebody, on paper", None),
        ("pypi:mpnet", None, None),
    ],
)
def test_base_model_is_a_hub_name_or_absent(full, source, origin, expected):
    full["teacher"] |= {"source": source, "origin": origin}
    full["data"]["sources"] = []
    front, _ = front_matter(render_card(full))
    assert front.get("base_model") == expected


def test_a_folder_of_this_machine_is_no_base_model_and_is_not_named(full, tmp_path, monkeypatch):
    (tmp_path / "models" / "teacher").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    full["data"]["sources"] = [{"role": "train", "source": str(tmp_path / "train.tsv")}]
    full["teacher"]["source"] = "models/teacher"
    front, _ = front_matter(render_card(full))
    assert "base_model" not in front
    full["teacher"]["source"] = str(tmp_path / "models" / "teacher")
    card = render_card(full)
    assert str(tmp_path) not in card
    assert "`train.tsv`" in card


def test_no_text_of_the_data_stands_in_the_card(full):
    card = render_card(full)
    assert not any(row["text"][:20] in card for row in full["disagreements"])
    assert "must-see" not in card


def test_tables_are_rectangular_and_hostile_names_are_tamed(full):
    full["name"] = "<script>|x|</script>"
    full["data"]["sources"][0]["licence"] = "a | b <i>"
    card = render_card(full)
    _, body = front_matter(card)
    assert "<script>" not in body
    assert "<i>" not in body
    widths, inside = [], False
    for line in body.splitlines():
        cells = line.replace("\\|", "").count("|")
        if line.startswith("|"):
            assert not inside or cells == widths[-1]
            widths.append(cells)
        inside = line.startswith("|")
    assert len(set(widths)) > 1


def test_key_figures(full):
    card = render_card(full)
    for figure in (
        "| **Student** | 88.0 % (86.4–89.6 %) |",
        "| TF-IDF + logistic regression | 76.5 %",
        "| **OpenVINO bfloat16** | `openvino/model` | 57.5 MB | 88.6 % | 0.390 | 23× | 2.30 | 31× |",
        "Labels (2): `negative`, `positive`.",
        "6x384x1536x12, 22.71 M parameters",
        "| joint | 1800 | 64 | 3e-05 | embedding × 1,",
        "7,022 training, 1,480 dev and 1,612 test examples; 4,000 unlabelled and 31,940 augmented texts.",
    ):
        assert figure in card
    assert "ONNX int8" not in card


def test_pairs_and_no_test_split(three):
    card = render_card(three)
    assert 'tokenizer("a first text", "a second text"' in card
    assert "2,490 training, 300 dev examples, no test split." in card
    assert "## Exports" not in card


def test_write_card_replaces_the_readme(full, tmp_path):
    (tmp_path / "README.md").write_text("old")
    path = write_card(full, tmp_path)
    assert path == tmp_path / "README.md"
    assert path.read_text(encoding="utf-8") == render_card(full)
    assert [p.name for p in tmp_path.iterdir()] == ["README.md"]


def test_no_student_no_card(refused, tmp_path):
    with pytest.raises(DataError, match="without a student"):
        write_card(refused, tmp_path / "student")
    assert not (tmp_path / "student").exists()

"""Folders that are models, and folders that only look so."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from potstill.data.model_files import card_licence, check_model_folder, is_model_file, model_files, select_model_files
from potstill.errors import ModelError

PLAIN = {"model_type": "bert", "hidden_size": 4}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    save_file({"a": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    return tmp_path


def test_a_plain_model_passes(folder):
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 512, "tokenizer_class": "BertTokenizer"}')
    (folder / "pytorch_model.bin").write_bytes(b"pickle beside it does not matter")
    check_model_folder(folder)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("config.json", "auto_map", {"AutoModel": "other/code--modeling.Evil"}),
        ("config.json", "auto_map", {"AutoConfig": "configuration.Evil"}),
        ("tokenizer_config.json", "auto_map", {"AutoTokenizer": ["t.Evil", None]}),
        ("config.json", "custom_pipelines", {"x": {"impl": "evil.Pipe"}}),
        ("config.json", "_attn_implementation_internal", "someone/kernel"),
        ("config.json", "_experts_implementation_internal", "eager"),
        ("config.json", "_attn_implementation", "someone/kernel"),
        ("config.json", "attn_implementation", "kernels/flash@v1:function"),
        ("config.json", "attn_implementation", {"text_config": "someone/kernel"}),
        ("config.json", "attn_implementation", ["sdpa"]),
        ("config.json", "transformers_weights", "../../evil.safetensors"),
        ("generation_config.json", "auto_map", {"x": "y"}),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_refuses_settings_that_reach_for_code(folder, name, key, value, nested):
    settings = {**PLAIN, key: value} if not nested else {**PLAIN, "text_config": [{"deeper": {key: value}}]}
    (folder / name).write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=key):
        check_model_folder(folder)


@pytest.mark.parametrize(
    "settings",
    [
        {"_attn_implementation_autoset": True},
        {"_attn_implementation": "sdpa"},
        {"attn_implementation": None},
        {"auto_map": {}},
        {"_name_or_path": "someone/model"},
        {"id2label": {"0": "auto_map"}},
    ],
)
def test_lets_harmless_settings_pass(folder, settings):
    (folder / "config.json").write_text(json.dumps({**PLAIN, **settings}))
    check_model_folder(folder)


def test_refuses_what_is_no_model(tmp_path):
    with pytest.raises(ModelError, match=r"no config\.json"):
        check_model_folder(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        check_model_folder(tmp_path)
    (tmp_path / "config.json").write_text('{"a":' * 100_000)
    with pytest.raises(ModelError, match="cannot be read"):
        check_model_folder(tmp_path)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match="cannot be read"):
        check_model_folder(tmp_path)


def test_refuses_pickle_weights_and_says_which(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no model\.safetensors.*safetensors weights"):
        check_model_folder(folder)
    (folder / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"only pytorch_model\.bin.*pickle weights are not read"):
        check_model_folder(folder)


def test_refuses_an_adapter(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/model"}')
    with pytest.raises(ModelError, match="adapter"):
        check_model_folder(folder)


@pytest.mark.parametrize(
    "content",
    [b"", b"short", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", struct.pack("<Q", 1 << 40) + b"{}"],
)
def test_refuses_weights_that_are_none(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(
        ModelError, match=r"holds no safetensors weights" + (".*git-lfs" if content[:7] == b"version" else "")
    ):
        check_model_folder(folder)


def shards(folder, names):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"weight_map": {f"w{k}": name for k, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_reads_an_index_of_shards(folder):
    shards(folder, ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"])
    with pytest.raises(ModelError, match="lacks the shard model-00002"):
        check_model_folder(folder)
    save_file({"b": np.zeros(3, np.float32)}, folder / "model-00002-of-00002.safetensors")
    check_model_folder(folder)


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/x.safetensors", "a/b.safetensors", "x.bin", ".x.safetensors", 3]
)
def test_refuses_shards_that_stand_elsewhere(folder, name):
    shards(folder, ["model-00001-of-00002.safetensors", name])
    with pytest.raises(ModelError, match="names the shard"):
        check_model_folder(folder)


@pytest.mark.parametrize("index", ["[]", "{}", '{"weight_map": {}}', '{"weight_map": []}'])
def test_refuses_an_index_of_nothing(folder, index):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelError, match="names no shard"):
        check_model_folder(folder)


def test_knows_which_files_make_a_model(folder):
    made = [
        "1_Pooling/config.json",
        "config.json",
        "merges.txt",
        "model.safetensors",
        "spiece.model",
        "tokenizer.json",
        "vocab.txt",
    ]
    others = [
        "README.md",
        "code.py",
        "pytorch_model.bin",
        ".hidden.json",
        "manifest.json",
        "onnx/model.onnx",
        "x/config.txt",
    ]
    others += [
        "checkpoint-5/model.safetensors",
        "notes.txt",
        "adapter_config.json",
        "adapter_model.safetensors",
        "a/b/config.json",
    ]
    for name in made[:1] + made[2:3] + made[4:] + others:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    assert model_files(folder) == sorted(made)
    assert [name for name in made + others if is_model_file(name)] == made


def test_selects_from_a_repository(folder):
    names = [
        "config.json",
        "model.safetensors",
        "model-00001-of-00002.safetensors",
        "pytorch_model.bin",
        "run.py",
        "README.md",
    ]
    assert select_model_files("acme/m", names) == ["config.json", "model.safetensors", "README.md"]
    with pytest.raises(ModelError, match=r"acme/m has no model\.safetensors, only pytorch_model\.bin"):
        select_model_files("acme/m", ["config.json", "pytorch_model.bin"])
    with pytest.raises(ModelError, match=r"acme/m has no config\.json"):
        select_model_files("acme/m", ["train.csv"])


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlanguage: en\nlicense: apache-2.0\n---\n# x", "apache-2.0"),
        ("---\nlicense: 'MIT'\n---", "MIT"),
        ("---\nlanguage: en\n---\nlicense: mit", None),
        ("# x\nlicense: mit", None),
        ("", None),
    ],
)
def test_reads_the_licence_of_a_card(folder, card, licence):
    assert card_licence(folder) is None
    (folder / "README.md").write_text(card)
    assert card_licence(folder) == licence

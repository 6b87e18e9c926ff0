"""The torch engine: what it refuses to load, and that it leaves torch's settings alone."""

import json
import shutil

import pytest
import torch
from transformers import AutoModel

from potstill.engines import load
from potstill.engines.torch import load_model
from potstill.errors import ModelError


def test_a_head_is_not_invented(bert, tmp_path):
    AutoModel.from_pretrained(bert).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"lacks weights: classifier\.bias, classifier\.weight"):
        load(tmp_path, "torch", "float32")


def test_a_folder_without_weights(bert, tmp_path):
    shutil.copy(bert / "config.json", tmp_path)
    with pytest.raises(ModelError, match="cannot be opened as a classifier"):
        load(tmp_path, "torch", "float32")


def test_pickled_weights_are_not_read(bert, tmp_path):
    model = load_model(bert)
    shutil.copy(bert / "config.json", tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be opened as a classifier"):
        load(tmp_path, "torch", "float32")


def test_code_in_the_folder_is_not_run(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "hostile")
    config = json.loads((bert / "config.json").read_text())
    config["auto_map"] = {"AutoModelForSequenceClassification": "code.Model", "AutoConfig": "code.Config"}
    (tmp_path / "hostile" / "config.json").write_text(json.dumps(config))
    (tmp_path / "hostile" / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Model: ...\n")
    load(tmp_path / "hostile", "torch", "float32")
    assert not (tmp_path / "ran").exists()


def test_attention_and_format(folder):
    model = load(folder, "torch", "bfloat16").model
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    # MPNet adds its relative bias to the scores, which transformers does in eager attention alone.
    assert model.config._attn_implementation == ("eager" if "mpnet" in folder.name else "sdpa")


def test_threads_are_put_back(folder, batch):
    before = torch.get_num_threads()
    engine = load(folder, "torch", "float32", threads=before + 1)
    seen = []
    engine.model.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    engine.run(batch)
    assert (seen, torch.get_num_threads()) == ([before + 1], before)

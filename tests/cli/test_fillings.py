"""`potstill predict` on a masked LM: blanks filled, and what does not go with it."""

import json

import pytest
import torch
from tests.tiny import tiny_bert, tiny_tokenizer
from transformers import BertConfig, BertForMaskedLM


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory):
    folder, tokenizer = tmp_path_factory.mktemp("masked"), tiny_tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            initializer_range=0.5,
        )
        BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_line_for_each_text_with_blanks(run, masked_lm):
    ran = run("predict", masked_lm, "the [MASK] [MASK] .", "none", "--fillings", "2")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert sorted(found) == ["apart", "fillings", "id"]
    assert (found["id"], len(found["fillings"])) == (1, 2)
    first, second = found["fillings"]
    assert sorted(first) == ["fill", "independent", "order", "probability", "text"]
    assert first["probability"] >= second["probability"] > 0
    assert first["text"].startswith("the")
    assert ran.err.splitlines()[0] == "row 2: no blank: write [MASK] where a word is wanted"


def test_lines_of_standard_input_and_one_document(run, masked_lm):
    ran = run("predict", masked_lm, "--json", "--precision", "bfloat16", stdin=b"a [MASK]\n[MASK] film\n")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert [one["id"] for one in found["answers"]] == [1, 2]
    assert all(len(one["fillings"]) == 5 for one in found["answers"])


@pytest.mark.parametrize("given", [("--engine", "onnxruntime"), ("--precision", "int8")])
def test_other_engines_are_refused(run, masked_lm, given):
    ran = run("predict", masked_lm, "a [MASK]", *given)
    assert ran.code == 2
    assert "torch, in float32 or bfloat16" in ran.err
    assert ran.out == ""


def test_fillings_of_a_classifier_are_refused(run, tmp_path):
    folder = tiny_bert(tmp_path / "classifier")
    ran = run("predict", folder, "a [MASK]", "--fillings", "2")
    assert ran.code == 2
    assert "is no masked LM" in ran.err

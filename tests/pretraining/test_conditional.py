"""A masked LM that reads labels: what it reads, what it never masks, and that it learns to heed them."""

import numpy as np
import pytest
import torch
from tests.models.test_masked_lm import masked_lm
from tests.tiny import tiny_tokenizer
from torch.nn import functional

from potstill.data.batching import Batches
from potstill.data.encoding import TextEncoder
from potstill.data.masking import MaskRule, MaskVocabulary
from potstill.models.masked_lm import MaskedLMProposer, load_masked_lm
from potstill.pretraining import ConditionalMaskedLM, label_first
from potstill.training import AdamW, Schedule, train

TEXTS = ["the film was good", "a bad plot", "i liked it", "the actor was so very slow"] * 5
NAMES = ["good", "not good"] * 10


def program(model, texts=TEXTS, names=NAMES, rule=None, batch_size=5):
    encoder = TextEncoder(tiny_tokenizer(), max_length=32)
    encodings, before = label_first(encoder, texts, names)
    batches = Batches(encodings, np.full(len(encodings), -1), np.arange(len(encodings)), batch_size, 0)
    vocabulary = MaskVocabulary.of(encoder.tokenizer)
    return ConditionalMaskedLM(model, batches, before, rule or MaskRule(), vocabulary)


def test_labels_stand_first_and_are_never_masked(tmp_path):
    own = program(load_masked_lm(masked_lm(tmp_path / "lm")), rule=MaskRule(rate=0.99))
    tokenizer = tiny_tokenizer()
    assert own.before.tolist() == [3, 4] * 10
    for rows in [*own.batches(0), *own.batches(1)]:
        arrays, masked = own.masked(rows)
        for row, ids, chosen in zip(rows % 20, arrays["input_ids"], masked.chosen, strict=True):
            length = int((ids != 0).sum())
            assert ids[:length].tolist() == tokenizer.encode(NAMES[row], TEXTS[row]).ids
            assert not chosen[: own.before[row]].any()
            assert chosen[own.before[row] : length - 1].all()


def test_the_loss_is_that_of_the_chosen_words_alone(tmp_path):
    model = load_masked_lm(masked_lm(tmp_path / "lm"))
    own = program(model)
    rows = own.batches(0)[0]
    arrays, masked = own.masked(rows)
    inputs = {
        "input_ids": torch.from_numpy(masked.input_ids),
        "attention_mask": torch.from_numpy(arrays["attention_mask"]),
        "token_type_ids": torch.from_numpy(arrays["token_type_ids"]),
    }
    chosen = torch.from_numpy(masked.chosen)
    words = torch.from_numpy(arrays["input_ids"])
    wanted = functional.cross_entropy(model(**inputs).logits[chosen].detach(), words[chosen], reduction="sum")
    value = own.step(rows)["masked"]
    assert float(value.sum.detach()) == pytest.approx(float(wanted), rel=1e-5)
    assert value.count == own.counts(rows)["masked"] == int(chosen.sum())
    assert own.state() != program(model, names=NAMES[::-1]).state()


def test_it_learns_to_propose_what_fits_the_label(tmp_path):
    folder = masked_lm(tmp_path / "lm")
    model = load_masked_lm(folder)
    texts = [f"the {noun} was {word}" for noun in ("film", "plot", "story") for word in ("good", "awful")] * 8
    own = program(model, texts, ["pos", "neg"] * 24, MaskRule(rate=0.3), batch_size=24)
    optimiser = AdamW(own.modules, weight_decay=0.0, clip=1.0, dtype=torch.float32)
    train(own, optimiser, Schedule(80, 1e-2), seed=(0,), checkpoints=tmp_path / "ck", save_every=1e9)
    sentence = "the plot was good".split()
    for label, wanted in (("pos", "good"), ("neg", "awful")):
        proposer = MaskedLMProposer(model.eval(), tiny_tokenizer(), candidates=1, condition=label)
        assert proposer.propose([sentence], [3]) == [[wanted]]

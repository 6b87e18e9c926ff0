"""Distilling a masked LM: words, right words and hidden states, against `transformers`' own outputs."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.pretraining.test_masked import small_masked_lm, vocabulary
from tests.recipes.test_programs import MorePadding, check_same, total_and_gradient
from tests.small_models import CONFIGS, VOCABULARY, random_encodings, small_model
from torch import nn

from potstill.compression import prune_vocabulary
from potstill.data.batching import Batches
from potstill.data.masking import MaskRule, MaskVocabulary
from potstill.losses import word_kl
from potstill.models.masked_lm import masked_lm_over
from potstill.recipes import RECIPES, build_terms
from potstill.recipes.masked import MaskedDistilling
from potstill.training import AdamW, Schedule, train

LENGTHS = (12, 20, 12, 9, 16, 5, 20)
PHASE = RECIPES["distilbert"].general
EVERYTHING = np.arange(len(LENGTHS))


def program_of(kind="bert", *, student=None, teacher=None, encodings=None, rule=None, words=None, teacher_ids=None):
    teacher = teacher or small_masked_lm(kind, seed=2)
    student = student or small_masked_lm(kind, seed=1)
    encodings = encodings or random_encodings(LENGTHS, kind=kind)
    batches = Batches(encodings, np.full(len(encodings), -1), np.arange(len(encodings)), 99, 0)
    terms = build_terms(PHASE, student=2, teacher=2, mapping="uniform")
    return MaskedDistilling(
        student, teacher, terms, nn.ModuleDict(), batches, rule or MaskRule(0.3), words or vocabulary(), teacher_ids
    )


@pytest.mark.parametrize("kind", CONFIGS)
def test_against_the_models_own_outputs_one_text_at_a_time(kind):
    program = program_of(kind)
    words = right = cosine = 0.0
    for row in EVERYTHING:
        arrays, masked = program.masked(np.array([row]))
        given = {"input_ids": torch.from_numpy(masked.input_ids)}
        if getattr(program.model.config, "type_vocab_size", 0) > 1:
            given["token_type_ids"] = torch.from_numpy(arrays["token_type_ids"])
        with torch.no_grad():
            own, theirs = (m(**given, output_hidden_states=True) for m in (program.model, program.teacher))
        places = torch.from_numpy(masked.chosen[0])
        a, b = (torch.log_softmax(o.logits[0, places].double() / 2.0, dim=-1) for o in (own, theirs))
        words += 4.0 * float((b.exp() * (b - a)).sum())
        scores = torch.log_softmax(own.logits[0, places].double(), dim=-1)
        right -= float(scores[torch.arange(len(scores)), torch.from_numpy(arrays["input_ids"][0])[places]].sum())
        last = [o.hidden_states[-1][0].double() for o in (own, theirs)]
        cosine += float((1 - torch.nn.functional.cosine_similarity(*last, dim=-1)).sum())
    with torch.no_grad():
        terms = program.step(EVERYTHING)
    for name, wanted in (("words", words), ("masked", right), ("cosine", cosine)):
        assert float(terms[name].sum) == pytest.approx(wanted, rel=1e-4), name
    assert {name: term.count for name, term in terms.items()} == program.counts(EVERYTHING)
    assert terms["cosine"].count == sum(LENGTHS)
    assert program.weights == {"words": 5.0, "masked": 2.0, "cosine": 1.0}


def test_company_order_and_padding_change_nothing():
    rows = list(range(len(LENGTHS)))
    wanted = total_and_gradient(program_of(), [rows])
    own = random_encodings(LENGTHS)
    padded = MorePadding(**{field.name: getattr(own, field.name) for field in dataclasses.fields(own)})
    check_same(total_and_gradient(program_of(), [rows[::-1]]), wanted)
    check_same(total_and_gradient(program_of(), [[3, 0, 6], [5, 1], [2, 4]]), wanted)
    check_same(total_and_gradient(program_of(encodings=padded), [rows]), wanted)


def test_a_copied_student_has_the_right_words_left_to_learn():
    program = program_of(student=small_masked_lm(seed=2))
    with torch.no_grad():
        terms = program.step(EVERYTHING)
    assert float(terms["words"].sum) == pytest.approx(0.0, abs=1e-4)
    assert float(terms["cosine"].sum) == pytest.approx(0.0, abs=1e-4)
    assert float(terms["masked"].sum) / terms["masked"].count > 1.0


def test_it_learns():
    program = program_of()
    before, _ = total_and_gradient(program, [range(len(LENGTHS))])
    train(program, AdamW(program.modules), Schedule(60, 3e-3), seed=(0,))
    after, _ = total_and_gradient(program, [range(len(LENGTHS))])
    assert after["cosine"] < 0.7 * before["cosine"]
    assert after["words"] < 0.9 * before["words"]
    program.close()
    assert not any(module._forward_hooks for module in program.teacher.modules())


def test_a_student_of_fewer_words_learns_the_teachers_words_among_them():
    """The teacher over some of its pieces, as a student: nothing is left to learn of words that both have."""
    teacher = small_masked_lm(seed=2)
    kept = np.array([0, 1, 2, 3, 4, 5, *range(40, VOCABULARY)])
    own = random_encodings(LENGTHS)
    few = dataclasses.replace(own, input_ids=(own.input_ids % (len(kept) - 6) + 6).astype(np.int32))
    special = np.arange(len(kept)) <= 5
    words = MaskVocabulary(5, np.flatnonzero(~special), special, np.zeros(len(kept), dtype=bool))
    program = program_of(
        student=prune_vocabulary(teacher, kept), teacher=teacher, encodings=few, words=words, teacher_ids=kept
    )
    with torch.no_grad():
        terms = program.step(EVERYTHING)
    assert float(terms["words"].sum) == pytest.approx(0.0, abs=1e-4)
    assert float(terms["cosine"].sum) == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_masked_lm_over_a_classifiers_encoder(kind):
    classifier, teacher = small_model(kind), small_masked_lm(kind, seed=2)
    made = masked_lm_over(classifier, teacher, seed=0)
    assert made.base_model is classifier.base_model
    assert made.get_output_embeddings().weight is classifier.get_input_embeddings().weight
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    program = program_of(kind, student=made, teacher=teacher)
    train(program, AdamW(program.modules, dtype=torch.bfloat16), Schedule(3, 1e-2), seed=(0,))
    changed = {name for name, tensor in classifier.state_dict().items() if not torch.equal(tensor, before[name])}
    prefix = f"{classifier.base_model_prefix}."
    assert changed
    assert all(name.startswith(prefix) for name in changed)
    assert all(parameter.dtype == torch.float32 for parameter in classifier.parameters())


def test_the_soft_loss_by_its_formula():
    torch.manual_seed(0)
    own, theirs = torch.randn(6, 40, requires_grad=True), torch.randn(6, 40, requires_grad=True)
    total, count = word_kl(own, theirs, temperature=2.0)
    total.backward()
    p, q = (torch.softmax(part.detach().double() / 2.0, dim=-1) for part in (theirs, own))
    assert count == 6.0
    assert float(total.detach()) == pytest.approx(4.0 * float((p * (p / q).log()).sum()), rel=1e-5)
    torch.testing.assert_close(own.grad, (2.0 * (q - p)).float(), rtol=1e-4, atol=1e-6)
    assert theirs.grad is None

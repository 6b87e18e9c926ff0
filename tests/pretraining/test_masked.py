"""The masked-LM program: against `transformers`' own loss, value and weights after a step; padding, order, seed."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.small_models import CONFIGS, FIRST_TOKEN, VOCABULARY, pad_id, random_encodings, small_config
from tests.training.toys import weights_of
from transformers import AutoModelForMaskedLM

from potstill.data.batching import Batches
from potstill.data.encoding import Encodings
from potstill.data.masking import MaskRule, MaskVocabulary
from potstill.models.masked_lm import word_logits
from potstill.pretraining import HeldOut, MaskedLM, unigram
from potstill.training import AdamW, Schedule, train

LENGTHS = (12, 20, 12, 9, 16, 5, 20)
MASK = FIRST_TOKEN


def vocabulary():
    special = np.arange(VOCABULARY) <= MASK
    return MaskVocabulary(MASK, np.flatnonzero(~special), special, np.arange(VOCABULARY) % 3 == 0)


def small_masked_lm(kind="bert", seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = small_config(kind, initializer_range=0.2)
        model = AutoModelForMaskedLM.from_config(config, attn_implementation="eager")
    return model.eval()


def program_of(kind="bert", *, encodings=None, rule=None, batch_size=99, model=None, seed=0):
    encodings = encodings or random_encodings(LENGTHS, kind=kind)
    count = len(encodings)
    batches = Batches(encodings, np.full(count, -1), np.arange(count), batch_size, seed)
    return MaskedLM(model or small_masked_lm(kind), batches, rule or MaskRule(0.3), vocabulary())


def plain_loss(program, rows):
    """`transformers`' own masked-LM loss on the same masked windows, one window at a time, as a sum."""
    total, count = 0.0, 0
    for row in rows:
        arrays, masked = program.masked(np.array([row]))
        labels = torch.from_numpy(np.where(masked.chosen, arrays["input_ids"], -100))
        more = {"token_type_ids": torch.from_numpy(arrays["token_type_ids"])}
        given = more if getattr(program.model.config, "type_vocab_size", 0) > 1 else {}
        found = program.model(input_ids=torch.from_numpy(masked.input_ids), labels=labels, **given)
        places = int(masked.chosen.sum())
        total, count = total + found.loss * places, count + places
    return total, count


@pytest.mark.parametrize("kind", CONFIGS)
def test_value_and_gradient_are_those_of_transformers(kind):
    program = program_of(kind)
    rows = np.arange(len(LENGTHS))
    wanted, count = plain_loss(program, rows)
    parameters = [p for p in program.model.parameters() if p.requires_grad]
    slopes = torch.autograd.grad(wanted, parameters, allow_unused=True)
    term = program.step(rows)["masked"]
    assert term.count == count == program.counts(rows)["masked"]
    assert float(term.sum.detach()) == pytest.approx(float(wanted.detach()), rel=1e-5)
    found = torch.autograd.grad(term.sum, parameters, allow_unused=True)
    scale = max(float(slope.abs().max()) for slope in slopes if slope is not None)
    for slope, own in zip(slopes, found, strict=True):
        assert (slope is None) == (own is None)
        assert slope is None or float((slope - own).abs().max()) <= 1e-5 * scale


@pytest.mark.parametrize("kind", CONFIGS)
def test_scores_at_chosen_places_are_the_models_own(kind):
    model = small_masked_lm(kind)
    ids = torch.randint(FIRST_TOKEN, VOCABULARY, (2, 9))
    with torch.no_grad():
        whole = model(input_ids=ids).logits
        hidden = model.base_model(input_ids=ids)[0]
        found = word_logits(model, hidden[:, [1, 4]].flatten(0, 1))
    assert torch.allclose(found, whole[:, [1, 4]].flatten(0, 1), atol=1e-5)


@pytest.mark.parametrize("whole_words", [False, True])
def test_company_order_and_padding_change_nothing(whole_words):
    rule = MaskRule(0.3, whole_words=whole_words)

    class MorePadding(Encodings):
        def batch(self, windows):
            batch = super().batch(windows)
            fill = {"input_ids": self.pad_token_id}
            return {n: np.pad(a, ((0, 0), (0, 3)), constant_values=fill.get(n, 0)) for n, a in batch.items()}

    def total(program, groups):
        terms = [program.step(np.array(rows))["masked"] for rows in groups]
        return float(sum(term.sum.detach() for term in terms)), sum(term.count for term in terms)

    rows = list(range(len(LENGTHS)))
    wanted = total(program_of(rule=rule), [rows])
    own = random_encodings(LENGTHS)
    padded = MorePadding(**{field.name: getattr(own, field.name) for field in dataclasses.fields(own)})
    for program, groups in (
        (program_of(rule=rule), [rows[::-1]]),
        (program_of(rule=rule), [[3, 0], [6, 5, 1], [2, 4]]),
        (program_of(rule=rule, encodings=padded), [rows]),
    ):
        got = total(program, groups)
        assert got[1] == wanted[1]
        assert got[0] == pytest.approx(wanted[0], rel=1e-5)


def test_each_epoch_masks_anew_and_the_same_again():
    program = program_of(batch_size=3)
    first, second = (np.sort(np.concatenate(program.batches(epoch))) for epoch in (0, 1))
    assert (first % len(LENGTHS) == np.arange(len(LENGTHS))).all()
    assert (second == first + len(LENGTHS)).all()
    masks = [program.masked(rows)[1].chosen for rows in (first, second, first)]
    assert (masks[0] == masks[2]).all()
    assert (masks[0] != masks[1]).any()
    assert program.describe(second[:1]) == program.describe(first[:1]) == "examples 0"
    assert program.size(second) == program.size(first)


def test_held_out_text_is_masked_otherwise():
    program = program_of()
    other = MaskedLM(program.model, program.data, program.rule, vocabulary(), "held-out")
    rows = np.arange(len(LENGTHS))
    assert (program.masked(rows)[1].chosen != other.masked(rows)[1].chosen).any()


def test_it_learns_what_can_be_learned_and_goes_on_to_the_same_bytes(tmp_path):
    """Windows that repeat one token: the others tell what was masked."""
    tokens = np.random.default_rng(0).integers(MASK + 1, VOCABULARY, 40)
    ids = np.repeat(tokens, 8).astype(np.int32)
    starts = np.arange(41, dtype=np.int64) * 8
    encodings = Encodings(ids, np.zeros(320, np.int8), starts, np.arange(40), 0, 0, pad_id("bert"))

    def trained(folder, steps, stop=None):
        program = program_of(encodings=encodings, batch_size=10, model=small_masked_lm(seed=1))
        optimiser = AdamW(program.modules)
        schedule = Schedule(steps, 5e-3)
        calls = iter(range(10**6))

        def interrupt(*_args, **_values):
            if stop is not None and next(calls) == stop:
                raise KeyboardInterrupt

        class Reporter:
            def progress(self, *_args, **_values):
                interrupt()

            stage = note = warn = lambda *_args: None

        train(program, optimiser, schedule, seed=(0, "masked"), checkpoints=folder, save_every=0.0, report=Reporter())
        return program

    whole = trained(tmp_path / "whole", 120)
    judged = HeldOut.of(program_of(encodings=encodings, model=whole.model))
    assert judged.accuracy > 0.9
    assert judged.loss < 1.0 < unigram(whole)[0]
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "cut", 120, stop=50)
    again = trained(tmp_path / "cut", 120)
    for name, tensor in weights_of(whole).items():
        assert torch.equal(tensor, weights_of(again)[name]), name


def test_held_out_is_the_mean_over_places():
    program = program_of(batch_size=2)
    judged = HeldOut.of(program)
    wanted, count = plain_loss(program, np.arange(len(LENGTHS)))
    assert judged.places == count
    assert judged.loss == pytest.approx(float(wanted.detach()) / count, rel=1e-5)
    with torch.no_grad():
        logits, words = program.answers(np.arange(len(LENGTHS)), backward=False)
    assert judged.accuracy == pytest.approx(float((logits.argmax(dim=1) == words).float().mean()))


def test_unigram_entropy_by_hand():
    ids = np.array([1, 8, 8, 9, 2, 1, 8, 10, 2], dtype=np.int32)
    encodings = Encodings(ids, np.zeros(9, np.int8), np.array([0, 5, 9]), np.arange(2), 0, 0, 0)
    entropy, share = unigram(program_of(encodings=encodings))
    shares = np.array([3, 1, 1]) / 5
    assert entropy == pytest.approx(-(shares * np.log(shares)).sum())
    assert share == pytest.approx(0.6)

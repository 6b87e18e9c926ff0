"""Blanks filled together: against every filling in every order, `transformers`' own fill-mask, and a model that knows a
pair whose halves are not the likeliest words by themselves."""

import itertools
import shutil

import numpy as np
import pytest
import torch
from tests.tiny import tiny_tokenizer
from tests.tokenizers_of import KINDS, small_tokenizer
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast, pipeline

from potstill.errors import DataError, ModelError
from potstill.inference.fillings import Filler
from potstill.inference.joint_search import joint_search
from potstill.models.masked_lm import load_masked_lm


def random_read(blanks, size, seed):
    """Log-probabilities that depend on what is filled, with no joint distribution behind them."""

    def read(partials):
        rows = []
        for partial in partials:
            state = [seed, *(0 if token is None else token + 1 for token in partial)]
            logits = np.random.default_rng(state).normal(scale=2.0, size=(blanks, size))
            rows.append(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))
        return np.stack(rows)

    return read


def every_filling(read, blanks, allowed):
    """Each filling's best order and log-probability, by trying all."""
    found = {}
    for tokens in itertools.product(np.flatnonzero(allowed).tolist(), repeat=blanks):
        for order in itertools.permutations(range(blanks)):
            partial, total = [None] * blanks, 0.0
            for blank in order:
                total += read([tuple(partial)])[0][blank, tokens[blank]]
                partial[blank] = tokens[blank]
            if tokens not in found or total > found[tokens][0]:
                found[tokens] = (total, order)
    return found


@pytest.mark.parametrize(("blanks", "size"), [(1, 7), (2, 5), (3, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_best_of_all_fillings_and_orders(blanks, size, seed):
    read, allowed = random_read(blanks, size, seed), np.ones(size, dtype=bool)
    allowed[0] = False
    wanted = sorted(every_filling(read, blanks, allowed).items(), key=lambda item: -item[1][0])
    found, alone = joint_search(read, blanks, beam=size**blanks, allowed=allowed)
    assert [one.tokens for one in found] == [tokens for tokens, _ in wanted]
    first = read([(None,) * blanks])[0]
    for one, (tokens, (total, order)) in zip(found, wanted, strict=True):
        assert one.joint == pytest.approx(total, abs=1e-12)
        assert one.order == order
        assert one.independent == pytest.approx(sum(first[i, token] for i, token in enumerate(tokens)))
    assert alone == tuple(int(row[1:].argmax()) + 1 for row in first)


def test_a_narrow_beam_gives_true_scores_and_keeps_every_order():
    read, allowed = random_read(2, 40, 3), np.ones(40, dtype=bool)
    wanted = every_filling(read, 2, allowed)
    found, _ = joint_search(read, 2, beam=4, allowed=allowed)
    assert len(found) == 4
    assert sorted(-one.joint for one in found) == [-one.joint for one in found]
    for one in found:  # a filling's score is that of one of its orders, at most of its best
        assert one.joint <= wanted[one.tokens][0] + 1e-12
    one_order = max(
        read([(None, None)])[0][0, a] + read([(a, None)])[0][1, b]
        for a in np.argsort(-read([(None, None)])[0][0])[:4]
        for b in range(40)
    )
    assert found[0].joint >= one_order - 1e-12


PAIRS = {("good", "film"): 8, ("bad", "movie"): 7, ("dull", "movie"): 5}
"""The likeliest pair is not made of the likeliest second word: 8 of 20 films, 12 movies."""


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A masked LM taught on "the A B was long .", by plain torch."""
    folder = tmp_path_factory.mktemp("pairs")
    tokenizer = tiny_tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=24,
        )
        model = BertForMaskedLM(config).eval()
        rows = [f"the {a} {b} was long ." for (a, b), count in PAIRS.items() for _ in range(count)]
        ids = torch.tensor([encoding.ids for encoding in tokenizer.encode_batch(rows)])
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for step in range(300):
            given, labels = ids.clone(), torch.full_like(ids, -100)
            for place in [(2,), (3,), (2, 3)][step % 3]:
                given[:, place] = tokenizer.token_to_id("[MASK]")
                labels[:, place] = ids[:, place]
            loss = model(input_ids=given, labels=labels).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_dependent_pair_is_found_jointly_and_not_blank_by_blank(learned):
    (answer,) = Filler.load(learned).predict_stream(["the [MASK] [MASK] was long ."])
    assert answer.fillings[0].pieces == ("good", "film")
    assert answer.fillings[0].text == "the good film was long ."
    assert answer.fillings[0].probability == pytest.approx(0.4, abs=0.05)
    assert answer.fillings[0].independent == pytest.approx(0.16, abs=0.05)
    assert answer.apart.pieces == ("good", "movie")
    assert answer.apart.independent > answer.fillings[0].independent
    assert answer.apart.probability < 0.05
    assert [filling.pieces for filling in answer.fillings[:3]] == list(PAIRS)


def test_one_blank_is_as_transformers_fills_it(learned):
    theirs = pipeline(
        "fill-mask",
        model=load_masked_lm(learned),
        tokenizer=PreTrainedTokenizerFast(
            tokenizer_file=str(learned / "tokenizer.json"), mask_token="[MASK]", pad_token="[PAD]"
        ),
    )("the [MASK] film was long .", top_k=4)
    (answer,) = Filler.load(learned, top=4).predict_stream(["the [MASK] film was long ."])
    assert [filling.pieces[0] for filling in answer.fillings] == [one["token_str"] for one in theirs]
    for own, one in zip(answer.fillings, theirs, strict=True):
        assert own.probability == pytest.approx(one["score"], rel=1e-4)
        assert own.independent == pytest.approx(own.probability)
        assert own.order == (1,)
    assert answer.apart == answer.fillings[0]


def test_answers_do_not_depend_on_the_batch_or_on_other_texts(learned):
    filler = Filler.load(learned)
    texts = ["the [MASK] [MASK] was long .", "[MASK]", "a [MASK] [MASK] [MASK] ."]
    one = [next(filler.predict_stream([text], batch_size=1)) for text in texts]
    together = list(filler.predict_stream(texts, batch_size=64))
    for own, theirs in zip(one, together, strict=True):
        assert [filling.pieces for filling in own.fillings] == [filling.pieces for filling in theirs.fillings]
        for left, right in zip(own.fillings, theirs.fillings, strict=True):
            assert left.probability == pytest.approx(right.probability, rel=1e-5)


def test_of_a_long_text_the_part_around_its_blanks_is_read(learned):
    filler = Filler.load(learned)  # 24 positions: 22 tokens beside the special ones
    words = ["good"] * 100
    words[60] = words[62] = "[MASK]"
    (answer,) = filler.predict_stream([" ".join(words)])
    assert answer.truncated
    # The same as the part itself: ten words before the first blank, nine after the second.
    (part,) = filler.predict_stream([" ".join(words[50:72])])
    assert [one.pieces for one in part.fillings] == [one.pieces for one in answer.fillings]
    assert not part.truncated
    assert len(answer.fillings[0].text.split()) == 100
    words[99] = "[MASK]"
    (far,) = filler.predict_stream([" ".join(words)])
    assert far.reason == "its blanks are 39 tokens apart, the model reads 22"


def test_what_cannot_be_filled_says_why(learned, tmp_path):
    filler = Filler.load(learned)
    reasons = [answer.reason for answer in filler.predict_stream(["no blank", " ", "lone \ud800 [MASK]"])]
    assert reasons == [
        "no blank: write [MASK] where a word is wanted",
        "empty",
        "not a Unicode text: a lone surrogate at character 5",
    ]
    for top, allowed in ((0, 16), (101, 100)):
        with pytest.raises(DataError, match=f"expected 1 to {allowed}"):
            Filler.load(learned, top=top)
    shutil.copytree(learned, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        Filler.load(tmp_path / "model")
    model = load_masked_lm(learned)
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(float("nan"))
    broken = Filler(model, tiny_tokenizer(), max_length=24)
    assert next(broken.predict_stream(["[MASK] [MASK]"])).reason == "the model gives NaN or infinity for it"


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_with_its_filling_reads_back_as_the_same_pieces(kind):
    """Whatever piece fills a blank: the rest of the text stays, and special pieces are never chosen."""
    tokenizer = small_tokenizer(kind)
    mask = "[MASK]" if kind != "bpe" else "<mask>"
    with torch.random.fork_rng():
        torch.manual_seed(1)
        config = BertConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            initializer_range=0.5,
        )
        model = BertForMaskedLM(config).eval()
    filler = Filler(model, tokenizer, max_length=64, top=16)
    (answer,) = filler.predict_stream([f"the {mask} was {mask} good, café!"])
    assert len(answer.fillings) == 16
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    for filling in answer.fillings:
        assert not special & set(filling.pieces)
        assert filling.text.startswith("the")
        assert filling.text.endswith("good, café!")
        assert mask not in filling.text

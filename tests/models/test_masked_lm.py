"""Proposing words by a masked LM: against one plain call a sentence; heads that are not there; odd texts."""

import pytest
import torch
from tests.tiny import tiny_bert, tiny_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    FillMaskPipeline,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

from potstill.errors import ModelError
from potstill.models.masked_lm import MaskedLMProposer, has_masked_lm_head

SENTENCES = ["the film was good".split(), "a bad plot".split(), "i liked it very much !".split(), ["good"]]
POSITIONS = [3, 1, 4, 0]


def masked_lm(folder, seed=0, **config):
    tokenizer = tiny_tokenizer()
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        initializer_range=0.3,
        **{"max_position_embeddings": 48, **config},
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def plainly(folder, words, position, candidates):
    """TinyBERT's way, one sentence: [CLS] masked [SEP] original [SEP], the best pieces, those that begin a word."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    masked = " ".join([*words[:position], "[MASK]", *words[position + 1 :]])
    encoding = tokenizer.encode(masked, " ".join(words))
    with torch.no_grad():
        logits = model(torch.tensor([encoding.ids]), token_type_ids=torch.tensor([encoding.type_ids])).logits[0]
    place = encoding.tokens.index("[MASK]")
    best = logits[place].argsort(descending=True)[:candidates]
    pieces = [tokenizer.id_to_token(int(token)) for token in best]
    return [piece for piece in pieces if not piece.startswith("##")]


@pytest.mark.parametrize("batch_tokens", [1, 40, 8192])
def test_the_same_as_one_call_a_sentence(tmp_path, batch_tokens):
    folder = masked_lm(tmp_path / "model")
    proposer = MaskedLMProposer.load(folder, candidates=12)
    proposer.batch_tokens = batch_tokens
    found = proposer.propose(SENTENCES, POSITIONS)
    assert found == [plainly(folder, words, at, 12) for words, at in zip(SENTENCES, POSITIONS, strict=True)]
    assert all(0 < len(words) <= 12 for words in found)
    assert proposer.needs_context


def test_the_same_as_fill_mask_of_transformers(tmp_path):
    folder = masked_lm(tmp_path / "model", type_vocab_size=1)  # the pipeline gives a text's halves one type
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]", "sep_token": "[SEP]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **special)
    fill = FillMaskPipeline(model=AutoModelForMaskedLM.from_pretrained(folder), tokenizer=tokenizer)
    found = MaskedLMProposer.load(folder, candidates=12).propose(SENTENCES, POSITIONS)
    for words, at, own in zip(SENTENCES, POSITIONS, found, strict=True):
        masked = " ".join([*words[:at], "[MASK]", *words[at + 1 :]])
        pieces = [answer["token_str"] for answer in fill(f"{masked} [SEP] {' '.join(words)}", top_k=12)]
        assert own == [piece for piece in pieces if not piece.startswith("##")]


def test_a_condition_stands_before_the_masked_sentence(tmp_path):
    folder = masked_lm(tmp_path / "model")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    own = MaskedLMProposer(model, tokenizer, candidates=12, condition="good [MASK]")
    for words, at in zip(SENTENCES, POSITIONS, strict=True):
        encoding = tiny_tokenizer().encode("good [MASK]", " ".join([*words[:at], "[MASK]", *words[at + 1 :]]))
        with torch.no_grad():
            logits = model(torch.tensor([encoding.ids]), token_type_ids=torch.tensor([encoding.type_ids])).logits[0]
        place = [index for index, token in enumerate(encoding.tokens) if token == "[MASK]"][1]
        wanted = [tokenizer.id_to_token(int(token)) for token in logits[place].argsort(descending=True)[:12]]
        assert own.propose([words], [at]) == [[piece for piece in wanted if not piece.startswith("##")]]


def test_bfloat16_orders_candidates_in_float32(tmp_path):
    folder = masked_lm(tmp_path / "model")
    plain = MaskedLMProposer.load(folder, candidates=12)
    rounded = MaskedLMProposer.load(folder, candidates=12, precision="bfloat16")
    assert next(rounded.model.base_model.parameters()).dtype == torch.bfloat16
    assert {weight.dtype for part in rounded.head for weight in part.parameters()} == {torch.float32}
    for own, other in zip(plain.propose(SENTENCES, POSITIONS), rounded.propose(SENTENCES, POSITIONS), strict=True):
        assert len(set(own) & set(other)) >= 0.8 * len(own)


def test_a_mask_that_stands_in_the_text_is_not_taken_for_ours(tmp_path):
    folder = masked_lm(tmp_path / "model")
    proposer = MaskedLMProposer.load(folder, candidates=200)
    words = ["the", "[MASK]", "was", "good"]
    tokenizer = tiny_tokenizer()
    masked = " ".join([*words[:3], "[MASK]"])
    encoding = tokenizer.encode(masked, " ".join(words))
    place = [index for index, token in enumerate(encoding.tokens) if token == "[MASK]"][1]
    with torch.no_grad():
        inputs = {"input_ids": torch.tensor([encoding.ids]), "token_type_ids": torch.tensor([encoding.type_ids])}
        logits = proposer.model(**inputs).logits[0, place]
    wanted = [tokenizer.id_to_token(int(token)) for token in logits.argsort(descending=True)]
    wanted = [piece for piece in wanted if not piece.startswith("##")]
    assert proposer.propose([words], [3])[0][:10] == wanted[:10]


def test_a_word_cut_off_by_the_models_length_gets_nothing(tmp_path):
    proposer = MaskedLMProposer.load(masked_lm(tmp_path / "model"), candidates=5)
    long = ["good"] * 200
    first, last = proposer.propose([long, long], [2, 199])
    assert first
    assert last == []


def test_of_a_long_text_the_words_around_are_read(tmp_path):
    folder = masked_lm(tmp_path / "model", max_position_embeddings=300)
    proposer = MaskedLMProposer.load(folder, candidates=12)
    words = [*["good", "bad", "film"] * 50, "plot"]
    found = proposer.propose([words] * 3, [0, 80, 150])
    around = [(words[:49], 0), (words[32:129], 48), (words[102:], 48)]
    assert found == [plainly(folder, part, at, 12) for part, at in around]


def test_nothing_to_propose(tmp_path):
    assert MaskedLMProposer.load(masked_lm(tmp_path / "model"), candidates=5).propose([], []) == []


def test_marked_vocabularies_drop_pieces_within_a_word():
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "Ġfilm", "Ġgood", "ing", "ed", "Ġbad", "The"]
    tokenizer = Tokenizer(models.WordLevel({piece: index for index, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    config = RobertaConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=40,
        type_vocab_size=1,
        pad_token_id=1,
    )
    proposer = MaskedLMProposer(RobertaForMaskedLM(config).eval(), tokenizer, candidates=len(pieces))
    within, first = proposer.propose([["Ġfilm", "Ġgood"]] * 2, [1, 0])
    assert {"film", "good", "bad"} <= set(within)
    assert not {"ing", "ed", "The"} & set(within)
    assert "The" in first  # a sentence's first word has no mark


def test_heads_that_are_there_and_that_are_not(tmp_path):
    assert has_masked_lm_head(masked_lm(tmp_path / "lm"))
    torch.manual_seed(0)
    before = torch.get_rng_state()
    classifier = tiny_bert(tmp_path / "classifier")
    assert not has_masked_lm_head(classifier)
    with pytest.raises(ModelError, match=r"has no masked-LM head \(cls\..* is missing\); fix: choose another augment"):
        MaskedLMProposer.load(classifier, candidates=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_damaged_file(tmp_path):
    folder = masked_lm(tmp_path / "lm")
    (folder / "model.safetensors").write_bytes(b"\0" * 50)
    with pytest.raises(ModelError, match="cannot be loaded"):
        has_masked_lm_head(folder)


def test_a_tokenizer_without_a_mask(tmp_path):
    model = AutoModelForMaskedLM.from_pretrained(masked_lm(tmp_path / "lm"))
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    with pytest.raises(ModelError, match="without a mask token"):
        MaskedLMProposer(model, tokenizer, candidates=5)

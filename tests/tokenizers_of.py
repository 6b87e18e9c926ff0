"""Small tokenizers of the kinds that there are, over a few words: WordPiece, byte-level BPE, Unigram, characters."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = (
    "the film was good and the plot was dull",
    "a funny, sad and awful story: we never laughed!",
    "unbelievable acting, unforgettable faces; naïve café culture",
    "it's not that we hated the movie - we loved it 1990 times over",
)
KINDS = ("wordpiece", "bpe", "unigram", "characters")


def small_tokenizer(kind: str) -> Tokenizer:
    """`wordpiece` frames as BERT, `bpe` as RoBERTa (two separators in a pair), `unigram` marks spaces with ▁ and leaves
    them in its offsets, `characters` is a WordPiece of single letters, cased, without accents stripped."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] if kind != "bpe" else ["<s>", "<pad>", "</s>", "<mask>"]
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=330, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator(CORPUS, trainer)
        ids = [(token, tokenizer.token_to_id(token)) for token in ("</s>", "<s>")]
        tokenizer.post_processor = processors.RobertaProcessing(*ids, trim_offsets=False)
        return tokenizer
    if kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=120, special_tokens=special, unk_token="[UNK]", show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=kind == "wordpiece")
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        size = 160 if kind == "wordpiece" else 60
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return tokenizer

"""Complete model folders so small that a test can make one in a blink: random BERT and MPNet classifiers.

Each holds config.json, model.safetensors, tokenizer.json, tokenizer_config.json and potstill.json.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    MPNetConfig,
    MPNetForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
)

from potstill.data.encoding import Encodings, TextEncoder
from potstill.export import export_student

WORDS = (
    "the a film movie plot actor story is was and not but very so good bad dull fine great awful funny sad slow fast "
    "long short i you it they we saw liked loved hated watched never always ##s ##ed ##ing ##ly . , ! ? - '"
).split()
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
LABELS = ("negative", "positive")

_BERT = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_MPNET = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "[UNK]", "mask": "<mask>"}


def tiny_tokenizer(kind: str = "bert") -> Tokenizer:
    """WordPiece over some words and every letter: all ASCII text has tokens. `kind` is bert or mpnet."""
    special = _BERT if kind == "bert" else _MPNET
    pieces = [*special.values(), *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=special["unk"]))
    tokenizer.add_special_tokens(list(special.values()))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    cls, sep = special["cls"], special["sep"]
    pair = f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1" if kind == "bert" else f"{cls}:0 $A:0 {sep}:0 {sep}:0 $B:0 {sep}:0"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=pair,
        special_tokens=[(token, vocabulary[token]) for token in (cls, sep)],
    )
    return tokenizer


def tiny_bert(folder: Path, **kwargs) -> Path:
    """A BERT classifier; arguments as `tiny_model`."""
    return tiny_model(folder, kind="bert", **kwargs)


def tiny_mpnet(folder: Path, **kwargs) -> Path:
    """An MPNet classifier: a relative bias in its scores, padding id 1, no token types; arguments as `tiny_model`."""
    return tiny_model(folder, kind="mpnet", **kwargs)


def tiny_model(
    folder: Path,
    *,
    kind: str,
    labels: Sequence[str] = LABELS,
    layers: int = 2,
    hidden: int = 32,
    heads: int = 4,
    max_length: int = 64,
    seed: int = 0,
    **meta,
) -> Path:
    """Write a model with random weights, large enough that its answers differ from text to text.

    Args:
        folder: Made if absent.
        kind: bert or mpnet.
        labels: Label names, in the order of the outputs.
        layers, hidden, heads: The shape; the feed-forward width is twice `hidden`.
        max_length: What potstill.json says; the position table holds a little more.
        seed: Of the weights.
        meta: Further keys of potstill.json.
    """
    tokenizer = tiny_tokenizer(kind)
    config, model_class = _architecture(kind, tokenizer, max_length)
    config.update(
        {
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": 2 * hidden,
            "initializer_range": 0.3,
            "id2label": dict(enumerate(labels)),
            "label2id": {name: index for index, name in enumerate(labels)},
        }
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = model_class(config).eval()
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = _BERT if kind == "bert" else _MPNET
    names = {f"{name}_token": token for name, token in special.items()}
    _write(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})
    _write(
        folder / "potstill.json",
        {
            "schema_version": 1,
            "task": "classification",
            "labels": list(labels),
            "max_length": max_length,
            "long_text": "cut",
            "pair": False,
            "step": None,
            "source": {},
            "digests": {},
            **meta,
        },
    )
    return folder


def _architecture(kind: str, tokenizer: Tokenizer, max_length: int) -> tuple[PretrainedConfig, type[PreTrainedModel]]:
    size = tokenizer.get_vocab_size()
    if kind == "bert":
        return BertConfig(vocab_size=size, max_position_embeddings=max_length + 8), BertForSequenceClassification
    return MPNetConfig(vocab_size=size, max_position_embeddings=max_length + 10), MPNetForSequenceClassification


def _write(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


TEXTS = (
    "the film is good",
    "a dull , slow movie",
    "not bad !",
    "i loved it",
    "the actor was great and the plot was awful - we never laughed , we hated the long story and it was so very slow",
    "was it fine ?",
)
"""Texts of 5 to 28 tokens."""

ALL_FORMATS = (
    ("onnx", "float32"),
    ("onnx", "int8"),
    ("openvino", "float32"),
    ("openvino", "bfloat16"),
    ("openvino", "int8"),
)

_EXPORTED: dict[str, Path] = {}


def exported_tiny(kind: str, make_folder: Callable[[str], Path]) -> Path:
    """A model with all its exports, made once a test run; not to be changed.

    Args:
        kind: bert or mpnet.
        make_folder: `tmp_path_factory.mktemp`.
    """
    if kind not in _EXPORTED:
        folder = tiny_model(make_folder(f"tiny-{kind}"), kind=kind)
        export_student(folder, ALL_FORMATS, calibration=encode_tiny(folder))
        _EXPORTED[kind] = folder
    return _EXPORTED[kind]


def encode_tiny(folder: Path, texts: Sequence[str] = TEXTS, max_length: int = 64) -> Encodings:
    """Texts as the model in `folder` reads them."""
    return TextEncoder.from_folder(folder, max_length=max_length).encode(texts)

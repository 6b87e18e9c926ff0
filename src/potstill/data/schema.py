"""Tables to splits: columns, gold answers, bad rows, missing splits cut by hash, texts that stand in two splits.

Knows no model and no tokenizer. Texts are compared by `text_key`: letters and digits only, case and spacing ignored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from potstill.data.examples import Examples
from potstill.data.label_sets import LabelSetRule
from potstill.data.labels import GoldRule, LabelRule, match_labels
from potstill.data.overlaps import (
    count_repeats,
    cut_missing,
    evaluation_keys,
    examples_without,
    fewer_rows,
    remove_overlaps,
    texts_without,
)
from potstill.data.parts import Columns, Part, read_part
from potstill.data.scores import ScoreRule
from potstill.data.tables import Table
from potstill.data.words import normalise, text_key
from potstill.errors import DataError, SettingsError
from potstill.progress import SILENT, Reporter

__all__ = [
    "Columns",
    "GoldRule",
    "LabelRule",
    "LabelSetRule",
    "ScoreRule",
    "SplitRule",
    "Splits",
    "evaluation_keys",
    "examples_without",
    "load_splits",
    "match_labels",
    "normalise",
    "text_key",
    "texts_without",
]

_LABELLED = ("train", "dev", "test")
_SHOWN = 50


@dataclass(frozen=True)
class SplitRule:
    """How missing splits are made, and how much may be wrong with the data.

    Attributes:
        dev_share: Share of train that becomes dev where no dev is given; 0 < share < 1.
        test_share: Share of train that becomes test where no test is given; 0: then there is no test.
        bad_budget: Largest share of a table's rows that may be set aside; 0 to 1.
        rows: Training rows kept once dev and test are out; None: all.
    """

    dev_share: float = 0.1
    test_share: float = 0.0
    bad_budget: float = 0.01
    rows: int | None = None

    def __post_init__(self) -> None:
        if not (0 < self.dev_share < 1 and 0 <= self.test_share < 1):
            got = f"dev and test shares of {self.dev_share} and {self.test_share}"
            raise SettingsError(got, expected="dev between 0 and 1, test 0 or more and below 1")
        if not 0 <= self.bad_budget <= 1:
            raise SettingsError(f"a bad-row budget of {self.bad_budget}", expected="0 to 1")


@dataclass(frozen=True)
class Splits:
    """What a run works on.

    Attributes:
        train: Labelled; no text of it stands in dev or test.
        dev: Labelled; no text of it stands in test. Everything is chosen on it.
        test: Labelled, looked at once; None where there is none.
        unlabelled: Texts without labels, none of them in dev or test; None where none were given.
        labels: The label names; `Examples.labels` are indices into them. Empty where answers are scores.
        facts: What the report's "data" says of the splits: `train`, `dev`, `test`, `unlabelled` (counts), `overlaps`,
            `set_aside`, `set_aside_total`, `labels`, `scores` where answers are, `without_label` where they are sets.
        notes: What else is worth knowing: `cut_from_train` (rows by role), `left_out_near_threshold` (rows by role),
            `repeated_texts` (rows of train beyond the first of their text), `conflicting_texts` (texts of train with
            more than one label) and `conflicting_rows` (how many rows those are).
    """

    train: Examples
    dev: Examples
    test: Examples | None
    unlabelled: Examples | None
    labels: tuple[str, ...]
    facts: dict[str, Any]
    notes: dict[str, Any]


def load_splits(
    train: Table,
    *,
    columns: Columns,
    dev: Table | None = None,
    test: Table | None = None,
    unlabelled: Table | None = None,
    labels: GoldRule | None = None,
    rule: SplitRule | None = None,
    report: Reporter = SILENT,
) -> Splits:
    """Make the splits of a run.

    A missing dev (and test, with a test share) is cut out of train by the SHA-256 of each row's text key, so that equal
    texts always fall in the same part, whatever else the file holds. Texts that stand in two splits are taken out of
    the one that matters less: out of train and unlabelled for dev and test, out of dev for test. Repeated texts in
    train stay, with one label or with several, and are counted. Ids are unique over all splits and do not depend on
    what is taken out.

    Args:
        train: Labelled rows.
        dev: Labelled rows; None: cut out of train.
        test: Labelled rows; None: cut out of train where the rule has a test share, else there is no test.
        unlabelled: Rows without labels; where there is one column only, that is the text. None: none.
        columns: Which column holds what.
        labels: How cells become gold answers; None: they are the names of labels.
        rule: Shares and the budget of bad rows; None: `SplitRule()`.
        report: Warned of overlaps and of labels without a training row.

    Raises:
        DataError: A column that is not there, a test without labels, more bad rows than the budget allows, one class
            or one score only, a dev or test label that train does not have, or a split with nothing in it.
    """
    rule, gold = rule or SplitRule(), labels or LabelRule()
    tables = {"train": train, "dev": dev, "test": test, "unlabelled": unlabelled}
    parts = {
        role: read_part(table, role, columns, gold, rule.bad_budget)
        for role, table in tables.items()
        if table is not None
    }
    set_aside = [row for part in parts.values() for row in part.set_aside]
    left_out = {role: part.left_out for role, part in parts.items() if part.left_out}
    names = gold.settle(_golds(parts))
    cut = cut_missing(parts, rule.dev_share, rule.test_share)
    overlaps = remove_overlaps(parts)
    parts["train"] = fewer_rows(parts["train"], rule.rows)
    _check_sizes(parts)
    gold.check_left(_golds(parts))
    facts = {
        **{role: len(parts[role].ids) if role in parts else None for role in _LABELLED},
        "unlabelled": len(parts["unlabelled"].ids) if "unlabelled" in parts else 0,
        "overlaps": overlaps,
        "set_aside": [{"file": row.file, "row": row.row, "reason": row.reason} for row in set_aside[:_SHOWN]],
        "set_aside_total": len(set_aside),
        **gold.facts(_golds(parts), names),
    }
    notes = {"cut_from_train": cut, "left_out_near_threshold": left_out, **count_repeats(parts["train"])}
    _tell(facts, notes, gold.word, report)
    made = {role: part.examples(gold, names) for role, part in parts.items()}
    return Splits(made["train"], made["dev"], made.get("test"), made.get("unlabelled"), names, facts, notes)


def _golds(parts: dict[str, Part]) -> dict[str, list[Any]]:
    return {role: parts[role].golds or [] for role in _LABELLED if role in parts}


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:12])) + (f", … ({len(names)} in all)" if len(names) > 12 else "")


def _check_sizes(parts: dict[str, Part]) -> None:
    for role in _LABELLED:
        if role in parts and not parts[role].texts:
            raise DataError(
                f"{role} is empty once overlaps and rows near the threshold are out", expected="one row at least"
            )


def _tell(facts: dict[str, Any], notes: dict[str, Any], word: str, report: Reporter) -> None:
    for overlap in facts["overlaps"]:
        loser, winner = overlap["between"]
        report.warn(f"{overlap['removed']} texts of {loser} also stand in {winner}: taken out of {loser}")
    if facts["set_aside_total"]:
        report.warn(f"{facts['set_aside_total']} rows cannot be used and are set aside")
    if notes["conflicting_texts"]:
        report.warn(f"{notes['conflicting_texts']} texts of train have more than one {word}")
    if unseen := [name for name, count in facts["labels"].get("train", {}).items() if not count]:
        report.warn(f"no training row is left for {_shown(unseen)}")

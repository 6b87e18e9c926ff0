"""What was found out about a file of scores before any work: for the plan, the recipe, the report. Holds no rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from potstill.data.answers import Form
from potstill.data.joining import By
from potstill.data.sources import Source

__all__ = ["Findings", "ScoresFile"]


@dataclass(frozen=True)
class Findings:
    """What was found out about scores and data before any work.

    Attributes:
        form: What the scores are.
        labels: The label names.
        rows: Rows of the scores' file; of these `empty` hold no answer.
        joined: How the rows of each role were matched; a role that nothing could match is absent.
        scored: Rows with a score, by role.
        counts: Rows, by role.
        gold: Whether the rows of train, dev and test have labels of their own, by role.
    """

    form: Form
    labels: tuple[str, ...]
    rows: int
    empty: int
    joined: Mapping[str, By]
    scored: Mapping[str, int]
    counts: Mapping[str, int]
    gold: Mapping[str, bool]

    def as_dict(self) -> dict[str, Any]:
        """For the data stage's facts."""
        return {**vars(self), "labels": list(self.labels), **{n: dict(getattr(self, n)) for n in _BY_ROLE}}

    def lines(self, name: str) -> list[str]:
        """In words."""
        ways = ", ".join(f"{role} by {by}" for role, by in self.joined.items())
        found = ", ".join(f"{n:,} of {self.counts[role]:,} rows of {role}" for role, n in self.scored.items())
        lines = [f"teacher: {name}, {self.rows:,} rows of {self.form}, joined: {ways}", f"scores for {found}"]
        if not self.gold["train"]:
            lines.append("train has no gold labels: the scores say which labels there are")
        if not self.gold.get("dev", self.gold["train"]):
            lines.append("dev has no gold labels: the student is judged against the teacher's own answers")
        return lines


_BY_ROLE = ("joined", "scored", "counts", "gold")


@dataclass(frozen=True)
class ScoresFile:
    """A file of scores as teacher.

    Attributes:
        source: The file.
        findings: What is in it, and how it meets the data.
    """

    source: Source
    findings: Findings

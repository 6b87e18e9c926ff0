"""What a run found, for people: report.json checked, report.html, and the student's model card.

    schema      the shape of report.json; measures: its parts that hold scores
    checks      reads one; what must hold between its fields
    wording     figures as words
    conclusion  the plain sentences
    tables      rows for the page
    figures     pictures, as SVG
    html        the page
    card        README.md of the student's folder

Knows no model and no data: everything is in the report it is given.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from potstill.report.card import render_card, write_card
from potstill.report.checks import validate
from potstill.report.conclusion import conclude
from potstill.report.html import render_html
from potstill.report.schema import Report
from potstill.report.wording import clean
from potstill.storage import write_bytes, write_json

__all__ = ["Report", "conclude", "render_card", "render_html", "validate", "write_card", "write_report"]


def write_report(report: Mapping[str, Any], folder: Path) -> Path:
    """Write report.json and report.html into a run's folder, each whole or not at all.

    Args:
        report: All of report.json but `conclusion`, which is filled here. Texts that no file can hold (lone surrogates,
            control characters) are made visible. It is not changed.
        folder: Made if it is absent.

    Returns:
        The path of report.html.

    Raises:
        DataError: The report is not valid; nothing is written.
        StorageError: The folder cannot be written.
    """
    cleaned = clean(report)
    conclusion = conclude(cleaned)
    cleaned["conclusion"] = conclusion
    page = render_html(cleaned)
    write_json(folder / "report.json", validate(cleaned).model_dump(mode="json", exclude_unset=True))
    write_bytes(folder / "report.html", page.encode())
    return folder / "report.html"

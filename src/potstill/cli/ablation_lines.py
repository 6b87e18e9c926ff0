"""An ablation in the terminal: its cells before, its table after."""

from collections.abc import Mapping, Sequence
from typing import Any

from potstill.report.ablation import difference, findings, interval
from potstill.report.wording import score, score_range

__all__ = ["ablation_lines", "cell_lines"]


def cell_lines(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """What an ablation would change.

    Args:
        cells: Each with `name`, `title`, and `refused`: a reason, or None.
    """
    width = max(len(cell["name"]) for cell in cells)
    lines = []
    for cell in cells:
        refused = "" if cell["refused"] is None else f"  (refused: {cell['refused']})"
        lines.append(f"{cell['name']:<{width}}  {cell['title']}{refused}")
    return lines


def ablation_lines(made: Mapping[str, Any]) -> list[str]:
    """What an ablation found: a table, and the sentences of its page.

    Args:
        made: ablation.json.
    """
    metric, test = made["task"]["primary_metric"], bool(made["data"]["test"])
    columns = [
        "cell",
        f"dev {metric.replace('_', ' ')}",
        "difference",
        *(["on test"] if test else []),
        "steps",
        "paper",
    ]
    rows = [columns]
    for cell in made["cells"]:
        if cell["dev"] is None:
            rows.append([cell["name"], "refused" if cell["refused"] else "not run yet"])
            continue
        judged, paper = cell["dev"], cell["paper"]
        own = "" if paper is None else f"{paper['average']:.1f}" if not paper["difference"] else ""
        row = [cell["name"], f"{score(judged['value'], metric)} [{score_range(judged['low'], judged['high'], metric)}]"]
        row.append(interval(cell["difference"], metric) if cell["difference"] else "")
        if test:
            row.append(interval(cell["test_difference"], metric) if cell["test_difference"] else "")
        row.append(f"{cell['steps']:,.0f}")
        row.append(own or ("" if paper is None else difference(paper["difference"], metric)))
        rows.append(row)
    widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(len(columns))]
    lines = ["  ".join(part.ljust(size) for part, size in zip(row, widths, strict=False)).rstrip() for row in rows]
    refused = [f"refused   {cell['name']}: {cell['refused']}" for cell in made["cells"] if cell["refused"]]
    said = [sentence for sentence in findings(made) if not sentence.startswith("Refused")]
    source = f"paper: {made['paper']['title']} (arXiv {made['paper']['arxiv']}), tables 2 to 4: {made['paper']['what']}"
    return [*lines, source, "", *said, *refused, ""]

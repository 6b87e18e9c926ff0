"""An ablation for people: sentences, and one HTML page with a picture.

Knows no model and no data: everything is in ablation.json.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from potstill.report import wording
from potstill.report.figures import dot
from potstill.report.html import asset, environment, policy

__all__ = ["GROUPS", "difference", "findings", "interval", "render_ablation"]

GROUPS = {
    "losses": "Losses",
    "layers": "Which layers teach",
    "start": "How the student starts",
    "texts": "Texts",
}


@dataclass(frozen=True)
class _Strip:
    """A row of the picture: ours and, where the paper has the cell, the paper's."""

    title: str
    name: str
    value: str
    ours: Markup
    paper: Markup | None
    refused: str | None = None


def difference(value: float, metric: str) -> str:
    """A difference of scores with its sign: "−1.2", in percentage points, or "+0.012" of a correlation."""
    scaled, digits = (value, 3) if metric in wording.DECIMALS else (100 * value, 1)
    shown = f"{scaled:+.{digits}f}"
    return shown[1:] if float(shown) == 0 else shown.replace("-", "−")


def interval(found: Mapping[str, Any], metric: str) -> str:
    """A difference with its interval: "−1.2 [−2.0, −0.4]"."""
    low, high = (difference(found[end], metric) for end in ("low", "high"))
    return f"{difference(found['value'], metric)} [{low}, {high}]"


def findings(made: Mapping[str, Any]) -> list[str]:
    """What an ablation found, in sentences: what is worse than the full recipe, what is better, what cannot be told.

    Args:
        made: ablation.json.
    """
    metric = made["task"]["primary_metric"]
    rows = [cell for cell in made["cells"] if cell["difference"]]
    unit = "" if metric in wording.DECIMALS else ", in points"

    def named(kept: Sequence[Mapping[str, Any]]) -> str:
        return "; ".join(f"{cell['name']} {interval(cell['difference'], metric)}" for cell in kept)

    worse = sorted((c for c in rows if c["difference"]["high"] < 0), key=lambda c: c["difference"]["value"])
    better = sorted((c for c in rows if c["difference"]["low"] > 0), key=lambda c: -c["difference"]["value"])
    unclear = [cell for cell in rows if cell not in worse and cell not in better]
    said = []
    if worse:
        said.append(f"Worse than the full recipe{unit}: {named(worse)}.")
    if better:
        said.append(f"Better than the full recipe{unit}: {named(better)}.")
    if unclear:
        said.append(f"Not told apart from it{unit}: {named(unclear)}.")
    refused = [cell["name"] for cell in made["cells"] if cell["refused"]]
    if refused:
        said.append(f"Refused: {', '.join(refused)}.")
    return said


def render_ablation(made: Mapping[str, Any]) -> str:
    """The page for an ablation.

    Args:
        made: ablation.json.
    """
    cleaned, metric = wording.clean(made), made["task"]["primary_metric"]
    style, script = asset("style.css"), asset("script.js")
    rows = [cell for cell in cleaned["cells"] if cell["difference"]]
    scale = _scale([cell["difference"] for cell in rows])
    groups = {
        title: [_strip(cell, scale, metric) for cell in cleaned["cells"] if cell["group"] == name]
        for name, title in GROUPS.items()
    }
    template = environment().get_template("ablation.html")
    return template.render(
        made=cleaned,
        metric=metric,
        full=cleaned["cells"][0],
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        findings=findings(cleaned),
        groups={title: strips for title, strips in groups.items() if strips},
        ends=[difference(end, metric) for end in scale],
        given=_given(cleaned),
        interval=lambda found: interval(found, metric),
        points=lambda value: difference(value, metric),
        changed=_changed,
    )


def _scale(found: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """From the lowest end of an interval to the highest, zero among them; what lies far from all others is cut off."""
    low = -_extent([-one["low"] for one in found])
    high = _extent([one["high"] for one in found])
    return (low, high) if high - low > 0 else (-0.01, 0.01)


def _extent(ends: Sequence[float]) -> float:
    first, second = sorted([0.0, 0.0, *ends], reverse=True)[:2]
    return 2 * second if 0 < 3 * second < first else first


def _strip(cell: Mapping[str, Any], scale: tuple[float, float], metric: str) -> _Strip:
    found, paper = cell["difference"], cell["paper"]
    theirs = None
    if paper is not None:
        theirs = dot(paper["difference"], paper["difference"], paper["difference"], scale, "other", line=0.0)
    if not found:
        return _Strip(cell["title"], cell["name"], "–", Markup(""), None, cell["refused"] or "not run yet")
    ours = dot(found["value"], found["low"], found["high"], scale, "student", line=0.0)
    return _Strip(cell["title"], cell["name"], difference(found["value"], metric), ours, theirs)


def _given(made: Mapping[str, Any]) -> str:
    """What every cell got."""
    if made["minutes"] is not None:
        return f"{wording.duration(60 * made['minutes'])} of training"
    return f"{made['steps']:,} steps" if made["steps"] is not None else "the same epochs"


def _changed(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {_value(value)}" for key, value in changes.items())


def _value(value: Any) -> str:
    return "[]" if value == [] else "not set" if value is None else str(value)

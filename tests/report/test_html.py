import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from potstill.errors import DataError
from potstill.report import render_html

VOID = {"meta", "link", "br", "img", "input", "hr"}
CLOSED_SVG = {"rect", "line", "circle", "path"}
LOADING = {"src", "href", "data", "action", "srcset", "poster", "xlink:href", "formaction", "background"}


class Page(HTMLParser):
    """Collects tags, attributes and visible text, and checks that every element is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.words, self.ids = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in CLOSED_SVG
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).replace("\u00a0", " ").split())


def test_page_is_well_formed_with_unique_ids_and_working_anchors(any_report):
    page = Page(render_html(any_report))
    assert len(page.ids) == len(set(page.ids))
    anchors = [value[1:] for _, name, value in page.attributes if name == "href" and value.startswith("#")]
    assert anchors
    assert set(anchors) <= set(page.ids)


def test_page_loads_nothing(any_report):
    text = render_html(any_report)
    page = Page(text)
    loads = [value for _, name, value in page.attributes if name in LOADING]
    assert all(value.startswith(("#", "data:,")) for value in loads)
    assert page.tags.count("script") == page.tags.count("style") == 1
    assert not {"iframe", "img", "object", "embed", "base", "form", "use", "image"} & set(page.tags)
    style, script = (re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S)[1] for tag in ("style", "script"))
    assert not re.search(r"url\(|@import|https?:", style)
    assert not re.search(r"fetch|XMLHttp|import\(|https?:|innerHTML|eval", script)


def test_policy_allows_just_the_pages_own_style_and_script(full):
    text = render_html(full)
    policy = next(
        v for tag, name, v in Page(text).attributes if tag == "meta" and name == "content" and "default-src" in v
    )
    for tag in ("style", "script"):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_no_attribute_is_an_event_or_a_style(any_report):
    # The policy would block them, silently.
    names = {name for _, name, _ in Page(render_html(any_report)).attributes}
    assert not {name for name in names if name.startswith("on")}
    assert "style" not in names


def test_hostile_texts_are_shown_and_not_obeyed(full):
    text = render_html(full)
    page = Page(text)
    assert "<script>alert" not in text
    assert "</script><script>" not in text
    assert "<img" not in text
    assert '<script>alert("x")</script> & <img src=x onerror=alert(1)>' in page.text
    assert "</script><script>alert(2)</script>" in page.text
    assert "<b>bold</b> ." in page.text


@pytest.mark.parametrize("path", ["name", "command", "potstill"])
def test_every_free_string_is_escaped(full, path):
    full[path] = "</title></style><i>x</i>"
    text = render_html(full)
    assert "<i>" not in text
    assert "</title></style><i>x</i>" in Page(text).text


def test_hostile_label_names_are_escaped_everywhere(full):
    full = json.loads(json.dumps(full).replace('"positive"', '"<u>pos</u>"'))
    text = render_html(full)
    assert "<u>" not in text
    assert Page(text).text.count("<u>pos</u>") > 10


def test_odd_characters_are_written_as_utf_8(full):
    page = Page(render_html(full).encode().decode())
    assert "a bell ␇, a NUL ␀ and half an emoji \ufffd here" in page.text
    assert any(tag == "p" and name == "dir" and value == "auto" for tag, name, value in page.attributes)


def test_long_texts_are_cut_and_the_rest_counted(full):
    page = Page(render_html(full))
    assert "… 1,200 more characters" in page.text
    full["disagreements"][0]["text"] = "x" * 1_000_000
    assert len(render_html(full)) < 200_000


def test_key_figures_stand_on_the_page(full):
    text = Page(render_html(full)).text
    for figure in (
        "98.6 % 95 % interval 97.1–100.0 %",
        "1.6× smaller",
        "14.35 M parameters of 22.71 M",
        "23× faster at batch 1",
        "31× at batch 32, through OpenVINO bfloat16",
        "engine 5.2× · student 4.4×",
        "71.0 % of the gap",
        "89.2 % 87.7–90.7 %",
        "TF-IDF + logistic regression",
        "Commonest label 52.2 %",
        "✗ refused loses 2.1 % of the dev accuracy, 1 % is allowed",
        "0.390 / 0.511",
        "2.1e-6",
        "128 tokens",
        "1,366 (84.7 %)",
        "train and test: 12 taken out",
        "train.tsv row 9,120: not UTF-8",
        "embedding × 1, hidden × 1, attention × 1, logits × 2 (temperature 1), hard × 0.3",
        "joint 4 min 48 s",
        "total 9 min 41 s",
        "Intel Xeon (Sapphire Rapids)",
        "SHA-256 3b3b3b3b3b3b3b3b…",
        "potstill distill --teacher pypi:minilm",
        "Licence train, dev, test",
    ):
        assert figure in text


def test_charts_stand_for_every_stage(full):
    page = Page(render_html(full))
    labels = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-label"]
    stages = [f"{what} stage {s}" for s in ("teacher", "joint") for what in ("Loss terms of", "Dev accuracy in")]
    trust = [f"Reliability of the {kind}'s probabilities" for kind in ("teacher", "student")]
    assert labels == [*stages, *trust, "Precision by coverage"]


def test_small_report_says_what_is_absent_and_leaves_out_the_rest(three):
    page = Page(render_html(three))
    assert "no test split: judged on dev" in page.text
    assert "No baseline was run." in page.text
    assert "No export was accepted." in page.text
    assert not {"latency", "confusion", "recipe", "run"} & set(page.ids)
    assert "None" not in page.text
    assert "Nobody is making music." in page.text


def test_many_labels_are_listed_instead_of_drawn(many):
    page = Page(render_html(many))
    assert not any(tag == "table" and name == "class" and "matrix" in value for tag, name, value in page.attributes)
    assert "Most frequent confusions" in page.text
    assert "Labels on which the student loses most" in page.text
    assert "150 labels, 100 examples each" in page.text


def test_a_run_refused_at_its_teacher_has_a_page(refused):
    page = Page(render_html(refused))
    assert "Refused: the teacher's own score" in page.text
    assert "Score kept" not in page.text
    assert "None" not in page.text


@pytest.mark.parametrize(
    "key",
    [
        "gap_closed",
        "best_export",
        "teacher_latency_ms",
        "tokenisation_ms",
        "latency_facts",
        "student_errors",
        "recipe",
        "command",
    ],
)
def test_each_optional_part_may_be_null(full, key):
    assert "None" not in Page(render_html(full | {key: None})).text


@pytest.mark.parametrize(
    "key", ["score", "bytes", "max_abs_diff", "latency_ms", "latency_by_length", "speedup", "engine_share", "path"]
)
def test_each_optional_part_of_an_export_may_be_null(full, key):
    full["exports"][3][key] = None
    assert "None" not in Page(render_html(full)).text


def test_repeats_are_one_number_or_many(full):
    assert "2 threads, 40 repeats." in Page(render_html(full)).text
    full["latency_facts"]["repeats"] = {"dev": {"1": 200, "32": 12}, "16": {"1": 300}}
    assert "2 threads, 200 repeats at batch 1, 12 repeats at batch 32." in Page(render_html(full)).text


def test_same_report_gives_the_same_page(full):
    assert render_html(full) == render_html(full)


def test_a_wrong_report_is_refused(full):
    full["student"]["score"]["low"] = 2
    with pytest.raises(DataError, match="student"):
        render_html(full)

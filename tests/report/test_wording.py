import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.report import wording


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (wording.share(0.98449), "98.4 %"),
        (wording.share_range(0.9712, 1.0004), "97.1–100.0 %"),
        (wording.score(0.7804, "matthews"), "0.780"),
        (wording.score(0.7804, "macro_f1"), "78.0 %"),
        (wording.score_range(-0.02, 0.31, "matthews"), "-0.020 to 0.310"),
        (wording.score_range(0.74, 0.82, "matthews"), "0.740–0.820"),
        (wording.times(0.5), "0.50"),
        (wording.times(7.63), "7.6"),
        (wording.times(9.96), "10"),
        (wording.times(1234.5), "1,234"),
        (wording.count(9_999), "9,999"),
        (wording.count(41_207), "41,207"),
        (wording.count(14_350_874), "14.35 M"),
        (wording.count(109_482_240), "109.5 M"),
        (wording.count(1_200_000_000), "1.2 B"),
        (wording.size(512), "512 B"),
        (wording.size(15_004_551), "15.0 MB"),
        (wording.size(437_951_328), "438 MB"),
        (wording.milliseconds(0.41234), "0.412"),
        (wording.milliseconds(8.94), "8.94"),
        (wording.milliseconds(71.23), "71.2"),
        (wording.milliseconds(1946.2), "1,946"),
        (wording.duration(2.34), "2.3 s"),
        (wording.duration(59.7), "1 min 0 s"),
        (wording.duration(581.3), "9 min 41 s"),
        (wording.duration(3_725), "1 h 2 min"),
        (wording.model_name("/home/somebody/teachers/bert/"), "bert"),
        (wording.model_name("../bert"), "bert"),
        (wording.model_name("C:\\models\\bert"), "bert"),
        (wording.model_name("hub:owner/name@main"), "hub:owner/name@main"),
        (wording.metric_name("macro_f1"), "macro F1"),
        (wording.baseline_name("my_own"), "My own"),
        (wording.export_name("onnx", "int8"), "ONNX int8"),
        (wording.shortened("abcdef", 4), ("abcd", 2)),
        (wording.shortened("abcd", 4), ("abcd", 0)),
    ],
)
def test_words(call, words):
    assert call == words


def test_clean_makes_controls_and_lone_surrogates_visible():
    assert wording.clean_text("a\x00\x07\x7f\x85\ud83d\tb\n") == "a␀␇␡\ufffd\ufffd\tb\n"
    assert wording.clean({"\x01": ["\ud800", 1, None, {"k": ("\x02",)}]}) == {"␁": ["\ufffd", 1, None, {"k": ["␂"]}]}


@given(st.text(st.characters(codec=None)))
def test_clean_text_can_be_written_and_stays(text):
    cleaned = wording.clean_text(text)
    assert cleaned.encode().decode() == cleaned == wording.clean_text(cleaned)
    assert len(cleaned) == len(text)
    assert json.loads(json.dumps(cleaned, ensure_ascii=False)) == cleaned

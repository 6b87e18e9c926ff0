"""`potstill distill`, with the pipeline replaced."""

import json
import os
import sys

import pytest

from potstill import storage
from potstill.errors import DataError, GateRefused, LockHeld

INTERVAL = {"value": 0.9, "low": 0.88, "high": 0.92}
REPORT = {
    "schema_version": 1,
    "status": "complete",
    "conclusion": "The student keeps 98 % of the teacher's accuracy.",
    "task": {"primary_metric": "accuracy"},
    "judged_on": "test",
    "teacher": {"shape": "6x384x1536x12", "parameters": 22_713_216, "score": {**INTERVAL, "n": 1500}},
    "student": {"shape": "3x192x768x12", "parameters": 7_000_000, "score": {**INTERVAL, "n": 1500}},
    "retention": {"value": 0.98, "low": 0.97, "high": 0.99},
    "exports": [
        {"format": "onnx", "precision": "int8", "accepted": False, "reason": "loses 2.0 %", "speedup": {"1": 5.0}},
        {"format": "openvino", "precision": "bfloat16", "accepted": True, "speedup": {"1": 6.04, "32": 11.0}},
    ],
    "best_export": {"format": "openvino", "precision": "bfloat16"},
    "seconds": {"total": 431.0},
}
FLAGS = ["--teacher", "bert-base-uncased", "--train", "train.tsv"]


@pytest.fixture
def fake(replace):
    """A pipeline that does what the test says; the settings it was called with are kept."""

    class Fake:
        settings = None
        error = None

        def distill(self, settings, report):
            self.settings = settings
            report.stage("teacher", "fine-tuning")
            sys.stdout.write("a library's noise\n")
            os.write(1, b"a C library's noise\n")
            report.progress(1, 2, loss=0.5)
            report.note("accuracy 0.9")
            report.warn("rows set aside: 3")
            if self.error:
                raise self.error
            return REPORT

        def plan(self, settings):
            self.settings = settings
            return {
                "schema_version": 1,
                "stages": [
                    {"name": "teacher", "seconds": 200.0, "detail": "6x384", "done": True},
                    {"name": "distill", "seconds": 95.0, "done": False},
                    {"name": "report", "seconds": None},
                ],
                "notes": ["student: 7.0 M parameters"],
                "seconds": 295.0,
                "disk_bytes": 412_000_000,
                "out": settings.run.out,
            }

    one = Fake()
    replace("pipeline", distill=one.distill, plan=one.plan)
    return one


def test_every_flag_is_its_key(run, fake):
    ran = run(
        "distill",
        *["--teacher", "pypi:minilm", "--train", "2024", "--dev", 'd"q', "--test", "t.csv", "--text", "1"],
        *["--pair", "b", "--label", "true", "--student", "2x64", "--baseline", "hub:a/b", "--out", "o/p"],
        *["--seed", "7", "--budget", "12.5", "--set", "teacher.epochs=9"],
    )
    assert ran.code == 0, ran.err
    read = fake.settings
    data = read.data
    assert (read.teacher.source, data.train, data.dev, data.test) == ("pypi:minilm", "2024", 'd"q', "t.csv")
    assert (data.text, data.pair, data.label, read.student.shape) == ("1", "b", "true", "2x64")
    assert (read.evaluate.baseline, read.run.out, read.run.seed, read.run.budget) == ("hub:a/b", "o/p", 7, 12.5)
    assert (read.run.name, read.teacher.epochs) == ("p", 9)


def test_scores_stand_in_the_place_of_a_teacher(run, fake):
    ran = run("distill", "--teacher-scores", "llm.csv", "--train", "texts.csv")
    assert ran.code == 0, ran.err
    assert (fake.settings.teacher.source, fake.settings.teacher.scores) == (None, "llm.csv")
    both = run("distill", "--teacher", "a", "--teacher-scores", "llm.csv", "--train", "texts.csv")
    assert both.code == 2
    assert "one of them" in both.err
    neither = run("distill", "--train", "texts.csv")
    assert neither.code == 2
    assert "teacher.source is not set" in neither.err


def test_flags_go_before_the_file_and_set_before_flags(run, fake, tmp_path):
    (tmp_path / "sst2.toml").write_text('[data]\ntrain = "a"\n[teacher]\nsource = "t"\n[run]\nseed = 1\n')
    assert run("distill", "sst2.toml").code == 0
    assert (fake.settings.run.seed, fake.settings.run.out) == (1, "runs/sst2")
    run("distill", "sst2.toml", "--seed", 2)
    assert fake.settings.run.seed == 2
    run("distill", "sst2.toml", "--seed", 2, "--set", "run.seed=3")
    assert fake.settings.run.seed == 3


def test_a_teacher_named_takes_the_place_of_all_in_the_file(run, fake, tmp_path):
    (tmp_path / "two.toml").write_text('[data]\ntrain = "a"\n[teacher]\nsource = "t"\nmore = ["u"]\n')
    run("distill", "two.toml")
    assert (fake.settings.teacher.source, fake.settings.teacher.more) == ("t", ("u",))
    run("distill", "two.toml", "--teacher", "c")
    assert (fake.settings.teacher.source, fake.settings.teacher.more) == ("c", ())
    run("distill", "two.toml", "--teacher", "c", "--teacher", "d")
    assert (fake.settings.teacher.source, fake.settings.teacher.more) == ("c", ("d",))


def test_people_get_a_summary(run, fake):
    ran = run("distill", *FLAGS)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == REPORT["conclusion"]
    assert lines[-1] == "report: runs/potstill/report.html"
    assert "22.71 M parameters  accuracy 90.0 % [88.0, 92.0]  (test, n = 1,500)" in ran.out
    assert "kept     98.0 % [97.0, 99.0] of the teacher's accuracy" in ran.out
    assert "openvino bfloat16: 6.0 times at batch 1, 11.0 times at batch 32 faster" in ran.out
    assert "refused  onnx int8: loses 2.0 %" in ran.out
    assert "7 min 11 s" in ran.out
    assert "noise" not in ran.out
    assert ran.err.count("noise") == 2
    assert "teacher: fine-tuning" in ran.err
    assert "warning: rows set aside: 3" in ran.err


def test_json_is_exactly_the_report(run, fake):
    ran = run("distill", *FLAGS, "--json")
    assert ran.code == 0
    assert json.loads(ran.out) == REPORT
    assert "teacher: fine-tuning" in ran.err


def test_quiet_shows_warnings_and_the_last_line(run, fake):
    ran = run("distill", *FLAGS, "--quiet")
    assert ran.out == "report: runs/potstill/report.html\n"
    assert [line for line in ran.err.splitlines() if "noise" not in line] == ["warning: rows set aside: 3"]


def test_the_log_stands_in_the_run_folder(run, fake, tmp_path):
    run("distill", *FLAGS, "--quiet", "--out", "here")
    log = (tmp_path / "here" / "log.txt").read_text()
    assert "teacher: fine-tuning" in log
    assert "accuracy 0.9" in log
    assert "warning: rows set aside: 3" in log


def test_an_error_is_one_line_and_in_the_log(run, fake, tmp_path):
    fake.error = DataError("train.tsv has no column 'sentence'", fix="did you mean 'sentences'?")
    ran = run("distill", *FLAGS)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1] == f"error: {fake.error}"
    assert f"error: {fake.error}" in (tmp_path / "runs/potstill/log.txt").read_text()


@pytest.mark.parametrize("error", [DataError("no file"), LockHeld("in use")])
def test_what_is_refused_at_once_leaves_nothing(run, replace, tmp_path, error):
    def refuse(settings, report):
        raise error

    replace("pipeline", distill=refuse)
    ran = run("distill", *FLAGS)
    assert ran.code == error.exit_code
    assert ran.err == f"error: {error}\n"
    assert not (tmp_path / "runs").exists()


def test_interrupted(run, fake, tmp_path):
    fake.error = KeyboardInterrupt()
    ran = run("distill", *FLAGS)
    assert (ran.code, ran.out) == (130, "")
    assert "the same command goes on from here" in ran.err
    assert ran.err.splitlines()[-1] == "interrupted"
    assert "interrupted" in (tmp_path / "runs/potstill/log.txt").read_text()


def test_a_refused_gate_is_1_and_its_report_is_still_the_answer(run, fake, tmp_path):
    fake.error = GateRefused("the teacher does not beat the majority class")
    refused = {**REPORT, "status": "refused"}
    storage.write_json(tmp_path / "runs/potstill/report.json", refused)
    ran = run("distill", *FLAGS, "--json")
    assert ran.code == 1
    assert json.loads(ran.out) == refused
    assert ran.err.splitlines()[-1] == f"error: {fake.error}"
    # A report of an earlier run that was not refused is not this run's answer.
    storage.write_json(tmp_path / "runs/potstill/report.json", REPORT)
    assert run("distill", *FLAGS, "--json").out == ""


def test_dry_run(run, fake, tmp_path):
    ran = run("distill", *FLAGS, "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "teacher  done                6x384",
        "distill  about 1 min 35 s",
        "report",
        "student: 7.0 M parameters",
        "time: about 4 min 55 s",
        "disk: about 412 MB in runs/potstill",
    ]
    assert list(tmp_path.iterdir()) == []


def test_dry_run_in_json(run, fake):
    ran = run("distill", *FLAGS, "--dry-run", "--json")
    assert json.loads(ran.out)["stages"][0]["name"] == "teacher"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "data.train is not set"),
        (["absent.toml"], "settings file absent.toml: No such file or directory"),
        ([*FLAGS, "--student", "4y3"], 'student.shape = "4y3"; expected layers x width'),
        ([*FLAGS, "--set", "teacher.epoch=1"], "unknown key teacher.epoch; fix: did you mean teacher.epochs?"),
        ([*FLAGS, "--seed", "-1"], "run.seed = -1; expected a whole number"),
    ],
)
def test_wrong_settings_stop_before_any_work(run, fake, tmp_path, arguments, told):
    ran = run("distill", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert ran.err.count("\n") == 1
    assert fake.settings is None
    assert list(tmp_path.iterdir()) == []

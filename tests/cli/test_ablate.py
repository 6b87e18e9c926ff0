"""`potstill ablate`: its list, its refusals, and what it prints of a result."""

import json

from tests.pipeline.tiny_job import tiny_settings
from tests.report.test_ablation import MADE


def given(folder):
    tiny_settings(folder)
    paths = {"--teacher": "teacher", "--train": "train.tsv", "--dev": "dev.tsv"}
    flags = [part for flag, name in paths.items() for part in (flag, f"{folder}/{name}")]
    return ["ablate", *flags, "--student", "1x16x32x4", "--set", "teacher.trained=false", "--set", "run.threads=1"]


def test_the_list_runs_nothing(run, tmp_path):
    ran = run(*given(tmp_path / "job"), "--list")
    assert ran.code == 0, ran.err
    lines = {line.split()[0]: line for line in ran.out.splitlines()}
    assert next(iter(lines)) == "full"
    assert "without the hidden loss" in lines["no-hidden"]
    assert "refused: student.start = layers with the shape" in lines["layers-start"]
    assert not (tmp_path / "runs").exists()
    found = json.loads(run(*given(tmp_path / "job"), "--list", "--json", "--cells", "no-hidden,top-mapping").out)
    assert [cell["name"] for cell in found["cells"]] == ["full", "no-hidden", "top-mapping"]
    assert found["cells"][2]["changes"] == {"distill.mapping": "top"}


def test_refusals_are_one_line(run, tmp_path):
    arguments = given(tmp_path / "job")
    for more, told in (
        (["--cells", "nothing"], "ablate.cells names nothing, which these settings do not have; expected some of full"),
        (["--minutes", "1", "--steps", "3"], "ablate.minutes = 1 and ablate.steps = 3; expected one of them"),
        (["--minutes", "0"], "ablate.minutes = 0"),
        (["--seeds", "0"], "ablate.seeds = 0"),
        (["--rows", "1"], "data.rows = 1"),
        (["--mode", "papre"], 'did you mean "paper"'),
        (["--set", "run.budget=5"], "fix: leave run.budget out (--set run.budget= takes it out of a file)"),
        (["--cells", "no-hiden"], "fix: did you mean no-hidden?"),
        (["--cells", "qqqq"], "fix: see --list"),
    ):
        ran = run(*arguments, *more)
        assert (ran.code, ran.out) == (2, ""), more
        assert told in ran.err.splitlines()[-1]
        assert not (tmp_path / "runs" / "ablation" / "stages").exists()


def test_the_table_and_the_json(run, replace, tmp_path):
    seen = []

    def ablate(settings, report):
        seen.append(settings)
        return MADE

    replace("pipeline", ablate=ablate)
    flags = ["--rows", "50", "--minutes", "0.5", "--seeds", "2", "--cells", "no-hidden", "--mode", "paper"]
    ran = run("ablate", "--teacher", "t", "--train", "d.tsv", "--test", "e.tsv", *flags)
    assert ran.code == 0, ran.err
    assert ran.out.endswith("ablation: runs/ablation/ablation.html\n")
    assert "no-transformer" in ran.out
    assert "arXiv 1909.10351" in ran.out
    settings = seen[0]
    assert (settings.data.rows, settings.ablate.minutes, settings.ablate.seeds) == (50, 0.5, 2)
    assert (settings.ablate.cells, settings.distill.mode) == (("no-hidden",), "paper")
    assert json.loads(run("ablate", "--teacher", "t", "--train", "d.tsv", "--json").out) == MADE
    quiet = run("ablate", "--teacher", "t", "--train", "d.tsv", "--quiet")
    assert quiet.out == "ablation: runs/ablation/ablation.html\n"


def test_several_teachers_and_a_file_with_a_budget(run, replace, tmp_path):
    seen = []

    def ablate(settings, report):
        seen.append(settings)
        return MADE

    replace("pipeline", ablate=ablate)
    ran = run("ablate", "--teacher", "a", "--teacher", "b", "--train", "d.tsv")
    assert ran.code == 0, ran.err
    assert (seen[0].teacher.source, seen[0].teacher.more) == ("a", ("b",))
    (tmp_path / "x.toml").write_text('[data]\ntrain = "a"\n[teacher]\nsource = "t"\n[run]\nbudget = 5\n')
    assert run("ablate", "x.toml", "--minutes", "1").code == 2
    assert run("ablate", "x.toml", "--minutes", "1", "--set", "run.budget=").code == 0
    assert (seen[-1].run.budget, seen[-1].ablate.minutes) == (None, 1.0)


def test_a_settings_file_to_start_from(run, tmp_path):
    ran = run("init", "--job", "ablate", "a.toml")
    assert ran.code == 0, ran.err
    assert "then: potstill ablate a.toml" in ran.out
    text = (tmp_path / "a.toml").read_text()
    assert "[ablate]" in text
    assert "# Of a distillation's settings, those under [export]" in text
    assert "did you mean --job ablate?" in run("init", "--job", "ablat", "b.toml").err

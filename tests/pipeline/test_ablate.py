"""An ablation on a tiny teacher: what it leaves, what is run twice, what is refused, and the same by hand."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.models.test_masked_lm import masked_lm
from tests.pipeline.test_distill import Stages
from tests.pipeline.tiny_job import tiny_settings, with_trained_teacher, write_rows

from potstill.config import AblateSettings, Settings, read_settings
from potstill.data.examples import Examples
from potstill.errors import GateRefused, InputError, LockHeld, ModelError, SettingsError, StorageError
from potstill.pipeline import ablate, ablation_cells, distill
from potstill.pipeline.ablate import CellBudget
from potstill.pipeline.budget import Budget
from potstill.pipeline.cells import PAPER_FULL, cell_settings, cells_of, chosen_cells
from potstill.pipeline.job import prepare_job
from potstill.pipeline.run import Context, Run
from potstill.pipeline.stages import build_stages
from potstill.progress import SILENT
from potstill.recipes import RECIPES
from potstill.report.ablation import GROUPS
from potstill.storage import lock

TRAINED = "teacher.trained=true"
QUICK = (TRAINED, "distill.epochs=2", "ablate.seeds=2", 'ablate.cells=["labels-alone", "layers-start"]')


def ablation(folder: Path, *overrides: str) -> AblateSettings:
    """The tiny job's settings, as an ablation's."""
    values = tiny_settings(folder).model_dump(exclude={"run": {"name"}}, exclude_none=True)
    given = [f"{s}.{k}={json.dumps(v)}" for s, keys in values.items() for k, v in keys.items() if k != "weights"]
    return read_settings(AblateSettings, None, [*given, f'run.out="{folder}/ablation"', *QUICK, *overrides])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, Stages]:
    folder, seen = tmp_path_factory.mktemp("ablation"), Stages()
    with_trained_teacher(folder, "bert", tmp_path_factory.mktemp)
    return folder, ablate(ablation(folder), seen), seen


def rows_of(made: dict) -> dict[str, dict]:
    return {cell["name"]: cell for cell in made["cells"]}


def test_a_table_of_cells_and_seeds(finished: tuple[Path, dict, Stages]) -> None:
    folder, made, seen = finished
    out = folder / "ablation"
    assert json.loads((out / "ablation.json").read_text()) == made
    assert made["complete"]
    assert made["seeds"] == [0, 1]
    assert list(rows_of(made)) == ["full", "labels-alone", "layers-start"]
    for name in ("full", "labels-alone"):
        row = rows_of(made)[name]
        assert [one["seed"] for one in row["seeds"]] == [0, 1]
        assert row["dev"]["value"] == pytest.approx(np.mean([one["dev"] for one in row["seeds"]]))
        assert row["test"]["value"] == pytest.approx(np.mean([one["test"] for one in row["seeds"]]))
        assert row["dev"]["low"] <= row["dev"]["value"] <= row["dev"]["high"]
        assert row["steps"] == np.mean([2 * -(-texts // 64) for texts in made_texts(out)])
    gap = rows_of(made)["labels-alone"]["difference"]
    assert gap["value"] == pytest.approx(
        rows_of(made)["labels-alone"]["dev"]["value"] - made["cells"][0]["dev"]["value"]
    )
    assert rows_of(made)["full"]["difference"] is None
    assert "the teacher's width" in rows_of(made)["layers-start"]["refused"]
    # Once for all cells; and once a seed, not once a cell.
    assert seen.names.count("teacher") == 1
    assert [name.split(": ")[1] for name in seen.names if ": " in name].count("start") == 2
    assert not list((out / "stages").glob("student-*")), "models are not kept"
    assert not (out / "scratch").exists()


def made_texts(out: Path) -> list[int]:
    """Texts, augmented ones too, by seed."""
    return [len(Examples.read(path)) for path in (out / "stages").glob("augment-*/train.arrow")]


def test_the_page_has_every_cell(finished: tuple[Path, dict, Stages]) -> None:
    folder, made, _ = finished
    page = (folder / "ablation" / "ablation.html").read_text()
    for cell in made["cells"]:
        assert f"<code>{cell['name']}</code>" in page
    assert page.count('class="student"') == 1, "one dot for the one cell that was compared"
    assert "refused" in page


def test_a_second_call_does_nothing(finished: tuple[Path, dict, Stages]) -> None:
    folder, made, _ = finished
    kept = {name: (folder / "ablation" / name).stat().st_mtime_ns for name in ("ablation.json", "ablation.html")}
    seen = Stages()
    assert ablate(ablation(folder), seen) == made
    assert seen.names == []
    assert kept == {name: (folder / "ablation" / name).stat().st_mtime_ns for name in kept}


def test_the_same_numbers_as_by_hand(finished: tuple[Path, dict, Stages]) -> None:
    """The stages of `distill` under the cell's settings leave the same answers, bit by bit."""
    folder, made, _ = finished
    alone = {f"distill.weights.{name}=0" for name in ("hidden", "attention", "logits")} | {"distill.weights.hard=1"}
    job = prepare_job(tiny_settings(folder, TRAINED, "distill.epochs=2", *alone), SILENT)
    run = Run(folder / "run", SILENT)
    for stage in build_stages(job, Budget(None, 0.0, lambda: 0.0, {})):
        if stage.name not in ("tfidf", "export", "latency"):
            run.execute(stage)
    hand = load_file(run.done["score"] / "logits.safetensors")
    ours = [load_file(path) for path in (folder / "ablation" / "stages").glob("score-*/logits.safetensors")]
    assert len(ours) == 4
    assert sum(np.array_equal(one["student/dev"], hand["student/dev"]) for one in ours) == 1
    row, gold = rows_of(made)["labels-alone"], Examples.read(run.done["data"] / "dev.arrow").labels
    assert row["seeds"][0]["dev"] == (hand["student/dev"].argmax(axis=1) == gold).mean()
    assert row["changes"] == {
        "distill.weights.hidden": 0.0,
        "distill.weights.attention": 0.0,
        "distill.weights.logits": 0.0,
        "distill.weights.hard": 1.0,
    }


class _Stop(Stages):
    """Interrupts when the n-th student is about to be trained."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def stage(self, name: str, detail: str = "") -> None:
        super().stage(name, detail)
        if sum(one.endswith("student") for one in self.names) == self.number:
            raise KeyboardInterrupt


def test_it_goes_on_at_the_cell_and_later_cells_join(finished: tuple[Path, dict, Stages], tmp_path: Path) -> None:
    folder, made, _ = finished
    shutil.copytree(folder / "ablation", tmp_path / "again")
    settings = [f'run.out="{tmp_path}/again"', 'ablate.cells=["labels-alone", "no-hard", "logits-alone"]']
    with pytest.raises(KeyboardInterrupt):
        ablate(ablation(folder, *settings), _Stop(2))
    seen = Stages()
    joined = rows_of(ablate(ablation(folder, *settings), seen))
    trained = [name for name in seen.names if name.endswith(": student")]
    assert [name.split(" ", 1)[1].split(":")[0] for name in trained] == [
        "no-hard, seed 0",
        "logits-alone, seed 1",
        "no-hard, seed 1",
    ]
    for name in ("full", "labels-alone"):
        assert joined[name]["dev"] == rows_of(made)[name]["dev"]


def test_a_cell_that_fails_in_training_does_not_stop_the_rest(
    finished: tuple[Path, dict, Stages], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from potstill.pipeline import distil_stages

    real = distil_stages.build_terms

    def refusing(phase, **arguments):
        if not any(term.weight for term in phase.terms if term.name == "hidden"):
            raise ModelError("no hidden states", expected="some")
        return real(phase, **arguments)

    monkeypatch.setattr(distil_stages, "build_terms", refusing)
    folder, _, _ = finished
    shutil.copytree(folder / "ablation", tmp_path / "again")
    overrides = [f'run.out="{tmp_path}/again"', "ablate.cells=no-hidden,no-hard", "ablate.seeds=1"]
    made = rows_of(ablate(ablation(folder, *overrides)))
    assert made["no-hidden"]["refused"] == "no hidden states; expected some"
    assert made["no-hidden"]["dev"] is None
    assert made["no-hard"]["dev"]["value"] > 0.4


def test_equal_steps(finished: tuple[Path, dict, Stages], tmp_path: Path) -> None:
    folder, _, _ = finished
    shutil.copytree(folder / "ablation", tmp_path / "again")
    same = (f'run.out="{tmp_path}/again"', "ablate.seeds=1", "ablate.cells=no-augmentation")
    made = rows_of(ablate(ablation(folder, *same, "ablate.steps=7")))
    assert [row["steps"] for row in made.values()] == [7, 7]


def test_the_masked_lm_that_reads_labels_takes_no_part_of_a_cells_steps(
    finished: tuple[Path, dict, Stages], tmp_path: Path
) -> None:
    folder, _, _ = finished
    shutil.copytree(folder / "ablation", tmp_path / "again")
    own = (f'augment.model="{masked_lm(tmp_path / "lm")}"', "augment.method=conditional-masked-lm", "augment.epochs=1")
    same = (f'run.out="{tmp_path}/again"', "ablate.seeds=1", "ablate.cells=no-augmentation", "ablate.steps=10")
    made = rows_of(ablate(ablation(folder, *same, *own)))
    assert [row["steps"] for row in made.values()] == [10, 10]
    facts = next((tmp_path / "again" / "stages").glob("conditional-masked-lm-*/training.json"))
    texts = len(Examples.read(next((tmp_path / "again" / "stages").glob("data-*/train.arrow"))))
    assert json.loads(facts.read_text())["masked"]["steps"] == -(-texts // 32), "its own epochs"


def test_equal_time_is_shared_by_the_trainings_of_a_cell(tmp_path: Path) -> None:
    def steps(budget: CellBudget, stage: str, phase: str, planned: int, **more: float) -> int:
        context = Context(tmp_path, tmp_path, {}, SILENT)
        return budget.allot(context, (stage, phase), planned, lambda: 0.1, stretch=4.0, **more).steps

    def begun(seconds: float | None, number: int | None = None) -> CellBudget:
        budget = CellBudget(seconds, 0.0, lambda: 0.0, {}, number)
        budget.begin({"assistant-1": 2.0, "student": 4.0})
        return budget

    timed = begun(60.0)
    assert steps(timed, "general", "general", 5) == 5, "it is no part of the cell"
    assert steps(timed, "assistant-1", "a", 5) == pytest.approx(200, abs=2), "longer than any recipe's limit"
    timed.ended("assistant-1")
    timed.used = lambda: 20.0
    assert steps(timed, "student", "b", 5, portion=0.75) == pytest.approx(300, abs=2)
    counted = begun(None, 90)
    assert [steps(counted, "assistant-1", "c", 5), steps(counted, "student", "d", 5, portion=0.5)] == [30, 30]
    assert steps(begun(None), "student", "e", 5) == 5


def test_what_cannot_be_is_refused_before_work(finished: tuple[Path, dict, Stages], tmp_path: Path) -> None:
    folder, _, _ = finished
    out = f'run.out="{tmp_path}/new"'
    for error, told, override in (
        (SettingsError, "ablate.cells names no-hiden, .*expected some of full, labels-alone", "ablate.cells=no-hiden"),
        (SettingsError, "ablate.minutes = 1 and ablate.steps = 5", "ablate.minutes=1\nablate.steps=5"),
        (SettingsError, "run.budget = 3 in an ablation; .*ablate.minutes", "run.budget=3"),
        (ModelError, "heads", "student.shape=1x16x32x2\ndistill.mode=paper"),
        (SettingsError, "teacher.scores = a.csv in an ablation", "teacher.source=\nteacher.scores=a.csv"),
        (SettingsError, "teacher.cache = states with .*padding", "teacher.cache=states\ndistill.mode=reference"),
        (SettingsError, "accumulate = 2 with the similarity loss", "distill.accumulate=2\ndistill.mode=vectors"),
    ):
        with pytest.raises(error, match=told):
            ablate(ablation(folder, out, *override.split("\n")))
    assert not (tmp_path / "new" / "stages").exists()


def test_folders_are_not_mixed(finished: tuple[Path, dict, Stages], tmp_path: Path) -> None:
    folder, _, _ = finished
    with pytest.raises(StorageError, match="another command's run"):
        distill(tiny_settings(folder, f'run.out="{folder}/ablation"'))
    (tmp_path / "distilled" / "stages" / "data").mkdir(parents=True)
    (tmp_path / "distilled" / ".potstill.lock").touch()
    with pytest.raises(StorageError, match="another command's run"):
        ablate(ablation(folder, f'run.out="{tmp_path}/distilled"'))
    with lock(folder / "ablation"), pytest.raises(LockHeld):
        ablate(ablation(folder))


def test_a_poor_teacher_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    settings = ablation(folder, "teacher.trained=false", "teacher.epochs=1", "teacher.learning_rate=0.000001")
    with pytest.raises(GateRefused, match="the teacher scores"):
        ablate(settings)


def test_fewer_rows(finished: tuple[Path, dict, Stages]) -> None:
    folder, made, _ = finished
    assert made["data"]["train"] == 240 - removed(made, folder)
    job = prepare_job(tiny_settings(folder, "data.rows=50"), SILENT)
    assert job.settings.data.rows == 50


def removed(made: dict, folder: Path) -> int:
    """Training texts that stand in dev or test too."""
    facts = json.loads(next((folder / "ablation" / "stages").glob("data-*/facts.json")).read_text())["facts"]
    return sum(one["removed"] for one in facts["overlaps"] if one["between"][0] == "train")


def refusal_of(settings: Settings) -> InputError | None:
    try:
        prepare_job(settings, SILENT)
    except InputError as error:
        return error
    return None


@pytest.mark.parametrize("mode", RECIPES)
def test_every_cell_of_every_recipe_is_settings(finished: tuple[Path, dict, Stages], mode: str) -> None:
    """Valid, different from one another, and refused with the way out or a job."""
    folder, _, _ = finished
    recipe = RECIPES[mode]
    shape = "1x32x64x4" if recipe.start == "layers" else "1x16x32x4"
    texts = [f'general.texts="{write_rows(folder / "plain.tsv", 30, 9)}"'] if recipe.general else []
    settings = ablation(folder, f"distill.mode={mode}", f"student.shape={shape}", "ablate.cells=[]", *texts)
    chain = ["2x32x64x4"] if mode == "potstill" else []
    cells = cells_of(settings, start=recipe.start, shape=shape, assistants=chain)
    kept = {cell.name: cell.changes.get("student.assistants") for cell in cells}
    if chain:
        assert kept["random-start"] == kept["layers-start"] == kept["no-general"] == ("2x32x64x4",)
        alone = cells_of(settings, start=recipe.start, shape=shape)
        assert {c.changes.get("student.assistants") for c in alone if c.group == "start"} == {"none"}
    assert ("no-assistant" in {cell.name for cell in cells}) == (mode == "potstill")
    names = [cell.name for cell in cells]
    assert names[0] == "full"
    assert len(set(names)) == len(names)
    made = [cell_settings(settings, cell.changes, 5) for cell in cells]
    assert all(isinstance(one, Settings) and one.run.seed == 5 and one.export.formats == () for one in made)
    assert len({one.model_dump_json() for one in made}) == len(made)
    assert {cell.group for cell in cells} <= {"recipe", *GROUPS}
    assert chosen_cells(cells, (names[-1],)) == (cells[0], cells[-1])
    if mode not in ("potstill", "paper", "pkd"):
        return
    refusals = [refusal_of(one) for one in made]
    assert refusals[0] is None
    assert all(refusal.fix for refusal in refusals if refusal)


def test_the_papers_own_cells_in_its_own_mode(finished: tuple[Path, dict, Stages]) -> None:
    folder, _, _ = finished
    texts = f'general.texts="{write_rows(folder / "plain.tsv", 30, 9)}"'
    cells = cells_of(ablation(folder, "distill.mode=paper", texts), start="random", shape="1x16x32x4")
    rows = {cell.name: cell.paper for cell in cells if cell.paper}
    assert {name: row.average for name, row in rows.items()} == {
        "full": PAPER_FULL,
        "no-general": 72.5,
        "labels-alone": 68.5,
        "no-augmentation": 68.4,
        "no-embedding": 74.1,
        "no-logits": 73.5,
        "no-transformer": 56.3,
        "no-attention": 71.0,
        "no-hidden": 72.9,
        "top-mapping": 70.9,
        "bottom-mapping": 71.3,
    }
    assert rows["no-transformer"].difference == pytest.approx(-0.193)
    changes = {cell.name: cell.changes for cell in cells}
    assert changes["no-logits"] == {"distill.weights.logits": 0.0, "distill.weights.hard": 1.0}, "the head is trained"


def names_of(folder: Path, *overrides: str) -> set[str]:
    settings = ablation(folder, "ablate.cells=[]", "augment.copies=", *overrides)
    return {cell.name for cell in cells_of(settings, start="random", shape="1x16x32x4")}


def test_cells_follow_what_a_method_does_with_scores(finished: tuple[Path, dict, Stages]) -> None:
    """As published: no augmentation on a regression, and in the released code the gold scores at the end."""
    folder, _, _ = finished
    labels, scores = (names_of(folder, f"data.task={task}") for task in ("classification", "regression"))
    assert labels ^ scores == {"no-augmentation", "with-augmentation"}
    assert "with-augmentation" in scores
    assert "no-augmentation" in names_of(folder, "data.task=regression", "augment.copies=2")
    reference = names_of(folder, "data.task=regression", "distill.mode=reference")
    assert {"labels-alone", "no-hidden", "with-augmentation"} < reference
    assert not {"no-logits", "logits-alone", "with-hard", "no-hard"} & reference


def test_a_weight_that_stays_at_0_is_none(finished: tuple[Path, dict, Stages]) -> None:
    folder, _, _ = finished
    names = names_of(folder, "distill.weights.hidden=[0, 0]")
    assert names == names_of(folder, "distill.weights.hidden=0")
    assert "with-hidden" in names
    assert "no-hidden" in names_of(folder, "distill.weights.hidden=[0, 1]")


def test_the_list_says_what_is_refused(finished: tuple[Path, dict, Stages]) -> None:
    found = {cell["name"]: cell for cell in ablation_cells(ablation(finished[0], "ablate.cells=[]"))}
    assert found["layers-start"]["refused"]
    assert found["no-hidden"] == {
        "name": "no-hidden",
        "title": "without the hidden loss",
        "changes": {"distill.weights.hidden": 0.0},
        "refused": None,
    }
    assert "no-states" not in found, "the same as no-transformer where embeddings are not learned"

"""The teacher's cache in a job: what it saves, when it is declined, when it is refused before any work."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.models.test_teacher_cache import Counted
from tests.pipeline.tiny_job import tiny_settings

from potstill.data.encoding import TextEncoder
from potstill.data.sources import teacher_cache_folder
from potstill.errors import SettingsError, StorageError
from potstill.models import teacher_cache
from potstill.models.cache_room import kept_folders
from potstill.models.teacher import load_classifier
from potstill.pipeline import caching, distill, plan
from potstill.pipeline.budget import Budget
from potstill.pipeline.caching import heard
from potstill.pipeline.distil_stages import student_stage
from potstill.pipeline.job import prepare_job
from potstill.pipeline.run import Context
from potstill.pipeline.starts import start_stage
from potstill.progress import SILENT
from potstill.recipes import build_terms
from potstill.storage import atomic_folder

QUICK = (
    "export.formats=[]",
    "evaluate.hard_labels=false",
    "evaluate.tfidf=false",
    "teacher.epochs=25",
    "distill.epochs=2",
    "augment.method=none",
)
FIELDS = ["logits", "hidden-2", "q-2", "k-2"]


class Told:
    """Collects what a run says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def stage(self, name: str, detail: str = "") -> None: ...

    def progress(self, done: float, total: float, **values: float) -> None: ...

    def note(self, message: str) -> None:
        self.lines.append(message)

    def warn(self, message: str) -> None:
        self.lines.append(message)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POTSTILL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What a teacher was run for, block by block; a live one stands as its batch."""
    found: list[list[str]] = []
    make, live = teacher_cache.TeacherCache._make, caching.LiveGuide.guidance

    def counted(cache: Any, teacher: Any, number: int, lacking: list[str]) -> None:
        found.append(list(lacking))
        make(cache, teacher, number, lacking)

    def asked(guide: Any, rows: np.ndarray) -> Any:
        found.append(["live"])
        return live(guide, rows)

    monkeypatch.setattr(teacher_cache.TeacherCache, "_make", counted)
    monkeypatch.setattr(caching.LiveGuide, "guidance", asked)
    return found


def student(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model" / "model.safetensors")


def test_another_seed_shape_or_method_never_runs_the_teacher_again(tmp_path: Path, made: list[list[str]]) -> None:
    distill(tiny_settings(tmp_path, *QUICK))
    assert made == [FIELDS]  # one block holds these texts; two epochs read them
    stages = tmp_path / "run" / "stages"

    def distilled(name: str, *more: str) -> dict[str, np.ndarray]:
        """The start and the student of a run with other settings, over the first one's data and teacher."""
        job = prepare_job(tiny_settings(tmp_path, *QUICK, *more), SILENT)
        done = {stage: stages / stage for stage in ("data", "teacher", "augment")}
        for stage in ("start", "student"):
            (tmp_path / name / stage).mkdir(parents=True)
            context = Context(tmp_path / name / stage, tmp_path / name, done, SILENT)
            if stage == "start":
                start_stage(context, job, "teacher")
            else:
                student_stage(
                    context,
                    job,
                    Budget(None, 0.0, lambda: 0.0, {}),
                    stage=stage,
                    start="start",
                    above="teacher",
                    phases=job.recipe.phases,
                    layers=job.layers,
                )
            done[stage] = context.folder
        return student(tmp_path / name / "student")

    first, again = student(stages / "student"), distilled("again")
    # Read from a full cache, the student is what it was when the cache was empty.
    assert all(np.array_equal(tensor, again[name]) for name, tensor in first.items())
    other = distilled("seed", "run.seed=1")
    assert any(not np.array_equal(tensor, other[name]) for name, tensor in first.items())
    distilled("shape", "student.shape=1x20x40x4")
    distilled("method", "distill.mode=vectors")
    assert made == [FIELDS]
    assert len(kept_folders(teacher_cache_folder())) == 1
    live = distilled("live", "teacher.cache=none")
    assert made[1:] == [["live"]] * 8  # 240 texts, twice, 64 at a time
    for name, tensor in live.items():  # batches of other texts may round otherwise, and no more
        np.testing.assert_allclose(tensor, first[name], atol=1e-3)


class Set:
    """A phase's teacher and texts, without the job around them."""

    def __init__(self, folder: Path, *settings: str, epochs: float = 2.0, budget: float | None = None) -> None:
        self.job = prepare_job(tiny_settings(folder, *QUICK, *settings), SILENT)
        self.teacher = load_classifier(folder / "teacher", ("neg", "pos"), assume_order=True)
        above, scratch = folder / "above", folder / "scratch"
        if not above.exists():
            with atomic_folder(above, {}) as work:
                (work / "model").mkdir()
                (work / "model" / "config.json").write_bytes((folder / "teacher" / "config.json").read_bytes())
        scratch.mkdir(exist_ok=True)
        self.told = Told()
        self.context = Context(folder, scratch, {"teacher": above}, self.told)
        self.encodings = TextEncoder.from_folder(folder / "teacher", max_length=32).encode(["a good film"] * 50)
        self.budget = Budget(budget, 0.0, lambda: 0.0, {"student": 1.0})
        (phase,) = self.job.recipe.phases
        self.terms = build_terms(phase, student=1, teacher=2, mapping="uniform")
        self.epochs = epochs

    def cached(self) -> bool:
        given = (self.context, self.job, self.budget, self.teacher, self.terms, self.encodings)
        with heard(*given, stage="student", phase="distil", above="teacher", epochs=self.epochs) as source:
            source.guide.guidance(np.arange(4))
            source.guide.close()
            return source.cached

    @property
    def said(self) -> str:
        return "\n".join(self.told.lines)


def test_what_the_settings_leave_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def anew(*settings: str, **more: float) -> Set:
        for file in (tmp_path / "scratch").glob("*"):
            file.unlink()
        return Set(tmp_path, *settings, **more)

    assert not anew(epochs=1.4).cached()
    assert not anew("teacher.cache=none").cached()
    assert not anew("teacher.cache=logits").cached()  # the teacher is run for its states in any case
    assert not anew("distill.mode=reference", "distill.weights.logits=0").cached()
    little = anew("teacher.cache_gb=0.00001")
    assert not little.cached()
    assert "the teacher is run on every batch: " in little.said
    assert "do not fit" in little.said
    with monkeypatch.context() as patch:
        patch.setattr(teacher_cache.TeacherCache, "seconds_lacking", lambda *_: 360.0)
        short = anew(budget=1000.0)
        assert not short.cached()
        assert "reading all texts would take 6.0 of the 16.7 minutes" in short.said
    with monkeypatch.context() as patch:
        patch.setattr(caching, "free_bytes", lambda _: 100_000)
        full = anew()
        assert not full.cached()
        assert "are more than half of the 0.1 MB free" in full.said
    assert not teacher_cache_folder().exists()
    assert anew("teacher.cache=states", epochs=0.5).cached()
    long = anew(budget=1000.0)
    assert long.cached()
    assert re.search(r"what the teacher says is kept in .* \(logits, hidden-2, q-2, k-2\)", long.said)


def test_a_resumed_run_goes_on_as_it_began(tmp_path: Path) -> None:
    """Though the disk is full by now, or the cache has been emptied."""
    first = Set(tmp_path)
    assert first.cached()
    for kept in kept_folders(teacher_cache_folder()):
        for path in kept.folder.rglob("*.safetensors"):
            path.unlink()
    again = Set(tmp_path, "teacher.cache_gb=0.00001")
    with Counted(again.teacher) as counted:
        assert again.cached()
    assert counted.passes == 1
    assert "is damaged: the teacher reads its texts again" in again.said


def test_asked_for_and_impossible_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="its embedding loss averages over padding too"):
        distill(tiny_settings(tmp_path, *QUICK, "teacher.cache=states", "distill.mode=reference"))
    refused = r"about 0.\d MB do not fit: .*, teacher.cache_gb = 1e-05.*fix: free space, raise"
    for call in (distill, plan):
        with pytest.raises(StorageError, match=refused):
            call(tiny_settings(tmp_path, *QUICK, "teacher.cache=states", "teacher.cache_gb=0.00001"))
    assert not (tmp_path / "run" / "stages").exists()


def test_the_plan_tells_the_size(tmp_path: Path) -> None:
    def lines(*more: str) -> list[str]:
        notes = plan(tiny_settings(tmp_path, *QUICK, *more))["notes"]
        return [note for note in notes if note.startswith("teacher.cache")]

    (line,) = lines()
    said = re.fullmatch(
        r"teacher.cache: logits, hidden-2, q-2, k-2 of 2x32x64x4, about ([\d.]+) MB in \S+/cache/teacher \(.*\)", line
    )
    assert said is not None
    # 240 texts of 3 to 9 words between two special tokens, three states of 32 float32 numbers.
    assert 240 * 5 * 3 * 128 < float(said[1]) * 1e6 < 240 * 11 * 3 * 128
    assert lines("teacher.cache=none") == lines("distill.epochs=1") == []
    (line,) = lines("distill.mode=logits", "distill.epochs=3")
    assert "logits of 2x32x64x4, about 0.0 MB" in line

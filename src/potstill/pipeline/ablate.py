"""An ablation: one distillation, changed in one thing at a time, at equal time or steps, over several seeds.

Cells share a run folder. Results stand in it under their keys, so that what is the same in two cells (the data, the
fine-tuned teacher, augmented texts, a start) is made once, and a cell that is done is not run again.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from potstill.config import AblateSettings, write_settings
from potstill.errors import InputError, NonFiniteError, PotstillError, StorageError
from potstill.pipeline.ablation import Refusal, Trial, read_trial, result_of, write_result
from potstill.pipeline.assistants import TEACHER_LOGITS
from potstill.pipeline.augment_stages import CONDITIONAL
from potstill.pipeline.budget import FEWEST, Allotment, Budget
from potstill.pipeline.cells import FULL, Cell, cell_settings, cells_of, chosen_cells
from potstill.pipeline.checked import checked_job
from potstill.pipeline.distill import disk_bytes, teacher_refusal
from potstill.pipeline.inputs import threads
from potstill.pipeline.job import Job, teacher_name
from potstill.pipeline.results import split_in, task_in
from potstill.pipeline.run import Context, Run, Stage, opened
from potstill.pipeline.stages import student_stages
from potstill.progress import SILENT, Reporter
from potstill.report.wording import metric_name, score
from potstill.storage import ensure_space, verify_folder
from potstill.tasks import make_task

__all__ = ["CellBudget", "ablate", "ablation_cells"]

_SHARED = ("general", CONDITIONAL)
"""Trainings that cells share: they have epochs of their own, and no part of a cell's time or steps."""


def ablate(settings: AblateSettings, report: Reporter = SILENT) -> dict[str, Any]:
    """Run, or go on with, an ablation; returns the content of ablation.json.

    The run folder `settings.run.out` then holds settings.toml, ablation.json, ablation.html and stages/. What cannot be
    combined is named as refused and does not stop the rest.

    Args:
        settings: See `potstill.config`.
        report: Receives stages, progress and warnings.

    Raises:
        InputError: Something given cannot be used, by the full recipe already; nothing was changed.
        GateRefused: The teacher is hardly better than the majority class.
        LockHeld: Another process works in the folder.
        KeyboardInterrupt: After the state was saved; the same call goes on.
    """
    out = Path(settings.run.out)
    with opened(out, "data", by_key=True):
        cells, jobs, refused = _prepare(settings, report)
        ensure_space(out, disk_bytes(jobs[FULL]))
        torch.set_num_threads(threads(settings.run))
        shared = _shared(settings, jobs[FULL], out, report)
        position = _Position(report, settings, len(jobs))
        trials: list[Trial] = []
        for seed in _seeds(settings):
            for cell in [cell for cell in cells if cell.name in jobs]:
                position.begin(cell.name, seed)
                try:
                    trial = _run_cell(settings, jobs[cell.name], cell, seed, shared, position)
                except (InputError, NonFiniteError) as error:
                    if cell.name == FULL or isinstance(error, StorageError):
                        raise
                    refused.append(_refuse(cell, error, report))
                    del jobs[cell.name]
                    position.fewer()
                    continue
                trials.append(trial)
                position.end(trial)
            made = result_of(settings, jobs[FULL], cells, trials, refused, shared)
            if position.worked_at_all:  # what there is so far can be looked at
                write_result(made, out)
        for name in ("start", "assistant"):
            for folder in (out / "stages").glob(f"{name}-*"):
                shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(out / "scratch", ignore_errors=True)
        return write_result(made, out)


def ablation_cells(settings: AblateSettings) -> list[dict[str, Any]]:
    """The cells of an ablation, and whether they can be: `name`, `title`, `changes`, `refused` (a reason, or None).

    Raises:
        InputError: As `ablate` would, before any work.
    """
    cells, _, refused = _prepare(settings, SILENT)
    reasons = {refusal.cell: refusal.reason for refusal in refused}
    return [
        {"name": c.name, "title": c.title, "changes": dict(c.changes), "refused": reasons.get(c.name)} for c in cells
    ]


def _seeds(settings: AblateSettings) -> list[int]:
    return [(settings.run.seed + number) % 2**32 for number in range(settings.ablate.seeds)]


def _prepare(settings: AblateSettings, report: Reporter) -> tuple[tuple[Cell, ...], dict[str, Job], list[Refusal]]:
    """The cells, the job of each that can be, and why the others cannot."""
    minutes = settings.ablate.minutes
    full = checked_job(cell_settings(settings, {}, settings.run.seed), report, minutes=minutes)
    every = cells_of(settings, start=full.way, shape=str(full.shape), assistants=[str(a) for a in full.assistants])
    cells = chosen_cells(every, settings.ablate.cells)
    jobs, refused = {FULL: full}, []
    for cell in cells[1:]:
        try:
            changed = cell_settings(settings, cell.changes, settings.run.seed)
            jobs[cell.name] = checked_job(changed, SILENT, minutes=minutes)
        except InputError as error:
            refused.append(_refuse(cell, error, report))
    return cells, jobs, refused


def _refuse(cell: Cell, error: PotstillError, report: Reporter) -> Refusal:
    report.warn(f"{cell.name} is left out: {error}")
    return Refusal(cell.name, str(error))


def _shared(settings: AblateSettings, job: Job, out: Path, report: Reporter) -> Run:
    """The data and the teachers, run once: whatever a cell changes, it has the same."""
    run = Run(out, report, by_key=True)
    teachers = [teacher_name(number) for number in range(1, 1 + len(job.teachers))]
    plain = replace(job, settings=cell_settings(settings, {"run.budget": None}, settings.run.seed))
    for stage in student_stages(plain, Budget(None, 0.0, lambda: 0.0, {})):
        name = stage.name.removesuffix("-check")
        if name not in ("data", *teachers):
            continue
        run.execute(stage)
        if name == "data":  # what was given can be used
            write_settings(settings, out / "settings.toml")
        elif name != stage.name and (refusal := teacher_refusal(plain, run, name)) is not None:
            raise refusal
    return run


def _run_cell(settings: AblateSettings, job: Job, cell: Cell, seed: int, shared: Run, report: "_Position") -> Trial:
    """One cell under one seed, or what it left before."""
    run = Run(shared.out, report, dict(shared.keys), dict(shared.done), by_key=True)
    minutes = settings.ablate.minutes
    budget = CellBudget(
        None if minutes is None else 60 * minutes,
        0.0,
        lambda: sum(seconds for name, seconds in run.seconds.items() if name in (*budget.whole, TEACHER_LOGITS)),
        {},
        settings.ablate.steps,
    )
    job = replace(job, settings=cell_settings(settings, cell.changes, seed))
    stages = [stage for stage in student_stages(job, budget) if stage.name not in shared.done]
    budget.begin({stage.name: stage.share for stage in stages if stage.share and stage.name not in _SHARED})
    stages = list(_with_steps(stages, budget))
    for stage in stages:
        run.keys[stage.name] = run.key(stage)
    if not _whole(run, stages[-1]):
        for stage in stages[:-1]:
            run.execute(stage)
            budget.ended(stage.name)
    folder = run.execute(stages[-1])
    for name in run.done:  # their answers are kept, and they can be made again
        if name == "student" or name.startswith("assistant-"):
            shutil.rmtree(run.done[name], ignore_errors=True)
    report.worked |= run.worked
    data = run.done["data"]
    return read_trial(cell.name, seed, folder, task_in(data), split_in(data, "dev").labels)


def _whole(run: Run, stage: Stage) -> bool:
    try:
        return run.is_done(stage) and bool(verify_folder(run.folder(stage)))
    except StorageError as error:
        run.report.warn(f"{error.got}; the cell is run again")
        return False


def _with_steps(stages: list[Stage], budget: "CellBudget") -> Iterator[Stage]:
    """The stages with what an ablation adds: trainings depend on its steps, and the last keeps their facts."""
    for stage in stages[:-1]:
        fixed = {"steps": budget.steps} if stage.name in budget.whole and budget.steps is not None else {}
        yield replace(stage, depends={**stage.depends, **fixed})
    yield replace(stages[-1], work=_keeping_facts(stages[-1].work))


def _keeping_facts(score: Callable[[Context], None]) -> Callable[[Context], None]:
    def work(context: Context) -> None:
        score(context)
        shutil.copyfile(context.done["student"] / "training.json", context.folder / "training.json")

    return work


@dataclass
class CellBudget(Budget):
    """Time, or steps, for the trainings of a cell; those that cells share have their own epochs.

    Attributes:
        steps: For all of them together; None: by time, or by the recipe.
        whole: The shares as they were when the cell began.
    """

    steps: int | None = None

    def __post_init__(self) -> None:
        self.whole: dict[str, float] = {}

    def begin(self, shares: dict[str, float]) -> None:
        """These trainings share it."""
        self.whole = dict(shares)
        self.shares.update(shares)

    def allot(
        self,
        context: Context,
        training: tuple[str, str],
        planned: int,
        measure: Callable[[], float],
        *,
        stretch: float = 1.0,
        portion: float = 1.0,
        followers: float = 0.0,
        spent: float = 0.0,
    ) -> Allotment:
        """As in `Budget`; time is used up, however short the recipe is."""
        if training[0] not in self.whole:
            return Allotment(planned, planned, None, planned)
        if self.steps is not None:
            steps = max(1, round(self.steps * portion * self.whole[training[0]] / sum(self.whole.values())))
            return Allotment(steps, planned, None, steps)
        given = {"portion": portion, "followers": followers, "spent": spent}
        return super().allot(context, training, planned, measure, stretch=1000.0, **given)

    @staticmethod
    def _say(
        context: Context, stage: str, steps: int, planned: int, seconds: float, per_step: float, stretch: float
    ) -> None:
        if seconds / per_step < min(FEWEST, planned):
            context.report.warn(f"ablate.minutes leaves {stage} its fewest steps, {steps}: allow more")
        else:
            context.report.note(f"{steps:,} steps fit {seconds:.0f} s at {per_step:.3f} s each")


class _Position:
    """Passes progress on, with the cell's place among all and the time left for all.

    Attributes:
        worked: Whether the present cell was run, and not taken from before.
        worked_at_all: Whether any was.
    """

    def __init__(self, report: Reporter, settings: AblateSettings, cells: int) -> None:
        self._report, self._seeds, self._cells = report, settings.ablate.seeds, cells
        self._known = None if settings.ablate.minutes is None else 60 * settings.ablate.minutes
        self._number, self._prefix = 0, ""
        self._metric = make_task(settings.data.task).primary_metric
        self._started, self._times = time.monotonic(), list[float]()
        self.worked = self.worked_at_all = False

    def begin(self, cell: str, seed: int) -> None:
        """A cell begins."""
        self._number += 1
        self._prefix = f"{self._number}/{self._cells * self._seeds} {cell}, seed {seed}: "
        self._started, self.worked = time.monotonic(), False

    def fewer(self) -> None:
        """The present cell turned out to be impossible."""
        self._cells -= 1
        self._number -= 1

    def end(self, trial: Trial) -> None:
        """The present cell has ended."""
        if not self.worked:
            return
        self.worked_at_all = True
        self._times.append(time.monotonic() - self._started)
        left = self._left()
        self.note(
            f"{self._prefix}{metric_name(self._metric)} {score(trial.dev, self._metric)} on dev "
            f"after {trial.steps:,} steps" + ("" if not left else f"; all cells: about {left / 60:.0f} min left")
        )

    def _left(self) -> float | None:
        """Seconds for the cells to come."""
        each = sum(self._times) / len(self._times) if self._times else self._known
        return None if each is None else each * (self._cells * self._seeds - self._number)

    def stage(self, name: str, detail: str = "") -> None:
        """Pass on."""
        self._report.stage(f"{self._prefix}{name}", detail)

    def progress(self, done: float, total: float, **values: float) -> None:
        """Pass on."""
        left = self._left()
        ahead = {} if left is None else {"minutes_for_the_cells_to_come": round(left / 60, 1)}
        self._report.progress(done, total, **ahead, **values)

    def note(self, message: str) -> None:
        """Pass on."""
        self._report.note(message)

    def warn(self, message: str) -> None:
        """Pass on."""
        self._report.warn(f"{self._prefix}{message}")

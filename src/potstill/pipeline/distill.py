"""The main job: which stages, in which order, and the run from settings to report."""

import contextlib
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from potstill.config import Settings, write_settings
from potstill.errors import GateRefused
from potstill.metrics import Metric, beats_majority, majority_share
from potstill.models.student import Shape
from potstill.pipeline import distil_stages as stages
from potstill.pipeline import tune_stages as tuning
from potstill.pipeline.assemble import assemble, refused_report
from potstill.pipeline.budget import Budget
from potstill.pipeline.general import general_stage
from potstill.pipeline.job import Job, prepare_job
from potstill.pipeline.judge import (
    dev_check,
    export_stage,
    latency_stage,
    score_stage,
    tfidf_stage,
    threads,
)
from potstill.pipeline.prepare import augmented, split_data
from potstill.pipeline.publish import publish
from potstill.pipeline.results import read_split
from potstill.pipeline.run import Context, Run, Stage
from potstill.progress import SILENT, Reporter
from potstill.storage import ensure_space, lock, read_json, write_json

__all__ = ["build_stages", "disk_bytes", "distill", "reserve_seconds"]

MODEL_COPIES = 14
"""Copies of the teacher's size that a run may hold at once: models, moments, checkpoints, exports of both."""


def distill(settings: Settings, report: Reporter = SILENT) -> dict[str, Any]:
    """Run, or go on with, a distillation; returns the content of report.json.

    The run folder `settings.run.out` then holds settings.toml, report.json, report.html, student/ and stages/.

    Args:
        settings: See `potstill.config`.
        report: Receives stages, progress and warnings.

    Raises:
        InputError: Something given cannot be used; nothing was changed.
        GateRefused: The teacher is hardly better than the majority class; report.json says so.
        LockHeld: Another process works in the folder.
        KeyboardInterrupt: After the state was saved; the same call goes on.
    """
    out = Path(settings.run.out)
    with lock(out), _quiet_libraries():
        job = prepare_job(settings, report)
        ensure_space(out, disk_bytes(job))
        _remove_halves(out)
        torch.set_num_threads(threads(job))
        write_settings(settings, out / "settings.toml")
        run = Run(out, report)
        budget = Budget(
            None if settings.run.budget is None else settings.run.budget * 60,
            reserve_seconds(job),
            lambda: sum(run.seconds.values()),
            {},
        )
        planned = build_stages(job, budget)
        budget.shares.update({stage.name: stage.share for stage in planned if stage.share})
        for stage in planned:
            run.execute(stage)
            budget.ended(stage.name)
            if stage.name == "teacher-check":
                _require_teacher(job, run)
        made = assemble(job, run.done, run.seconds, threads(job))
        finished = publish(made, run.done["export"] / "student", out)
        shutil.rmtree(out / "scratch", ignore_errors=True)
        return finished


def disk_bytes(job: Job) -> int:
    """Bytes that a run may need at once."""
    return MODEL_COPIES * _weights(job)


def _weights(job: Job) -> int:
    """Bytes of the teacher's weights."""
    return sum(path.stat().st_size for path in job.teacher.paths[0].glob("*.safetensors"))


def reserve_seconds(job: Job) -> float:
    """Seconds of a budget kept for what is not training: exporting and measuring both models grows with the teacher."""
    return 90.0 + _weights(job) / 2e6


def build_stages(job: Job, budget: Budget) -> list[Stage]:
    """The stages of a job, in order; each names what its result depends on."""
    settings = job.settings
    seed = {"seed": settings.run.seed, "threads": threads(job)}
    trained = {**seed, "budget": settings.run.budget}
    distil = {**settings.distill.model_dump(mode="json"), **trained}
    teacher_source = {"model": job.teacher.sha256}
    data_inputs = {role: source.sha256 for role, source in job.data.items()}
    plain = [source.sha256 for source in job.unlabelled]
    made: list[Stage] = []

    def add(
        name: str, depends: Mapping[str, Any], needs: tuple[str, ...], work: Any, detail: str, share: float = 0
    ) -> None:
        made.append(Stage(name, depends, needs, work, detail, share))

    data_settings = settings.data.model_dump(mode="json", exclude={"train", "dev", "test", "unlabelled", "max_length"})
    columns = vars(job.columns)
    add(
        "data",
        {**data_settings, "columns": columns, "inputs": data_inputs, "unlabelled": plain},
        (),
        lambda context: split_data(context, job),
        "reading, checking and splitting",
    )
    lengths = {"max_length": settings.data.max_length}
    teacher_settings = settings.teacher.model_dump(mode="json", exclude={"source"})
    precision = {"precision": settings.distill.precision}
    add(
        "teacher",
        {**teacher_settings, **teacher_source, **trained, **lengths, **precision},
        ("data",),
        lambda context: tuning.teacher_stage(context, job, budget),
        f"{job.teacher.name}, {Shape.of(job.config)}",
        3,
    )
    check = {"resamples": settings.evaluate.resamples}
    add("teacher-check", check, ("data", "teacher"), lambda c: _check(c, job), "is the teacher worth distilling?")
    above = "teacher"
    copies = job.recipe.copies if settings.augment.copies is None else settings.augment.copies
    augment = {
        **settings.augment.model_dump(mode="json"),
        "files": job.files,
        "copies": copies,
        "seed": settings.run.seed,
    }
    add(
        "augment",
        {**augment, **teacher_source},
        ("data",),
        lambda context: augmented(context, job, job.teacher.paths[0]),
        settings.augment.method,
    )
    if job.assistants:
        for number, shape in enumerate(job.assistants, 1):
            name = f"assistant-{number}"
            needs = tuple(dict.fromkeys(("data", "teacher", "augment", above)))
            needs += ("teacher-logits",) if number > 1 else ()
            work = partial(stages.assistant_stage, job=job, budget=budget, stage=name, shape=shape, above=above)
            add(name, {**distil, "shape": str(shape)}, needs, work, f"{shape}, distilled from {above}", 2)
            above = name
            if number == 1:
                logits_needs = ("data", "teacher", "augment")
                add("teacher-logits", precision, logits_needs, lambda c: stages.teacher_logits_stage(c, job), "")
    student_settings = settings.student.model_dump(mode="json")
    start_inputs = {**student_settings, **seed, **precision, "mapping": settings.distill.mapping, "way": job.way}
    start_inputs["other"] = job.start.sha256 if job.start else None
    start = "start"
    add(
        "start",
        start_inputs,
        tuple(dict.fromkeys(("data", "teacher", above))),
        lambda context: stages.start_stage(context, job, above),
        f"{job.shape}, {job.way}",
    )
    if job.texts:
        general = settings.general.model_dump(mode="json", exclude={"texts"})
        texts = [source.sha256 for source in job.texts]
        start = "general"
        add(
            "general",
            {**general, **distil, **teacher_source, "texts": texts},
            ("data", "teacher", "start"),
            lambda context: general_stage(context, job, budget),
            "distillation on plain text",
            3,
        )
    needs = tuple(dict.fromkeys(("data", "teacher", "augment", above, start)))
    needs += ("teacher-logits",) if job.assistants else ()
    add(
        "student",
        distil,
        needs,
        partial(
            stages.student_stage,
            job=job,
            budget=budget,
            stage="student",
            start=start,
            above=above,
            phases=job.recipe.phases,
        ),
        f"{job.shape} from {above}, {job.recipe.name}",
        4,
    )
    models = {"teacher": "teacher", "student": "student"}
    if settings.evaluate.hard_labels:
        models["hard_labels"] = "hard-labels"
        add(
            "hard-labels",
            distil,
            ("data", "teacher", "augment", start, "student"),
            lambda context: tuning.hard_labels_stage(context, job, budget, start=start, student="student"),
            "the same student without a teacher",
        )
    if job.baseline is not None:
        models["small_pretrained"] = "small-baseline"
        add(
            "small-baseline",
            {**teacher_settings, **trained, **precision, "model": job.baseline.sha256},
            ("data", "teacher"),
            lambda context: tuning.small_baseline_stage(context, job, budget),
            f"{job.baseline.name}, fine-tuned",
            1,
        )
    add("tfidf", {"tfidf": settings.evaluate.tfidf}, ("data",), lambda c: tfidf_stage(c, job), "TF-IDF baseline")
    export = {"formats": list(settings.export.formats), **seed}
    export_needs = ("data", "teacher", "student")
    add("export", export, export_needs, lambda c: export_stage(c, job), ", ".join(settings.export.formats))
    add("latency", seed, (*export_needs, "export"), lambda c: latency_stage(c, job), "teacher and student by turns")
    add(
        "score",
        {"models": models},
        tuple(dict.fromkeys(("data", *models.values()))),
        lambda context: score_stage(context, job, models),
        "every model on dev and test",
    )
    return made


def _check(context: Context, job: Job) -> None:
    write_json(context.folder / "dev.json", dev_check(context, job))


def _require_teacher(job: Job, run: Run) -> None:
    """Stop where the teacher's lower bound is not 2 points above the majority class."""
    dev = read_json(run.done["teacher-check"] / "dev.json")
    examples = read_split(run.done["data"], "dev")
    assert examples is not None
    score = Metric(**dev["accuracy"])
    if beats_majority(score, examples.labels):
        run.report.note(
            f"the teacher: {100 * score.value:.1f} % on dev, majority {100 * majority_share(examples.labels):.1f} %"
        )
        return
    reason = (
        f"the teacher scores {100 * score.value:.1f} % on dev (at least {100 * score.low:.1f} % with 95 % confidence), "
        f"the majority class {100 * majority_share(examples.labels):.1f} %"
    )
    fix = (
        "this usually means labels in another order than the teacher's, an encoder that was not fine-tuned, too few "
        "dev rows to tell, or a label that the text does not decide: look at report.html"
    )
    made = refused_report(job, run.done, run.seconds, threads(job), dev, reason)
    publish(made, None, run.out)
    raise GateRefused(reason, expected="2 points more, lower bound against majority", fix=fix)


def _remove_halves(out: Path) -> None:
    """Remove what a process that was killed while it wrote a result left; the lock is held."""
    for half in (*(out / "stages").glob(".*.tmp-*"), *out.glob(".student.tmp-*")):
        shutil.rmtree(half, ignore_errors=True)


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Progress and warnings are Potstill's to show; others' bars and notices would stand in between."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    logging.getLogger("nncf").setLevel(logging.ERROR)
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)

"""Which stages a job has, in which order, and what the result of each depends on."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from potstill.models.loading import read_config
from potstill.models.student import Shape
from potstill.pipeline.answers import other_logits_stage, teacher_logits_stage
from potstill.pipeline.assistants import TEACHER_LOGITS, assistant_phases
from potstill.pipeline.augment_stages import (
    CANDIDATES,
    CONDITIONAL,
    augment_stage,
    candidates_stage,
    conditional_stage,
)
from potstill.pipeline.budget import Budget
from potstill.pipeline.distil_stages import assistant_stage, student_stage
from potstill.pipeline.findings import ScoresFile
from potstill.pipeline.general import general_stage
from potstill.pipeline.inputs import threads
from potstill.pipeline.job import Job, teacher_name
from potstill.pipeline.judge import export_stage, latency_stage, score_stage, teacher_check_stage, tfidf_stage
from potstill.pipeline.prepare import split_data
from potstill.pipeline.run import Context, Stage
from potstill.pipeline.scored_stages import base_stage, scored_data
from potstill.pipeline.starts import start_stage
from potstill.pipeline.tune_stages import hard_labels_stage, small_baseline_stage, teacher_stage
from potstill.pipeline.vocabulary import STAGE, vocabulary_stage
from potstill.recipes import Phase

__all__ = ["build_stages", "student_stages"]

NOT_OF_TUNING = {"source", "more", "shares", "states", "scores", "scores_form", "cache", "cache_gb"}
"""Settings of teachers on which the training of one does not depend."""


def build_stages(job: Job, budget: Budget) -> list[Stage]:
    """The stages of a job, in order."""
    stages = _Stages(job, budget)
    start = stages.add_distillation()
    named = map(teacher_name, range(1, 1 + len(job.teachers))) if job.scores is None else ()
    models = {**{name: name for name in named}, "student": "student", **stages.add_baselines(start)}
    stages.add_measures(models)
    return stages.made


def student_stages(job: Job, budget: Budget) -> list[Stage]:
    """The stages of a job up to its student and the student's scores, in order: no baseline, no export."""
    stages = _Stages(job, budget)
    stages.add_distillation()
    stages.add_score({"student": "student"})
    return stages.made


class _Stages:
    """Collects stages; what several of them depend on is written once, here.

    Attributes:
        made: In order.
        seeded: Everything random.
        trained: Every training.
        distilled: Every distillation.
        cached: Every distillation whose teacher may be cached.
        precision: How models are held.
        cut: The stage that cuts the vocabulary, where there is one.
        answers: The stages with the answers of further teachers.
        root: The stage whose model the student is made from: the teacher's, or that of the base where scores teach.
    """

    def __init__(self, job: Job, budget: Budget) -> None:
        self.job, self.budget, self.settings = job, budget, job.settings
        self.made: list[Stage] = []
        self.seeded: dict[str, Any] = {"seed": job.settings.run.seed, "threads": threads(job.settings.run)}
        self.trained = {**self.seeded, "budget": job.settings.run.budget}
        self.distilled = {**job.settings.distill.model_dump(mode="json"), **self.trained}
        if job.more:
            self.distilled["shares"] = list(job.teacher_shares)
        self.answers: tuple[str, ...] = ()
        self.cached = {"cache": job.settings.teacher.cache}
        self.cut: tuple[str, ...] = ()
        self.root = "teacher" if job.scores is None else "base"
        self.precision = {"precision": job.settings.distill.precision}

    def add(
        self,
        name: str,
        work: Callable[[Context], None],
        *,
        depends: Mapping[str, Any],
        needs: tuple[str, ...],
        detail: str,
        share: float = 0.0,
    ) -> None:
        """One stage more; a name may stand in `needs` twice."""
        self.made.append(Stage(name, depends, tuple(dict.fromkeys(needs)), work, detail, share))

    def add_distillation(self) -> str:
        """From the data to the student; returns the stage that has the model it starts from."""
        if self.job.scores is None:
            self.add_teacher()
        else:
            self.add_scores(self.job.scores)
        self.add_texts()
        self.add_answers()
        above = self.add_assistants()
        start = self.add_start(above)
        self.add_student(above, start)
        return start

    def add_teacher(self) -> None:
        """The data, the teacher, and whether it is worth distilling."""
        job, settings = self.job, self.settings
        self.add_data(split_data, {})
        tuned = settings.teacher.model_dump(mode="json", exclude=NOT_OF_TUNING)
        length = {"max_length": settings.data.max_length}
        for number, source in enumerate(job.teachers, 1):
            name = teacher_name(number)
            self.add(
                name,
                partial(teacher_stage, job=job, budget=self.budget, number=number),
                depends={**tuned, "model": source.sha256, **self.trained, **length, **self.precision},
                needs=("data",),
                detail=f"{source.name}, {Shape.of(read_config(source.paths[0]))}",
                share=3,
            )
            self.add(
                f"{name}-check",
                partial(teacher_check_stage, job=job, stage=name),
                depends={"resamples": settings.evaluate.resamples},
                needs=("data", name),
                detail="is the teacher worth distilling?",
            )

    def add_answers(self) -> None:
        """What the teachers beside the first say of the texts that are distilled on."""
        taught = (*self.job.recipe.phases, *assistant_phases(self.job.recipe))
        if not any(term.reads == "logits" and term.weight for phase in taught for term in phase.terms):
            return
        phases = {"augmented": sorted({phase.augmented for phase in self.job.recipe.phases})}
        for number in range(2, 1 + len(self.job.teachers)):
            name = teacher_name(number)
            self.answers += (f"{name}-logits",)
            self.add(
                f"{name}-logits",
                partial(other_logits_stage, job=self.job, stage=name),
                depends={**self.precision, **phases},
                needs=("data", name, "augment"),
                detail="its answers, to be averaged with the others'",
            )

    def add_data(self, work: Callable[..., None], depends: Mapping[str, Any]) -> None:
        """The splits."""
        job, settings = self.job, self.settings
        cut = settings.data.model_dump(mode="json", exclude={"train", "dev", "test", "unlabelled", "max_length"})
        inputs = {role: source.sha256 for role, source in job.data.items()}
        unlabelled = [source.sha256 for source in job.unlabelled]
        self.add(
            "data",
            partial(work, job=job),
            depends={**cut, "columns": vars(job.columns), "inputs": inputs, "unlabelled": unlabelled, **depends},
            needs=(),
            detail="reading, checking and splitting",
        )

    def add_scores(self, scores: ScoresFile) -> None:
        """The data with the scores that teach, and the model that the student is made from."""
        job = self.job
        form = self.settings.teacher.scores_form
        self.add_data(scored_data, {"scores": scores.source.sha256, "form": form})
        self.add(
            "base",
            partial(base_stage, job=job),
            depends={"model": job.teacher.sha256, "max_length": self.settings.data.max_length, **self.seeded},
            needs=("data",),
            detail=f"{job.teacher.name}, {Shape.of(job.config)}: what the student is made from",
        )

    def add_texts(self) -> None:
        """The texts that are distilled on."""
        job = self.job
        self.add_augmenting()
        if self.settings.student.vocabulary != "full":
            self.cut = (STAGE,)
            self.add(
                STAGE,
                partial(vocabulary_stage, job=job),
                depends={"vocabulary": self.settings.student.vocabulary, "model": (job.start or job.teacher).sha256},
                needs=("data", "augment"),
                detail="the pieces of words that the student keeps",
            )

    def add_augmenting(self) -> None:
        """The masked LM that reads labels, the candidates, and the new texts, where the methods ask for them."""
        job, augment, chosen = self.job, self.settings.augment, self.job.augmenting
        proposing = {"methods": list(chosen.proposing), "files": job.files, "candidates": augment.candidates}
        model = {"model": chosen.model and chosen.model.sha256}
        needs: tuple[str, ...] = ("data",)
        if chosen.conditional:
            self.add(
                CONDITIONAL,
                partial(conditional_stage, job=job, budget=self.budget),
                depends={**model, **self.trained, **self.precision, "epochs": augment.epochs},
                needs=needs,
                detail="the masked LM learns to read labels",
                share=1,
            )
            needs = (*needs, CONDITIONAL)
        if chosen.proposing:
            self.add(
                CANDIDATES,
                partial(candidates_stage, job=job),
                depends={**proposing, **model, **self.precision},
                needs=needs,
                detail=f"words that {chosen.model_name} proposes",
            )
            needs = (*needs, CANDIDATES)
        drawn = augment.model_dump(mode="json", exclude={"method", "model", "copies", "epochs"})
        self.add(
            "augment",
            partial(augment_stage, job=job),
            depends={
                **drawn,
                "methods": list(chosen.methods),
                "copies": chosen.copies,
                "files": job.files,
                "seed": self.settings.run.seed,
                "model": job.teacher.sha256,
            },
            needs=needs,
            detail=", ".join(chosen.methods) or "none",
        )

    def add_assistants(self) -> str:
        """The chain from teacher to student; returns the stage whose model teaches the student."""
        above, learned = self.root, _taught(assistant_phases(self.job.recipe))
        if self.job.assistants:
            self.add(
                TEACHER_LOGITS,
                partial(teacher_logits_stage, job=self.job),
                depends={**self.precision, "whole": bool(self.job.more)},
                needs=("data", "teacher", "augment"),
                detail="its answers, for every model below it",
            )
        for number, shape in enumerate(self.job.assistants, 1):
            name = f"assistant-{number}"
            self.add(
                name,
                partial(assistant_stage, job=self.job, budget=self.budget, stage=name, shape=shape, above=above),
                depends={**self.distilled, **self.cached, "shape": str(shape), "terms": learned},
                needs=("data", "teacher", "augment", above, TEACHER_LOGITS, *self.answers),
                detail=f"{shape}, distilled from {above}",
                share=2,
            )
            above = name
        return above

    def add_start(self, above: str) -> str:
        """Where the student starts; returns the stage that has its model."""
        job, settings = self.job, self.settings
        way: dict[str, Any] = {"way": job.way, "other": job.start.sha256 if job.start else None}
        way |= {"mapping": settings.distill.mapping, "layers": job.start_layers}
        length = {"max_length": settings.data.max_length} if job.side.joined else {}
        self.add(
            "start",
            partial(start_stage, job=job, above=above),
            depends={**settings.student.model_dump(mode="json"), **self.seeded, **self.precision, **way, **length},
            needs=("data", self.root, above, *self.cut),
            detail=f"{job.shape}, {job.way}",
        )
        if not job.texts:
            return "start"
        general = settings.general.model_dump(mode="json", exclude={"texts"})
        texts = {"texts": [source.sha256 for source in job.texts], "model": job.teacher.sha256}
        # Weights, epochs and the like are the task's.
        read = settings.distill.model_dump(mode="json", include={"mode", "mapping", "projection", "precision"})
        self.add(
            "general",
            partial(general_stage, job=job, budget=self.budget),
            depends={**general, **read, **self.trained, **texts},
            needs=("data", "teacher", "start", *self.cut),
            detail="distillation on plain text",
            share=3,
        )
        return "general"

    def add_student(self, above: str, start: str) -> None:
        """The student's own distillation."""
        job = self.job
        logits = (TEACHER_LOGITS,) if job.assistants else ()
        states = {"states": job.settings.teacher.states} if job.more else {}
        others = tuple(teacher_name(number) for number in range(2, 2 + len(job.more)))
        self.add(
            "student",
            partial(
                student_stage,
                job=job,
                budget=self.budget,
                stage="student",
                start=start,
                above=above,
                phases=job.recipe.phases,
                layers=job.layers,
            ),
            depends={**self.distilled, **self.cached, **states},
            needs=("data", self.root, *others, "augment", above, start, *logits, *self.answers, *self.cut),
            detail=f"{job.shape} from {above if job.scores is None else job.scores.source.name}, {job.recipe.name}",
            share=4,
        )

    def add_baselines(self, start: str) -> dict[str, str]:
        """What the student is measured against; returns the models among it, role → stage."""
        job, evaluate = self.job, self.settings.evaluate
        models = {}
        # Where the task is learned from labels alone, what the teacher gave is the start.
        taught = job.recipe.teaches_the_task
        if evaluate.hard_labels and job.labelled and (taught or start != "start"):
            models["hard_labels"] = "hard-labels"
            start = start if taught else "start"
            self.add(
                "hard-labels",
                partial(hard_labels_stage, job=job, budget=self.budget, start=start, student="student"),
                depends=self.distilled,
                needs=("data", self.root, "augment", start, "student"),
                detail="the same student without a teacher",
            )
        if job.baseline is not None:
            models["small_pretrained"] = "small-baseline"
            tuned = self.settings.teacher.model_dump(mode="json", exclude=NOT_OF_TUNING)
            self.add(
                "small-baseline",
                partial(small_baseline_stage, job=job, budget=self.budget),
                depends={**tuned, **self.trained, **self.precision, "model": job.baseline.sha256},
                needs=("data", self.root),
                detail=f"{job.baseline.name}, fine-tuned",
                share=1,
            )
        self.add(
            "tfidf",
            partial(tfidf_stage, job=job),
            depends={"tfidf": evaluate.tfidf},
            needs=("data",),
            detail="TF-IDF baseline",
        )
        return models

    def add_measures(self, models: dict[str, str]) -> None:
        """Exports, latency, and scores."""
        job, formats = self.job, self.settings.export.formats
        self.add(
            "export",
            partial(export_stage, job=job),
            depends={"formats": list(formats), **self.seeded},
            needs=("data", self.root, "student"),
            detail=", ".join(formats),
        )
        self.add(
            "latency",
            partial(latency_stage, job=job),
            depends=self.seeded,
            needs=("data", self.root, "student", "export"),
            detail="teacher and student by turns" if job.scores is None else "student",
        )
        self.add_score(models)

    def add_score(self, models: dict[str, str]) -> None:
        """The one look at the test split."""
        self.add(
            "score",
            partial(score_stage, job=self.job, models=models),
            depends={"models": models},
            needs=("data", *models.values()),
            detail="every model on dev and test",
        )


def _taught(phases: Sequence[Phase]) -> list[list[str]]:
    """The terms of each phase, without those that two sides cannot compare."""
    return [[term.name for term in phase.terms if term.weight] for phase in phases]

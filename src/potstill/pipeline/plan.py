"""What a run would do: stages, sizes, time, disk, without doing any of it."""

from pathlib import Path
from typing import Any

from potstill.config import Settings
from potstill.evaluation.cost import encoder_parameters
from potstill.models.student import Shape, student_config
from potstill.pipeline.budget import Budget
from potstill.pipeline.distill import MODEL_COPIES, build_stages
from potstill.pipeline.job import prepare_job
from potstill.pipeline.run import Run
from potstill.progress import SILENT

__all__ = ["plan"]

_FLOPS = 4e11
"""Multiply-adds × 2 a second that trainings reach on two cores with AMX; only for this estimate."""


def plan(settings: Settings) -> dict[str, Any]:
    """Resolve the sources and say what `distill` would do.

    Returns:
        `stages` (`name`, `detail`, `seconds` or None, `done`), `seconds`, `disk_bytes`, `out`, `notes`.

    Raises:
        InputError: As `distill` would.
    """
    job = prepare_job(settings, SILENT)
    out = Path(settings.run.out)
    run = Run(out, SILENT)
    stages = []
    for stage in build_stages(job, Budget(None, 0.0, lambda: 0.0, {})):
        run.keys[stage.name] = run.key(stage)
        stages.append({"name": stage.name, "detail": stage.detail, "seconds": None, "done": run.is_done(stage)})
    size = (job.teacher.paths[0] / "model.safetensors").stat().st_size
    teacher = encoder_parameters(job.config.to_dict())
    student = encoder_parameters(student_config(job.config, job.shape).to_dict())
    rows = sum(path.stat().st_size for source in job.data.values() for path in source.paths)
    notes = [
        f"teacher: {job.teacher.name}, {Shape.of(job.config)}, {teacher.total / 1e6:.1f} M parameters",
        f"student: {job.shape}, {student.total / 1e6:.1f} M parameters "
        f"({teacher.total / student.total:.1f} times smaller)",
        f"data: {rows / 1e6:.1f} MB",
        f"recipe: {job.recipe.name}: {', '.join(phase.name for phase in job.recipe.phases)}",
    ]
    budget = settings.run.budget
    return {
        "schema_version": 1,
        "stages": stages,
        "seconds": None if budget is None else budget * 60,
        "disk_bytes": MODEL_COPIES * size,
        "out": str(out),
        "notes": notes,
    }

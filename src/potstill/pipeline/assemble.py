"""report.json from what the stages left: one pure reading of files, no model is run."""

import importlib.metadata
import platform
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from potstill import __version__
from potstill.config import Settings
from potstill.data.examples import Examples
from potstill.evaluation.cost import parameter_counts
from potstill.evaluation.evaluate import probabilities
from potstill.evaluation.latency import speedup_shares
from potstill.export import judge
from potstill.metrics import (
    Metric,
    confusion_matrix,
    disagreement,
    gap_closed,
    paired_retention,
)
from potstill.models.loading import read_config
from potstill.models.student import Shape
from potstill.pipeline.inputs import model_facts
from potstill.pipeline.job import Job, teacher_name
from potstill.pipeline.prepare import source_rows
from potstill.pipeline.results import read_split, task_facts
from potstill.pipeline.scores_report import scores_block, start_in_words
from potstill.pipeline.vocabulary import vocabulary_facts
from potstill.storage import read_json
from potstill.tasks import Classification

__all__ = ["assemble", "environment", "refused_report"]

SHOWN = 50


def environment(threads: int) -> dict[str, Any]:
    """What the results depend on beside the code: versions, processor, threads."""
    capabilities = torch.cpu.get_capabilities()
    wanted = ("amx_bf16", "amx_int8", "avx512_bf16", "avx512_vnni", "avx2")
    names = ("torch", "transformers", "tokenizers", "numpy", "onnxruntime", "openvino", "nncf", "scikit-learn")
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": versions["transformers"],
        "cpu": str(capabilities.get("cpu_name", platform.processor())),
        "cpu_flags": [flag for flag in wanted if capabilities.get(flag)],
        "threads": threads,
        "platform": platform.platform(),
        "versions": versions,
    }


class _Scores:
    """Scores of predictions on the splits of a run."""

    def __init__(self, job: Job, done: Mapping[str, Path]) -> None:
        self.labels = tuple(task_facts(done["data"])["labels"])
        splits = {name: read_split(done["data"], name) for name in ("dev", "test")}
        self.splits: dict[str, Examples] = {name: split for name, split in splits.items() if split is not None}
        self.judged = "test" if "test" in self.splits else "dev"
        self.resamples, self.seed = job.settings.evaluate.resamples, job.settings.run.seed

    @property
    def gold(self) -> np.ndarray:
        return self.splits[self.judged].labels

    def metrics(self, predictions: np.ndarray, split: str) -> dict[str, Any]:
        return self.measured(self.splits[split].labels, predictions)

    def measured(self, gold: np.ndarray, predictions: np.ndarray) -> dict[str, Any]:
        """Each metric of predictions against labels, as the report holds it."""
        found = Classification(self.labels).metrics(gold, predictions, resamples=self.resamples, seed=self.seed)
        return {name: metric.as_dict() for name, metric in found.items()}

    def block(self, predictions: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """`score`, `metrics`, `dev` and `confusion` of a model's predictions by split."""
        judged = self.metrics(predictions[self.judged], self.judged)
        return {
            "score": judged["accuracy"],
            "metrics": judged,
            "dev": self.metrics(predictions["dev"], "dev"),
            "confusion": confusion_matrix(self.gold, predictions[self.judged], len(self.labels)).tolist(),
        }


def _by_split(arrays: Mapping[str, np.ndarray], role: str) -> dict[str, np.ndarray]:
    prefix = f"{role}/"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _predictions(arrays: Mapping[str, np.ndarray], role: str) -> dict[str, np.ndarray]:
    return {split: logits.argmax(axis=1) for split, logits in _by_split(arrays, role).items()}


def _model_block(folder: Path) -> dict[str, Any]:
    config, counts = read_config(folder), parameter_counts(folder)
    return {
        "shape": str(Shape.of(config)),
        "model_type": config.model_type,
        "parameters": counts.total,
        "parameters_embedding": counts.embedding,
        "bytes": (folder / "model.safetensors").stat().st_size,
    }


def _origin(job: Job, role: str) -> dict[str, Any]:
    numbered = {teacher_name(number): source for number, source in enumerate(job.teachers, 1)}
    source = numbered.get(role, job.start)
    if source is None:
        return {"source": "made by this run", "licence": job.teacher.licence}
    facts = model_facts(source)
    return {"source": facts["source"], "licence": facts["licence"], "origin": facts["origin"]}


def _base(job: Job, done: Mapping[str, Path], seconds: Mapping[str, float], threads: int) -> dict[str, Any]:
    facts = task_facts(done["data"])
    settings = job.settings.model_dump(mode="json")
    role = "teacher" if job.scores is None else "start"
    teachers = [{**model_facts(source), "role": role} for source in job.teachers]
    data = {**facts["facts"], "augmented": 0, "truncated": {}, "windowed": {}}
    # From the job, not from the data stage: plain texts are no input of that stage, and may have changed since.
    data["sources"] = [*source_rows(job), *teachers]
    if "augment" in done:
        data["augmented"] = read_json(done["augment"] / "facts.json")["made"]
    return {
        "schema_version": 1,
        "potstill": __version__,
        "name": job.settings.run.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "status": "complete",
        "conclusion": "",
        "task": {
            "kind": "classification",
            "labels": facts["labels"],
            "primary_metric": "accuracy",
            "pair": job.columns.pair is not None,
        },
        "data": data,
        "judged_on": "test" if data.get("test") else "dev",
        "seconds": {**seconds, "total": round(sum(seconds.values()), 3)},
        "environment": environment(threads),
        "command": _command(job.settings),
        "settings": settings,
    }


def _command(settings: Settings) -> str:
    return "potstill " + shlex.join(sys.argv[1:]) if Path(sys.argv[0]).name == "potstill" else "potstill.distill"


def refused_report(
    job: Job,
    done: Mapping[str, Path],
    seconds: Mapping[str, float],
    threads: int,
    dev: Mapping[str, Any],
    reason: str,
    name: str = "teacher",
) -> dict[str, Any]:
    """The report of a run that stopped at a teacher, `name` of several."""
    report = _base(job, done, seconds, threads)
    folder = done[name] / "model"
    teacher = {**_model_block(folder), **_origin(job, name), "score": dev["accuracy"], "metrics": dev, "dev": dev}
    report |= {"status": "refused", "refused_because": reason, "judged_on": "dev", "teacher": teacher}
    return report


def assemble(job: Job, done: Mapping[str, Path], seconds: Mapping[str, float], threads: int) -> dict[str, Any]:
    """The report of a finished run, in the shape of `potstill.report.schema`; writing it fills `conclusion`."""
    scores = _Scores(job, done)
    logits = load_file(done["score"] / "logits.safetensors")
    predicted = {role: _predictions(logits, role) for role in dict.fromkeys(name.split("/")[0] for name in logits)}
    report = _base(job, done, seconds, threads)
    report["data"] |= read_json(done["score"] / "counts.json")
    if job.scores is not None:
        report["teacher"], answers = scores_block(job.scores, done["data"], scores)
        logits |= {f"teacher/{split}": array for split, array in answers.items()}
        predicted = {**predicted, "teacher": _predictions(logits, "teacher")} if answers else predicted
    for role in ("teacher", "student") if job.scores is None else ("student",):
        folder = done[role] / "model"
        report[role] = {**_model_block(folder), **_origin(job, role), **scores.block(predicted[role])}
    report["student"] |= {"start": start_in_words(job), "vocabulary": vocabulary_facts(done)}
    if job.more:
        report["teachers"] = _teachers(job, done, scores, logits)
    compared = scores.judged in predicted.get("teacher", {})
    if compared:
        report |= _compared(scores, predicted)
    if job.scores is None:
        report["size_ratio"] = report["teacher"]["parameters"] / report["student"]["parameters"]
    report["baselines"] = _baselines(job, done, scores, predicted)
    report |= _exports(job, done, scores, report["student"]["dev"]["accuracy"]["value"])
    report |= _curves(job, done)
    if compared:
        report |= _disagreements(scores, logits)
    return report


def _teachers(job: Job, done: Mapping[str, Path], scores: _Scores, logits: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The further teachers, how much each counts, and what all of them answer together."""
    names = [teacher_name(number) for number in range(1, 1 + len(job.teachers))]
    shares = [share / sum(job.teacher_shares) for share in job.teacher_shares]
    rows = []
    for name in names[1:]:
        block = scores.block(_predictions(logits, name))
        rows.append({**_model_block(done[name] / "model"), **_origin(job, name), **block})
    together = {}
    for split in scores.splits:
        answers = np.stack([probabilities(logits[f"{name}/{split}"]) for name in names])
        together[split] = np.einsum("k,knc->nc", np.array(shares), answers).argmax(axis=1)
    return {"shares": shares, "more": rows, "together": scores.block(together)}


def _compared(scores: _Scores, predicted: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Any]:
    def dump(metric: Metric | None) -> dict[str, float] | None:
        return None if metric is None else {"value": metric.value, "low": metric.low, "high": metric.high}

    student, teacher = (predicted[role][scores.judged] for role in ("student", "teacher"))
    options: dict[str, int] = {"resamples": scores.resamples, "seed": scores.seed}
    kept = paired_retention(scores.gold, student, teacher, **options)  # type: ignore[arg-type]
    gap = None
    if "hard_labels" in predicted:
        hard = predicted["hard_labels"][scores.judged]
        gap = gap_closed(scores.gold, student, teacher, hard, **options)  # type: ignore[arg-type]
    return {"retention": dump(kept), "gap_closed": dump(gap)}


def _baselines(
    job: Job, done: Mapping[str, Path], scores: _Scores, predicted: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, Any]:
    simple = load_file(done["tfidf"] / "predictions.safetensors")
    found: dict[str, Any] = {}
    if "hard_labels" in predicted:
        block = scores.block(predicted["hard_labels"])
        counted = {"parameters": parameter_counts(done["hard-labels"] / "model").total}
        found["hard_labels"] = {
            **block,
            **counted,
            "description": "The same student, from the same start, on the same data and steps, taught by labels alone.",
        }
    if "small_pretrained" in predicted:
        assert job.baseline is not None
        folder = done["small-baseline"] / "model"
        found["small_pretrained"] = {
            **scores.block(predicted["small_pretrained"]),
            "parameters": parameter_counts(folder).total,
            "description": "fine-tuned on the labels, without a teacher"
            if job.labelled
            else "fine-tuned on the teacher's answers as labels",
            "source": job.baseline.name,
        }
    if any(name.startswith("tfidf/") for name in simple):
        facts = read_json(done["tfidf"] / "facts.json")
        found["tfidf_logistic"] = {
            **scores.block(_by_split(simple, "tfidf")),
            "parameters": facts["parameters"],
            "description": facts["description"] + ("" if job.labelled else ", fitted to the teacher's answers"),
        }
    found["majority"] = {"score": scores.block(_by_split(simple, "majority"))["score"]}
    return found


def _exports(job: Job, done: Mapping[str, Path], scores: _Scores, base: float) -> dict[str, Any]:
    """Exports and latency; an export is accepted where its dev score is near `base`, the student's in torch float32."""
    rows = read_json(done["export"] / "exports.json")["exports"]
    arrays, latency = load_file(done["export"] / "logits.safetensors"), read_json(done["latency"] / "latency.json")
    on_dev = {name: cells["dev"] for name, cells in latency["ms"].items()}
    exports = []
    for row in rows:
        name = f"{row['format']}-{row['precision']}"
        shares = {}
        if job.scores is None:
            shares = speedup_shares(
                on_dev, reference="teacher/torch-float32", teacher=f"teacher/{name}", student=f"student/{name}"
            )
        predictions = _predictions(arrays, name)
        on_dev_score = scores.metrics(predictions["dev"], "dev")["accuracy"]
        accepted, reason = judge(on_dev_score["value"], base, tolerance=job.settings.export.tolerance)
        cells = latency["ms"][f"student/{name}"]
        exports.append(
            {
                **row,
                "score": on_dev_score,
                "accepted": accepted,
                "reason": reason,
                "test_score": scores.metrics(predictions["test"], "test")["accuracy"]
                if "test" in predictions
                else None,
                "latency_ms": on_dev[f"student/{name}"],
                "latency_by_length": {length: value for length, value in cells.items() if length != "dev"},
                **shares,
            }
        )
    passed = [export for export in exports if export["accepted"]]
    # The one whose smaller speed-up, of one text or of 32 at a time, is largest: fast in both kinds of use.
    whole = on_dev["student/torch-float32" if job.scores else "teacher/torch-float32"]
    best = max(passed, key=lambda e: min(whole[b]["p50"] / t["p50"] for b, t in e["latency_ms"].items()), default=None)
    prefix = "teacher/"
    return {
        "exports": exports,
        "best_export": None if best is None else {"format": best["format"], "precision": best["precision"]},
        "teacher_latency_ms": {n.removeprefix(prefix): on_dev[n] for n in on_dev if n.startswith(prefix)},
        "tokenisation_ms": latency["tokenisation_ms"],
        "latency_facts": {
            "threads": latency["threads"],
            "lengths": latency["lengths"],
            "repeats": latency["repeats"],
        },
    }


def _curves(job: Job, done: Mapping[str, Path]) -> dict[str, Any]:
    curves: dict[str, Any] = {}
    stages: list[dict[str, Any]] = []
    for stage, folder in done.items():
        if not (folder / "training.json").is_file():
            continue
        for phase, facts in read_json(folder / "training.json").items():
            name = stage if phase in ("fine-tuning", "distil", stage) else f"{stage}: {phase}"
            curves[name] = facts["curve"]
            kept = ("epochs", "steps", "planned", "batch_size", "learning_rate", "terms")
            stages.append({"name": name, **{key: facts[key] for key in kept}})
    recipe = {
        "name": job.recipe.name,
        "mode": job.settings.distill.mode,
        "mapping": job.settings.distill.mapping,
        "stages": stages,
        "notes": list(job.notes),
    }
    return {"curves": curves, "recipe": recipe}


def _disagreements(scores: _Scores, logits: Mapping[str, np.ndarray]) -> dict[str, Any]:
    examples = scores.splits[scores.judged]
    teacher, student = (probabilities(logits[f"{role}/{scores.judged}"]) for role in ("teacher", "student"))
    found = disagreement(scores.gold, teacher, student)
    rows = []
    for row in found.differing[:SHOWN]:
        rows.append(
            {
                "text": examples.texts[row],
                "pair": None if examples.pairs is None else examples.pairs[row],
                "gold": scores.labels[scores.gold[row]],
                "teacher": scores.labels[int(teacher[row].argmax())],
                "student": scores.labels[int(student[row].argmax())],
                "teacher_p": float(teacher[row].max()),
                "student_p": float(student[row].max()),
            }
        )
    return {"disagreements": rows, "student_errors": found.counts()}

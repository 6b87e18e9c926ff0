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
from potstill.evaluation.baselines import TFIDF
from potstill.evaluation.cost import parameter_counts
from potstill.evaluation.latency import speedup_shares
from potstill.export import judge
from potstill.metrics import Metric, Resampled
from potstill.models.loading import read_config
from potstill.models.student import Shape
from potstill.pipeline.inputs import model_facts
from potstill.pipeline.job import Job, teacher_name
from potstill.pipeline.prepare import source_rows
from potstill.pipeline.results import read_split, task_facts, task_in
from potstill.pipeline.scores_report import has_gold, scores_block, start_in_words
from potstill.pipeline.trust import Trust
from potstill.pipeline.vocabulary import vocabulary_facts
from potstill.storage import read_json
from potstill.tasks import Task

__all__ = ["assemble", "environment", "model_block", "refused_report"]

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
        self.task = task_in(done["data"])
        self.labels = self.task.labels
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
        """Each metric of predictions against gold answers, as the report holds it."""
        found = self.task.metrics(gold, predictions, resamples=self.resamples, seed=self.seed)
        return {name: metric.as_dict() for name, metric in found.items()}

    def predictions(self, arrays: Mapping[str, np.ndarray], role: str) -> dict[str, np.ndarray]:
        """A model's answers by split, from its logits among `arrays`."""
        return self.answers(self.fitted(arrays, role), arrays, role)

    def fitted(self, arrays: Mapping[str, np.ndarray], role: str) -> Task:
        """The task as fitted to a model on dev."""
        on_dev = arrays.get(f"{role}/dev")
        return self.task if on_dev is None else self.task.fitted(self.splits["dev"].labels, on_dev)

    @staticmethod
    def answers(task: Task, arrays: Mapping[str, np.ndarray], role: str) -> dict[str, np.ndarray]:
        """A model's answers by split under a task that may be fitted to another: an export's to the model in torch."""
        return {split: task.predictions(logits) for split, logits in _by_split(arrays, role).items()}

    def block(self, predictions: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """`score`, `metrics` and `dev` of a model's predictions by split, and `confusion`."""
        judged = self.metrics(predictions[self.judged], self.judged)
        return {
            "score": judged[self.task.primary_metric],
            "metrics": judged,
            "dev": self.metrics(predictions["dev"], "dev"),
            "confusion": self.task.confusion(self.gold, predictions[self.judged]),
        }


def _by_split(arrays: Mapping[str, np.ndarray], role: str) -> dict[str, np.ndarray]:
    prefix = f"{role}/"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def model_block(folder: Path) -> dict[str, Any]:
    """What a model in a folder is: shape, architecture, parameters, bytes."""
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
    facts, task = task_facts(done["data"]), task_in(done["data"])
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
            "kind": task.kind,
            "labels": list(task.labels),
            "primary_metric": task.primary_metric,
            "pair": task.pair,
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
    score = dev[report["task"]["primary_metric"]]
    teacher = {**model_block(folder), **_origin(job, name), "score": score, "metrics": dev, "dev": dev}
    report |= {"status": "refused", "refused_because": reason, "judged_on": "dev", "teacher": teacher}
    return report


def assemble(job: Job, done: Mapping[str, Path], seconds: Mapping[str, float], threads: int) -> dict[str, Any]:
    """The report of a finished run, in the shape of `potstill.report.schema`; writing it fills `conclusion`."""
    scores = _Scores(job, done)
    logits = load_file(done["score"] / "logits.safetensors")
    roles = dict.fromkeys(name.split("/")[0] for name in logits)
    predicted = {role: scores.predictions(logits, role) for role in roles}
    report = _base(job, done, seconds, threads)
    report["data"] |= read_json(done["score"] / "counts.json")
    if job.scores is not None:
        report["teacher"], answers = scores_block(job.scores, done["data"], scores)
        logits |= {f"teacher/{split}": array for split, array in answers.items()}
        predicted = {**predicted, "teacher": scores.predictions(logits, "teacher")} if answers else predicted
    for role in ("teacher", "student") if job.scores is None else ("student",):
        folder = done[role] / "model"
        report[role] = {**model_block(folder), **_origin(job, role), **scores.block(predicted[role])}
    fitted = scores.fitted(logits, "student")
    report["student"] |= {"start": start_in_words(job), "vocabulary": vocabulary_facts(done), **fitted.tuned}
    tempered = _trusted(job, scores, report, predicted, logits)
    if job.more:
        report["teachers"] = _teachers(job, done, scores, logits)
    compared = scores.judged in predicted.get("teacher", {})
    if compared:
        report |= _compared(scores, predicted)
    if job.scores is None:
        report["size_ratio"] = report["teacher"]["parameters"] / report["student"]["parameters"]
    report["baselines"] = _baselines(job, done, scores, predicted)
    report |= _exports(job, done, scores, fitted, report["student"]["dev"][scores.task.primary_metric]["value"])
    report |= _curves(job, done)
    if compared:
        report |= _disagreements(scores, tempered)
    return report


def _trusted(
    job: Job,
    scores: _Scores,
    report: dict[str, Any],
    predicted: Mapping[str, Mapping[str, np.ndarray]],
    logits: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Fill in how far teacher and student can be trusted; returns their logits over their temperatures."""
    known = job.scores is None or all(has_gold(job.scores, split) for split in scores.splits)
    trust = Trust(scores.task, scores.splits, scores.judged, known, scores.resamples, scores.seed)
    tempered: dict[str, np.ndarray] = {}
    for role in ("teacher", "student"):
        own = _by_split(logits, role)
        if own.keys() != scores.splits.keys():
            continue
        fitted = trust.temperature(own)
        report[role] |= trust.by_label(predicted[role]) | trust.calibration(own, fitted)
        if role == "student":
            report[role] |= trust.abstention(own, fitted)
        tempered |= {f"{role}/{split}": array / (fitted.value if fitted else 1.0) for split, array in own.items()}
    return tempered


def _teachers(job: Job, done: Mapping[str, Path], scores: _Scores, logits: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The further teachers, how much each counts, and what all of them answer together."""
    names = [teacher_name(number) for number in range(1, 1 + len(job.teachers))]
    shares = [share / sum(job.teacher_shares) for share in job.teacher_shares]
    rows = []
    for name in names[1:]:
        block = scores.block(scores.predictions(logits, name))
        rows.append({**model_block(done[name] / "model"), **_origin(job, name), **block})
    together = {}
    for split in scores.splits:
        answers = np.stack([logits[f"{name}/{split}"] for name in names])
        together[f"all/{split}"] = scores.task.together(answers, np.array(shares))
    return {"shares": shares, "more": rows, "together": scores.block(scores.predictions(together, "all"))}


def _compared(scores: _Scores, predicted: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Any]:
    def dump(metric: Metric | None) -> dict[str, float] | None:
        return None if metric is None else {"value": metric.value, "low": metric.low, "high": metric.high}

    def resampled(*roles: str) -> Resampled:
        answers = [predicted[role][scores.judged] for role in roles]
        return scores.task.resampled(scores.gold, answers, resamples=scores.resamples, seed=scores.seed)

    metric = scores.task.primary_metric
    kept = resampled("student", "teacher").retention(metric)
    gap = None
    if "hard_labels" in predicted:
        gap = resampled("student", "teacher", "hard_labels").gap_closed(metric)
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
            "description": "The same student, from the same start, on the same data and steps, taught by "
            f"{scores.task.gold_name} alone.",
        }
    if "small_pretrained" in predicted:
        assert job.baseline is not None
        folder = done["small-baseline"] / "model"
        found["small_pretrained"] = {
            **scores.block(predicted["small_pretrained"]),
            "parameters": parameter_counts(folder).total,
            "description": f"fine-tuned on the {scores.task.gold_name}, without a teacher"
            if job.labelled
            else "fine-tuned on the teacher's answers as labels",
            "source": job.baseline.name,
        }
    if any(name.startswith("tfidf/") for name in simple):
        facts = read_json(done["tfidf"] / "facts.json")
        found[TFIDF[scores.task.kind][0]] = {
            **scores.block(_by_split(simple, "tfidf")),
            "parameters": facts["parameters"],
            "description": facts["description"] + ("" if job.labelled else ", fitted to the teacher's answers"),
        }
    constant = scores.block(_by_split(simple, "constant"))
    found[scores.task.constant_name] = {"score": constant["score"], "metrics": constant["metrics"]}
    return found


def _exports(job: Job, done: Mapping[str, Path], scores: _Scores, task: Task, base: float) -> dict[str, Any]:
    """Exports and latency; an export is accepted where its dev score is near `base`, the student's in torch float32.

    `task` is fitted to the student in torch: so is what is deployed.
    """
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
        predictions = scores.answers(task, arrays, name)
        on_dev_score = scores.metrics(predictions["dev"], "dev")[scores.task.primary_metric]
        accepted, reason = judge(on_dev_score["value"], base, tolerance=job.settings.export.tolerance)
        cells = latency["ms"][f"student/{name}"]
        exports.append(
            {
                **row,
                "score": on_dev_score,
                "accepted": accepted,
                "reason": reason,
                "test_score": scores.metrics(predictions["test"], "test")[scores.task.primary_metric]
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
    teacher, student = (logits[f"{role}/{scores.judged}"] for role in ("teacher", "student"))
    theirs, own = (scores.fitted(logits, role) for role in ("teacher", "student"))
    differing, counts = own.disagreements(scores.gold, teacher, student, SHOWN, teacher_task=theirs)
    rows = []
    for facts in differing:
        row = facts.pop("row")
        pair = None if examples.pairs is None else examples.pairs[row]
        rows.append({"text": examples.texts[row], "pair": pair, **facts})
    return {"disagreements": rows, "student_errors": counts}

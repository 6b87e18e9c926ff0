"""Judging models: their scores through any engine, simple baselines beside them, and what they cost.

Knows engines, encodings and examples; trains nothing but the word-count baseline, and writes no file.
"""

from potstill.evaluation.baselines import TFIDF, TfidfResult, tfidf_logistic, tfidf_one_vs_rest, tfidf_ridge
from potstill.evaluation.cost import ParameterCounts, encoder_parameters, flops, flops_per_token, parameter_counts
from potstill.evaluation.evaluate import predict_logits, probabilities
from potstill.evaluation.latency import (
    Latency,
    measure_latency,
    measure_tokenisation,
    speedup_shares,
    speedups,
)
from potstill.evaluation.latency_inputs import latency_inputs, length_facts
from potstill.metrics import majority

__all__ = [
    "TFIDF",
    "Latency",
    "ParameterCounts",
    "TfidfResult",
    "encoder_parameters",
    "flops",
    "flops_per_token",
    "latency_inputs",
    "length_facts",
    "majority",
    "measure_latency",
    "measure_tokenisation",
    "parameter_counts",
    "predict_logits",
    "probabilities",
    "speedup_shares",
    "speedups",
    "tfidf_logistic",
    "tfidf_one_vs_rest",
    "tfidf_ridge",
]

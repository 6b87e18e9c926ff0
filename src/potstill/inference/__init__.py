"""From text to answer: a model's folder, an engine and a task. Nothing here imports torch by itself."""

from potstill.inference.deployment import Deployment, is_masked_lm, read_deployment
from potstill.inference.plain import plain_deployment
from potstill.inference.predictor import Prediction, Predictor

__all__ = ["Deployment", "Prediction", "Predictor", "is_masked_lm", "plain_deployment", "read_deployment"]

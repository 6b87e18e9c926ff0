"""One file a task: gold answers → head → loss → metrics → answer. Nothing here needs torch but the losses.

`task` says what a task is; `confidence` how sure an answer is; `windows` makes one answer of those of a long text's
windows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from potstill.errors import SettingsError
from potstill.tasks.classification import Classification, balanced_weights
from potstill.tasks.confidence import Confidence, SoftmaxConfidence
from potstill.tasks.multilabel import MultiLabel
from potstill.tasks.regression import Regression
from potstill.tasks.task import Loss, Task
from potstill.tasks.windows import mean_of_windows

__all__ = [
    "TASKS",
    "Classification",
    "Confidence",
    "Loss",
    "MultiLabel",
    "Regression",
    "SoftmaxConfidence",
    "Task",
    "balanced_weights",
    "make_task",
    "mean_of_windows",
]

TASKS: dict[str, Callable[[tuple[str, ...], bool], Task]] = {
    "classification": Classification,
    "regression": Regression,
    "multilabel": MultiLabel,
}
"""By the name in settings and in potstill.json."""


def make_task(
    kind: str, labels: Sequence[str] = (), *, pair: bool = False, class_weights: Sequence[float] = ()
) -> Task:
    """A task by its name; `class_weights` as in `Classification`.

    Raises:
        SettingsError: No such task.
    """
    if kind not in TASKS:
        raise SettingsError(f"the task {kind!r}", expected=" | ".join(TASKS))
    made = TASKS[kind](tuple(labels), pair)
    return replace(made, weights=tuple(class_weights)) if isinstance(made, Classification) else made

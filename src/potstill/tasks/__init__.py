"""One file a task: gold answers → head → loss → metrics → answer. Nothing here needs torch but the losses.

`task` says what a task is; `windows` makes one answer of those of a long text's windows.
"""

from collections.abc import Callable, Sequence

from potstill.errors import SettingsError
from potstill.tasks.classification import Classification
from potstill.tasks.regression import Regression
from potstill.tasks.task import Loss, Task
from potstill.tasks.windows import mean_of_windows

__all__ = ["TASKS", "Classification", "Loss", "Regression", "Task", "make_task", "mean_of_windows"]

TASKS: dict[str, Callable[[tuple[str, ...], bool], Task]] = {
    "classification": Classification,
    "regression": Regression,
}
"""By the name in settings and in potstill.json."""


def make_task(kind: str, labels: Sequence[str] = (), *, pair: bool = False) -> Task:
    """A task by its name.

    Raises:
        SettingsError: No such task.
    """
    if kind not in TASKS:
        raise SettingsError(f"the task {kind!r}", expected=" | ".join(TASKS))
    return TASKS[kind](tuple(labels), pair)

"""Ctrl-C and SIGTERM between two updates, never within one."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Stop", "deferred_interrupts"]


class Stop:
    """Whether the user asked to stop."""

    def __init__(self) -> None:
        self.requested = False


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[Stop]:
    """Within the block the first SIGINT or SIGTERM sets `Stop.requested`; the second interrupts at once.

    Outside the main thread, where Python lets no handler be set, signals are left as they are.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handler(_number: int, _frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    previous = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, old in previous.items():
            signal.signal(number, old)

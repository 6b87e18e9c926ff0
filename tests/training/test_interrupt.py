"""The first signal waits for the end of an update, the second does not; handlers are put back."""

import signal
import threading

import pytest

from potstill.training.interrupt import deferred_interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_is_kept_and_the_second_interrupts(number):
    before = [signal.getsignal(each) for each in SIGNALS]
    with deferred_interrupts() as stop:
        assert not stop.requested
        signal.raise_signal(number)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_handlers_are_put_back_after_an_error():
    before = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(ValueError, match="inside"), deferred_interrupts():
        raise ValueError("inside")
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_outside_the_main_thread_signals_are_left_alone():
    seen = []

    def work():
        with deferred_interrupts() as stop:
            seen.append((stop.requested, [signal.getsignal(each) for each in SIGNALS]))

    before = [signal.getsignal(each) for each in SIGNALS]
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, before)]

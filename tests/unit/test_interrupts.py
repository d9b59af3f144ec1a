"""Signals that end a command: while it runs they are raised, and afterwards the caller's handlers count."""

import os
import signal

import pytest

from ringleader.cli import interrupts


def test_a_signal_is_raised_and_the_handlers_of_before_are_put_back() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ours = signal.getsignal(signal.SIGTERM)
        with pytest.raises(interrupts.Interrupted) as stopped, interrupts.raised():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, "nohup"
            os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.number_of(stopped.value) == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is ours
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGHUP, hangup)

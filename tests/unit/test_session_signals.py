"""Signals to a session: which end the job, and when a second one ends what is left at once."""

import signal
from types import SimpleNamespace

import pytest

from ringleader.launch.supervision.session import SAME_SECONDS, Session

TERM, INT = signal.SIGTERM, signal.SIGINT


@pytest.mark.parametrize(
    ("second", "after", "hurries"),
    [
        ((TERM, TERM), 0.0, False),  # the same one, from Slurm and from its script
        ((TERM, TERM), SAME_SECONDS + 0.1, True),
        ((TERM, INT), 0.0, True),
        ((INT, INT), 0.0, True),
        ((INT, TERM), 0.0, True),
    ],
)
def test_a_second_signal_hurries_unless_it_is_the_first_again(second, after, hurries):
    now, done = [5.0], []
    session = SimpleNamespace(
        is_stopping=False,
        _asked_at=float("-inf"),
        clock=lambda: now[0],
        stop_for=lambda cause: done.append("stop"),
        flow=SimpleNamespace(hurry=lambda: done.append("hurry")),
        send_stop=lambda grace: done.append(grace),
    )
    Session.signal(session, second[0])
    session.is_stopping, now[0] = True, now[0] + after
    Session.signal(session, second[1])
    assert done == (["stop", "hurry", 0.0] if hurries else ["stop"])


def test_a_signal_to_a_job_that_ends_already_hurries():
    done = []
    session = SimpleNamespace(
        is_stopping=True,
        _asked_at=float("-inf"),
        clock=lambda: 5.0,
        flow=SimpleNamespace(hurry=lambda: done.append("hurry")),
        send_stop=lambda grace: done.append(grace),
    )
    Session.signal(session, TERM)
    assert done == ["hurry", 0.0]

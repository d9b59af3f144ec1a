"""When all ranks of a job start again."""

from __future__ import annotations

from typing import Any

import pytest

from ringleader.errors import Fault, LaunchError, ProbeError, RefusedError, RingleaderError
from ringleader.job import Job, faults_of
from ringleader.launch.exit_reason import Cause, Why
from ringleader.launch.outcome import JobExit, RankEnd
from ringleader.launch.restarts import restart_after, restart_after_refusal

SO_FAR = {"made": 0, "most": 2, "at": 5.0}


def ended(code: int = 3, first: RankEnd | None = None) -> JobExit:
    return JobExit(exit_code=code, whose="rank 1", reason="rank 1 on h2 failed", first_failure=first)


def cause(why: Why) -> Cause:
    return Cause(why=why, at=1.0, number=15)


@pytest.mark.parametrize(
    ("code", "why", "changes", "again"),
    [
        (3, Why.RANK, {}, True),
        (3, Why.MPI, {}, True),
        (3, Why.LOST, {}, True),
        (3, None, {}, True),
        (0, None, {}, False),
        (143, Why.SIGNAL, {}, False),
        (124, Why.TIMEOUT, {}, False),
        (3, Why.REFUSED, {}, False),
        (3, Why.RANK, {"interrupted": True}, False),
        (3, Why.RANK, {"made": 1}, True),
        (3, Why.RANK, {"made": 2}, False),
        (3, Why.RANK, {"most": 0}, False),
    ],
)
def test_what_is_followed_by_a_restart(
    code: int, why: Why | None, changes: dict[str, Any], again: bool
) -> None:
    words = {"interrupted": False, **SO_FAR, **changes}
    restart = restart_after(ended(code), None if why is None else cause(why), **words)
    assert (restart is not None) is again
    if restart is not None:
        assert restart.number == words["made"] + 1


def test_a_restart_says_who_why_and_which() -> None:
    first = RankEnd(rank=1, host="h2", exit_code=3, signal=None, seconds=4.0, at=5.0)
    restart = restart_after(ended(first=first), cause(Why.RANK), interrupted=False, made=1, most=4, at=9.0)
    assert restart is not None
    assert str(restart) == "rank 1 on h2 failed\n    → all ranks start again: restart 2 of 4"
    assert (restart.rank, restart.host, restart.exit_code, restart.at) == (1, "h2", 3, 9.0)


@pytest.mark.parametrize(
    ("error", "made", "again"),
    [
        (ProbeError("no answer", where="h2"), 1, True),
        (ProbeError("no answer", where="h2"), 2, False),
        (ProbeError("no answer", where="h2"), 0, False),
        (LaunchError("another plan"), 1, False),
        (RefusedError("no room"), 1, False),
    ],
)
def test_a_restart_whose_hosts_do_not_answer(error: RingleaderError, made: int, again: bool) -> None:
    restart = restart_after_refusal(error, made=made, most=2, at=5.0)
    assert (restart is not None) is again
    if restart is not None:
        assert (restart.number, restart.exit_code) == (2, None)
        assert "h2: no answer" in str(restart)


def test_fewer_than_none_are_a_fault() -> None:
    found = faults_of(Job(command=("x",), max_restarts=-1))
    assert found == (Fault(where="--max-restarts", what="-1 restarts", hint="use 0 or more"),)

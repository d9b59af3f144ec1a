"""When all ranks of a job start again."""

from typing import Any

import pytest

from ringleader.errors import Fault, LaunchError, ProbeError, RefusedError, RingleaderError
from ringleader.launch import launch_job
from ringleader.launch.exit_reason import Cause, Why, follows_a_restart
from ringleader.launch.outcome import JobExit, RankEnd
from ringleader.plan.job import Job, faults_of


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
        (3, Why.RANK, {"left": 1}, True),
        (3, Why.RANK, {"left": 0}, False),
    ],
)
def test_what_is_followed_by_a_restart(
    code: int, why: Why | None, changes: dict[str, Any], again: bool
) -> None:
    words = {"interrupted": False, "left": 2, **changes}
    assert follows_a_restart(ended(code), None if why is None else cause(why), **words) is again


class Listening:
    """A listener that keeps warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.warning = self.warnings.append


def starts(made: int, most: int) -> Any:
    """The starts of a job, this many restarts of which were made."""
    listener: Any = Listening()
    found = launch_job._Starts(
        Job(command=("x",), max_restarts=most), {}, listener, launch_job.probe,
        stdin=None, payload=None, early=1.0, record=None,
    )  # fmt: skip
    for _ in range(made):
        found._again("before")
    return found


def test_a_restart_says_who_why_and_which() -> None:
    found = starts(made=1, most=4)
    first = RankEnd(rank=1, host="h2", exit_code=3, signal=None, seconds=4.0, at=5.0)
    found._again("rank 1 on h2 failed", ended(first=first))
    restart = found.restarts[-1]
    assert str(restart) == "rank 1 on h2 failed\n    → all ranks start again: restart 2 of 4"
    assert found.listener.warnings[-1] == str(restart)
    assert (restart.number, restart.rank, restart.host, restart.exit_code) == (2, 1, "h2", 3)


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
def test_a_restart_whose_hosts_do_not_answer(
    error: RingleaderError, made: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: Any, **named: Any) -> None:
        raise error

    monkeypatch.setattr(launch_job, "prepare", refused)
    found = starts(made, most=2)
    if not again:
        with pytest.raises(type(error)):
            found._prepared(None)
        return
    assert found._prepared(None) is None
    restart = found.restarts[-1]
    assert (restart.number, restart.exit_code) == (2, None)
    assert "h2: no answer" in str(restart)


def test_fewer_than_none_are_a_fault() -> None:
    found = faults_of(Job(command=("x",), max_restarts=-1))
    assert found == (Fault(where="--max-restarts", what="-1 restarts", hint="use 0 or more"),)

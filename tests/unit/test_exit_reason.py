"""Whose exit code a job's is, and in which words."""

from typing import Any

import pytest

from ringleader.launch.exit_reason import (
    Cause,
    Why,
    abort_code,
    aborts_in,
    daemons_lost_in,
    how_it_ended,
    job_exit,
    ranks_named,
    relevant_lines,
)
from ringleader.launch.outcome import RankEnd
from ringleader.plan.job import Family, Mpi

MPI = Mpi(family=Family.OPENMPI5, version="5.0.8", mpirun="/m/bin/mpirun", library="", prefix="/m")


def end(rank: int, code: int | None = 0, at: float = 1.0, **values: Any) -> RankEnd:
    base = {"host": f"h{rank}", "signal": None, "seconds": at}
    return RankEnd(rank=rank, exit_code=code, at=at, **{**base, **values})


def killed(rank: int, number: int, **values: Any) -> RankEnd:
    return end(rank, None, signal=number, **values)


def lost(rank: int, **values: Any) -> RankEnd:
    return end(rank, None, reason="its agent is gone", **values)


STOPPED = {"stopped": "ringleader"}
RANK, SIGNAL = Cause(why=Why.RANK, at=1.0), Cause(why=Why.SIGNAL, at=2.0, number=15)
TIMEOUT = Cause(why=Why.TIMEOUT, at=2.0, text="stopped after 2 s")
BY_MPI = Cause(why=Why.MPI, at=2.0, text="mpirun ended while ranks were running")


@pytest.mark.parametrize(
    ("ends", "cause", "mpirun_code", "aborts", "expected"),
    [
        ([end(0), end(1)], None, 0, {}, (0, "")),
        # A rank that the job ended is not a failure; the first in time is.
        ([end(0, 143, **STOPPED), end(1, 7)], RANK, 143, {}, (7, "rank 1")),
        ([end(0, 5, at=2.0), end(1, 7, at=1.0)], RANK, None, {}, (7, "rank 1")),
        ([killed(0, 9), end(1, **STOPPED)], RANK, None, {}, (137, "rank 0")),
        # A peer's MPI noticed that a rank was killed, and exited before the news of the death was here.
        ([end(4, 14, at=1.0), killed(1, 15, at=1.1)], RANK, None, {}, (143, "rank 1")),
        ([end(4, 14, at=1.0), killed(1, 15, at=2.0)], RANK, None, {}, (14, "rank 4")),
        # Signals of a process's own mistakes may be a consequence of what a peer did.
        ([end(4, 14, at=1.0), killed(1, 6, at=1.1)], RANK, None, {}, (14, "rank 4")),
        # One that says how it ended tells more than one that is silent, whichever came first.
        ([lost(0, at=0.5), end(1, 7, at=1.0)], RANK, None, {}, (7, "rank 1")),
        ([lost(0), end(1, **STOPPED)], Cause(why=Why.LOST, at=1.0), None, {}, (3, "rank 0")),
        # The MPI ended the job because a host was silent: the silent host is the failure.
        ([end(0, 143, stopped="the MPI ended it"), lost(1, at=20.0)], BY_MPI, 255, {}, (3, "rank 1")),
        # What happens after a signal to us, or a time-out, is its consequence; what happened before is not.
        ([end(0, 1, at=2.5), killed(1, 15, at=2.5)], SIGNAL, None, {}, (143, "ringleader")),
        ([end(0, 1, at=1.5), killed(1, 15, at=2.5)], SIGNAL, None, {}, (1, "rank 0")),
        ([end(0, 1, at=2.5), end(1, **STOPPED)], TIMEOUT, None, {}, (124, "ringleader")),
        # mpirun was killed: ranks that ended after it did so because of that, ranks before it did not.
        ([end(0, 1, orphaned=True), end(1, **STOPPED)], BY_MPI, -9, {}, (3, "mpirun")),
        ([end(0, 6), end(1, 1, orphaned=True)], BY_MPI, -9, {}, (6, "rank 0")),
        ([end(0, 1, orphaned=True)], BY_MPI, -9, {0: 5}, (3, "mpirun")),
        # mpirun failed by itself.
        ([end(0, **STOPPED)], BY_MPI, 9, {}, (3, "mpirun")),
        ([end(0, **STOPPED)], BY_MPI, 0, {}, (3, "mpirun")),
        # Of ranks that outlived mpirun the one whose code mpirun passed on is the one that aborted.
        ([end(0, 1, orphaned=True, at=0.5), end(1, 5, orphaned=True)], RANK, 5, {}, (5, "rank 1")),
        # MPI_Abort, told by mpirun or by the rank, where the rank was ended before it could exit.
        ([killed(0, 15), killed(1, 9)], RANK, 5, {1: 5}, (5, "rank 1")),
        ([killed(0, 9), end(1, **STOPPED)], RANK, 0, {0: 256}, (1, "rank 0")),
        ([end(0, 7), killed(1, 9)], RANK, 5, {1: 5}, (7, "rank 0")),
    ],
)
def test_whose_code_it_is(
    ends: list[RankEnd],
    cause: Cause | None,
    mpirun_code: int | None,
    aborts: dict[int, int],
    expected: tuple[int, str],
) -> None:
    found = job_exit(ends=ends, cause=cause, mpirun_code=mpirun_code, output="", aborts=aborts, mpi=MPI)
    assert (found.exit_code, found.whose) == expected
    assert (found.first_failure is not None) == found.whose.startswith("rank")
    assert bool(found.reason) == bool(found.exit_code)


def test_daemons_that_mpirun_lost() -> None:
    said = "HNP daemon   : [prterun-a-1@0,0] on node a\nRemote daemon: [prterun-a-1@0,2] on node h2\n"
    four = "  HNP daemon   : [[5127,0],0] on node a\n  Remote daemon: [[5127,0],1] on node h3\n"
    ended = "Local host:    vm\nRemote host:   h4\nDaemon exit status: 255\n"  # and words on firewalls
    assert daemons_lost_in(said + four + ended) == ["h2", "h3", "h4"]
    assert daemons_lost_in("no word of it") == []


def test_reasons() -> None:
    def reason(ends: list[RankEnd], cause: Cause, code: int | None = None, output: str = "") -> str:
        return job_exit(ends=ends, cause=cause, mpirun_code=code, output=output, aborts={}, mpi=MPI).reason

    stopped = [end(0, **STOPPED)]
    assert reason(stopped, SIGNAL) == "stopped by SIGTERM"
    assert reason(stopped, TIMEOUT) == "stopped after 2 s"
    assert reason(stopped, BY_MPI, -9) == "mpirun of Open MPI 5.0.8 was killed by SIGKILL"
    assert reason(stopped, BY_MPI, 9, "---\n no route\n no route\n") == (
        "mpirun ended while ranks were running; mpirun of Open MPI 5.0.8 ended with exit code 9 and said:\n"
        "    no route"
    )


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (end(1, 7, at=3.21), "rank 1 on h1 ended with exit code 7 after 3.2 s"),
        (end(1, 7, at=0.01), "rank 1 on h1 ended with exit code 7"),
        (killed(1, 9), "rank 1 on h1 was killed by SIGKILL after 1.0 s"),
        (killed(1, 250, at=0.0), "rank 1 on h1 was killed by signal 250"),
        (lost(1), "rank 1 on h1: its agent is gone"),
        (
            end(1, 5, reason="called MPI_Abort(5)"),
            "rank 1 on h1 called MPI_Abort(5) (exit code 5) after 1.0 s",
        ),
    ],
)
def test_how_a_rank_ended(one: RankEnd, words: str) -> None:
    assert how_it_ended(one) == words


def test_codes_of_ranks() -> None:
    assert [one.code for one in (end(0, 7), killed(0, 9), lost(0))] == [7, 137, 3]
    assert [one.failed for one in (end(0), end(0, 7), lost(0), end(0, 143, **STOPPED))] == [
        False, True, True, False,
    ]  # fmt: skip


def test_what_mpis_say_of_mpi_abort() -> None:
    assert abort_code("Abort(5) on node 1 (rank 1 in comm 0): application called MPI_Abort") == 5
    assert abort_code("Abort(-3) on node 0 (rank 0 in comm 496)") == -3
    assert abort_code("I said: Abort(5) on node 1 (rank 1 in comm 0)") is None
    told = "-----\nMPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\n"
    assert aborts_in(told + "with errorcode 5.\n") == {3: 5}, "Open MPI 4"
    assert aborts_in(told + "  Proc: [[62,1],3]\n  Errorcode: -7\n") == {3: -7}, "Open MPI 5"
    assert aborts_in("nothing") == {}


def test_words() -> None:
    assert ranks_named([3]) == "rank 3"
    assert ranks_named(range(3)) == "ranks 0, 1, 2"
    assert ranks_named(range(10)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7, …"
    assert relevant_lines("-----\n\n a\n a\n b \n=====") == "    a\n    b"
    long = relevant_lines("\n".join(f"line {number}" for number in range(100))).splitlines()
    assert (len(long), long[0], long[10], long[-1]) == (21, "    line 0", "    …", "    line 99")
    assert MPI.name == "Open MPI 5.0.8"

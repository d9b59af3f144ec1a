"""Whose exit code a job's is, what was lost first, in which words, and when all ranks start again."""

import pytest

from ringleader.errors import LaunchError, ProbeError
from ringleader.launch import launch_job
from ringleader.launch.exit_reason import (
    Cause,
    JobHosts,
    Loss,
    Lost,
    RootCause,
    Why,
    abort_code,
    aborts_in,
    cause_in,
    daemons_lost_in,
    follows_a_restart,
    how_it_ended,
    job_exit,
    outweighs,
    ranks_named,
    relevant_lines,
    root_cause,
)
from ringleader.launch.outcome import JobExit, RankEnd
from ringleader.plan.job import Family, Job, Mpi

MPI = Mpi(family=Family.OPENMPI5, version="5.0.8", mpirun="/m/bin/mpirun", library="", prefix="/m")


def end(rank, code=0, at=1.0, **values):
    base = {"host": f"h{rank}", "signal": None, "seconds": at}
    return RankEnd(rank=rank, exit_code=code, at=at, **{**base, **values})


def killed(rank, number, **values):
    return end(rank, None, signal=number, **values)


def lost(rank, **values):
    return end(rank, None, reason="its agent is gone", **values)


STOPPED = {"stopped": "ringleader"}
RANK, SIGNAL = Cause(why=Why.RANK, at=1.0), Cause(why=Why.SIGNAL, at=2.0, number=15)
TIMEOUT = Cause(why=Why.TIMEOUT, at=2.0, text="stopped after 2 s")
BY_MPI = Cause(why=Why.MPI, at=2.0, text="mpirun ended while ranks were running")


def test_whose_code_it_is():
    for ends, cause, mpirun_code, aborts, expected in (
        ([end(0), end(1)], None, 0, {}, (0, "")),
        # A rank that the job ended is not a failure; the first in time is.
        ([end(0, 143, **STOPPED), end(1, 7)], RANK, 143, {}, (7, "rank 1")),
        ([end(0, 5, at=2.0), end(1, 7, at=1.0)], RANK, None, {}, (7, "rank 1")),
        ([killed(0, 9), end(1, **STOPPED)], RANK, None, {}, (137, "rank 0")),
        # A peer's MPI noticed that a rank was killed, and exited before the news of the death was here.
        ([end(4, 14, at=1.0), killed(1, 15, at=1.1)], RANK, None, {}, (143, "rank 1")),
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
        # Of ranks that outlived mpirun the one whose code mpirun passed on is the one that aborted.
        ([end(0, 1, orphaned=True, at=0.5), end(1, 5, orphaned=True)], RANK, 5, {}, (5, "rank 1")),
        # MPI_Abort, told by mpirun or by the rank, where the rank was ended before it could exit.
        ([killed(0, 15), killed(1, 9)], RANK, 5, {1: 5}, (5, "rank 1")),
        ([killed(0, 9), end(1, **STOPPED)], RANK, 0, {0: 256}, (1, "rank 0")),
        ([end(0, 7), killed(1, 9)], RANK, 5, {1: 5}, (7, "rank 0")),
    ):
        found = job_exit(ends=ends, cause=cause, mpirun_code=mpirun_code, output="", aborts=aborts, mpi=MPI)
        assert (found.exit_code, found.whose) == expected
        assert (found.first_failure is not None) == found.whose.startswith("rank")
        assert bool(found.reason) == bool(found.exit_code)


def test_daemons_that_mpirun_lost():
    said = "HNP daemon   : [prterun-a-1@0,0] on node a\nRemote daemon: [prterun-a-1@0,2] on node h2\n"
    four = "  HNP daemon   : [[5127,0],0] on node a\n  Remote daemon: [[5127,0],1] on node h3\n"
    ended = "Local host:    vm\nRemote host:   h4\nDaemon exit status: 255\n"  # and words on firewalls
    assert daemons_lost_in(said + four + ended) == ["h2", "h3", "h4"]
    assert daemons_lost_in("no word of it") == []


def test_reasons():
    def reason(ends, cause, code=None, output=""):
        return job_exit(ends=ends, cause=cause, mpirun_code=code, output=output, aborts={}, mpi=MPI).reason

    stopped = [end(0, **STOPPED)]
    assert reason(stopped, SIGNAL) == "stopped by SIGTERM"
    assert reason(stopped, TIMEOUT) == "stopped after 2 s"
    assert reason(stopped, BY_MPI, -9) == "mpirun of Open MPI 5.0.8 was killed by SIGKILL"
    assert reason(stopped, BY_MPI, 9, "---\n no route\n no route\n") == (
        "mpirun ended while ranks were running; mpirun of Open MPI 5.0.8 ended with exit code 9 and said:\n"
        "    no route"
    )


def test_how_a_rank_ended():
    for one, words in (
        (end(1, 7, at=3.21), "rank 1 on h1 ended with exit code 7 after 3.2 s"),
        (killed(1, 9), "rank 1 on h1 was killed by SIGKILL after 1.0 s"),
        (killed(1, 250, at=0.0), "rank 1 on h1 was killed by signal 250"),
        (lost(1), "rank 1 on h1: its agent is gone"),
        (
            end(1, 5, reason="called MPI_Abort(5)"),
            "rank 1 on h1 called MPI_Abort(5) (exit code 5) after 1.0 s",
        ),
    ):
        assert how_it_ended(one) == words


def test_what_mpis_say_of_mpi_abort():
    assert abort_code("Abort(5) on node 1 (rank 1 in comm 0): application called MPI_Abort") == 5
    assert abort_code("Abort(-3) on node 0 (rank 0 in comm 496)") == -3
    assert abort_code("I said: Abort(5) on node 1 (rank 1 in comm 0)") is None
    told = "-----\nMPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\n"
    assert aborts_in(told + "with errorcode 5.\n") == {3: 5}, "Open MPI 4"
    assert aborts_in(told + "  Proc: [[62,1],3]\n  Errorcode: -7\n") == {3: -7}, "Open MPI 5"
    assert aborts_in("nothing") == {}


def test_words_and_codes():
    assert ranks_named([3]) == "rank 3"
    assert ranks_named(range(10)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7, …"
    assert relevant_lines("-----\n\n a\n a\n b \n=====") == "    a\n    b"
    long = relevant_lines("\n".join(f"line {number}" for number in range(100))).splitlines()
    assert (len(long), long[0], long[10], long[-1]) == (21, "    line 0", "    …", "    line 99")
    ends = [end(0, 7), killed(0, 9), lost(0), end(0), end(0, 143, **STOPPED)]
    assert [(one.code, one.failed) for one in ends[:3]] == [(7, True), (137, True), (3, True)]
    assert [one.failed for one in ends[3:]] == [False, False]


_ABORTED = """\
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[1779,1],0]
  Exit code:    1
--------------------------------------------------------------------------
"""
"""As Open MPI 4.1.4 prints it."""


def test_the_cause_of_an_mpirun_that_ended():
    for output, cause in (
        ("", ""),
        (_ABORTED, "Exit code:    1"),
        (
            f"ringleader: MPI proxy: mpi4py 3.1.4 is installed\n{_ABORTED}",
            "ringleader: MPI proxy: mpi4py 3.1.4",
        ),
        (
            f"Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n{_ABORTED}",
            "ModuleNotFoundError: No module named 'x'",
        ),
    ):
        assert cause_in(output).startswith(cause)
        assert bool(cause) == bool(cause_in(output))


AROUND = JobHosts(
    ranks_of={"here": [0, 1], "h2": [2, 3], "h3": [4]},
    remote=frozenset({"h2", "h3"}),
    lost_after=10.0,
    mpi="Open MPI 5.0.8",
)


def loss(what, rank=None, at=5.0, number=0, host=""):
    if rank is not None:
        host = next(name for name, ranks in AROUND.ranks_of.items() if rank in ranks)
    return Loss(what=what, at=at, host=host, rank=rank, signal=number)


def test_what_was_first():
    for losses, whose, words in (
        # mpirun dies, and with it the daemons and agents, whose news is faster.
        ([loss(Lost.DAEMON, 2), loss(Lost.MPI, 0), loss(Lost.MPIRUN, at=5.4, number=9)], "mpirun", "SIGKILL"),
        (
            [loss(Lost.MPIRUN, number=9), loss(Lost.SUPERVISOR, at=5.1, number=9)],
            "supervisor of mpirun",
            "supervises mpirun",
        ),
        # A daemon dies; mpirun then ends the ranks of the others.
        ([loss(Lost.DAEMON, 3), loss(Lost.MPI, 0, at=5.2), loss(Lost.MPI, 4, at=5.2)], "host h2", "daemon"),
        ([loss(Lost.MPI, 0), loss(Lost.DAEMON, 2, at=5.1), loss(Lost.SESSION, host="h2")], "host h2", "ssh"),
        # All agents of a host without a word: the host. Some of them, or those beside us: agents.
        ([loss(Lost.VANISHED, 2), loss(Lost.VANISHED, 3), loss(Lost.MPI, 0)], "host h2", "ranks 2, 3"),
        ([loss(Lost.VANISHED, 2), loss(Lost.MPI, 0, at=5.1)], "agent of rank 2", "on h2 was killed"),
        ([loss(Lost.VANISHED, 0), loss(Lost.VANISHED, 1, at=5.1)], "agent of rank 0", "was killed"),
        # The one agent of a host without a word, and then its other half says what killed it.
        ([loss(Lost.VANISHED, 4), loss(Lost.AGENT, 4, at=5.1, number=11)], "agent of rank 4", "SIGSEGV"),
        # A connection that nobody used any more had ended long before.
        (
            [loss(Lost.SESSION, host="h3", at=1.0), loss(Lost.MPI, 0), loss(Lost.DAEMON, 2)],
            "host h2",
            "daemon",
        ),
        ([loss(Lost.SESSION, host="h3", at=1.0)], "", ""),
        # Silence, and all that follows from it.
        ([loss(Lost.SILENT, 2), loss(Lost.SILENT, 3, at=6.0), loss(Lost.MPI, 0)], "host h2", "10 s"),
        ([loss(Lost.SILENT, 2), loss(Lost.SILENT, 4)], "hosts h2, h3", "this machine's own network"),
        # An MPI that kills agents while it ends a job: nobody is known to have been hit.
        ([loss(Lost.AGENT, 0), loss(Lost.AGENT, 1), loss(Lost.MPI, 2)], "", ""),
        ([loss(Lost.AGENT, 0), loss(Lost.MPI, 2, at=5.3)], "agent of rank 0", "from outside the job"),
        ([loss(Lost.MPI, 0)], "", ""),
        ([], "", ""),
    ):
        found = root_cause(losses, AROUND)
        assert (found.whose if found else "") == whose
        assert words in (found.reason if found else "")


def test_a_rank_that_fails_beside_a_loss():
    for what, seconds, explains in (
        (Lost.DAEMON, -1.0, True),
        (Lost.DAEMON, -2.0, False),
        (Lost.AGENT, 0.5, True),
        (Lost.AGENT, -0.5, False),
    ):
        cause = RootCause(what=what, at=5.0, whose="", reason="")
        assert outweighs(cause, 5.0 + seconds) is explains


def ended(code=3, first=None):
    return JobExit(exit_code=code, whose="rank 1", reason="rank 1 on h2 failed", first_failure=first)


def cause(why):
    return Cause(why=why, at=1.0, number=15)


def test_what_is_followed_by_a_restart():
    for code, why, changes, again in (
        (3, Why.RANK, {}, True),
        (3, Why.LOST, {}, True),
        (3, None, {}, True),
        (0, None, {}, False),
        (143, Why.SIGNAL, {}, False),
        (124, Why.TIMEOUT, {}, False),
        (3, Why.REFUSED, {}, False),
        (3, Why.RANK, {"interrupted": True}, False),
        (3, Why.RANK, {"left": 0}, False),
    ):
        words = {"interrupted": False, "left": 2, **changes}
        assert follows_a_restart(ended(code), None if why is None else cause(why), **words) is again


class Listening:
    """A listener that keeps warnings."""

    def __init__(self):
        self.warnings = []
        self.warning = self.warnings.append


def starts(made, most):
    """The starts of a job, this many restarts of which were made."""
    listener = Listening()
    found = launch_job._Starts(
        Job(command=("x",), max_restarts=most), {}, listener, launch_job.probe,
        stdin=None, payload=None, early=1.0, record=None,
    )  # fmt: skip
    for _ in range(made):
        found._again("before")
    return found


def test_a_restart_says_who_why_and_which():
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
    ],
)
def test_a_restart_whose_hosts_do_not_answer(error, made, again, monkeypatch):
    def refused(*given, **named):
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

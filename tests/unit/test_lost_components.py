"""Of all that ends with a job: what was first, and in which words."""

import pytest

from ringleader.launch.exit_reason import JobHosts, Loss, Lost, RootCause, outweighs, root_cause

AROUND = JobHosts(
    ranks_of={"here": [0, 1], "h2": [2, 3], "h3": [4]},
    remote=frozenset({"h2", "h3"}),
    lost_after=10.0,
    mpi="Open MPI 5.0.8",
)


def lost(what: Lost, rank: int | None = None, at: float = 5.0, number: int = 0, host: str = "") -> Loss:
    if rank is not None:
        host = next(name for name, ranks in AROUND.ranks_of.items() if rank in ranks)
    return Loss(what=what, at=at, host=host, rank=rank, signal=number)


@pytest.mark.parametrize(
    ("losses", "whose", "words"),
    [
        # mpirun dies, and with it the daemons and agents, whose news is faster.
        ([lost(Lost.DAEMON, 2), lost(Lost.MPI, 0), lost(Lost.MPIRUN, at=5.4, number=9)], "mpirun", "SIGKILL"),
        (
            [lost(Lost.MPIRUN, number=9), lost(Lost.SUPERVISOR, at=5.1, number=9)],
            "supervisor of mpirun",
            "supervises mpirun",
        ),
        # A daemon dies; mpirun then ends the ranks of the others.
        ([lost(Lost.DAEMON, 3), lost(Lost.MPI, 0, at=5.2), lost(Lost.MPI, 4, at=5.2)], "host h2", "daemon"),
        ([lost(Lost.MPI, 0), lost(Lost.DAEMON, 2, at=5.1), lost(Lost.SESSION, host="h2")], "host h2", "ssh"),
        # All agents of a host without a word: the host. Some of them, or those beside us: agents.
        ([lost(Lost.VANISHED, 2), lost(Lost.VANISHED, 3), lost(Lost.MPI, 0)], "host h2", "ranks 2, 3"),
        ([lost(Lost.VANISHED, 2), lost(Lost.MPI, 0, at=5.1)], "agent of rank 2", "on h2 was killed"),
        ([lost(Lost.VANISHED, 0), lost(Lost.VANISHED, 1, at=5.1)], "agent of rank 0", "was killed"),
        # The one agent of a host without a word, and then its other half says what killed it.
        ([lost(Lost.VANISHED, 4), lost(Lost.AGENT, 4, at=5.1, number=11)], "agent of rank 4", "SIGSEGV"),
        # A connection that nobody used any more had ended long before.
        (
            [lost(Lost.SESSION, host="h3", at=1.0), lost(Lost.MPI, 0), lost(Lost.DAEMON, 2)],
            "host h2",
            "daemon",
        ),
        ([lost(Lost.SESSION, host="h3", at=1.0)], "", ""),
        # Silence, and all that follows from it.
        ([lost(Lost.SILENT, 2), lost(Lost.SILENT, 3, at=6.0), lost(Lost.MPI, 0)], "host h2", "10 s"),
        ([lost(Lost.SILENT, 2), lost(Lost.SILENT, 4)], "hosts h2, h3", "this machine's own network"),
        # An MPI that kills agents while it ends a job: nobody is known to have been hit.
        ([lost(Lost.AGENT, 0), lost(Lost.AGENT, 1), lost(Lost.MPI, 2)], "", ""),
        ([lost(Lost.AGENT, 0), lost(Lost.MPI, 2, at=5.3)], "agent of rank 0", "from outside the job"),
        ([lost(Lost.MPI, 0)], "", ""),
        ([], "", ""),
    ],
)
def test_what_was_first(losses: list[Loss], whose: str, words: str) -> None:
    found = root_cause(losses, AROUND)
    assert (found.whose if found else "") == whose
    assert words in (found.reason if found else "")


@pytest.mark.parametrize(
    ("what", "seconds", "explains"),
    [
        (Lost.DAEMON, -1.0, True),
        (Lost.DAEMON, -2.0, False),
        (Lost.AGENT, 0.5, True),
        (Lost.AGENT, -0.5, False),
    ],
)
def test_a_rank_that_fails_beside_a_loss(what: Lost, seconds: float, explains: bool) -> None:
    cause = RootCause(what=what, at=5.0, whose="", reason="")
    assert outweighs(cause, 5.0 + seconds) is explains

"""What is done to a job, and how it must end then, as docs/reference/exit-codes.md has it."""

from __future__ import annotations

import itertools
import random
import signal
from dataclasses import dataclass

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT, "segv": signal.SIGSEGV}
PHASES = ("start-up", "training", "end")
LOCAL = ("rank", "agent", "agent_outer", "supervisor", "mpirun", "launcher")
"""Processes of every job; ``agent_outer``: the agent's outer process, ``agent``: its inner one."""
REMOTE = ("prted", "sshd")
"""Processes on the hosts of a lab: the MPI's daemon, and the ssh session that started it."""
STOP = "stop 2 s"
"""SIGSTOP, and SIGCONT two seconds later: nobody is lost by that."""
HOST_FAULTS = ("cut link", "kill host")
PROCESS_SECONDS = 5.0
"""From a fault of a process to the end of everything, with ``--grace 2``."""
HOST_SECONDS = 15.0
"""The same for hosts and links, with the usual ``--lost-after``."""
CUT_OFF_SECONDS = 30.0
"""Until nothing of the job is left on a host that was cut off, its link still down."""


@dataclass(frozen=True)
class Row:
    """One kind of trial."""

    where: str
    fault: str
    target: str
    phase: str


@dataclass(frozen=True)
class Expected:
    """How a job must end."""

    codes: tuple[int, ...]
    whose: str
    """Pattern of who is named; ``{rank}`` and ``{host}`` stand for the target's."""
    seconds: float = PROCESS_SECONDS


SWEPT = {"host": "/tmp/ringleader-", "launcher": "/tmp/rl-ssh-"}
"""Target → beginning of the paths that the next job removes: nobody is left there to do it earlier."""
SSH_SESSION = ": sshd: "
"""What stays on a host that is cut off: its sshd waits for a word from us until its own deadline."""
OWN_SESSION = r"/ompi\.[^/]+(/jf\.\d+(/\d+){0,2})?$"
"""Empty directories that may stay where Open MPI's daemon ends while its ranks initialise MPI.

See docs/reference/exit-codes.md; anything in them may not stay."""
DONE = Expected((0,), "^$")
MAY_GO_ON = ("mpirun", "sshd")
"""What may not heed a signal while a job starts (docs/reference/exit-codes.md): nothing is lost then, or the
start comes to nothing and its deadline ends it."""
START_SECONDS = 25.0
"""That deadline (``--start-timeout``)."""
MACHINE = 3


def expected(row: Row) -> Expected:
    """Return how a job ends after this fault, where it was not over before."""
    if row.fault == STOP:
        return DONE
    if row.target in ("link", "host"):
        return Expected((MACHINE,), r"^host {host}: ", HOST_SECONDS)
    number = SIGNALS[row.fault]
    if row.target == "launcher":  # by Python's way of an exit code: negative for a signal that killed
        told = number in (signal.SIGTERM, signal.SIGINT)
        # Before it has its handlers it ends as any process does; a shell says 128 + n for both.
        return Expected((128 + number, -number) if told else (-number,), "^ringleader: " if told else "")
    if row.target == "rank":
        # A Python that has not begun its script turns SIGINT into an end of its own.
        codes = (128 + number, 1) if row.fault == "int" and row.phase == "start-up" else (128 + number,)
        return Expected(codes, r"^rank {rank}: ")
    if row.phase == "start-up" and row.target in MAY_GO_ON and row.fault in ("term", "int"):
        whose = f"{WHOSE[row.target]}|^start: |^host [^ ]+: the MPI's daemon"
        return Expected((MACHINE,), whose, START_SECONDS + PROCESS_SECONDS)
    if row.phase == "start-up" and row.target == "sshd":  # the daemon's end may be known before the session's
        return Expected((MACHINE,), f"{WHOSE['sshd']}|{WHOSE['prted']}")
    return Expected((MACHINE,), WHOSE[row.target])


WHOSE = {
    "agent": r"^agent of rank {rank}: ",
    "agent_outer": r"^agent of rank {rank}: ",
    "supervisor": "^supervisor of mpirun: ",
    "mpirun": "^mpirun: ",
    "prted": r"^host {host}: .*daemon",
    "sshd": r"^host {host}: .*ssh",
}
"""Process → who must be named: ``whose: reason``."""


def rows(where: str) -> list[Row]:
    """Return every kind of trial on one host or in a lab."""
    targets = LOCAL + (REMOTE if where == "lab" else ())
    found = [Row(where, *kind) for kind in itertools.product(SIGNALS, targets, PHASES)]
    found += [Row(where, STOP, target, "training") for target in targets]
    if where == "lab":
        found += [Row(where, "cut link", "link", phase) for phase in PHASES]
        found += [Row(where, "kill host", "host", phase) for phase in PHASES]
    return found


def drawn(where: tuple[str, ...], trials: int, seed: int) -> list[Row]:
    """Return so many trials in random order, every kind as often as any other, give or take one."""
    draw, chosen = random.Random(seed), list[Row]()
    every = [row for place in where for row in rows(place)]
    while len(chosen) < trials:
        draw.shuffle(every)
        chosen += every[: trials - len(chosen)]
    return chosen

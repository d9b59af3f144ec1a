"""Breaks running jobs at random and looks how they end; prints a table and every exception.

    python tests/campaigns/faults.py [--trials 200] [--seed 1] [--where host] [--time-factor 1]

Every job must end in bounded time, with the documented exit code (docs/reference/exit-codes.md), name who was
hit, and leave nothing. What lacks one of these is an exception. A lab (``--where lab``) needs root.
"""

import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from campaign import (
    DAEMON,
    Job,
    Result,
    a_lab,
    arguments,
    carried_out,
    parent,
    read,
    report,
    send,
    until,
    variable,
)

from ringleader.lab import hosts as lab_hosts
from ringleader.lab import kernel_state
from ringleader.lab.saved_state import Lab

LONG, SHORT, FINISHES = 60.0, 0.2, 5.0
"""Seconds that a job trains: one to be broken, one to be caught at its end, one that continues."""
GIVE_UP = 90.0
SCRIPT = """
import sys, time
{prepare}
began, step = time.monotonic(), 0
while {least} < float(sys.argv[1]):
    {train}
    if step == 3:
        print("training", flush=True)
    step += 1
    time.sleep(0.02)
print("ending", flush=True)
"""
# They train for this many seconds, not steps: six ranks share two processors, where a step may take long.
SCRIPTS = {
    "mpi4py": SCRIPT.format(
        prepare="from mpi4py import MPI",
        least="MPI.COMM_WORLD.allreduce(time.monotonic() - began, op=MPI.MIN)",
        train="pass",
    ),
    "ringleader.torch": SCRIPT.format(
        prepare="""import torch
import ringleader.torch as hvd
hvd.init()
model = torch.nn.Linear(8, 1)
descent = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(descent, model.named_parameters())""",
        least="float(hvd.allreduce(torch.tensor(time.monotonic() - began), op=hvd.Min))",
        train="optimizer.zero_grad(); model(torch.ones(4, 8)).sum().backward(); optimizer.step()",
    ),
}

# --- what is done to a job, and how it must end then ------------------------------------------------------

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT, "segv": signal.SIGSEGV}
STOP = "stop 2 s"
"""SIGSTOP, and SIGCONT two seconds later: nobody is lost by that."""
PHASES = ("start-up", "training", "end")
LOCAL = ("rank", "agent", "agent_outer", "supervisor", "mpirun", "launcher")
"""Processes of every job; ``agent_outer``: the agent's outer process, ``agent``: its inner one."""
REMOTE = ("prted", "sshd")
"""Processes on the hosts of a lab: the MPI's daemon, and the ssh session that started it."""
PROCESS_SECONDS, HOST_SECONDS = 5.0, 15.0
"""From a fault of a process, or of a host with the usual ``--lost-after``, to the end, with ``--grace 2``."""
CUT_OFF_SECONDS = 30.0
"""Until nothing of the job is left on a host that was cut off, its link still down."""
START_SECONDS = 25.0
SWEPT = {"host": "/tmp/ringleader-", "launcher": "/tmp/rl-ssh-"}
"""Target → beginning of the paths that the next job removes: nobody is left there to do it earlier."""
SSH_SESSION = ": sshd: "
"""What stays on a host that is cut off: its sshd waits for a word from us until its own deadline."""
OWN_SESSION = r"/ompi\.[^/]+(/jf\.\d+(/\d+){0,2})?$"
"""Empty directories that may stay where Open MPI's daemon ends while its ranks initialize MPI; what is in
them may not."""
MAY_GO_ON = ("mpirun", "sshd")
"""What may not heed a signal while a job starts: nothing is lost then, or the start comes to nothing and its
deadline (``--start-timeout``) ends it."""
MACHINE = 3
WHOSE = {
    "agent": r"^agent of rank {rank}: ",
    "agent_outer": r"^agent of rank {rank}: ",
    "supervisor": "^supervisor of mpirun: ",
    "mpirun": "^mpirun: ",
    "prted": r"^host {host}: .*daemon",
    "sshd": r"^host {host}: .*ssh",
}
"""Process → who must be named: ``whose: reason``."""
RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


@dataclass(frozen=True)
class Row:
    where: str
    fault: str
    target: str
    phase: str


def expected(row: Row) -> tuple[tuple[int, ...], str, float]:
    """Return how a job ends after this fault, where it was not over before: codes, who is named, seconds."""
    if row.fault == STOP:
        return (0,), "^$", PROCESS_SECONDS
    if row.target in ("link", "host"):
        return (MACHINE,), r"^host {host}: ", HOST_SECONDS
    number = SIGNALS[row.fault]
    if row.target == "launcher":  # by Python's way of an exit code: negative for a signal that killed
        told = number in (signal.SIGTERM, signal.SIGINT)
        # Before it has its handlers it ends as any process does; a shell says 128 + n for both.
        codes = (128 + number, -number) if told else (-number,)
        return codes, "^ringleader: " if told else "", PROCESS_SECONDS
    if row.target == "rank":
        # A Python that has not begun its script turns SIGINT into its own end.
        more = (1,) if row.fault == "int" and row.phase == "start-up" else ()
        return (128 + number, *more), r"^rank {rank}: ", PROCESS_SECONDS
    whose = WHOSE[row.target]
    if row.phase == "start-up" and row.target in MAY_GO_ON and row.fault in ("term", "int"):
        whose += "|^start: |^host [^ ]+: the MPI's daemon"
        return (MACHINE,), whose, START_SECONDS + PROCESS_SECONDS
    if row.phase == "start-up" and row.target == "sshd":  # the daemon's end may be known before the session's
        whose += f"|{WHOSE['prted']}"
    return (MACHINE,), whose, PROCESS_SECONDS


def drawn(where: tuple[str, ...], trials: int, seed: int) -> list[Row]:
    """Return this many trials in random order, every kind as often as any other, give or take one."""
    draw, chosen, every = random.Random(seed), list[Row](), list[Row]()
    for place in where:
        targets = LOCAL + (REMOTE if place == "lab" else ())
        every += [Row(place, *kind) for kind in itertools.product(SIGNALS, targets, PHASES)]
        every += [Row(place, STOP, target, "training") for target in targets]
        hosts = (("cut link", "link"), ("kill host", "host")) if place == "lab" else ()
        every += [Row(place, *kind, phase) for kind in hosts for phase in PHASES]
    while len(chosen) < trials:
        draw.shuffle(every)
        chosen += every[: trials - len(chosen)]
    return chosen


# --- one trial --------------------------------------------------------------------------------------------


class Trial(Job):
    """One job, what is to be hit of it, and what it leaves."""

    def __init__(self, *, mpi: str, script: str, seconds: float, lab: Lab | None) -> None:
        """Start it. ``seconds``: how long it trains."""
        self.jobs: set[str] = set()
        """Job directories that its processes name."""
        self.lab = lab
        self._disks_before = self._on_disks()
        here = ("-n", "2", "--oversubscribe")
        where = ("--hostfile", lab.hostfile, "--ssh-config", lab.ssh_config) if lab else here
        limits = ("--grace", "2", "--start-timeout", str(START_SECONDS))

        def command(tmp: Path) -> tuple[str, ...]:
            (tmp / "train.py").write_text(SCRIPTS[script])
            return str(tmp / "train.py"), str(seconds)

        super().__init__((*where, "--mpi", mpi, *limits), command, lab)

    def wait_for(self, word: str, seconds: float) -> bool:
        """Wait until a line of the output ends with a word; False where it does not come."""
        return until(lambda: any(line.endswith(word) for line in self.lines), seconds, 0.01, self.runs)

    def processes(self) -> dict[int, str]:
        found = super().processes()
        self.jobs |= {job for pid in found if (job := variable(pid, "RINGLEADER_JOB_DIR"))}
        return found

    def candidates(self, target: str) -> list[int]:
        """Return the processes that a target's name stands for."""
        if target == "launcher":
            return [self.launcher.pid] if self.runs() else []
        there = self.processes()
        of = {
            "supervisor": lambda pid, words: "mpirun_supervisor" in words,
            "mpirun": lambda pid, words: "mpirun_supervisor" in there.get(parent(pid), ""),
            "prted": lambda pid, words: words.split()[0].endswith(DAEMON),
            "sshd": lambda pid, words: words.startswith("sshd") and parent(pid) in self._before,
        }
        if target in of:
            return [pid for pid, words in there.items() if of[target](pid, words)]
        wanted = "train.py" if target == "rank" else "agents/rank_agent.py"
        found = [pid for pid, words in there.items() if wanted in words and variable(pid, *RANK)]
        if target == "rank":
            return [pid for pid in found if "ringleader run" not in there[pid]]
        leads = [pid for pid in found if _leads_session(pid)]
        return leads if target == "agent" else [pid for pid in found if not {pid, parent(pid)} & {*leads}]

    def _of_the_job(self) -> list[Path]:
        """Files of this job on this machine; other jobs may run beside it."""
        found = list((self.tmp / f"ringleader-{os.getuid()}").glob("*"))
        for job in self.jobs:
            found += [Path(job), Path(f"/dev/shm/ringleader-{job.rpartition('/')[2]}")]
        for room in Path("/tmp").glob("rl-ssh-*"):
            if read(f"{room}/owner").split()[:1] == [str(self.launcher.pid).encode()]:
                found.append(room)
        return [path for path in dict.fromkeys(found) if path.exists()]

    def _on_disks(self) -> set[str]:
        """Files in the places that a lab's host has for itself."""
        found = set()
        for host in self.lab.hosts if self.lab else ():
            first = kernel_state.first_process(host.namespace)
            for place in ("dev/shm", "var/tmp") if first else ():
                root = Path(f"/proc/{first}/root")
                with contextlib.suppress(OSError):
                    found |= {
                        f"{host.name}:/{path.relative_to(root)}"
                        for path in (root / place).rglob("*")
                        if "torchinductor" not in str(path)  # PyTorch's own cache
                    }
        return found

    def left(self, row: Row) -> list[str]:
        """Return processes and files that the job has left and should not have; see ``SWEPT``."""
        left = [f"process {pid}: {words[:120]}" for pid, words in self.processes().items()]
        left += [*map(str, self._of_the_job()), *sorted(self._on_disks() - self._disks_before)]
        left = [one for one in left if not one.startswith(SWEPT.get(row.target, "\0"))]
        if row.phase == "start-up" and row.target in (*REMOTE, "mpirun"):
            left = [one for one in left if not re.search(OWN_SESSION, one)]
        return [one for one in left if row.target != "link" or SSH_SESSION not in one]

    def close(self) -> None:
        super().close()
        for path in self._of_the_job():
            shutil.rmtree(path, ignore_errors=True)
        for row in lab_hosts.status(self.lab) if self.lab else ():
            if row.state != "up":
                assert self.lab is not None
                lab_hosts.heal(self.lab, row.host)


def _leads_session(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return os.getsid(pid) == pid
    return False


def one(row: Row, draw: random.Random, lab: Lab | None, mpi: str, time_factor: float = 1.0) -> Result:
    script = draw.choice(list(SCRIPTS))
    seconds = FINISHES if row.fault == STOP else SHORT if row.phase == "end" else LONG
    trial = Trial(mpi=mpi, script=script, seconds=seconds, lab=lab)
    try:
        name = _hit(trial, row, draw)
        hit_at = time.monotonic()
        if name is not None and _goes_on(trial, row):
            row, name, hit_at = replace(row, fault="term", target="launcher"), {}, time.monotonic()
            trial.launcher.terminate()
        until(lambda: not trial.runs(), GIVE_UP, 0.02)
        ended = time.monotonic() - hit_at
        until(lambda: not trial.left(row), max(0.0, hit_at + GIVE_UP - time.monotonic()), 0.05)
        gone, left = time.monotonic() - hit_at, trial.left(row)
        code, whose, faults = _judged(trial, row, name, (ended, gone), left, time_factor)
    finally:
        trial.close()
    who = "(over)" if name is None else name.get("rank") or name.get("host", "")
    line = f"{row.where:4} {row.fault:9} {row.target:8} {who:9} {row.phase:8} code {code} in {ended:.1f} s, "
    found = {**vars(row), "hit": who, "code": code, "ended": ended, "gone": gone, "script": script}
    line += f"gone {gone:.1f} s; {whose[:120]}"
    return found | {"line": line, "faults": faults, "argv": trial.argv, "output": list(trial.lines)}


def _goes_on(trial: Trial, row: Row) -> bool:
    """Tell whether a job that was hit while it started trains all the same, and is to be ended."""
    if row.phase != "start-up" or row.target not in MAY_GO_ON or row.fault not in ("term", "int"):
        return False
    return not until(lambda: not trial.runs(), PROCESS_SECONDS, 0.02) and trial.wait_for("training", 30.0)


def _hit(trial: Trial, row: Row, draw: random.Random) -> dict[str, str] | None:
    """Wait for the phase and strike; return who was hit, ``None`` where there was nobody any more."""
    starts = row.phase == "start-up"
    if not starts and not trial.wait_for({"training": "training", "end": "ending"}[row.phase], 90.0):
        return None
    is_host = row.target in ("link", "host")
    target = "prted" if is_host else row.target
    patience = 30.0 if starts else 0.0
    found = (
        [] if is_host and not starts else until(lambda: trial.candidates(target), patience, 0.01, trial.runs)
    )
    if row.phase != "end" and (found or is_host):
        time.sleep(draw.uniform(0.0, 0.6))
    if is_host:
        host = draw.choice(trial.lab.hosts)
        (lab_hosts.cut if row.target == "link" else lab_hosts.kill)(trial.lab, host)
        return {"host": host.name, "rank": ""}
    if not found:
        return None
    pid = draw.choice(found)
    name = {"rank": variable(pid, *RANK), "host": trial.host_of(pid)}
    try:
        os.kill(pid, signal.SIGSTOP if row.fault == STOP else SIGNALS[row.fault])
        if row.fault == STOP:
            time.sleep(2.0)
            send(signal.SIGCONT, [pid])
    except ProcessLookupError:
        return None
    return name


def _judged(
    trial: Trial,
    row: Row,
    name: dict[str, str] | None,
    times: tuple[float, float],
    left: list[str],
    time_factor: float,
) -> tuple[int | None, str, list[str]]:
    """Return the exit code, who was named, and what is wrong."""
    (ended, gone), (codes, pattern, seconds) = times, expected(row)
    outcome, code, faults = trial.outcome(), trial.launcher.poll(), []
    said = " ".join(line for line in trial.lines if not line.startswith("["))
    whose = f"{outcome.get('whose', '')}: {outcome.get('reason', '')}" if outcome.get("whose") else ""
    over = code == 0 and (row.phase == "end" or name is None)
    if not over:
        pattern = pattern.format(**{key: re.escape(text) for key, text in (name or {}).items()})
        if code not in codes:
            faults.append(f"exit code {code}, not {' or '.join(map(str, codes))}")
        if row.target == "launcher" and not outcome:
            pattern = ""
        if row.phase == "start-up":  # what never ran is an error, whose words say where it is
            pattern, whose = pattern.replace("^", ""), whose or said
        if not re.search(pattern, whose, re.DOTALL):
            faults.append(f"named {whose.splitlines()[0] if whose else said!r}, not {pattern}")
    # A job that nothing kept from its own end takes as long as any other; one that was stopped trains on.
    limit = time_factor * seconds + (FINISHES + 5.0 if row.fault == STOP or over else 0.0)
    if ended > limit:
        faults.append(f"took {ended:.1f} s")
    if gone > max(limit, time_factor * CUT_OFF_SECONDS if row.target == "link" else 0.0):
        faults.append(f"was gone after {gone:.1f} s")
    if left:
        faults.append(f"left {left}")
    if any("Traceback" in line and not line.startswith("[") for line in trial.lines):
        faults.append("a traceback")
    return code, whose.splitlines()[0] if whose else "", faults


def table(results: list[Result]) -> Iterator[str]:
    yield "| where | target | fault | phase | trials | codes | longest, s | exceptions |"
    yield "| --- " * 8 + "|"
    keys = ("where", "target", "fault", "phase")
    for kind in sorted({tuple(result[key] for key in keys) for result in results}):
        some = [one for one in results if tuple(one[key] for key in keys) == kind]
        codes = ", ".join(sorted({str(one["code"]) for one in some}))
        longest = max(max(one["ended"], one["gone"]) for one in some)
        bad = sum(bool(one["faults"]) for one in some)
        yield f"| {' | '.join(kind)} | {len(some)} | {codes} | {longest:.1f} | {bad} |"


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--where", nargs="+", choices=("host", "lab"), default=["host", "lab"])
    parser.add_argument("--mpi", default="embedded")
    parser.add_argument("--time-factor", type=float, default=1.0, help="so much longer may an end take")
    words = parser.parse_args()
    chosen = drawn(tuple(words.where), words.trials, words.seed)
    chosen = [row for row in chosen if words.only in f"{row.fault} {row.target} {row.phase}"]

    def trials() -> Iterator[Result]:
        with contextlib.ExitStack() as stack:
            lab = stack.enter_context(a_lab()) if any(row.where == "lab" for row in chosen) else None
            for number, row in enumerate(chosen):
                draw = random.Random(f"{words.seed} {number}")
                yield one(row, draw, lab if row.where == "lab" else None, words.mpi, words.time_factor)

    results = carried_out(trials())
    missing = [f"{len(chosen) - len(results)} trials are missing"] if len(results) < len(chosen) else []
    return report(results, table(results), missing, words.json_file)


if __name__ == "__main__":
    sys.exit(main())

"""A rank's command and everything below it: started, looked at, told to end, and reaped.

How a process is started is in `start_command`, who asks a fork server for one in `fork_server_control`, what
is between its pipes and the launcher in `rank_pipes`.
"""

from __future__ import annotations

import os
import time

from ringleader.agents import process_tree, start_command
from ringleader.agents.job_directory import JobDirectory
from ringleader.agents.light_imports import TYPE_CHECKING, Any, Mapping, signal, socket, suppress
from ringleader.agents.protocol import LauncherConnection
from ringleader.agents.rank_evidence import RankEvidence
from ringleader.agents.rank_files import RankFiles
from ringleader.agents.rank_pipes import RankPipes
from ringleader.agents.start_command import NotStartedError

if TYPE_CHECKING:
    from ringleader.agents.fork_server_control import ForkServerClient

AFTER_END = 2 * 1024 * 1024
"""Bytes of output that may follow a rank's end at once, whoever reads: what its two pipes can hold."""
LAUNCHER = "ringleader"
"""Who stopped a rank that the launcher told to end."""
FIRST_INSPECTION, LONGEST_PAUSE = 0.1, 30.0
LOOK_SECONDS = 0.05
"""Between two looks at stacks that are being written."""
STACK_SECONDS = 2.0
"""For a Python to write its stacks; one that gets no processor time may not."""
MOST_STACKS, LONGEST_STACK = 40, 64 * 1024
"""Processes of a rank whose stacks are sent, and bytes of each."""


class RankProcess:
    """The command of one rank, from before its start to its end."""

    def __init__(
        self,
        *,
        launcher: LauncherConnection,
        rank: int,
        directory: JobDirectory,
        environ: Mapping[str, str],
        preloaded: bool = False,
    ) -> None:
        """Nothing is started yet; ports are taken, so that the launcher can tell those of rank 0 to all.

        ``preloaded``: this process has imported what the rank needs, which may be forked from it.
        """
        self.launcher = launcher
        self.preloaded = preloaded
        self.pipes = RankPipes(launcher)
        self.directory = directory
        self.environ = dict(environ)
        self.files = RankFiles(directory.path, rank)
        self.evidence = RankEvidence(environ.get("RINGLEADER_CONTROL", ""))
        self.port = any_port()
        self.jax_port = jax_port()
        self.pid = 0
        self.forked_by: ForkServerClient | None = None
        """Where the host's fork server forked the rank and is its parent: tells how it ends."""
        self.started = 0.0
        self.ended_at: float | None = None
        self.stopped_by = ""
        self.orphaned = ""
        """Why it ends although the launcher did not say so; see ``rank_agent_loop``."""
        self.failing: dict[str, Any] = {}
        """What the rank's Python said when an exception left its script; it may still run exit handlers."""
        self.kill_at: float | None = None
        self.killed = False
        self.told_to_stop = False
        self.paused = False
        self.libraries: set[str] = set()
        self.inspect_every = FIRST_INSPECTION
        self.inspect_at: float | None = None
        self.stacks: StackRequest | None = None
        self.stacks_at: float | None = None

    # --- start and end ------------------------------------------------------------------------------------

    def start(self, message: dict[str, Any]) -> None:
        """Start the command as the launcher says."""
        if self.pid or self.stopped_by:
            return
        self.port.close()
        self.jax_port.close()
        self.started = time.monotonic()
        try:
            self.pid, why_cold = self._started(message)
        except NotStartedError as error:
            self._tell_end(exit_code=error.exit_code, reason=error.reason)
        except OSError as error:  # no room for its files, no descriptor or no process for it
            what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
            self.pipes.give_up()
            self._tell_end(exit_code=start_command.NOT_EXECUTABLE, reason=f"cannot be started: {what}")
        else:
            self.evidence.rank = self.pid
            self.inspect_at = time.monotonic() + self.inspect_every
            self.launcher.say(do="started", pid=self.pid, why_cold=why_cold)

    def _started(self, message: dict[str, Any]) -> tuple[int, str]:
        """Make the rank's files and pipes and start its command; return its process id, and why the fork
        server has not forked it although it was asked. Raises as ``start_command.start`` does."""
        env = self.files.environment(self.environ, message)
        self.evidence.begin(message.get("evidence", {}), env, self.directory.path)
        fds = self.pipes.make(with_input=bool(message.get("stdin")), window=int(message["window"]))
        command = {
            "argv": message["argv"],
            "cwd": message["cwd"],
            "env": env | {"RINGLEADER_REPORT_FD": str(fds[3])},
            "cpus": message.get("cpus", ()),
            "open_files": int(message.get("open_files", 0)),
        }
        why_cold = ""
        try:
            if message.get("warm_ranks"):
                from ringleader.agents.fork_server_control import ForkServerClient, NoForkError

                cpus = command["cpus"] or sorted(os.sched_getaffinity(0))
                try:
                    client = ForkServerClient(str(message["warm_ranks"]))
                    pid = client.start(fds, command | {"cpus": cpus})
                except NoForkError as error:
                    why_cold = str(error)
                else:
                    self.forked_by = client
                    process_tree.adopt(pid)
                    return pid, ""
            runs_script = self.preloaded and bool(message.get("warm"))
            return start_command.start(command, fds, runs_script=runs_script), why_cold
        finally:
            self.pipes.close_far_ends()

    def stop(self, by: str, grace: float) -> None:
        """SIGTERM to everything of the rank now, SIGKILL after ``grace`` seconds.

        Of several deadlines the first counts, but what the launcher says replaces what we decided alone: an
        MPI that ends its processes because one of them ended does not cut short what the user granted.
        """
        if self.ended_at is None and not self.stopped_by:
            self.stopped_by = by
            if self.pid == 0:
                self._tell_end(stopped=by, reason="never started")
            else:
                self.inspect()
        # One whose script is over has heard enough: its exit handlers get the grace, and end what it started.
        failed = self.failing.get("pid", 0)
        over = (self.pid, failed, *process_tree.below(failed)) if self.failing else ()
        process_tree.ask_to_end(os.getpid(), spared=over)
        until = time.monotonic() + grace
        first_word = by == LAUNCHER and not self.told_to_stop
        self.kill_at = until if self.kill_at is None or first_word else min(self.kill_at, until)
        self.told_to_stop = self.told_to_stop or first_word

    def kill(self, now: float) -> None:
        """SIGKILL to everything of the rank, and soon again for one that forked meanwhile."""
        # Whoever reaps our child must be us: how it ended is to be reported.
        process_tree.send(process_tree.below(os.getpid()), signal.SIGKILL)
        self.collect()
        self.killed = True
        self.kill_at = now + 0.05

    def collect(self) -> None:
        """Reap what has ended; if the rank's own process is among it, say so at once."""
        ended = process_tree.reap()
        if self.forked_by is not None and (status := self.forked_by.status()) is not None:
            process_tree.disown(self.pid)
            self.forked_by.close()
            self.forked_by = None
            ended.append((self.pid, status))
        for pid, status in ended:
            if pid == self.pid and self.ended_at is None:
                self.pipes.read_reports()
                self.note_failing()
                self.ended_at = time.monotonic()
                self.pipes.allow(AFTER_END)
                self.inspect_at = None
                code = os.waitstatus_to_exitcode(status)
                if self.failing and code in (0, -signal.SIGTERM, -signal.SIGKILL):
                    code = self.failing["exit_code"]  # ours was the signal
                self._tell_end(
                    exit_code=code if code >= 0 else None,
                    signal=-code if code < 0 else None,
                    seconds=self.ended_at - self.started,
                    stopped="" if self.failing else self.stopped_by,
                    orphaned=self.failing.get("orphaned", bool(self.orphaned)),
                )

    def _tell_end(self, **words: Any) -> None:
        """Say how the rank ended, or why it never began."""
        self.ended_at = self.ended_at or time.monotonic()
        usual = {"exit_code": None, "signal": None, "seconds": 0.0, "stopped": "", "orphaned": False}
        self.launcher.say(do="ended", **usual | {"reason": ""} | words)

    def note_failing(self) -> None:
        """Tell at once that the rank has failed: its end may wait for peers that wait for it.

        Of a Python below the rank's own process only one that uses MPI counts; others may fail as they like.
        """
        for message in self.pipes.failing:
            pid = message["pid"]
            if not self.failing and (
                pid == self.pid or process_tree.mpi_libraries(process_tree.mapped_files(pid))
            ):
                self.failing = message | {"orphaned": bool(self.orphaned)}
                self.launcher.say(do="failing", exit_code=message["exit_code"])
        self.pipes.failing.clear()

    # --- inspection and signals ---------------------------------------------------------------------------

    def inspect(self) -> None:
        """See which MPI library and which shared memory files the rank has mapped; ever less often."""
        paths: set[str] = set()
        for pid in process_tree.below(os.getpid()):
            paths |= process_tree.mapped_files(pid)
        self.directory.remember(process_tree.segments(paths))
        self.evidence.inspect(paths)
        for library in sorted(process_tree.mpi_libraries(paths) - self.libraries):
            self.libraries.add(library)
            self.launcher.say(do="library", path=library)
        self.inspect_every = min(self.inspect_every * 2, LONGEST_PAUSE)
        self.inspect_at = time.monotonic() + self.inspect_every

    def deliver(self, number: int) -> None:
        """Send a signal that the user gave the launcher to those it is meant for.

        That is the command itself or, where it does nothing with it (a shell around the script), whoever
        started last in line does; workers of these are their business. Without anybody the command gets it,
        and does what a process does by itself.
        """
        table = process_tree.parents()
        wanted, found = [self.pid], list[int]()
        for pid in wanted:
            if process_tree.takes(pid, number):
                found.append(pid)
            else:
                wanted += [other for other, parent in table.items() if parent == pid]
        if self.pid and self.ended_at is None:
            process_tree.send(found or [self.pid], number)

    def ask_for_stacks(self) -> None:
        """Have every Python of the rank write its stacks, and report what it knows of its process groups.

        ``send_stacks`` sends them once they are there. What Pythons know comes by the report pipe.
        """
        if self.stacks is not None:
            return  # the answer that is on its way serves both
        pids = process_tree.below(os.getpid())
        able, mute = process_tree.without_stacks(pids)
        self.stacks = StackRequest(able, mute)
        self.stacks_at = time.monotonic()
        for pid in pids:
            with suppress(OSError):  # it has no process group, or just answers somebody else
                os.close(os.open(f"{self.files.status}.{pid}.ask", os.O_WRONLY | os.O_NONBLOCK))
                self.stacks.asked += 1

    def send_stacks(self, now: float) -> None:
        """Send the stacks if they are complete; otherwise look again soon."""
        assert self.stacks is not None
        self.stacks_at = now + LOOK_SECONDS
        if self.stacks.is_complete(now):
            self.launcher.say(do="stacks", **self.stacks.answer())
            self.stacks = self.stacks_at = None

    def pause(self) -> None:
        """Stop everything of the rank."""
        self.paused = True
        process_tree.stop_below(os.getpid())

    def resume(self) -> None:
        """Continue what ``pause`` stopped."""
        if self.paused:
            self.paused = False
            process_tree.send(process_tree.below(os.getpid()), signal.SIGCONT)


class StackRequest:
    """Stacks that the Pythons of a rank are writing."""

    def __init__(self, able: Mapping[int, str], mute: list[dict[str, str]]) -> None:
        """Ask for them. ``able``, ``mute``: see ``process_tree.without_stacks``."""
        self._until = time.monotonic() + STACK_SECONDS
        self._mute = mute
        self._unshown = max(0, len(able) - MOST_STACKS)
        self.asked = 0
        """Pythons that were asked what they know of their process groups."""
        self._files: dict[int, tuple[int, int]] = {}
        for pid, path in list(able.items())[:MOST_STACKS]:
            with suppress(OSError):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._files[pid] = fd, os.fstat(fd).st_size
        self._sizes: list[int] = []
        process_tree.send(list(self._files), process_tree.ASKED)

    def is_complete(self, now: float) -> bool:
        """Say whether all have written, and nothing since the last look; or the time is over."""
        before, self._sizes = (
            self._sizes,
            [os.fstat(fd).st_size - start for fd, start in self._files.values()],
        )
        return now > self._until or (all(self._sizes) and before == self._sizes)

    def answer(self) -> dict[str, Any]:
        """Return what is sent to the launcher, and close the files."""
        pythons = []
        for pid, (fd, start) in self._files.items():
            # The main thread comes last.
            start = max(start, os.fstat(fd).st_size - LONGEST_STACK)
            text = os.pread(fd, LONGEST_STACK, start).decode(errors="replace")
            pythons.append({"pid": pid, "text": text})
            os.close(fd)
        return {"pythons": pythons, "mute": self._mute, "asked": self.asked, "unshown": self._unshown}


JAX_PORTS = range(61440, 65536)
"""Where JAX meets under Open MPI: it makes the port from the number of the job. Connections that a program
makes do not come from these ports, as Linux takes them from 32768 to 60999 for that."""


def any_port() -> socket.socket:
    """Return a socket bound to a port that the system chose."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("", 0))
    return sock


def jax_port(ports: range = JAX_PORTS) -> socket.socket:
    """Return a socket bound to one of ``ports`` at which nobody listens, or to any other where all are taken.

    Not for sharing (SO_REUSEADDR), unlike others: JAX's server would share its port with that of another job.
    """
    first = int.from_bytes(os.urandom(4), "little")
    for offset in range(len(ports)):
        sock = socket.socket()
        try:
            sock.bind(("", ports[(first + offset) % len(ports)]))
        except OSError:
            sock.close()
        else:
            return sock
    return any_port()

"""One rank from the launcher's ``start`` to its end: a single loop over the control connection and the pipes.

Nothing here blocks: output is read only while the connection takes it (so a slow launcher slows the rank
down, as a slow terminal would), input is asked for piece by piece, and every wait has a time by which
something else happens.
"""

from __future__ import annotations

import os
import select
import time

from ringleader.ranks import control_protocol, process_inspection, process_tree, user_command
from ringleader.ranks.agent_outer import ORDERED, daemon_name
from ringleader.ranks.fast_stdlib import signal, socket, suppress
from ringleader.ranks.job_directory import JobDirectory
from ringleader.ranks.rank_files import RankFiles
from ringleader.ranks.rank_pipes import Outbox, Pipes

TYPE_CHECKING = False  # see light.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DRAIN_SECONDS = 2.0
"""After the rank's end: for output that is still in its pipes, held open by somebody else."""
REST_SECONDS = 2.0
"""After the rank's end: between SIGTERM and SIGKILL for processes that it left behind."""
AFTER_END = 2 * 1024 * 1024
"""Bytes of output that may follow a rank's end at once, whoever reads: what its two pipes can hold."""
LAUNCHER = "ringleader"
"""Who stopped a rank that the launcher told to end."""
LAUNCHER_GONE = "the launcher is gone"
"""Who stopped a rank whose connection to the launcher broke."""
LOST_GRACE = 2.0
"""Between SIGTERM and SIGKILL where the launcher is gone or has not said how long: all must have ended 5 s
after that. What the launcher then says counts instead."""
ABORT_SECONDS = 0.3
"""From the MPI's order to end, or its end, to our SIGTERM to the rank."""
BY_MPI, DAEMON, AGENT = "mpi", "daemon", "agent"
"""Why we end although the launcher did not say so: the MPI's order, the end of its process that started us, a
signal of somebody else's to us."""
_ENDED_BY = {
    BY_MPI: "the MPI ended it",
    DAEMON: "the MPI's process that started it is gone",
    AGENT: "its agent was ended",
}
EXIT_SECONDS = 0.02
"""For a process whose end a child has noticed to be seen as ended."""
FIRST_LOOK, LONGEST_LOOK = 0.1, 30.0


class Session:
    """The state of one rank on its host."""

    def __init__(
        self,
        *,
        sock: socket.socket,
        wake: int,
        parents: tuple[int, int],
        rank: int,
        directory: JobDirectory,
        environ: Mapping[str, str],
    ) -> None:
        """Begin with a connection that both sides have proven, and no command yet.

        ``parents``: the guard, and the MPI's process that started it.
        """
        self.out = Outbox(sock)
        self.wake = wake
        self.parents = parents
        self.rank = rank
        self.directory = directory
        self.environ = dict(environ)
        self.pipes = Pipes(self.out)
        self.decoder = control_protocol.Decoder()
        self.child = 0
        self.started = 0.0
        self.ended_at: float | None = None
        self.drain_from = 0.0
        self.stopped_by = ""
        self.orphaned = ""
        self.failing: dict[str, Any] = {}
        """What the rank's Python said when an exception left its script; it may still run exit handlers."""
        self.stop_at: float | None = None
        self.kill_at: float | None = None
        self.killed = False
        self.told_to_stop = False
        self.paused = False
        self.launcher_gone = False
        self.done = False
        self.finished = False
        self.libraries: set[str] = set()
        self.look_every = FIRST_LOOK
        self.look_at: float | None = None
        self.port = _free_port()
        self.files = RankFiles(directory.path, rank)

    # --- the loop -----------------------------------------------------------------------------------------

    def hello(self, *, size: int | None, host: str, hostname: str) -> None:
        """Say who we are."""
        port = self.port.getsockname()[1]
        self.out.say(
            do="hello",
            rank=self.rank,
            size=size,
            host=host,
            hostname=hostname,
            pid=os.getpid(),
            daemon=daemon_name(self.parents[1]),
            free_port=port,
        )

    def serve(self) -> None:
        """Serve the launcher until it says bye, or it is gone and everything of the rank has ended."""
        while not self.finished:
            self._wait()
            now = time.monotonic()
            if self.stop_at is not None and now >= self.stop_at:
                if self.orphaned != DAEMON:
                    self.out.say(do="lost", what=self.orphaned)
                self.stop(_ENDED_BY[self.orphaned], LOST_GRACE)
            if self.kill_at is not None and now >= self.kill_at:
                # Whoever reaps our child must be us: how it ended is to be told.
                process_tree.send(process_tree.below(os.getpid()), signal.SIGKILL)
                self._collect()
                self.killed = True
                self.kill_at = now + 0.05  # again, for one that forked meanwhile
            if self.look_at is not None and now >= self.look_at:
                self._look()
            self._advance(now)

    def _wait(self) -> None:
        """Wait for the next thing to happen and do it."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        if self.out.open:
            poll.register(self.out.fd, select.POLLIN | (select.POLLOUT if self.out.pending else 0))
        for fd, events in self.pipes.interests():
            poll.register(fd, events)
        for fd, events in poll.poll(self._patience()):
            if fd == self.wake:
                self._signals()
            elif fd == self.out.fd:
                self._control(events)
            else:
                self.pipes.serve(fd, events)
                self._failing()

    def _patience(self) -> float | None:
        """Milliseconds until the next time at which something must happen."""
        times = [when for when in (self.stop_at, self.kill_at, self.look_at) if when is not None]
        if self.ended_at is not None and not self.done:
            times.append(time.monotonic() + (0.1 if self.told_to_stop else 0.02))
        return max(0.0, (min(times) - time.monotonic()) * 1000 + 1) if times else None

    def _advance(self, now: float) -> None:
        """After the command's end: end what it left, drain its output, say ``done``; alone, leave."""
        if not (self.out.open or self.launcher_gone or self.finished):
            self.launcher_gone = True
            if not self.done:
                self.stop(LAUNCHER_GONE, LOST_GRACE)
        if self.ended_at is not None and not self.done:
            alive = bool(process_tree.below(os.getpid()))
            if self.pipes.drained and not alive:
                self._finish()
            elif self.kill_at is None:
                process_tree.ask_to_end(os.getpid())
                self.kill_at = now + REST_SECONDS
            elif self.pipes.held or (alive and not self.killed):
                self.drain_from = now
            elif now > max(self.drain_from, self.ended_at + REST_SECONDS) + DRAIN_SECONDS:
                self.pipes.give_up()
                self._finish()
        if self.done and not self.out.open:
            self.finished = True

    # --- what arrives -------------------------------------------------------------------------------------

    def _signals(self) -> None:
        numbers = b""
        with suppress(BlockingIOError):
            numbers = os.read(self.wake, 4096)
        asked = {int(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)} & set(numbers)
        if signal.SIGCHLD in numbers:
            self._collect()
        if asked:
            self._orphan(asked)

    def _control(self, events: int) -> None:
        if events & select.POLLOUT:
            self.out.flush()
        if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            for kind, payload in self.decoder.feed(self.out.receive()):
                if kind == control_protocol.MESSAGE:
                    self._obey(control_protocol.read_message(payload))
                elif kind == control_protocol.STDIN:
                    self.pipes.give_input(payload)
                elif kind == control_protocol.BLOB:
                    self.files.keep_call(payload)

    def _obey(self, words: dict[str, Any]) -> None:
        what = words.get("do")
        if what == "start":
            self.out.keep_alive(float(words["lost_after"]))
            self._start(words)
        elif what == "stop":
            self.stop(LAUNCHER, float(words["grace"]))
        elif what == "stacks":
            self._stacks()
        elif what == "signal":
            self._deliver(int(words["number"]))
        elif what == "pause":
            self.paused = True
            process_tree.stop_below(os.getpid())
        elif what == "continue" and self.paused:
            self.paused = False
            process_tree.send(process_tree.below(os.getpid()), signal.SIGCONT)
        elif what == "status":
            self.files.add_status(words["lines"])
        elif what == "written":
            self.pipes.allow(int(words["bytes"]))
        elif what == "end_of_input":
            self.pipes.end_input()
        elif what == "bye":
            self.finished = True

    # --- start and end ------------------------------------------------------------------------------------

    def _start(self, words: dict[str, Any]) -> None:
        """Start the command as the launcher says."""
        if self.child or self.stopped_by:
            return
        self.port.close()
        self.started = time.monotonic()
        try:
            started = self._started(words)
        except OSError as error:  # no room for its files, no descriptor or no process for it
            what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
            reason = f"cannot be started: {what}"
            started = user_command.Failure(exit_code=user_command.NOT_EXECUTABLE, reason=reason)
            self.pipes.give_up()
        if isinstance(started, user_command.Failure):
            self.out.say(
                do="ended",
                exit_code=started.exit_code,
                signal=None,
                seconds=0.0,
                stopped="",
                reason=started.reason,
            )
            self.ended_at = time.monotonic()
            return
        self.child = started
        self.look_at = time.monotonic() + self.look_every
        self.out.say(do="started", pid=started)

    def _started(self, words: dict[str, Any]) -> int | user_command.Failure:
        """Make the rank's files and pipes and start its command. Raises OSError where the system refuses."""
        env = self.files.environment(self.environ, words)
        ends = self.pipes.make(with_input=bool(words.get("stdin")), window=int(words["window"]))
        env["RINGLEADER_REPORT_FD"] = str(ends["report"])
        try:
            return user_command.start(
                user_command.Command(
                    argv=tuple(words["argv"]),
                    cwd=words["cwd"],
                    env=env,
                    cpus=tuple(words.get("cpus", ())),
                    open_files=int(words.get("open_files", 0)),
                    **ends,
                )
            )
        finally:
            self.pipes.close_far_ends()

    def stop(self, by: str, grace: float) -> None:
        """SIGTERM to everything of the rank now, SIGKILL after ``grace`` seconds.

        Of several deadlines the first counts, but what the launcher says replaces what we decided alone: an
        MPI that ends its processes because one of them ended does not cut short what the user granted.
        """
        self.stop_at = None
        if self.ended_at is None and not self.stopped_by:
            self.stopped_by = by
            if self.child == 0:
                self._never_started(by)
            else:
                self._look()
        # One whose script is over has heard enough: its exit handlers get the grace.
        over = (self.child, self.failing["pid"]) if self.failing else ()
        process_tree.ask_to_end(os.getpid(), spared=over)
        until = time.monotonic() + grace
        first_word = by == LAUNCHER and not self.told_to_stop
        self.kill_at = until if self.kill_at is None or first_word else min(self.kill_at, until)
        self.told_to_stop = self.told_to_stop or first_word

    def _orphan(self, asked: set[int]) -> None:
        """Somebody is ending us: stop the rank, but first let one that called MPI_Abort say its exit code."""
        if not self.orphaned:
            self.orphaned = self._who_ends_us(asked)
            if not self.told_to_stop:
                self.stop_at = time.monotonic() + ABORT_SECONDS
                if self.orphaned == DAEMON:  # nothing of ours causes that, so it is told at once
                    self.out.say(do="lost", what=DAEMON)

    def _who_ends_us(self, asked: set[int]) -> str:
        guard, starter = self.parents
        if os.getppid() == guard:
            return BY_MPI if asked == {ORDERED} else AGENT
        time.sleep(EXIT_SECONDS)
        return AGENT if starter in process_tree.parents() else DAEMON

    def _never_started(self, by: str) -> None:
        self.out.say(do="ended", exit_code=None, signal=None, seconds=0.0, stopped=by, reason="never started")
        self.ended_at = time.monotonic()

    def _failing(self) -> None:
        """Tell at once that the rank has failed: its end may wait for peers that wait for it.

        Of a Python below the rank's own process only one that uses MPI counts; others may fail as they like.
        """
        for words in self.pipes.failing:
            pid = words["pid"]
            if not self.failing and (
                pid == self.child or process_inspection.mpi_libraries(process_inspection.mapped_files(pid))
            ):
                self.failing = words | {"orphaned": bool(self.orphaned)}
                self.out.say(do="failing", exit_code=words["exit_code"])
        self.pipes.failing.clear()

    def _collect(self) -> None:
        """Reap what has ended; if the rank's own process is among it, say so at once."""
        for pid, status in process_tree.reap():
            if pid == self.child and self.ended_at is None:
                self.pipes.read_reports()
                self._failing()
                self.ended_at = time.monotonic()
                self.pipes.allow(AFTER_END)
                self.look_at = None
                code = os.waitstatus_to_exitcode(status)
                if self.failing and code in (0, -signal.SIGTERM, -signal.SIGKILL):
                    code = self.failing["exit_code"]  # ours was the signal
                self.out.say(
                    do="ended",
                    exit_code=code if code >= 0 else None,
                    signal=-code if code < 0 else None,
                    seconds=self.ended_at - self.started,
                    stopped="" if self.failing else self.stopped_by,
                    orphaned=self.failing.get("orphaned", bool(self.orphaned)),
                    reason="",
                )

    def _finish(self) -> None:
        """Send the pickled result, if there is one, and say that nothing more will come."""
        self.done = True
        self.kill_at = None
        for piece in self.files.result():
            self.out.add(control_protocol.frame(control_protocol.BLOB, piece))
        self.out.say(do="done")

    # --- looking and showing ------------------------------------------------------------------------------

    def _look(self) -> None:
        """See which MPI library and which shared memory files the rank has mapped; ever less often."""
        paths: set[str] = set()
        for pid in process_tree.below(os.getpid()):
            paths |= process_inspection.mapped_files(pid)
        self.directory.remember(process_inspection.segments(paths))
        for library in sorted(process_inspection.mpi_libraries(paths) - self.libraries):
            self.libraries.add(library)
            self.out.say(do="library", path=library)
        self.look_every = min(self.look_every * 2, LONGEST_LOOK)
        self.look_at = time.monotonic() + self.look_every

    def _deliver(self, number: int) -> None:
        """Send a signal that the user gave the launcher to those it is meant for.

        That is the command itself or, where it does nothing with it (a shell around the script), whoever
        started last in line does; workers of these are their business. Without anybody the command gets it,
        and does what a process does by itself.
        """
        table = process_tree.parents()
        wanted, found = [self.child], list[int]()
        for pid in wanted:
            if process_inspection.takes(pid, number):
                found.append(pid)
            else:
                wanted += [other for other, parent in table.items() if parent == pid]
        if self.child and self.ended_at is None:
            process_tree.send(found or [self.child], number)

    def _stacks(self) -> None:
        """Have every Python of the rank print its stacks; name the processes that can't."""
        able, mute = process_inspection.without_stacks(process_tree.below(os.getpid()))
        process_tree.send(able, signal.SIGQUIT)
        self.out.say(do="stacks", printed=len(able), mute=mute)


def _free_port() -> socket.socket:
    """Return a bound socket: its port stays ours until the rank starts, who may then take it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("", 0))
    return sock

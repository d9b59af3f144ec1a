"""The inner one of a rank's two processes: it serves the launcher from the first word to the last.

A single loop over the control connection and the rank's pipes. Nothing here blocks: output is read only while
the connection takes it (so a slow launcher slows the rank down, as a slow terminal would), input is asked for
piece by piece, and every wait has a time by which something else happens.
"""

from __future__ import annotations

import os
import select
import sys
import time

from ringleader.agents import job_directory, process_tree, protocol, rank_identity
from ringleader.agents.light_imports import Any, Callable, Mapping, signal, socket, suppress
from ringleader.agents.protocol import LauncherConnection, LauncherUnreachableError, connect
from ringleader.agents.rank_agent_guard import ALONE, AWAITED, FAILED, ORDERED
from ringleader.agents.rank_process import LAUNCHER, RankProcess

DRAIN_SECONDS = 2.0
"""After the rank's end: for output that is still in its pipes, held open by somebody else."""
REST_SECONDS = 2.0
"""After the rank's end: between SIGTERM and SIGKILL for processes that it left behind."""
LAUNCHER_GONE = "the launcher is gone"
"""Who stopped a rank whose connection to the launcher broke."""
LOST_GRACE = 2.0
"""Between SIGTERM and SIGKILL where the launcher is gone or has not said how long: all must have ended 5 s
after that. What the launcher then says counts instead."""
ABORT_SECONDS = 0.3
"""From the MPI's order to end, or its end, to our SIGTERM to the rank."""
BY_MPI, DAEMON, AGENT, HOST_AGENT = "mpi", "daemon", "agent", "host agent"
"""Why we end although the launcher did not say so: the MPI's order, the end of its process that started us, a
signal of somebody else's to us, the end of the host agent of an elastic job."""
_ENDED_BY = {
    BY_MPI: "the MPI ended it",
    DAEMON: "the MPI's process that started it is gone",
    AGENT: "its agent was ended",
    HOST_AGENT: "its host agent is gone",
}
EXIT_SECONDS = 0.02
"""For a process whose end a child has noticed to be seen as ended."""


def run(outer: int, starter: int, environ: Mapping[str, str]) -> int:
    """Serve the rank of a process that the MPI started; return our exit code."""
    return in_own_session(lambda: _serve(outer, starter, environ))


def in_own_session(serve: Callable[[], int]) -> int:
    """Serve a rank, and leave nothing; return our exit code: that of ``serve``, FAILED where it fails."""
    ours = os.getpid()
    try:
        os.setsid()
        return serve()
    except LauncherUnreachableError as error:
        sys.stderr.write(f"ringleader agent: {error}\n")
    except Exception:
        import traceback

        traceback.print_exc()
    finally:
        if os.getpid() == ours:  # a rank that is forked from us unwinds through here
            sys.stderr.flush()
            process_tree.kill_below(ours)
    return FAILED


def _serve(outer: int, starter: int, environ: Mapping[str, str]) -> int:
    """Connect, introduce ourselves, and serve until the rank has ended; return the exit code: 0, or ALONE."""
    wake = wake_on_signals(starter)
    process_tree.die_with_parent(signal.SIGTERM, outer)
    process_tree.become_subreaper()
    rank = rank_identity.number(environ, rank_identity.RANK_NAMES)
    if rank is None:
        raise LauncherUnreachableError("the MPI gave this process no rank; start it with `ringleader run`")
    agent = serve_rank(InnerAgent, rank, wake, (outer, starter), environ)
    return ALONE if agent.launcher_gone else 0


def serve_rank(
    kind: type[InnerAgent],
    rank: int,
    wake: int,
    parents: tuple[int, int],
    environ: Mapping[str, str],
    *,
    preloaded: bool = False,
) -> InnerAgent:
    """Connect, introduce ourselves, serve until the rank has ended, and leave nothing.

    ``rank``: the number by which the launcher knows us. ``preloaded``: see ``RankProcess``. The rest is
    ``InnerAgent``'s.
    """
    ours, here = os.getpid(), rank_identity.host_identity()
    launcher = connect(environ.get("RINGLEADER_CONTROL", ""), environ.get("RINGLEADER_TOKEN", ""))
    directory = job_directory.JobDirectory(environ["RINGLEADER_JOB_DIR"], rank_identity.host_key(here))
    if parents[1]:
        directory.make_backing()
    process = RankProcess(
        launcher=launcher, rank=rank, directory=directory, environ=environ, preloaded=preloaded
    )
    process.evidence.root = parents[1] or parents[0]
    launcher.say(
        do="hello",
        rank=rank,
        size=rank_identity.number(environ, rank_identity.SIZE_NAMES) if parents[1] else None,
        host=here,
        hostname=socket.gethostname(),
        pid=ours,
        daemon=rank_identity.daemon_name(parents[1]) if parents[1] else "",
        free_port=process.port.getsockname()[1],
        jax_port=process.jax_port.getsockname()[1],
    )
    # While the other agents are on their way, the first one of a host does what the host needs once.
    if parents[1] and not rank_identity.number(environ, rank_identity.LOCAL_RANK_NAMES):
        job_directory.sweep(directory.job.rpartition("/")[0], directory.key)
        process.evidence.prepare()
    agent = kind(launcher=launcher, wake=wake, parents=parents, process=process)
    try:
        agent.serve()
    finally:
        if os.getpid() == ours:  # a rank that is forked from us unwinds through here
            process_tree.kill_below(ours)
            directory.leave()
    return agent


def wake_on_signals(starter: int) -> int:
    """Return the read end of a pipe into which the number of every signal is written from now on.

    ``starter``: the MPI's process that started us, see ``_take_early_signals``; 0: there is none.
    """
    wake = process_tree.wake_on_signals(AWAITED)
    _take_early_signals(starter)
    return wake


def _take_early_signals(starter: int) -> None:
    """Heed signals from now on, and those that came before: one to the outer process's group, by the MPI's
    process that started us, was meant for the outer one, from which we hear of it."""
    early = []
    while came := signal.sigtimedwait(AWAITED, 0):
        if came.si_pid != starter:
            early.append(came.si_signo)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)
    for number in early:
        os.kill(os.getpid(), number)


class InnerAgent:
    """The loop of one rank's agent."""

    def __init__(
        self, *, launcher: LauncherConnection, wake: int, parents: tuple[int, int], process: RankProcess
    ) -> None:
        """Begin with a connection that both sides have proven, and no command yet.

        ``wake``: read end of the pipe that reports signals. ``parents``: the outer process, and the MPI's
        process that started it.
        """
        self.launcher = launcher
        self.wake = wake
        self.parents = parents
        self.process = process
        self.pipes = process.pipes
        self.stop_at: float | None = None
        self.drain_from = 0.0
        self.launcher_gone = False
        self.done = False
        self.finished = False

    def serve(self) -> None:
        """Serve the launcher until it says bye, or it is gone and everything of the rank has ended."""
        while not self.finished:
            self._wait()
            now = time.monotonic()
            if self.stop_at is not None and now >= self.stop_at:
                if self.process.orphaned != DAEMON:
                    self.launcher.say(do="lost", what=self.process.orphaned)
                self.stop(_ENDED_BY[self.process.orphaned], LOST_GRACE)
            if self.process.kill_at is not None and now >= self.process.kill_at:
                self.process.kill(now)
            if self.process.inspect_at is not None and now >= self.process.inspect_at:
                self.process.inspect()
            if self.process.stacks_at is not None and now >= self.process.stacks_at:
                self.process.send_stacks(now)
            if self.process.evidence.sample_at is not None and now >= self.process.evidence.sample_at:
                self.process.evidence.sample(self.launcher)
            if self.process.evidence.look_at is not None and now >= self.process.evidence.look_at:
                self.process.evidence.look()
            self._advance(now)

    def _wait(self) -> None:
        """Wait for the next thing to happen and do it."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        if self.launcher.open:
            poll.register(self.launcher.fd, select.POLLIN | (select.POLLOUT if self.launcher.pending else 0))
        server = self.process.forked_by.fd if self.process.forked_by is not None else -1
        if server >= 0:
            poll.register(server, select.POLLIN)
        connections = self.process.evidence.fd
        if connections >= 0:
            poll.register(connections, select.POLLIN)
        for fd, events in self.pipes.interests():
            poll.register(fd, events)
        for fd, events in poll.poll(self._poll_milliseconds()):
            if fd == self.wake:
                self._signals()
            elif fd == self.launcher.fd:
                self._control(events)
            elif fd == server:
                self.process.collect()
            elif fd == connections:
                self.process.evidence.collect()
            else:
                self.pipes.serve(fd, events)
                self.process.note_failing()

    def _poll_milliseconds(self) -> float | None:
        """Milliseconds until the next time at which something must happen."""
        process = self.process
        deadlines = (self.stop_at, process.kill_at, process.inspect_at, process.stacks_at)
        of_evidence = (process.evidence.sample_at, process.evidence.look_at)
        times = [when for when in (*deadlines, *of_evidence) if when is not None]
        if self.process.ended_at is not None and not self.done:
            times.append(time.monotonic() + (0.1 if self.process.told_to_stop else 0.02))
        return max(0.0, (min(times) - time.monotonic()) * 1000 + 1) if times else None

    def _advance(self, now: float) -> None:
        """After the command's end: end what it left, drain its output, say ``done``; alone, leave."""
        if not (self.launcher.open or self.launcher_gone or self.finished):
            self.launcher_gone = True
            if not self.done:
                self.stop(LAUNCHER_GONE, LOST_GRACE)
        if self.process.ended_at is not None and not self.done:
            alive = bool(process_tree.below(os.getpid()))
            if self.pipes.drained and not alive:
                self._finish()
            elif self.process.kill_at is None:
                process_tree.ask_to_end(os.getpid())
                self.process.kill_at = now + REST_SECONDS
            elif self.pipes.held or (alive and not self.process.killed):
                self.drain_from = now
            elif now > max(self.drain_from, self.process.ended_at + REST_SECONDS) + DRAIN_SECONDS:
                self.pipes.give_up()
                self._finish()
        if self.done and not self.launcher.open:
            self.finished = True

    def _finish(self) -> None:
        """Send the pickled result, if there is one, and say that nothing more will come."""
        self.done = True
        self.process.kill_at = None
        if self.launcher.open:
            self.process.evidence.sample(self.launcher, at_end=True)
            found, for_the_user = self.process.evidence.end()
            if for_the_user:
                self.launcher.add(protocol.frame(protocol.STDERR, for_the_user))
            if found:
                self.launcher.say(do="evidence", **found)
        for piece in self.process.files.result():
            self.launcher.add(protocol.frame(protocol.BLOB, piece))
        self.launcher.say(do="done")

    # --- what arrives -------------------------------------------------------------------------------------

    def _signals(self) -> None:
        numbers = b""
        with suppress(BlockingIOError):
            numbers = os.read(self.wake, 4096)
        asked = {int(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)} & set(numbers)
        if signal.SIGCHLD in numbers:
            self.process.collect()
        if signal.SIGQUIT in numbers:
            self.process.deliver(signal.SIGQUIT)
        if asked:
            self._orphan(asked)

    def _control(self, events: int) -> None:
        if events & select.POLLOUT:
            self.launcher.flush()
        if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            for kind, payload in self.launcher.frames():
                if kind == protocol.MESSAGE:
                    words = protocol.read_message(payload)
                    if (act := ORDERS.get(str(words.get("do")))) is not None:
                        act(self, words)
                elif kind == protocol.STDIN:
                    self.pipes.give_input(payload)
                elif kind == protocol.BLOB:
                    self.process.files.keep_call(payload)

    def _start(self, message: dict[str, Any]) -> None:
        self.launcher.keep_alive(float(message["lost_after"]))
        self.process.start(message)

    def _leave(self, message: dict[str, Any]) -> None:
        self.finished = True

    def stop(self, by: str, grace: float) -> None:
        """Have the rank end; ``by`` names who wants it, SIGKILL comes after ``grace`` seconds."""
        self.stop_at = None
        self.process.stop(by, grace)

    def _orphan(self, asked: set[int]) -> None:
        """Somebody is ending us: stop the rank, but first let one that called MPI_Abort say its exit code."""
        if not self.process.orphaned:
            self.process.orphaned = self._who_ends_us(asked)
            if not self.process.told_to_stop:
                self.stop_at = time.monotonic() + ABORT_SECONDS
                if self.process.orphaned == DAEMON:  # nothing of ours causes that, so it is reported at once
                    self.launcher.say(do="lost", what=DAEMON)

    def _who_ends_us(self, asked: set[int]) -> str:
        outer, starter = self.parents
        if os.getppid() == outer:
            return BY_MPI if asked == {ORDERED} else AGENT
        time.sleep(EXIT_SECONDS)
        return AGENT if starter in process_tree.parents() else DAEMON


ORDERS: dict[str, Callable[[InnerAgent, dict[str, Any]], Any]] = {
    "start": InnerAgent._start,
    "stop": lambda agent, words: agent.stop(LAUNCHER, float(words["grace"])),
    "stacks": lambda agent, words: agent.process.ask_for_stacks(),
    "signal": lambda agent, words: agent.process.deliver(int(words["number"])),
    "pause": lambda agent, words: agent.process.pause(),
    "continue": lambda agent, words: agent.process.resume(),
    "status": lambda agent, words: agent.process.files.add_status(words["lines"]),
    "written": lambda agent, words: agent.pipes.allow(int(words["bytes"])),
    "end_of_input": lambda agent, words: agent.pipes.end_input(),
    "bye": InnerAgent._leave,
}
"""What the launcher orders → what the agent does."""

"""Stays with mpirun on the launching host, in its own interpreter.

Standard library only, and of that as little as the agents take: it stands between us and mpirun's start.

The launcher may be killed with SIGKILL at any moment. This process then sees its standard input end (and
its parent die), ends mpirun and everything below it, and removes what the job left on this host.

Standard input: one JSON line with the order, then the words ``stop`` and ``kill``, one a line.
Standard output and error are mpirun's own. Status goes as JSON lines to the descriptor named in the order.
"""

from __future__ import annotations

import json
import os
import select
import time

from ringleader.agents import job_directory, process_tree
from ringleader.agents.light_imports import signal, suppress

TYPE_CHECKING = False  # see light_imports.py
if TYPE_CHECKING:
    from typing import Any

GRACE = 2.0
"""Seconds that mpirun has between SIGTERM and SIGKILL."""
AGENTS_GRACE = 4.5
"""Seconds that agents of this host have, after mpirun's end, to end their ranks and say so; the job's grace
comes on top while the launcher is there, for it is what the launcher gives the ranks."""

REMOVE_SECONDS = 10.0
"""For the engine to remove a container that has ended."""


def main() -> None:
    """Read the order and stay with mpirun until it has ended. Without an order there is nothing to do."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 65536)
        if not more:
            return
        line += more
    order, _, rest = line.partition(b"\n")
    MpirunSupervisor(json.loads(order), rest).run()
    os._exit(0)  # the launcher waits for our end


class MpirunSupervisor:
    """One mpirun and its end."""

    def __init__(self, order: dict[str, Any], rest: bytes) -> None:
        """``rest`` is what came behind the order."""
        self.order = order
        self.status: int = order["status"]
        os.set_inheritable(self.status, False)
        self.words = rest
        self.lifeline = True
        self.kill_at: float | None = None
        watched = (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP)
        self.wake = process_tree.wake_on_signals(watched)
        process_tree.die_with_parent(signal.SIGTERM, order["parent"])
        process_tree.become_subreaper()
        self.directory = job_directory.JobDirectory(order["directory"], order["key"])
        self.relay = None
        if order["container"] and order["container"]["ssh"]:
            from ringleader.launch.mpirun.ssh_relay import SshRelay

            self.relay = SshRelay(order["container"], order["env"])
        self.mpirun = self._start()

    def _start(self) -> int:
        """Start mpirun in its own session, to end with us; return its pid, 0 where that failed."""
        ours, argv = os.getpid(), self.order["argv"]
        pid = os.fork()
        if pid:
            nothing = os.open(os.devnull, os.O_RDWR)
            for fd in (1, 2):  # mpirun's alone from here on, so that the launcher sees where they end
                os.dup2(nothing, fd)
            os.close(nothing)
            return pid
        try:
            os.setsid()
            process_tree.die_with_parent(signal.SIGKILL, ours)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(self.order["cwd"])
            os.execve(argv[0], argv, self.order["env"])
        except OSError as error:
            self._tell(failed=f"cannot start {argv[0]}: {error.strerror}")
        os._exit(127)

    def run(self) -> None:
        """Wait for mpirun's end, or for the launcher's word or end; leave nothing."""
        status: int | None = None
        while status is None:
            self._wait(None if self.kill_at is None else 50)
            if self._overdue():
                process_tree.send(process_tree.below(os.getpid()), signal.SIGKILL)
            ended = dict(process_tree.reap())
            status = ended.get(self.mpirun)
            if self.relay:
                self.relay.ended(ended)
        self._tell(ended=os.waitstatus_to_exitcode(status))
        self._leave_nothing()
        if self.order["container"] and os.WIFSIGNALED(status):
            self._remove_container()
        self.directory.leave()

    def _wait(self, milliseconds: int | None) -> None:
        """Wait for a word, a signal, or this long; do what it asks for."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        if self.lifeline:
            poll.register(0, select.POLLIN)
        served = self.relay.fds() if self.relay else ()
        for fd in served:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(milliseconds):
            if self.relay and fd in served:
                self.relay.serve(fd)
                continue
            data = b""
            with suppress(BlockingIOError, BrokenPipeError):
                data = os.read(fd, 4096)
            if fd == 0:
                self.lifeline = bool(data)
                self._word(data)
            elif set(data) & {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}:
                # Whoever signals every process of the job (systemd, Slurm) grants the ranks their grace too.
                self._tell(signaled=True)
                self._stop(GRACE + self._grace())

    def _overdue(self) -> bool:
        return self.kill_at is not None and time.monotonic() > self.kill_at

    def _grace(self) -> float:
        """Seconds that ranks have to end by themselves: none without a launcher that granted them."""
        return float(self.order["grace"]) if self.lifeline else 0.0

    def _leave_nothing(self) -> None:
        """End what mpirun left: rank agents, orphaned by its end, which then still end their ranks."""
        self.mpirun = 0  # reaped: its number may be somebody else's from now on
        began, asked = time.monotonic(), set[int]()
        self.kill_at = None
        while time.monotonic() < began + AGENTS_GRACE + self._grace():
            if process_tree.childless():
                return
            table = process_tree.parents()
            if not process_tree.below(os.getpid(), table):
                break
            # Only the orphans themselves: an agent ends its own rank, and knows best how.
            orphans = {pid for pid, parent in table.items() if parent == os.getpid()} - asked
            process_tree.send(list(orphans), signal.SIGTERM)
            process_tree.send(list(orphans), signal.SIGCONT)
            asked |= orphans
            process_tree.reap()
            self._wait(20)
            if self._overdue():
                break
        process_tree.kill_below(os.getpid())

    def _remove_container(self) -> None:
        """Remove the container of an mpirun whose client was killed: the engine may keep what has ended."""
        if argv := self.order["container"]["remove"]:
            pid = os.posix_spawn(argv[0], argv, self.order["env"])
            until = time.monotonic() + REMOVE_SECONDS
            while time.monotonic() < until and pid not in dict(process_tree.reap()):
                time.sleep(0.05)

    def _word(self, data: bytes) -> None:
        """Obey the launcher's word; its end is the order to stop."""
        self.words += data
        if not data or b"stop" in self.words:
            self._stop(GRACE)
        if b"kill" in self.words:
            self._stop(0.0)

    def _stop(self, grace: float) -> None:
        until = time.monotonic() + grace
        if self.kill_at is None and self.mpirun:
            process_tree.send([self.mpirun], signal.SIGTERM)
            process_tree.send([self.mpirun], signal.SIGCONT)
        self.kill_at = until if self.kill_at is None else min(self.kill_at, until)

    def _tell(self, **words: Any) -> None:
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self.status, json.dumps(words).encode() + b"\n")

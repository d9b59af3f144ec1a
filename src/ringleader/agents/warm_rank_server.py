"""The fork server of ``--max-restarts --warm``: ranks are forked from it, as their rank agents ask for them.

An agent, which an MPI started, sends on a Unix socket what its rank is to run, with the descriptors that the
rank gets, and keeps the connection (``WarmRankClient``): ``started {pid}`` or ``not_started {why}``, later
``ended {status}`` come back on it. Its end ends the rank. What both kinds of job share is in ``fork_server``.
"""

from __future__ import annotations

import os
import select

from ringleader.agents import process_tree, rank_process_start, unix_messages
from ringleader.agents.fast_stdlib import signal, socket, suppress

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from typing import Any

BACKLOG = 512
POLL_MILLISECONDS = 500


class WarmRankServer:
    """Its socket, and the ranks that live."""

    def __init__(self, control: socket.socket, path: str) -> None:
        """Let agents come. ``control``: the host agent's socket, whose end is ours. ``path``: of our own."""
        process_tree.become_subreaper()
        self._control, self._wake = control, process_tree.wake_on_signals((signal.SIGCHLD,))
        self._sock = unix_messages.listen_at(path, backlog=BACKLOG)
        self._agents: dict[int, socket.socket] = {}
        self._ranks: dict[int, int] = {}
        """Process id of a rank → the descriptor of its agent's connection."""

    def serve(self) -> None:
        """Fork whenever an agent asks, until the host agent is gone. Raises WarmRank in a rank."""
        while self._turn():
            pass
        process_tree.kill_below(os.getpid(), 5.0)

    def _turn(self) -> bool:
        """Do what comes next; return False where the host agent is gone."""
        poll = select.poll()
        for fd in (self._control.fileno(), self._wake, self._sock.fileno(), *self._agents):
            poll.register(fd, select.POLLIN)
        for fd, _events in poll.poll(POLL_MILLISECONDS):
            if fd == self._control.fileno():
                return False
            if fd == self._wake:
                with suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            elif fd == self._sock.fileno():
                for agent in unix_messages.accepted(self._sock):
                    self._agents[agent.fileno()] = agent
            elif fd in self._agents:
                self._hear(fd)
        self._reap()
        return True

    def _hear(self, fd: int) -> None:
        agent = self._agents[fd]
        try:
            received = unix_messages.receive(agent)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            received = None
        if received is None:
            self._end_rank(fd)
            del self._agents[fd]
            agent.close()
            return
        words, fds = received
        try:
            self._start(agent, words, fds)
        finally:
            for given in fds:
                with suppress(OSError):
                    os.close(given)

    def _start(self, agent: socket.socket, words: dict[str, Any], fds: list[int]) -> None:
        """Fork a rank. Raises WarmRank in it."""
        try:
            started = rank_process_start.start(
                argv=tuple(words["argv"]),
                cwd=words["cwd"],
                env=words["env"],
                cpus=tuple(words["cpus"]),
                streams=(fds[0], fds[1], fds[2]),
                report=fds[3],
                open_files=int(words["open_files"]),
                warm=True,
            )
        except OSError as error:
            started = rank_process_start.Failure(
                exit_code=rank_process_start.NOT_EXECUTABLE, reason=f"cannot fork: {error.strerror}"
            )
        if isinstance(started, rank_process_start.Failure):
            self._tell(agent, {"do": "not_started", "why": started.reason, "exit_code": started.exit_code})
            return
        self._ranks[started] = agent.fileno()
        self._tell(agent, {"do": "started", "pid": started})

    def _tell(self, agent: socket.socket, words: dict[str, Any]) -> None:
        with suppress(OSError):  # one that has ended; that is heard, too
            unix_messages.send(agent, words)

    def _reap(self) -> None:
        """Tell agents of ranks that have ended; what a rank leaves behind is killed."""
        ended = process_tree.reap()
        for pid, status in ended:
            fd = self._ranks.pop(pid, None)
            if fd is None:
                continue
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            if fd in self._agents:
                self._tell(self._agents[fd], {"do": "ended", "status": status})
        if ended and not self._ranks:
            process_tree.send(process_tree.below(os.getpid()), signal.SIGKILL)

    def _end_rank(self, fd: int) -> None:
        """Its agent is gone: nothing of the rank lives on."""
        for pid, of in list(self._ranks.items()):
            if of == fd:
                process_tree.send([pid, *process_tree.below(pid)], signal.SIGKILL)

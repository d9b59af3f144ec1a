"""The Python of a host from which the ranks of a restart are forked, as rank agents ask for them.

An agent sends on a Unix socket what its rank is to run, with the descriptors that the rank gets, and keeps
the connection: ``started {pid}`` or ``not_started {why}``, later ``ended {status}`` come back on it. Its end
ends the rank. One thread, no MPI, no GPU, so that forks are safe.
"""

from __future__ import annotations

import gc
import os
import select

from ringleader.ranks import job_directory, process_tree, rank_identity, rank_process_start, unix_messages
from ringleader.ranks.fast_stdlib import signal, socket, suppress
from ringleader.ranks.fork_server import ForkedRank, import_all
from ringleader.ranks.open_descriptors import open_descriptors
from ringleader.ranks.rank_process_start import WarmRank
from ringleader.ranks.warm_host import LEASE_FD

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from typing import Any

BACKLOG = 512
POLL_MILLISECONDS = 500


def serve(directory: str, modules: list[str]) -> ForkedRank:
    """Import, then fork whenever an agent asks; return in a rank, exit where the launcher is gone."""
    server = WarmRankServer(directory)
    code = 1
    try:
        server.failure = import_all(modules).get("why", "")
        gc.collect()
        gc.freeze()  # what is there now is shared with all ranks: nobody need look through it, and copy it so
        server.listen()
        while server.turn():
            pass
        code = 0
    except WarmRank as rank:
        return ForkedRank(argv=rank.argv, env=rank.env, report=rank.report, kept=server.kept)
    except Exception:
        pass  # nobody has our standard error; agents see that we are gone, and start ranks by themselves
    server.end()
    os._exit(code)


class WarmRankServer:
    """Its socket, and the ranks that live."""

    def __init__(self, directory: str) -> None:
        """Take this host's part of the directory."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the launcher's end is ours, and nothing else
        self._wake, wake = os.pipe()
        for fd in (self._wake, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # the byte in the pipe is what counts
        key = rank_identity.host_key(rank_identity.host_identity())
        self._directory = job_directory.JobDirectory(directory, key)
        self._sock = unix_messages.new_socket()
        self.failure = ""
        """Why nothing can be forked from here, empty where it can."""
        self.kept: set[int] = set()
        """Descriptors that imported libraries have opened."""
        self._agents: dict[int, socket.socket] = {}
        self._ranks: dict[int, int] = {}
        """Process id of a rank → the descriptor of its agent's connection."""

    def listen(self) -> None:
        """Let agents come."""
        self.kept = open_descriptors() - {LEASE_FD}
        address = unix_messages.SocketAddress(f"{self._directory.path}/{unix_messages.WARM_SOCKET_NAME}")
        self._sock.bind(address.address)
        address.close()
        self._sock.listen(BACKLOG)

    def turn(self) -> bool:
        """Do what comes next; return False where the launcher is gone."""
        poll = select.poll()
        for fd in (LEASE_FD, self._wake, self._sock.fileno(), *self._agents):
            poll.register(fd, select.POLLIN)
        for fd, _events in poll.poll(POLL_MILLISECONDS):
            if fd == LEASE_FD:
                return False
            if fd == self._wake:
                with suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            elif fd == self._sock.fileno():
                self._accept()
            elif fd in self._agents:
                self._hear(fd)
        self._reap()
        return True

    def _accept(self) -> None:
        with suppress(OSError):
            fd, _ = self._sock._accept()  # type: ignore[attr-defined]  # see generation_service
            agent = socket.socket(fileno=fd)
            unix_messages.check_peer(agent)
            self._agents[fd] = agent

    def _hear(self, fd: int) -> None:
        agent = self._agents[fd]
        try:
            received = unix_messages.receive(agent)
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
        if self.failure:
            self._tell(agent, {"do": "cold", "why": self.failure})
            return
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

    def end(self) -> None:
        """End everything that was forked from here."""
        process_tree.kill_below(os.getpid(), 5.0)
        with suppress(OSError):
            os.unlink(f"{self._directory.path}/{unix_messages.WARM_SOCKET_NAME}")  # noqa: PTH108
        self._directory.leave()

"""Runs ssh for an mpirun that is in a container, which asks by ``agents/container_ssh``.

Part of mpirun's supervisor (``mpirun_supervisor``), so standard library only. Each host's command is put into
a container there.
"""

from __future__ import annotations

import os

from ringleader.agents import process_tree, unix_messages
from ringleader.agents.light_imports import Any, Mapping, Sequence, signal, suppress

TYPE_CHECKING = False  # see light_imports.py
if TYPE_CHECKING:
    import socket

NOT_STARTED = 255
"""ssh's exit code for its own failures."""
OPTIONS = ("-x", "-q", "-n", "-T")
"""What an MPI may put in front of the host; other options could make ssh run something on this machine."""


class SshRelay:
    """A socket, and an ssh for each connection to it."""

    def __init__(self, order: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        """Listen at ``socket``. ``ssh``: the real one; ``hosts``: the command, as given to ssh, that runs a
        shell's text in a host's container, by the host's name."""
        path, self._ssh, self._hosts = order["socket"], order["ssh"], order["hosts"]
        self._environment = environment
        self._listener = unix_messages.listen_at(path, backlog=128)
        self._asking: dict[int, socket.socket] = {}
        """Connections by their descriptor."""
        self._running: dict[int, int] = {}
        """Process number of each ssh → its connection."""

    def fds(self) -> list[int]:
        """Return the descriptors that are to be served when something can be read from them."""
        return [self._listener.fileno(), *self._asking]

    def serve(self, fd: int) -> None:
        """Take connections, start what one asks for, or end the ssh of one that is gone."""
        if fd == self._listener.fileno():
            for taken in unix_messages.accepted(self._listener):
                self._asking[taken.fileno()] = taken
            return
        try:
            message, streams = unix_messages.receive(self._asking[fd]) or ({}, [])
        except BlockingIOError:
            return
        except (OSError, ValueError):
            message, streams = {}, []
        argv = command(self._ssh, self._hosts, message.get("words", ()))
        if argv and len(streams) == 3:
            ours = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._become(argv, streams, ours)
            self._running[pid] = fd
        else:  # it is gone, or asks for what it may not have
            self._asking.pop(fd).close()
            process_tree.send([pid for pid, theirs in self._running.items() if theirs == fd], signal.SIGTERM)
            self._running = {pid: theirs for pid, theirs in self._running.items() if theirs != fd}
        for stream in streams:
            os.close(stream)

    def _become(self, argv: Sequence[str], streams: Sequence[int], parent: int) -> None:
        """Turn the forked copy of us into ssh; never returns."""
        try:
            os.setsid()
            process_tree.die_with_parent(signal.SIGKILL, parent)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            for place, stream in enumerate(streams):
                os.dup2(stream, place)
            os.execve(argv[0], tuple(argv), self._environment)
        finally:
            os._exit(NOT_STARTED)

    def ended(self, statuses: Mapping[int, int]) -> None:
        """Report the exit codes of those that have ended, by their wait statuses."""
        for pid in self._running.keys() & statuses.keys():
            code = os.waitstatus_to_exitcode(statuses[pid])
            with suppress(OSError):
                answer = {"exit_code": code if code >= 0 else NOT_STARTED}
                unix_messages.send(self._asking[self._running.pop(pid)], answer)


def command(ssh: Sequence[str], hosts: Mapping[str, str], words: Sequence[str]) -> tuple[str, ...]:
    """Return the ssh that runs in a host's container what an MPI wants to run on the host; empty: none.

    ``words``: what the MPI gave its ssh: options, the host, words for the host's shell.
    """
    options = []
    while words and words[0] in OPTIONS:
        options.append(words[0])
        words = words[1:]
    host, *shell = (*words, "")
    if host not in hosts:
        return ()
    from shlex import quote

    return (*ssh, *options, host, f"{hosts[host]} {quote(' '.join(shell).strip())}")

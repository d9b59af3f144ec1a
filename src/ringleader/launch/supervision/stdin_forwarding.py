"""The launcher's standard input on its way to rank 0, one piece at a time, when rank 0 asks for it."""

from __future__ import annotations

import os
import selectors

from ringleader.launch.supervision.agent_connections import AgentConnection, AgentServer
from ringleader.ranks import protocol


class StdinForwarding:
    """Reads a descriptor only when the rank has taken what was read before."""

    def __init__(self, selector: selectors.BaseSelector, server: AgentServer, fd: int | None) -> None:
        """``fd``: what to read; ``None``: nothing."""
        self._selector = selector
        self._server = server
        self._fd = fd
        self._connection: AgentConnection | None = None
        self._registered = False

    def asked(self, connection: AgentConnection | None) -> None:
        """Rank 0's agent has room for more."""
        self._connection = connection
        if self._fd is not None and not self._registered and not self._belongs_to_somebody_else(self._fd):
            self._selector.register(self._fd, selectors.EVENT_READ, self)
            self._registered = True

    @staticmethod
    def _belongs_to_somebody_else(fd: int) -> bool:
        """True in the background of our controlling terminal, where reading would stop us (SIGTTIN)."""
        try:
            return os.isatty(fd) and os.tcgetpgrp(fd) != os.getpgrp()
        except OSError:  # ENOTTY: a terminal that is not our controlling terminal has no background
            return False

    def serve(self) -> None:
        """Something can be read: pass it on, and wait to be asked again."""
        if self._fd is None or self._connection is None or not self._registered:
            return  # rank 0 has ended since the selector saw it
        self._unregister()
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            self.asked(self._connection)
            return
        except OSError:
            data = b""
        if data:
            self._server.send(self._connection, protocol.frame(protocol.STDIN, data))
        else:
            self._server.send(self._connection, protocol.message(do="end_of_input"))
            self._fd = None

    def continued(self) -> None:
        """We were stopped and run again, perhaps in the background of the terminal, or no more there."""
        self._unregister()
        if self._connection is not None:
            self.asked(self._connection)

    def _unregister(self) -> None:
        if self._registered and self._fd is not None:
            self._selector.unregister(self._fd)
            self._registered = False

    def close(self) -> None:
        """Rank 0 has ended: leave the rest of the input to whoever reads it next."""
        self._unregister()
        self._fd = None

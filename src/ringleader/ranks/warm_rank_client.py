"""A rank agent's side of a warm rank: it has the host's warm Python fork the rank, and hears how it ended."""

from __future__ import annotations

from ringleader.ranks import rank_identity, unix_messages
from ringleader.ranks.fast_stdlib import signal, socket
from ringleader.ranks.rank_process_start import Failure

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from typing import Any

FORK_SECONDS = 20.0
"""For an answer: the server forks one rank after another, and each fork takes milliseconds."""


class WarmRankUnavailableError(Exception):
    """No warm rank can be had; the rank starts by itself."""


class WarmRankClient:
    """The connection by which one rank was forked; as long as it is open the rank may live."""

    def __init__(self, directory: str) -> None:
        """Connect. Raises WarmRankUnavailableError where nobody listens: it still imports, or has failed."""
        key = rank_identity.host_key(rank_identity.host_identity())
        self._sock: socket.socket = unix_messages.new_socket()
        self._sock.settimeout(FORK_SECONDS)
        try:
            address = unix_messages.SocketAddress(f"{directory}/{key}/{unix_messages.WARM_SOCKET_NAME}")
            try:
                self._sock.connect(address.address)
                unix_messages.check_peer(self._sock)
            finally:
                address.close()
        except OSError as error:
            self._sock.close()
            what = f"it still imports, or has ended ({error.strerror})"
            raise WarmRankUnavailableError(what) from None
        self.fd = self._sock.fileno()

    def start(self, fds: tuple[int, ...], **words: Any) -> int | Failure:
        """Have the rank forked; return its process id. Raises WarmRankUnavailableError."""
        try:
            unix_messages.send(self._sock, words, fds)
            received = unix_messages.receive(self._sock)
        except (OSError, ValueError) as error:
            raise WarmRankUnavailableError(str(error)) from None
        if received is None:
            raise WarmRankUnavailableError("the host's warm Python has ended")
        answer, _ = received
        if answer["do"] == "cold":
            raise WarmRankUnavailableError(str(answer["why"]))
        if answer["do"] == "started":
            self._sock.setblocking(False)
            return int(answer["pid"])
        return Failure(exit_code=int(answer["exit_code"]), reason=str(answer["why"]))

    def status(self) -> int | None:
        """Return the wait status of the rank that has ended, None while it lives.

        Where the server has ended, its ranks have, too: the kernel kills them.
        """
        try:
            received = unix_messages.receive(self._sock)
        except BlockingIOError:
            return None
        except (OSError, ValueError):
            received = None
        return int(signal.SIGKILL) if received is None else int(received[0]["status"])

    def close(self) -> None:
        """Let go of the connection."""
        self._sock.close()

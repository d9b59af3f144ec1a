"""The agent's connection to the launcher: made and proven on both sides, then written without blocking."""

from __future__ import annotations

import time

from ringleader.agents import protocol
from ringleader.agents.fast_stdlib import Any, Iterator, socket, suppress

CONNECT_SECONDS = 3.0
"""For one address; the launcher may offer several of which only some can be reached from here."""
ROUNDS = 3


class LauncherUnreachableError(Exception):
    """The launcher cannot be reached, or what answers is not the launcher."""


class LauncherConnection:
    """A connection that never blocks and keeps what could not be sent yet."""

    def __init__(self, sock: socket.socket, ours: protocol.Seal, theirs: protocol.Seal) -> None:
        """``sock`` is connected and non-blocking. ``ours``, ``theirs``: see ``protocol.introduce``."""
        self._sock = sock
        self._seal, self._decoder = ours, protocol.Decoder(theirs)
        self.fd = sock.fileno()
        self._waiting = bytearray()
        self.open = True

    def keep_alive(self, seconds: float) -> None:
        """Give the connection up after so long a silence."""
        with suppress(OSError):
            protocol.keep_alive(self._sock, seconds)

    def ask_often(self, seconds: float) -> None:
        """Have the kernels ask each other every second; give up after so long a silence (see `silence`)."""
        with suppress(OSError):
            protocol.keep_alive(self._sock, seconds)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(1, round(seconds) - 1))

    def silence(self) -> float:
        """Seconds since anything came from the launcher's host, its kernel's answers included."""
        return protocol.silence(self._sock)

    @property
    def pending(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._waiting)

    def say(self, **words: Any) -> None:
        """Send a message."""
        self.add(protocol.message(**words))

    def add(self, frame: bytes) -> None:
        """Send a frame, now as far as possible."""
        if self.open:
            self._waiting += frame + self._seal.tag(frame)
            self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the connection takes it."""
        try:
            while self._waiting:
                sent = self._sock.send(self._waiting)
                del self._waiting[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield the frames that have arrived; at the connection's end, and where somebody else has sent
        something, it is closed and nothing comes."""
        try:
            data = self._sock.recv(protocol.PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            yield from self._decoder.feed(data)
        except protocol.ProtocolError:
            data = b""
        if not data:
            self.close()

    def close(self) -> None:
        """Close the connection; what waits is lost, nobody is there to read it."""
        self.open = False
        self._waiting.clear()
        self._sock.close()


def connect(control: str, token: str, *, rounds: int = ROUNDS) -> LauncherConnection:
    """Return a connection to the launcher, proven on both sides, by the first address that works."""
    reasons: dict[str, str] = {}
    for attempt in range(rounds):
        for entry in control.split(","):
            address, _, port = entry.rpartition(":")
            try:
                sock = connected(address.strip("[]"), int(port))
                seals = protocol.introduce(sock, token)
            except (OSError, ValueError, protocol.ProtocolError) as error:
                reasons[entry] = str(error)
                continue
            protocol.keep_alive(sock)
            sock.setblocking(False)
            return LauncherConnection(sock, *seals)
        time.sleep(0.2 * attempt)
    tried = "; ".join(f"{entry}: {reason}" for entry, reason in reasons.items())
    raise LauncherUnreachableError(
        f"{socket.gethostname()} cannot reach the launcher ({tried}). "
        "Open that port for this host, or name the interface with --network-interface"
    )


def connected(address: str, port: int) -> socket.socket:
    """Return a blocking connection; ``address`` is a numeric one."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(CONNECT_SECONDS)
        sock.connect((address, port))
    except BaseException:
        sock.close()
        raise
    return sock

"""The messages between launcher and agents: frames over one TCP connection each, and the agents' end of it.

A frame is four bytes of length, one byte of kind, then the payload: JSON for MESSAGE, raw bytes for the
rest. Before anything else both sides prove that they know the job's token, without sending it. From then on
each frame is followed by a tag that only they can make, so that nobody on the way can add, change, repeat or
drop a frame unnoticed. Nothing is encrypted. The launcher's end is in ``launch/supervision``.
"""

from __future__ import annotations

import json
import os
import time
from struct import Struct

from ringleader.agents.light_imports import Any, Iterator, blake2b, compare_digest, socket, suppress

MESSAGE, STDOUT, STDERR, STDIN, BLOB = range(5)
"""Kinds of frames: a JSON object; output of the rank; input for it; a piece of a pickled call or result."""

_HEADER = Struct("!IB")
LARGEST = 8 * 1024 * 1024
"""Bytes in one frame at most: anything larger is from somebody else or a broken stream, not one of ours."""
PIECE = 256 * 1024
"""Bytes in one frame of a long stream."""
LOST_AFTER = 10.0
"""Seconds of silence after which a connection is given up, until the job says otherwise."""
NONCE = PROOF = 32
"""Bytes of a challenge and of its answer, which is a keyed BLAKE2b."""
TAG = 16
"""Bytes after each frame: a BLAKE2b of its number and itself, keyed by connection and direction."""


LONG_MESSAGE = 16 * 1024
"""Bytes from which a message is compressed: a generation's names all its ranks, and goes to all hosts."""
LARGEST_WINDOW, SMALLEST_WINDOW = 1024 * 1024, 16 * 1024
_ALL_WINDOWS = 64 * LARGEST_WINDOW


HOST_MESSAGES = {
    "host_failed": ("why",),
    "prepared": ("versions",),
    "not_prepared": ("why",),
    "spawned": ("incarnation", "pid", "warm"),
    "not_spawned": ("incarnation", "why"),
    "rank_agent_ended": ("incarnation", "exit_code", "signal"),
    "rank_waiting": ("incarnation", "after", "commits", "reason", "arrival"),
    "rank_attached": ("incarnation", "generation"),
    "rank_detached": ("incarnation", "generation"),
    "rank_gone": ("incarnation",),
    "proxy_ready": ("world", "world_rank", "size", "library", "pid"),
    "proxy_gone": ("world", "world_rank"),
    "committed": ("number", "nbytes"),
    "notice": ("why",),
    "commits_frozen": ("frozen",),
    "checkpointed": ("number", "path", "seconds"),
    "not_checkpointed": ("number", "why"),
    "checkpoint_loading": ("path",),
    "checkpoint_loaded": ("number", "path", "refused"),
}
"""What a host agent says once it is connected, after ``host_hello`` → what such a message has at least."""


class ProtocolError(Exception):
    """The other side does not speak this protocol, or does not know the token."""


def frame(kind: int, payload: bytes) -> bytes:
    """Return the bytes of one frame."""
    return _HEADER.pack(len(payload), kind) + payload


def message(**words: Any) -> bytes:
    """Return the bytes of one JSON message."""
    data = json.dumps(words).encode()
    if len(data) >= LONG_MESSAGE:
        import zlib  # few agents need it

        data = zlib.compress(data, 1)
    return frame(MESSAGE, data)


def window(ranks: int) -> int:
    """Return how many bytes of output one of this many ranks may have on its way to the launcher."""
    return max(SMALLEST_WINDOW, min(LARGEST_WINDOW, _ALL_WINDOWS // ranks))


class Seal:
    """Makes the tags of one direction of a connection, frame after frame."""

    def __init__(self, token: str, role: str, challenge: bytes) -> None:
        """``role``: who sends these frames; ``challenge``: both sides' nonces, the launcher's first."""
        self._key = proof(token, f"frames of the {role}", challenge)
        self._number = 0

    def tag(self, data: bytes) -> bytes:
        """Return what follows the next frame."""
        made = blake2b(self._number.to_bytes(8, "big"), key=self._key, digest_size=TAG)
        made.update(data)
        self._number += 1
        return bytes(made.digest())


class Decoder:
    """Cuts a stream of bytes into frames."""

    def __init__(self, seal: Seal) -> None:
        """Begin with nothing received. ``seal``: of whoever sends."""
        self._buffer = bytearray()
        self._seal = seal

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Add what arrived and yield every frame that is complete: (kind, payload).

        Raises ProtocolError for one that the other side has not sent here, or not in this place.
        """
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= _HEADER.size:
            length, kind = _HEADER.unpack_from(self._buffer, start)
            if length > LARGEST or kind > BLOB:
                raise ProtocolError(f"a frame of kind {kind} and {length} bytes")
            end = start + _HEADER.size + length
            if len(self._buffer) < end + TAG:
                break
            whole = bytes(self._buffer[start:end])
            if not compare_digest(self._seal.tag(whole), bytes(self._buffer[end : end + TAG])):
                raise ProtocolError("a frame that the other side has not sent")
            yield kind, whole[_HEADER.size :]
            start = end + TAG
        del self._buffer[:start]


def read_message(payload: bytes) -> dict[str, Any]:
    """Return the JSON object of a MESSAGE frame; raises ProtocolError for anything else."""
    if payload[:1] == b"x":  # with which what zlib compresses begins, and no JSON does
        import zlib

        with suppress(zlib.error):  # cut, or longer than a frame may be: then it cannot be read as JSON
            payload = zlib.decompressobj().decompress(payload, LARGEST)
    try:
        words = json.loads(payload.decode())  # of bytes it would take UTF-16, too
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a message that is not JSON") from error
    if not isinstance(words, dict):
        raise ProtocolError("a message that is not an object")
    return words


def proof(token: str, role: str, challenge: bytes) -> bytes:
    """Return what only a holder of the token can answer to a challenge, different for each role."""
    key = blake2b(token.encode()).digest()  # as long as a key may be
    return blake2b(role.encode() + b"\0" + challenge, key=key, digest_size=PROOF).digest()


def proves(token: str, role: str, challenge: bytes, answer: bytes) -> bool:
    """Say whether an answer to a challenge came from a holder of the token."""
    return compare_digest(proof(token, role, challenge), answer)


def keep_alive(sock: socket.socket, seconds: float = LOST_AFTER, *, idle: int | None = None) -> None:
    """Notice that the other host is gone after this long a silence, and send small frames at once.

    ``idle``: seconds of silence after which the kernels ask each other every second; None: a third of it.

    The kernels ask and answer each other, so that only a host or a link that is down is silent: a process
    that is stopped or gets no processor time is not, and neither we nor our peer have to be running.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = max(1, int(seconds / 3)) if idle is None else idle
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(1, round(seconds) - idle))
    # What was sent and never acknowledged; and, for Linux, the silence above.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(max(0.5, seconds - 0.5) * 1000))


def silence(sock: socket.socket) -> float:
    """Return the seconds since anything came from the other host's kernel, 0 where that is not known.

    `keep_alive` alone may take twice as long: kernels ask no more once there is something to send, and then
    give that its whole time.
    """
    try:
        facts = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    except OSError:
        return 0.0  # closed; whoever reads it sees that
    return float(min(_TCP_INFO.unpack(facts))) / 1000 if len(facts) == _TCP_INFO.size else 0.0


_TCP_INFO = Struct("=52x2I")
"""Of the kernel's ``struct tcp_info``: milliseconds since data came, and since an acknowledgement did."""


# --- the agents' end ---------------------------------------------------------------------------------------

CONNECT_SECONDS = 3.0
"""For one address; the launcher may offer several of which only some can be reached from here."""
ANSWER_SECONDS = 15.0
"""For the launcher, once connected, to prove itself: thousands of agents may have connected before."""
ROUNDS = 3


class LauncherUnreachableError(Exception):
    """The launcher cannot be reached, or what answers is not the launcher."""


def exactly(sock: socket.socket, length: int) -> bytes:
    """Read exactly this many bytes from a blocking socket."""
    data = b""
    while len(data) < length:
        more = sock.recv(length - len(data))
        if not more:
            raise ProtocolError("the launcher closed the connection")
        data += more
    return data


def introduce(sock: socket.socket, token: str) -> tuple[Seal, Seal]:
    """The agent's side of the handshake: answer the launcher's challenge, then have it answer ours.

    Return the seals of what we send, and of what the launcher sends.
    """
    theirs = exactly(sock, NONCE)
    ours = os.urandom(NONCE)
    sock.sendall(ours + proof(token, "agent", theirs + ours))
    if not proves(token, "launcher", ours + theirs, exactly(sock, NONCE)):
        raise ProtocolError("whoever listens there does not know the job's token")
    return Seal(token, "agent", theirs + ours), Seal(token, "launcher", theirs + ours)


class LauncherConnection:
    """A connection that never blocks and keeps what could not be sent yet."""

    def __init__(self, sock: socket.socket, ours: Seal, theirs: Seal) -> None:
        """``sock`` is connected and non-blocking. ``ours``, ``theirs``: see ``introduce``."""
        self._sock = sock
        self._seal, self._decoder = ours, Decoder(theirs)
        self.fd = sock.fileno()
        self._waiting = bytearray()
        self.open = True

    def keep_alive(self, seconds: float, *, idle: int | None = None) -> None:
        """Give the connection up after this long a silence; see the function of this name."""
        with suppress(OSError):
            keep_alive(self._sock, seconds, idle=idle)

    def silence(self) -> float:
        """Seconds since anything came from the launcher's host, its kernel's answers included."""
        return silence(self._sock)

    @property
    def pending(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._waiting)

    def say(self, **words: Any) -> None:
        """Send a message."""
        self.add(message(**words))

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
            data = self._sock.recv(PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            yield from self._decoder.feed(data)
        except ProtocolError:
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
                # First another address may be the launcher's: something else may listen on this one.
                is_only = attempt > 0 or "," not in control
                sock.settimeout(ANSWER_SECONDS if is_only else CONNECT_SECONDS)
                seals = introduce(sock, token)
            except (OSError, ValueError, ProtocolError) as error:
                reasons[entry] = str(error)
                continue
            keep_alive(sock)
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

"""Bytes that TCP connections of this user have moved in this network namespace, as the kernel counted them.

One agent of a host follows them from before its rank starts to after its end, for programs that do not
report what they exchange; ``traffic_counters`` has the counters of interfaces and ports. The kernel lists
connections with their ``tcp_info`` for any user (``ss -ti`` prints them), and reports each one at its end to
whoever listens (``ss -E``; NETLINK_SOCK_DIAG in linux/sock_diag.h, inet_diag.h and tcp.h). So no connection
is missed however short its life, and nothing is read while none ends. Nothing here raises: what could not be
read is named in ``missing``.
"""

from __future__ import annotations

import errno
import os
import select
import time
from struct import pack, unpack_from

from ringleader.agents.light_imports import Any, Iterator, socket, suppress

SOCK_DIAG, BY_FAMILY = 4, 20
"""NETLINK_SOCK_DIAG; SOCK_DIAG_BY_FAMILY."""
ENDS = 1 << 0 | 1 << 2
"""Groups SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY."""
STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11
"""Established, and on their way to their end, while the kernel still has their numbers."""
DONE, ERROR = 3, 2
INFO = 2
"""INET_DIAG_INFO, the attribute that is a ``tcp_info``."""
MAPPED = bytes(10) + b"\xff\xff"
"""Before an IPv4 address in a socket of IPv6."""
ROOM = 4 * 1024 * 1024
"""Bytes of ends that may wait for us; the kernel allows ``net.core.rmem_max``."""
READ_SECONDS = 0.05
MOST_PAIRS, MOST_SENT = 4096, 256
"""Pairs of addresses that are counted, and those with the most bytes that are sent to the launcher."""
TOO_MANY_PAIRS = "they are between too many addresses"
MOST_OTHERS = 65536
"""Connections of other users that are remembered."""
MOST_AT_ONCE, MOST_A_SECOND = 16, 10_000
"""Ends that are read before the agent does something else, and those beyond which they would keep it busy."""


class Connections:
    """Adds up bytes by pair of addresses, from now on."""

    def __init__(self, ignored: frozenset[int] = frozenset()) -> None:
        """``ignored``: ports, of either end, whose connections do not count."""
        self._ignored = ignored
        self._pairs: dict[tuple[str, str], list[int]] = {}
        self._counted: dict[bytes, tuple[int, int]] = {}
        """By a connection's cookie, what of its bytes is counted, or was there before us."""
        self._others: set[bytes] = set()
        """Cookies of other users' connections."""
        self._is_alone = True
        """No connection of another user has been seen."""
        self._unowned: dict[tuple[str, str], int] = {}
        """Bytes of connections whose user is unknown: they began and ended between two looks."""
        self._second, self._ended = 0.0, 0
        self._uid = os.geteuid()
        self.missing = ""
        self._ends: socket.socket | None = None
        try:
            self._ends = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG)
            with suppress(OSError):
                self._ends.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
            self._ends.bind((0, ENDS))
            self._ends.setblocking(False)
        except OSError as error:
            self._fail(error)
        self.look(is_first=True)
        if self.missing:  # connections that were there before us would look like the ranks
            self.close()

    @property
    def fd(self) -> int:
        """What is readable when connections have ended, see ``collect``; -1: nothing."""
        return -1 if self._ends is None else self._ends.fileno()

    def collect(self) -> bool:
        """Count connections that have ended, and return whether more may be waiting."""
        for _ in range(MOST_AT_ONCE):
            if self._ends is None:
                return False
            try:
                data = self._ends.recv(65536)
            except BlockingIOError:
                return False
            except OSError as error:  # ENOBUFS: more have ended at once than there is room for
                self._fail(error)
                if error.errno != errno.ENOBUFS:
                    self.close()
                return False
            for message in _messages(data):
                self._count(message, is_last=True)
        now = time.monotonic()
        if now > self._second + 1:
            self._second, self._ended = now, 0
        self._ended += MOST_AT_ONCE
        if self._ended > MOST_A_SECOND:
            self.missing = self.missing or "too many connections end here"
            self.close()
        return True

    def look(self, patience: float = 1.0, *, is_first: bool = False) -> set[bytes]:
        """Count what living connections have moved by now, and return their cookies.

        ``is_first``: these are ignored. ``patience``: see ``Job``.
        """
        alive: set[bytes] = set()
        until = time.monotonic() + READ_SECONDS * patience
        try:
            for family in (socket.AF_INET, socket.AF_INET6):
                for message in _living(family, until):
                    alive.add(self._count(message, is_first=is_first))
        except OSError as error:
            self._fail(error)
        return alive

    def end(self, patience: float = 1.0) -> dict[str, Any]:
        """Return ``pairs`` (our address, the other one, bytes sent and received) and what is ``missing``.

        ``unowned``: addresses and bytes of connections that ended before it was known whose they are.
        """
        if self._ends is not None:
            until = time.monotonic() + READ_SECONDS * patience
            while self.collect() and time.monotonic() < until:
                pass
            alive, until = self.look(patience), time.monotonic() + READ_SECONDS * patience
            # The kernel reports an end a little after it: those that we have seen alive are waited for.
            ends = select.poll()
            ends.register(self.fd, select.POLLIN)
            while (self.collect() or self._counted.keys() - alive) and time.monotonic() < until:
                ends.poll(1)
            self.close()
        moved = sorted((one for one in self._pairs.items() if any(one[1])), key=lambda one: -sum(one[1]))
        unowned = sorted(self._unowned.items(), key=lambda one: -one[1])
        if len(moved) > MOST_SENT:
            self.missing = self.missing or TOO_MANY_PAIRS
        return {
            "pairs": [[*pair, *both] for pair, both in moved[:MOST_SENT]],
            "unowned": [[*pair, nbytes] for pair, nbytes in unowned[:MOST_SENT]],
            "missing": self.missing,
        }

    def close(self) -> None:
        """Follow connections no longer."""
        if self._ends is not None:
            self._ends.close()
            self._ends = None

    def _fail(self, error: OSError) -> None:
        self.missing = self.missing or error.strerror or str(error)

    def _count(self, message: bytes, *, is_first: bool = False, is_last: bool = False) -> bytes:
        """Count the connection of a message, if it is this user's; return its cookie."""
        found = _connection(message)
        # Without a port it was never a connection.
        if found is None or 0 in found[2] or self._ignored & set(found[2]):
            return b""
        user, pair, _, cookie, moved = found
        if cookie not in self._counted and not (
            self._is_ours_at_its_end(pair, cookie, moved)
            if is_last
            else self._is_ours(user, cookie, is_first=is_first)
        ):
            return b""
        before = self._counted.pop(cookie, (0, 0))
        if not is_last:
            self._counted[cookie] = moved
        if is_first:
            return cookie
        if pair not in self._pairs and len(self._pairs) >= MOST_PAIRS:
            self.missing = self.missing or TOO_MANY_PAIRS
            return cookie
        total = self._pairs.setdefault(pair, [0, 0])
        for index in range(2):
            total[index] += max(0, moved[index] - before[index])
        return cookie

    def _is_ours(self, user: int | None, cookie: bytes, *, is_first: bool) -> bool:
        if user == self._uid:
            return True
        if user is not None:
            self._is_alone = False
        if (user is not None or is_first) and len(self._others) < MOST_OTHERS:
            self._others.add(cookie)
        return False

    def _is_ours_at_its_end(self, pair: tuple[str, str], cookie: bytes, moved: tuple[int, int]) -> bool:
        """Return whose a connection was that has not been counted: the kernel no longer knows its user."""
        if cookie in self._others:
            self._others.discard(cookie)
            return False
        if not self._is_alone and (pair in self._unowned or len(self._unowned) < MOST_PAIRS):
            self._unowned[pair] = self._unowned.get(pair, 0) + sum(moved)
        return self._is_alone


def _living(family: int, until: float) -> Iterator[bytes]:
    """Yield the message of each connection that there is. Raises OSError, also where the time is over."""
    request = pack("=BBBxI48x", family, socket.IPPROTO_TCP, 1 << (INFO - 1), STATES)
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG)
    try:
        sock.settimeout(max(0.001, until - time.monotonic()))
        sock.send(pack("=IHHII", 16 + len(request), BY_FAMILY, 0x301, 1, 0) + request)
        while True:
            if time.monotonic() > until:
                raise TimeoutError(0, "they were not all read in time")
            for message in _messages(sock.recv(65536)):
                (kind,) = unpack_from("=H", message, 4)
                if kind == DONE:
                    return
                if kind == ERROR:
                    number = -unpack_from("=i", message, 16)[0] if len(message) >= 20 else 0
                    raise OSError(number, os.strerror(number))
                yield message
    finally:
        sock.close()


def _messages(data: bytes) -> Iterator[bytes]:
    """Yield each message of what was received, its header included."""
    while len(data) >= 16:
        (length,) = unpack_from("=I", data)
        if not 16 <= length <= len(data):
            return
        yield data[:length]
        data = data[length + 3 & ~3 :]


def _connection(
    message: bytes,
) -> tuple[int | None, tuple[str, str], tuple[int, int], bytes, tuple[int, int]] | None:
    """Return user, addresses, ports, cookie, and bytes sent and received; of both ends ours comes first.

    The user is ``None`` where no process has the socket, not yet or no more. ``None`` for all of
    them: it is about something else, or the kernel is older than 4.1 and counts no bytes.
    """
    kind = unpack_from("=H", message, 4)[0] if len(message) >= 88 else 0
    if kind != BY_FAMILY:
        return None
    family, ports = message[16], unpack_from("!HH", message, 20)
    ours, others, cookie = message[24:40], message[40:56], message[60:68]
    user, inode = unpack_from("=II", message, 80)
    at = 88
    while at + 4 <= len(message):
        length, attribute = unpack_from("=HH", message, at)
        if attribute == INFO and length >= 4 + 136 and at + 140 <= len(message):
            moved = unpack_from("=QQ", message, at + 4 + 120)
            return (
                user if inode else None,
                (_address(family, ours), _address(family, others)),
                ports,
                cookie,
                moved,
            )
        at += max(4, length + 3 & ~3)
    return None


def _address(family: int, packed: bytes) -> str:
    """Return IPv4 with dots, IPv6 in 32 hex digits, as ``traffic_counters`` has them."""
    if family == socket.AF_INET:
        return socket.inet_ntoa(packed[:4])
    return socket.inet_ntoa(packed[12:]) if packed.startswith(MAPPED) else packed.hex()

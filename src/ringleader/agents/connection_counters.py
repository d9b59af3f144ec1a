"""Bytes that TCP connections of a job's processes have moved on this host, as the kernel counted them.

One agent of a host follows them from before its rank starts to after its end, for programs that do not
report what they exchange; ``traffic_counters`` has the counters of interfaces and ports. The kernel lists
connections with their ``tcp_info`` for any user (``ss -ti`` prints them), and reports each one at its end to
whoever listens (``ss -E``; NETLINK_SOCK_DIAG in linux/sock_diag.h, inet_diag.h and tcp.h). Whose a living one
is, its inode says: ``/proc/PID/fd`` lists those of a process. At its end it has none any more, so connections
are looked at while they live, at most every `LOOK_SECONDS`; bytes of short ones that may be others' are
`unowned`. Nothing here raises: what could not be read is named in ``missing``.
"""

from __future__ import annotations

import errno
import os
import select
import time
from struct import pack, unpack_from

from ringleader.agents.light_imports import Any, Callable, Iterable, Iterator, socket, suppress

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
"""Connections of others that are remembered."""
LOOK_SECONDS = 0.25
"""Between two looks at living connections at least."""
MOST_PART, AT_FIRST = 0.004, 0.1
"""Part of a core that looks take on average at most; how many seconds more they may take in the beginning."""
MOST_AT_ONCE, MOST_A_SECOND = 16, 10_000
"""Ends that are read before the agent does something else, and those beyond which they would keep it busy."""


class Connection:
    """What the kernel says of one; of both ends ours comes first."""

    def __init__(self, inode: int, user: int, cookie: bytes) -> None:
        """``inode``: 0 where no process has the socket, not yet or no more; nor is the user known then."""
        self.inode, self.user, self.cookie = inode, user if inode else None, cookie
        self.pair, self.ports, self.moved = ("", ""), (0, 0), (0, 0)
        """Addresses; ports; bytes sent and received."""


class Connections:
    """Adds up bytes by pair of addresses, from now on."""

    def __init__(self, processes: Callable[[], Iterable[int]], ignored: frozenset[int] = frozenset()) -> None:
        """``processes`` returns those of the job. ``ignored``: ports whose connections do not count."""
        self._ignored = ignored
        self._processes = processes
        self.look_at: float | None = None
        """When the next look is due (``time.monotonic``); ``None``: never."""
        self._began, self._spent = time.monotonic(), 0.0
        self._pairs: dict[tuple[str, str], list[int]] = {}
        self._counted: dict[bytes, tuple[int, int]] = {}
        """By a connection's cookie, what of its bytes is counted, or was there before us."""
        self._others: set[bytes] = set()
        """Cookies of connections that are others'."""
        self._doubtful: set[bytes] = set()
        """Those of this user that seemed so in one look: their process may just have ended."""
        self._is_alone = True
        """No connection of another user has been seen, and none of another program of this user."""
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
        now = time.monotonic()
        if now > self._second + 1:
            self._second, self._ended = now, 0
        elif self._ended > MOST_A_SECOND:
            self.missing = self.missing or "too many connections end here"
            self.close()
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
            self._ended += 1
            for message in _messages(data):
                if (found := self._relevant(message)) is not None and self._is_ours_at_its_end(found):
                    self._count(found, is_last=True)
        return True

    def look(self, patience: float = 1.0, *, is_first: bool = False, is_last: bool = False) -> set[bytes]:
        """Count what living connections of the job have moved by now, and return all cookies.

        ``is_first``: these are ignored. ``is_last``: no later look counts what this one was too late for.
        ``patience``: see ``Job``.
        """
        began, until = time.thread_time(), time.monotonic() + READ_SECONDS * patience
        found: list[Connection] = []
        try:
            for family in (socket.AF_INET, socket.AF_INET6):
                found += filter(None, map(self._relevant, _living(family, until)))
        except OSError as error:
            if is_first or is_last or not isinstance(error, (TimeoutError, socket.timeout)):
                self._fail(error)
        unknown = [one for one in found if one.cookie not in self._counted and one.cookie not in self._others]
        is_new = any(one.user == self._uid for one in unknown)
        # Who had a socket when they were listed is among the processes that there are now.
        ours = _sockets(self._processes()) if is_new else frozenset()
        for one in found:
            if one.cookie in self._counted or one.inode in ours:
                self._count(one, is_first=is_first)
        doubtful, self._doubtful = self._doubtful, set()
        for one in unknown:
            if one.inode not in ours and (is_first or one.user is not None):
                is_ssh = one.user == self._uid and 22 in one.ports  # it moves no bytes of a job
                self._is_alone = self._is_alone and (one.user is None or is_ssh)
                if not is_first and one.user == self._uid and one.cookie not in doubtful:
                    self._doubtful.add(one.cookie)
                elif len(self._others) < MOST_OTHERS:
                    self._others.add(one.cookie)
        self._spent += time.thread_time() - began
        due = self._began + max(0.0, self._spent - AT_FIRST) / MOST_PART
        self.look_at = None if self._ends is None else max(time.monotonic() + LOOK_SECONDS, due)
        return {one.cookie for one in found}

    def end(self, patience: float = 1.0) -> dict[str, Any]:
        """Return ``pairs`` (our address, the other one, bytes sent and received) and what is ``missing``.

        ``unowned``: addresses and bytes of connections that ended before it was known whose they are.
        """
        if self._ends is not None:
            until = time.monotonic() + READ_SECONDS * patience
            while self.collect() and time.monotonic() < until:
                pass
            alive, until = self.look(patience, is_last=True), time.monotonic() + READ_SECONDS * patience
            # The kernel reports an end a little after it: those that we have seen alive are waited for.
            ends = select.poll()
            if self.fd >= 0:
                ends.register(self.fd, select.POLLIN)
            while (self.collect() or self._counted.keys() - alive) and time.monotonic() < until:
                if self.fd < 0:
                    break
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
        self.look_at = None
        if self._ends is not None:
            self._ends.close()
            self._ends = None

    def _fail(self, error: OSError) -> None:
        self.missing = self.missing or error.strerror or str(error)

    def _relevant(self, message: bytes) -> Connection | None:
        """Return the connection of a message; ``None`` for one that does not count."""
        found = _connection(message)
        # Without a port it was never a connection.
        return None if found is None or 0 in found.ports or self._ignored & {*found.ports} else found

    def _count(self, one: Connection, *, is_first: bool = False, is_last: bool = False) -> None:
        """Count what a connection of the job has moved since it was counted last."""
        before = self._counted.pop(one.cookie, (0, 0))
        if not is_last:
            self._counted[one.cookie] = one.moved
        if is_first:
            return
        if one.pair not in self._pairs and len(self._pairs) >= MOST_PAIRS:
            self.missing = self.missing or TOO_MANY_PAIRS
            return
        total = self._pairs.setdefault(one.pair, [0, 0])
        for index in range(2):
            total[index] += max(0, one.moved[index] - before[index])

    def _is_ours_at_its_end(self, one: Connection) -> bool:
        """Return whose a connection was: the kernel no longer knows its user."""
        if one.cookie in self._counted:
            return True
        if one.cookie in self._others:
            self._others.discard(one.cookie)
            return False
        if not self._is_alone and (one.pair in self._unowned or len(self._unowned) < MOST_PAIRS):
            self._unowned[one.pair] = self._unowned.get(one.pair, 0) + sum(one.moved)
        return self._is_alone


def _sockets(processes: Iterable[int]) -> frozenset[int]:
    """Return the inodes of the sockets that processes have; those of one that we may not look into are not
    among them."""
    found = set[int]()
    for pid in processes:
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
                with suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115
                    if target.startswith("socket:["):
                        found.add(int(target[8:-1]))
    return frozenset(found)


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


def _connection(message: bytes) -> Connection | None:
    """Return what a message says; ``None``: it is about something else, or the kernel is older than 4.1 and
    counts no bytes."""
    kind = unpack_from("=H", message, 4)[0] if len(message) >= 88 else 0
    if kind != BY_FAMILY:
        return None
    family, ports = message[16], unpack_from("!HH", message, 20)
    user, inode = unpack_from("=II", message, 80)
    at = 88
    while at + 4 <= len(message):
        length, attribute = unpack_from("=HH", message, at)
        if attribute == INFO and length >= 4 + 136 and at + 140 <= len(message):
            one = Connection(inode, user, message[60:68])
            one.pair = _address(family, message[24:40]), _address(family, message[40:56])
            one.ports, one.moved = ports, unpack_from("=QQ", message, at + 4 + 120)
            return one
        at += max(4, length + 3 & ~3)
    return None


def _address(family: int, packed: bytes) -> str:
    """Return IPv4 with dots, IPv6 in 32 hex digits, as ``traffic_counters`` has them."""
    if family == socket.AF_INET:
        return socket.inet_ntoa(packed[:4])
    return socket.inet_ntoa(packed[12:]) if packed.startswith(MAPPED) else packed.hex()

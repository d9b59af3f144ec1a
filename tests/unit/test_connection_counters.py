"""Bytes of TCP connections: of real ones, and messages of the kernel that are cut or of old kernels."""

import errno
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ringleader.agents import connection_counters
from ringleader.agents.connection_counters import Connections, _connection, _messages

HOME = "127.0.0.1"
HOME_6 = "1".zfill(32)
MADE: list[socket.socket] = []
"""Sockets of a test, closed after it."""


def of_this_process(ignored: frozenset[int] = frozenset()) -> Connections:
    return Connections(lambda: [os.getpid()], ignored)


def ends(host: str, *, listener: str = "") -> tuple[socket.socket, socket.socket]:
    family = socket.AF_INET6 if ":" in (listener or host) else socket.AF_INET
    with socket.socket(family) as server:
        server.bind((listener or host, 0))
        server.listen()
        near = socket.create_connection((host, server.getsockname()[1]))
        far, _ = server.accept()
    MADE.extend((near, far))
    return near, far


def say(near: socket.socket, far: socket.socket, size: int) -> None:
    near.sendall(b"x" * size)
    while size:
        size -= len(far.recv(size))


def moved(connections: Connections) -> dict[tuple[str, str], list[int]]:
    found = connections.end(patience=20.0)
    assert found["missing"] == ""
    return {(ours, other): [sent, received] for ours, other, sent, received in found["pairs"]}


@pytest.fixture(autouse=True)
def kernel_lists_connections() -> Iterator[None]:
    connections = of_this_process()
    if connections.missing:
        pytest.skip(f"this kernel does not list connections: {connections.missing}")
    yield
    while MADE:
        MADE.pop().close()


def test_a_connection_that_lives_and_one_that_has_ended() -> None:
    connections = of_this_process()
    assert connections.fd >= 0
    first, second = ends(HOME, listener="::"), ends("::1")
    connections.look()
    say(*first, 70_000)
    for one in first:
        one.close()
    connections.collect()
    say(*second, 30_000)
    found = moved(connections)
    assert connections.fd == -1
    for pair, size in (((HOME, HOME), 70_000), ((HOME_6, HOME_6), 30_000)):
        # SYN and FIN count as a byte each. Other programs of this user may speak on the loopback interface.
        assert all(size <= way < size + 20_000 for way in found[pair]), (pair, found)


def test_what_moved_before_does_not_count_and_bytes_count_once() -> None:
    near, far = ends(HOME)
    say(near, far, 500_000)
    connections = of_this_process()
    say(near, far, 60_000)
    connections.look()
    connections.look()
    near.close()
    far.close()
    assert all(60_000 <= way < 90_000 for way in moved(connections)[HOME, HOME])


def test_connections_of_the_launcher_do_not_count() -> None:
    near, far = ends(HOME)
    port = near.getpeername()[1]
    connections = of_this_process(frozenset({port}))
    say(near, far, 400_000)
    near.close()
    far.close()
    assert max(moved(connections).get((HOME, HOME), [0])) < 100_000


def as_nobody(what: Callable[[], Any]) -> Any:
    """Return what a function returns in a process of a user who is not root, as JSON."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(1_000_000 + os.getpid())  # nobody else has connections
            os.write(writer, json.dumps(what()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        found = file.read()
    os.waitpid(child, 0)
    return json.loads(found)


@pytest.mark.process
def test_bytes_after_the_last_look_count_although_an_end_names_no_user() -> None:
    ends(HOME)  # of root

    def job() -> Any:
        connections = of_this_process()
        near, far = ends(HOME)
        connections.look()
        say(near, far, 3_000_000)
        for one in (near, far):
            one.close()
        began = time.monotonic()
        return connections.end(patience=20.0), time.monotonic() - began

    found, seconds = as_nobody(job)
    ((*_, sent, received),) = found["pairs"]
    assert min(sent, received) >= 3_000_000 and found["missing"] == ""
    assert seconds < 0.9, "nothing was left to wait for"


@pytest.mark.process
def test_connections_of_another_user_do_not_count_at_their_end() -> None:
    """Of one that nobody saw alive, the bytes are named apart."""

    def job() -> Any:
        connections = of_this_process()
        pipe_in.recv(1)
        connections.look()
        pipe_in.send(b"x")
        pipe_in.recv(1)
        time.sleep(0.05)  # the kernel reports an end a little after it
        return connections.end()

    pipe_in, pipe_out = socket.socketpair()

    def others() -> None:
        first = ends(HOME)
        pipe_out.send(b"x")
        pipe_out.recv(1)
        second = ends(HOME)
        for pair in (first, second):
            say(*pair, 2_000_000)
            for one in pair:
                one.close()
        pipe_out.send(b"x")

    thread = threading.Thread(target=others)
    thread.start()
    found = as_nobody(job)
    thread.join()
    assert found["pairs"] == []
    assert sum(pair[2] for pair in found["unowned"]) >= 4_000_000


@pytest.mark.process
@pytest.mark.parametrize("alive", [True, False], ids=["at the end", "ended before"])
def test_connections_of_another_program_of_the_same_user_do_not_count(alive: bool) -> None:
    """Two jobs of one user on one host."""
    other = subprocess.Popen(
        (sys.executable, "-c", OTHER_PROGRAM), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    connections = of_this_process()
    near, far = ends(HOME)
    other.stdin.write(b"connect\n")
    other.stdin.flush()
    other.stdout.readline()
    connections.look()
    assert not connections._is_alone
    say(near, far, 300_000)
    if alive:
        assert 300_000 <= max(moved(connections)[HOME, HOME]) < 400_000
    other.communicate()
    if not alive:
        time.sleep(0.05)  # the kernel reports an end a little after it
        assert 300_000 <= max(moved(connections)[HOME, HOME]) < 400_000


OTHER_PROGRAM = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
input()
near = socket.create_connection(server.getsockname())
far, _ = server.accept()
near.sendall(bytes(200_000))
far.recv(200_000, socket.MSG_WAITALL)
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("limit", ["MOST_PAIRS", "MOST_SENT"])
def test_pairs_that_are_left_out_are_named(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    connections = of_this_process()
    with monkeypatch.context() as late:  # what one look was too late for, the next one counts
        late.setattr(connection_counters, "READ_SECONDS", -1.0)
        connections.look()
        assert not connections.missing and connections.end()["missing"]
    monkeypatch.setattr(connection_counters, limit, 0)
    connections = of_this_process()
    near, far = ends(HOME)
    say(near, far, 50_000)
    assert connections.end()["missing"] == connection_counters.TOO_MANY_PAIRS


def test_too_many_ends_are_followed_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        def recv(self, size: int) -> bytes:
            return b""

        def fileno(self) -> int:
            return 0

        def close(self) -> None:
            """It has nothing."""

    connections = of_this_process()
    connections.close()
    connections._ends = Endless()
    assert connections.collect(), "it comes back, and others have their turn"
    monkeypatch.setattr(connection_counters, "MOST_A_SECOND", 0)
    connections._counted[b"lost"] = 0, 0
    assert connections.end()["missing"] == "too many connections end here"
    assert connections.fd == -1


class Refusing:
    """A socket as a kernel or a container without this service has it."""

    def __init__(self, *_arguments: Any) -> None:
        raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))


def test_where_connections_cannot_be_listed_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_counters.socket, "socket", Refusing)
    connections = of_this_process()
    assert (connections.fd, connections.end()) == (
        -1,
        {"pairs": [], "unowned": [], "missing": "Protocol not supported"},
    )


def message(info: bytes = bytes(120) + struct.pack("=QQ", 5, 7), kind: int = 20, family: int = 2) -> bytes:
    addresses = socket.inet_aton("10.0.0.1") + bytes(12) + socket.inet_aton("10.0.0.2") + bytes(12)
    about = struct.pack("=4B", family, 1, 0, 0) + struct.pack("!HH", 1000, 2000) + addresses
    about += struct.pack("=I8sIIIII", 0, b"cookie!!", 0, 0, 0, 42, 99)
    attributes = struct.pack("=HHBxxx", 5, 10, 6) + struct.pack("=HH", 4 + len(info), 2) + info
    return struct.pack("=IHHII", 16 + len(about + attributes), kind, 0, 1, 0) + about + attributes


def test_a_message() -> None:
    found = _connection(message())
    assert found is not None and found.pair == ("10.0.0.1", "10.0.0.2")
    assert (found.inode, found.user, found.ports, found.cookie) == (99, 42, (1000, 2000), b"cookie!!")
    assert found.moved == (5, 7)
    assert _connection(message(info=bytes(104))) is None, "before Linux 4.1"
    assert _connection(message(kind=2)) is None


def test_messages_that_are_cut_or_make_no_sense() -> None:
    data = message()
    for size in (0, 3, 15, 16, 40, 87, 88, 91, 100, 150, 230):
        assert list(_messages(data + data[:size]))[:1] == [data]
        assert _connection(data[:size]) is None
    for length in (0, 7, 1 << 31):
        assert list(_messages(struct.pack("=I", length) + bytes(60))) == []
    broken = bytearray(data)
    struct.pack_into("=H", broken, 88, 0)  # an attribute of no length
    found = _connection(bytes(broken))
    assert found is None or found.moved == (5, 7)

"""The launcher's port: who may find it, and what strangers can do there."""

import json
import selectors
import socket
import threading
import time
import zlib
from types import SimpleNamespace

import pytest
from tests.time_limits import patience

from ringleader.agents import protocol
from ringleader.agents.protocol import LauncherConnection
from ringleader.launch.supervision import agent_connections
from ringleader.launch.supervision.agent_connections import AgentConnection, AgentServer

TOKEN = "secret"


def turn(selector, server):
    """Serve what has happened."""
    for key, mask in selector.select(0.05):
        if key.data == server.accept:
            server.accept()
        else:
            list(server.serve(key.data, mask))
    server.tick()


def ended(sock):
    """Say whether the other side has closed a connection, after its challenge."""
    sock.settimeout(0.05)
    try:
        while sock.recv(100):
            pass
    except TimeoutError:
        return False
    return True


def test_strangers_neither_hang_nor_starve_the_job(monkeypatch):
    monkeypatch.setattr(agent_connections, "PROOF_SECONDS", 1.0)
    selector = selectors.PollSelector()
    server = AgentServer(selector, token=TOKEN, addresses=("127.0.0.1",), ranks=1)
    strangers = []
    for _ in range(80):  # more than have a place
        strangers.append(socket.create_connection(("127.0.0.1", server.port)))
        turn(selector, server)
    assert ended(strangers[0]) and not ended(strangers[-1])

    agent = socket.create_connection(("127.0.0.1", server.port))
    for _ in range(3):
        turn(selector, server)
    challenge = protocol.exactly(agent, protocol.NONCE)
    nonce = bytes(protocol.NONCE)
    agent.sendall(nonce + protocol.proof(TOKEN, "agent", challenge + nonce))
    for _ in range(3):
        turn(selector, server)
    assert protocol.proves(TOKEN, "launcher", nonce + challenge, protocol.exactly(agent, protocol.PROOF))

    until = time.monotonic() + patience(20)
    while not ended(strangers[-1]):
        turn(selector, server)
        assert time.monotonic() < until, "a stranger without a proof is let go"
    assert not ended(agent)
    server.close()
    for sock in (*strangers, agent):
        sock.close()


def test_a_silent_host_is_given_up_whatever_waits_for_it(monkeypatch):
    """Its kernel is asked no more while something is sent to it, so the connection alone would live on."""
    selector = selectors.PollSelector()
    server = AgentServer(selector, token=TOKEN, addresses=("127.0.0.1",), ranks=1, lost_after=3.0)
    agent = socket.create_connection(("127.0.0.1", server.port))
    turn(selector, server)
    (connection,) = [key.data for key in selector.get_map().values() if key.data != server.accept]
    turn(selector, server)
    assert 0.0 <= protocol.silence(connection.sock) < 3.0 and not server.lost(connection)
    monkeypatch.setattr(protocol, "silence", lambda _sock: 4.5)
    until = time.monotonic() + patience(20)
    while not server.lost(connection):
        turn(selector, server)
        assert time.monotonic() < until
    assert connection.silent
    server.close()
    agent.close()


def test_it_listens_where_agents_are_told_to_look_and_nowhere_else():
    server = AgentServer(selectors.PollSelector(), token=TOKEN, addresses=("127.0.0.1", "127.0.0.2"), ranks=1)
    for address in ("127.0.0.1", "127.0.0.2"):
        socket.create_connection((address, server.port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.3", server.port), timeout=5)
    server.close()
    server = AgentServer(selectors.PollSelector(), token=TOKEN, addresses=("192.0.2.1",), ranks=1)
    socket.create_connection(("127.0.0.1", server.port), timeout=5).close()  # none of the addresses is ours
    server.close()


class Line:
    """A proven connection between an agent and the launcher; what is on its way may be changed."""

    def __init__(self):
        self.selector = selectors.PollSelector()
        self.server = AgentServer(self.selector, token=TOKEN, addresses=("127.0.0.1",), ranks=1)
        self.heard = []
        made = []

        def introduce():
            sock = socket.create_connection(("127.0.0.1", self.server.port))
            made.append((sock, protocol.introduce(sock, TOKEN)))

        agent = threading.Thread(target=introduce)
        agent.start()
        while agent.is_alive():
            turn(self.selector, self.server)
        self.sock, (self.ours, self.theirs) = made[0]
        data = [key.data for key in self.selector.get_map().values()]
        (self.connection,) = [one for one in data if isinstance(one, AgentConnection)]

    def arrive(self, data):
        """Have the launcher hear these bytes."""
        self.sock.sendall(data)
        for _ in range(5):
            for key, mask in self.selector.select(0.02):
                self.heard += [payload for _, payload in self.server.serve(key.data, mask)]

    def close(self):
        self.server.close()
        self.sock.close()


@pytest.fixture
def line():
    made = Line()
    yield made
    made.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda one, two: [one, two],
        lambda one, two: [protocol.frame(protocol.BLOB, b"injected")],
        lambda one, two: [protocol.frame(protocol.BLOB, b"injected") + bytes(protocol.TAG)],
        lambda one, two: [one, protocol.frame(protocol.BLOB, b"injected") + one[-protocol.TAG :]],
        lambda one, two: [one[:7] + bytes([one[7] ^ 1]) + one[8:]],
        lambda one, two: [one[:4] + bytes([protocol.STDOUT]) + one[5:]],
        lambda one, two: [one[:-1] + bytes([one[-1] ^ 1])],
        lambda one, two: [two],
        lambda one, two: [one, one],
    ],
    ids=["", "added", "tag", "tag of another", "changed", "kind", "changed tag", "left out", "repeated"],
)
def test_a_frame_that_the_agent_has_not_sent_there_ends_the_connection(line, change):
    frames = [protocol.frame(protocol.BLOB, payload * 500) for payload in (b"first", b"second")]
    one, two = (frame + line.ours.tag(frame) for frame in frames)
    sent = change(one, two)
    line.arrive(b"".join(sent))
    assert line.heard == [b"first" * 500, b"second" * 500][: 2 if sent == [one, two] else len(line.heard)]
    line.arrive(bytes(40))
    assert line.server.lost(line.connection) and line.heard[:1] in ([], [b"first" * 500])


def test_a_long_message_is_compressed():
    """That of a generation names thousands of ranks, and goes to every host."""
    words = {"do": "generation", "members": [[n, n, n // 8, n % 8] for n in range(8192)], "hosts": ["é" * 9]}
    frame = protocol.message(**words)
    assert len(frame) < len(json.dumps(words)) / 3
    assert protocol.read_message(frame[5:]) == words


@pytest.mark.parametrize(
    "payload",
    [
        b'\xef\xbb\xbf{"kind": "x"}',
        '{"kind": "x"}'.encode("utf-16"),
        b'{"kind": "\xed\xa0\x80"}',
        b"x",
        b"x\x01junk",
        zlib.compress(b"not JSON" * 3000),
        zlib.compress(b'{"do": "%s"}' % (b"x" * protocol.LARGEST)),
    ],
    ids=["mark", "UTF-16", "surrogate", "cut", "junk", "no JSON", "longer than a frame may be"],
)
def test_what_is_no_message_is_refused(payload):
    """It is UTF-8: an agent passes a script's lines on as they are, within a message."""
    with pytest.raises(protocol.ProtocolError):
        protocol.read_message(payload)


def test_what_the_launcher_sends_cannot_be_changed_either(line):
    line.sock.setblocking(False)
    agent = LauncherConnection(line.sock, line.ours, line.theirs)
    line.server.send(line.connection, protocol.message(do="start", argv=["train.py"]))
    received = list(agent.frames())
    assert [protocol.read_message(payload)["do"] for _, payload in received] == ["start"] and agent.open
    line.connection.sock.sendall(protocol.message(do="start", argv=["evil.py"]) + bytes(protocol.TAG))
    assert list(agent.frames()) == [] and not agent.open


def test_a_frame_sent_back_to_its_sender_is_refused(line):
    """Both directions have their own keys."""
    line.sock.setblocking(False)
    frame = protocol.message(do="bye")
    line.arrive(frame + line.theirs.tag(frame))
    assert line.server.lost(line.connection) and line.heard == []


@pytest.mark.parametrize(
    ("addresses", "expected"), [("127.0.0.1:1,127.0.0.1:2", [3, 3, 15, 15]), ("127.0.0.1:1", [15, 15])]
)
def test_an_address_that_is_silent_keeps_no_agent_from_the_next(addresses, expected, monkeypatch):
    waits = []

    def introduce(sock, token):
        raise TimeoutError("silent")

    monkeypatch.setattr(protocol, "connected", lambda *_: SimpleNamespace(settimeout=waits.append))
    monkeypatch.setattr(protocol, "introduce", introduce)
    with pytest.raises(protocol.LauncherUnreachableError, match="silent"):
        protocol.connect(addresses, "token", rounds=2)
    assert waits == expected


def test_the_silence_of_a_connection_within_the_host_is_not_known():
    one, other = socket.socketpair()
    assert protocol.silence(one) == 0.0
    one.close()
    other.close()

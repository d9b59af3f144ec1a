"""The launcher's port: who may find it, and what strangers can do there."""

from __future__ import annotations

import selectors
import socket
import time

import pytest
from tests.time_limits import patience

from ringleader.launch.supervision import agent_connections
from ringleader.launch.supervision.agent_connections import AgentServer
from ringleader.ranks import protocol

TOKEN = "secret"


def turn(selector: selectors.BaseSelector, server: AgentServer) -> None:
    """Serve what has happened."""
    for key, mask in selector.select(0.05):
        if isinstance(key.data, AgentServer):
            server.accept()
        else:
            list(server.serve(key.data, mask))
    server.tick()


def ended(sock: socket.socket) -> bool:
    """Say whether the other side has closed a connection, after its challenge."""
    sock.settimeout(0.05)
    try:
        while sock.recv(100):
            pass
    except TimeoutError:
        return False
    return True


def test_strangers_neither_hang_nor_starve_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_silent_host_is_given_up_whatever_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel is asked no more while something is sent to it, so the connection alone would live on."""
    selector = selectors.PollSelector()
    server = AgentServer(selector, token=TOKEN, addresses=("127.0.0.1",), ranks=1, lost_after=3.0)
    agent = socket.create_connection(("127.0.0.1", server.port))
    turn(selector, server)
    (connection,) = [key.data for key in selector.get_map().values() if not isinstance(key.data, AgentServer)]
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


def test_the_silence_of_a_connection_within_the_host_is_not_known() -> None:
    one, other = socket.socketpair()
    assert protocol.silence(one) == 0.0
    one.close()
    other.close()


def test_it_listens_where_agents_are_told_to_look_and_nowhere_else() -> None:
    server = AgentServer(selectors.PollSelector(), token=TOKEN, addresses=("127.0.0.1", "127.0.0.2"), ranks=1)
    for address in ("127.0.0.1", "127.0.0.2"):
        socket.create_connection((address, server.port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.3", server.port), timeout=5)
    server.close()


def test_none_of_the_addresses_is_ours() -> None:
    server = AgentServer(selectors.PollSelector(), token=TOKEN, addresses=("192.0.2.1",), ranks=1)
    socket.create_connection(("127.0.0.1", server.port), timeout=5).close()
    server.close()

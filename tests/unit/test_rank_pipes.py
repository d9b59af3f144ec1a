"""A rank's process as its agent has it: pipes, ports, descriptors, and when all of it is killed."""

import os
import pickle
import socket
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from ringleader.agents import process_tree, protocol, rank_process
from ringleader.agents.rank_pipes import RankPipes
from ringleader.agents.rank_process import LAUNCHER, RankProcess


class Launcher:
    """Takes frames; nothing waits."""

    pending = 0

    def __init__(self):
        self.output = b""
        self.words = []

    def add(self, frame):
        kind, payload = frame[4], frame[5:]
        if kind == protocol.MESSAGE:
            self.words.append(protocol.read_message(payload))
        else:
            self.output += payload

    def say(self, **words):
        self.words.append(words)


@pytest.fixture
def launcher():
    return Launcher()


@pytest.fixture
def pipes(launcher):
    connection = launcher
    made = RankPipes(connection)
    yield made
    made.give_up()


def serve(pipes):
    """Read once whatever the agent would poll for."""
    for fd, events in pipes.interests():
        pipes.serve(fd, events)


def test_no_more_is_read_than_was_granted(launcher, pipes):
    _, out, err, report = pipes.make(with_input=False, window=8)
    os.write(out, b"12345678")
    serve(pipes)
    assert launcher.output == b"12345678" and pipes.held
    os.write(out, b"more")
    os.write(report, b'{"kind": "step"}\n')
    serve(pipes)
    assert launcher.output == b"12345678", "it waits in the pipe, as for any slow reader"
    assert launcher.words == [{"do": "report", "report": {"kind": "step"}}], "what a rank reports does not"
    pipes.allow(8)
    serve(pipes)
    assert launcher.output == b"12345678more" and not pipes.held
    assert len({out, err, report}) == 3
    pipes.close_far_ends()
    serve(pipes)
    assert pipes.drained


def test_a_port_for_jax_is_in_its_range_and_held():
    with closing(rank_process.jax_port()) as one, closing(rank_process.jax_port()) as other:
        numbers = {sock.getsockname()[1] for sock in (one, other)}
        assert len(numbers) == 2 and all(number in rank_process.JAX_PORTS for number in numbers)


def test_a_port_at_which_somebody_listens_is_passed_over():
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as JAX's server does
        server.bind(("", 0))
        server.listen()
        taken = server.getsockname()[1]
        with closing(rank_process.jax_port(range(taken, taken + 1))) as sock:
            assert sock.getsockname()[1] != taken


def grace_of(orders, place):
    """Return the seconds that are left after orders to end, in a process that has no others below it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            launcher = SimpleNamespace(say=lambda **words: None)
            directory = SimpleNamespace(path=str(place))
            rank = RankProcess(launcher=launcher, rank=0, directory=directory, environ={})
            before = time.monotonic()
            for by, grace in orders:
                rank.stop(by, grace)
            os.write(write, pickle.dumps((rank.kill_at or 0.0) - before))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        seconds = float(pickle.load(answer))
    os.waitpid(pid, 0)
    return seconds


@pytest.mark.process
@pytest.mark.parametrize(
    ("orders", "graces"),
    [
        ([(LAUNCHER, 100.0)], (90, 110)),
        ([("mpi", 2.0), (LAUNCHER, 100.0)], (90, 110)),
        ([(LAUNCHER, 100.0), (LAUNCHER, 0.0)], (-10, 10)),
        ([(LAUNCHER, 10.0), (LAUNCHER, 100.0)], (0, 20)),
        ([("mpi", 2.0), ("daemon", 100.0)], (-10, 12)),
    ],
    ids=["the launcher's", "the launcher's, not the MPI's", "a second order", "the first", "the shortest"],
)
def test_whose_grace_counts(orders, graces, tmp_path):
    assert graces[0] < grace_of(orders, tmp_path) < graces[1]


@pytest.mark.process
def test_a_child_has_the_standard_descriptors_and_those_it_is_to_have():
    kept = [os.memfd_create("kept") for _ in range(4)]
    others = [os.memfd_create("other") for _ in range(3)]
    kept.append(os.dup2(kept[0], max(*kept, *others) + 10))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            process_tree.close_all_but([*kept, write, 1])
            os.write(write, " ".join(map(str, sorted(process_tree.open_descriptors()))).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        there = set(map(int, answer.read().split()))
    assert os.waitpid(pid, 0)[1] == 0
    for fd in (*kept, *others):
        os.close(fd)
    assert there - {0, 1, 2} == {*kept, write}


def test_nothing_is_left_open(launcher):
    before = os.listdir("/proc/self/fd")
    connection = launcher
    pipes = RankPipes(connection)
    pipes.make(with_input=True, window=100)
    pipes.close_far_ends()
    serve(pipes)
    pipes.end_input()
    assert pipes.drained and os.listdir("/proc/self/fd") == before

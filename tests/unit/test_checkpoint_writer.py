"""The process beside a host agent that reads and writes files of commits, on file systems that hang."""

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringleader.agents.elastic import checkpoint_files
from ringleader.agents.elastic.checkpoint_files import CheckpointFiles
from ringleader.agents.elastic.commit_memory import CommitMemory, CommitStore
from ringleader.agents.elastic.host_agent_loop import FILE_SECONDS, LEFT_SECONDS, HostAgent
from ringleader.launch.elastic.elastic_session import FILES_SECONDS, LEAVE_SECONDS, ElasticJob
from ringleader.slurm.batch_script import SAVING

pytestmark = pytest.mark.process
SECONDS = 20.0


class Agent:
    """A host agent that has nothing but files of commits."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.store = CommitStore(lambda total, more: "")
        self.writer = CheckpointFiles(self.store, lambda **words: self.said.append(words))

    def until(self, do: str) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while not (found := [words for words in self.said if words["do"] == do]):
            assert time.monotonic() < end, self.said
            self.turn()
        return found[0]

    def turn(self) -> None:
        poll = select.poll()
        for fd, events in self.writer.interests():
            poll.register(fd, events)
        if poll.poll(20):
            self.writer.serve()
        self.writer.tick(time.monotonic())
        if self.writer.pid:
            pid, status = os.waitpid(self.writer.pid, os.WNOHANG)
            if pid:
                self.writer.ended(status)

    def commit(self, number: int) -> None:
        memory = CommitMemory(lambda nbytes: [os.dup(fd) for fd in self.store.descriptors(nbytes)])
        memory.buffer(5000, number=number)[:] = b"x" * 5000
        memory.set_number(number, 5000)
        memory.close()


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setattr(signal, "set_wakeup_fd", lambda fd: -1)
    monkeypatch.setattr(checkpoint_files, "READ_SECONDS", 0.5)
    monkeypatch.setattr(checkpoint_files, "WRITE_SECONDS", 0.5)
    monkeypatch.setattr(checkpoint_files, "TELL_SECONDS", 0.0)
    made = Agent()
    yield made
    made.store.close()


def hangs(*words: Any, **named: Any) -> Any:
    """What a call does on a file system that does not answer; killed, it ends."""
    time.sleep(600)


def write(directory: Path, number: int, nbytes: int = 5000) -> str:
    content = memoryview(b"%d" % (number % 10) * nbytes)
    return checkpoint_files.write(str(directory), content, number=number, intact=lambda: True)


@pytest.mark.parametrize(
    ("owner", "name", "file"), [(os, "listdir", ""), (os, "preadv", "commit-000000000002.ringleader")]
)
def test_reading_is_given_up_and_the_file_is_named(agent, tmp_path, monkeypatch, owner, name, file):
    write(tmp_path, 1)
    write(tmp_path, 2)
    monkeypatch.setattr(owner, name, hangs)
    agent.writer.load({"directory": str(tmp_path)})
    loaded = agent.until("checkpoint_loaded")
    assert loaded["number"] == 0
    (why,) = loaded["refused"]
    assert str(tmp_path / file) in why and why.endswith("the file system has not answered for 0.5 s")
    while agent.writer.pid:  # killed, it is reaped like any other
        agent.turn()


def test_a_slow_file_is_read_as_long_as_it_makes_progress(agent, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_files, "PIECE", 500)
    path = write(tmp_path, 3)
    read: Callable[..., int] = os.preadv

    def slowly(*words: Any) -> int:
        time.sleep(0.1)
        return read(*words)

    monkeypatch.setattr(os, "preadv", slowly)
    agent.writer.load({"directory": str(tmp_path)})
    assert agent.until("checkpoint_loaded")["number"] == 3
    assert agent.until("checkpoint_loading")["path"] == path
    assert agent.store.held() == (3,)
    memory = CommitMemory(lambda nbytes: [os.dup(fd) for fd in agent.store.descriptors(nbytes)])
    assert bytes(memory.view(3)) == b"3" * 5000 and memory.origin(3) == path
    memory.close()


def test_a_commit_that_was_read_after_ranks_had_begun_does_not_touch_their_memory(agent, tmp_path):
    write(tmp_path, 3)
    agent.writer.load({"directory": str(tmp_path)})
    agent.commit(1)
    loaded = agent.until("checkpoint_loaded")
    assert loaded["number"] == 0 and "ranks had begun before it was read" in loaded["refused"][0]
    assert agent.store.held() == (1,)


def test_a_job_that_ends_early_leaves_its_newest_commit_in_a_file(agent: Agent, tmp_path: Path) -> None:
    """Every tenth is written, and at an early end the newest, behind one that is being written."""
    agent.writer.configure({"directory": str(tmp_path), "every": 10})
    for number in (9, 10, 11, 12):
        agent.commit(number)
        agent.writer.committed(number)
        if number == 10:
            assert agent.until("checkpointed")["number"] == 10
    agent.said.clear()
    agent.writer.finish()
    assert agent.until("checkpointed")["number"] == 12
    agent.said.clear()
    agent.writer.finish()
    assert not agent.writer.writing  # it is there already
    agent.commit(20)
    agent.writer.committed(20)
    agent.commit(21)
    agent.writer.finish()  # while 20 is being written
    end = time.monotonic() + SECONDS
    while not any(words["number"] == 21 for words in agent.said):
        assert time.monotonic() < end, agent.said
        agent.turn()
    assert not agent.writer.writing


@pytest.mark.parametrize("name", ["fsync", "rename"])
def test_writing_is_given_up_and_the_next_commit_is_written(agent, tmp_path, monkeypatch, name):
    agent.writer.configure({"directory": str(tmp_path), "every": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, name, hangs)
        agent.commit(1)
        agent.writer.committed(1)
        assert agent.writer.writing
    why = agent.until("not_checkpointed")["why"]
    assert why == f"{tmp_path}: the file system has not answered for 0.5 s"
    assert not agent.writer.writing
    while agent.writer.pid:
        agent.turn()
    agent.commit(2)
    agent.writer.committed(2)
    assert agent.until("checkpointed")["number"] == 2


def test_what_is_not_written_when_the_agent_ends_is_told(agent, tmp_path, monkeypatch):
    agent.writer.configure({"directory": str(tmp_path), "every": 1})
    agent.commit(1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", hangs)
        agent.writer.committed(1)
    agent.commit(2)
    agent.writer.finish()  # behind the first
    agent.writer.give_up()
    told = agent.until("not_checkpointed")
    assert told["number"] == 2 and "it was not written within 0 s, and the job ends" in told["why"]
    assert not agent.writer.writing
    while agent.writer.pid:
        agent.turn()
    assert len(agent.said) == 1 and not agent.writer.writing


def test_an_agent_that_ends_waits_for_a_file_and_says_what_it_gives_up() -> None:
    assert LEFT_SECONDS + FILE_SECONDS + 2 < FILES_SECONDS < SAVING, "each waits for the one below it"
    for writing, seconds, is_open, finished, given_up in (
        (True, FILE_SECONDS - 1, True, False, False),
        (True, FILE_SECONDS + 1, True, True, True),
        (True, 0.0, False, True, False),
        (False, 0.0, True, True, False),
    ):
        said: list[str] = []
        files = SimpleNamespace(writing=writing, give_up=lambda said=said: said.append("given up"))
        loop: Any = SimpleNamespace(rank_agents=SimpleNamespace(pids=[]), files=files)
        loop.launcher = SimpleNamespace(open=is_open)
        HostAgent._advance_end(loop, 10.0 + seconds, 10.0)
        assert (loop._finished, bool(said)) == (finished, given_up)


def test_the_launcher_waits_for_the_last_commit_of_a_job_that_has_not_finished() -> None:
    for directory, code, seconds in (
        ("/d", 143, FILES_SECONDS),
        ("/d", 0, LEAVE_SECONDS),
        (None, 1, LEAVE_SECONDS),
    ):
        job: Any = SimpleNamespace(hosts=SimpleNamespace(agents=None), clock=lambda: 1.0, ranks={})
        job.context = SimpleNamespace(elastic=SimpleNamespace(checkpoint_dir=directory))
        job.state = SimpleNamespace(result=SimpleNamespace(exit_code=code))
        job._leave_seconds = LEAVE_SECONDS
        ElasticJob._obey(job, {"do": "finish"})
        assert job._leave_seconds == seconds
        ElasticJob.send_stop(job, 0.0)  # a second signal
        assert job._leave_seconds == LEAVE_SECONDS

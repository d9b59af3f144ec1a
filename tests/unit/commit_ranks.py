"""Ranks of a commit as threads: peers that reduce and gather in memory, and hosts with memory for commits."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ringleader.adapters.commits import CommitPeers, Commits
from ringleader.adapters.numpy_adapter import Array
from ringleader.agents.elastic.commit_memory import CommitMemory, CommitStore

SECONDS = 20


class Meeting:
    """Where threads tell each other their values."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size)
        self._values: list[Any] = [None] * size

    def all(self, rank: int, value: Any) -> list[Any]:
        self._values[rank] = value
        self._barrier.wait(SECONDS)
        found = list(self._values)
        self._barrier.wait(SECONDS)
        return found

    def abort(self) -> None:
        self._barrier.abort()


class ThreadPeers(CommitPeers):
    """One of some ranks, on hosts of ``per_host`` ranks."""

    def __init__(self, meeting: Meeting, rank: int, size: int, per_host: int) -> None:
        self._meeting = meeting
        self.rank, self.size = rank, size
        self.local_rank, self.local_size = rank % per_host, per_host
        self.names: list[str] = []
        self.broadcast_bytes = 0

    def most(self, numbers: Sequence[int], name: str) -> list[int]:
        self.names.append(name)
        rows = self._meeting.all(self.rank, (name, list(numbers)))
        assert {row[0] for row in rows} == {name}
        assert len({len(row[1]) for row in rows}) == 1
        return [max(column) for column in zip(*(row[1] for row in rows), strict=True)]

    def gather(self, value: Any, name: str) -> list[Any]:
        self.names.append(name)
        rows = self._meeting.all(self.rank, (name, value))
        assert {row[0] for row in rows} == {name}
        return [row[1] for row in rows]

    def broadcast(self, memory: Array, name: str) -> None:
        self.broadcast_bytes += memory.nbytes
        memory[:] = self._meeting.all(self.rank, memory.copy())[0]

    def object(self, value: Any) -> Any:
        return self._meeting.all(self.rank, value)[0]


class Job:
    """Some ranks, and the memory of their hosts."""

    def __init__(self, size: int, per_host: int) -> None:
        self.size = size
        self.per_host = per_host
        self.hosts = [CommitStore(lambda total, more: "") for _ in range(-(-size // per_host))]
        self.peers: list[ThreadPeers] = []
        self._one_at_a_time = threading.Lock()

    def memory_of(self, rank: int) -> CommitMemory:
        """Return a rank's own mappings of the memory of its host."""
        store = self.hosts[rank // self.per_host]

        def descriptors(nbytes: int) -> list[int]:
            with self._one_at_a_time:  # as the host agent answers
                return [os.dup(fd) for fd in store.descriptors(nbytes)]

        return CommitMemory(descriptors)

    def run(self, act: Callable[[int, ThreadPeers], Any]) -> list[Any]:
        """Let all ranks act at once; return what they return, or what they raise."""
        meeting = Meeting(self.size)
        self.peers = [ThreadPeers(meeting, rank, self.size, self.per_host) for rank in range(self.size)]
        results: list[Any] = [None] * self.size

        def one(rank: int) -> None:
            try:
                results[rank] = act(rank, self.peers[rank])
            except threading.BrokenBarrierError:
                raise
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        return results

    def joined(self, commits: Commits, rank: int, peers: ThreadPeers) -> Commits:
        commits.join(self.memory_of(rank), peers)
        return commits

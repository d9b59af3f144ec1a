"""Commits in memory of a host: numbers set last, buffers that grow, limits, and ranks that die meanwhile."""

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringleader.agents.elastic import commit_memory
from ringleader.agents.elastic.commit_memory import CommitMemory, CommitMemoryError, CommitStore


@pytest.fixture
def store() -> Iterator[CommitStore]:
    made = CommitStore(lambda total, more: "")
    yield made
    made.close()


def rank_of(store: CommitStore, told: list[tuple[int, int]] | None = None) -> CommitMemory:
    """A rank, whose agent answers at once."""
    heard = [] if told is None else told
    return CommitMemory(
        lambda nbytes: [os.dup(fd) for fd in store.descriptors(nbytes)],
        lambda number, nbytes: heard.append((number, nbytes)),
    )


def commit(rank: CommitMemory, number: int, content: bytes) -> None:
    rank.buffer(len(content), number=number)[:] = content
    rank.set_number(number, len(content))


def test_two_commits_are_held_and_every_rank_reads_them(store: CommitStore) -> None:
    told: list[tuple[int, int]] = []
    one, other = rank_of(store, told), rank_of(store)
    assert (one.newest(), one.held(), store.held()) == (0, (), ())
    for number in (1, 2, 3):
        commit(one, number, b"%d" % number * 5000)
    assert told == [(1, 5000), (2, 5000), (3, 5000)]
    assert other.held() == store.held() == (3, 2)
    assert other.newest() == 3 and store.nbytes(3) == 5000 and store.nbytes(1) == 0
    assert bytes(other.view(3)) == b"3" * 5000 and bytes(other.view(2)) == b"2" * 5000
    with pytest.raises(CommitMemoryError, match="does not hold commit 1; it holds 3, 2"):
        other.view(1)
    with pytest.raises(TypeError):
        other.view(3)[0] = 1


@pytest.mark.process
def test_a_rank_killed_while_it_writes_leaves_the_commit_before(store: CommitStore) -> None:
    commit(rank_of(store), 1, b"a" * 10000)
    commit(rank_of(store), 2, b"b" * 10000)
    pid = os.fork()
    if pid == 0:
        rank_of(store).buffer(10000, number=3)[:5000] = b"c" * 5000
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    after = rank_of(store)
    assert after.held() == (2,) and bytes(after.view(2)) == b"b" * 10000


def test_buffers_grow_and_views_stay(store: CommitStore) -> None:
    one, other = rank_of(store), rank_of(store)
    commit(one, 1, b"a" * 100)
    before = one.view(1)
    commit(one, 2, b"b" * 1_000_000)
    assert bytes(before) == b"a" * 100 == bytes(one.view(1))
    assert bytes(other.view(1)) == b"a" * 100 and bytes(other.view(2)) == b"b" * 1_000_000


def test_a_job_that_goes_on_from_an_older_commit_forgets_the_newer(store: CommitStore) -> None:
    rank = rank_of(store)
    commit(rank, 6, b"6")
    commit(rank, 7, b"7")
    store.keep_up_to(6)
    assert rank.held() == (6,)
    rank.buffer(1, number=7)[:] = b"s"
    assert rank.held() == (6,) and bytes(rank.view(6)) == b"6"
    rank.set_number(7, 1)
    assert rank.held() == (7, 6)
    store.keep_up_to(0)
    assert rank.held() == ()


def test_frozen_commits_wait_and_then_say_why(store: CommitStore, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = rank_of(store)
    commit(rank, 1, b"1")
    store.freeze(True)
    assert store.frozen
    monkeypatch.setattr(commit_memory, "FROZEN_SECONDS", 0.05)
    rank.buffer(1, number=2)[:] = b"2"
    with pytest.raises(CommitMemoryError, match="commit 2 could not be completed"):
        rank.set_number(2, 1)
    assert rank.held() == (1,)
    store.freeze(False)
    rank.set_number(2, 1)
    assert rank.held() == (2, 1)


@pytest.mark.parametrize(
    ("limit", "files", "total", "said"),
    [
        ("4096", {}, 4096, ""),
        ("4095", {}, 4096, "that takes 4096 bytes, RINGLEADER_COMMIT_LIMIT allows 4095"),
        (None, {}, 1 << 50, ""),
        (None, {"proc/meminfo": "MemAvailable:   4 kB\n"}, 4096, ""),
        (None, {"proc/meminfo": "MemAvailable:   4 kB\n"}, 4097, "the host has 4096 left"),
        (None, {"job/memory.max": "max", "job/memory.current": "5"}, 1 << 50, ""),
        (None, {"job/memory.max": "9000", "job/memory.current": "5000"}, 4000, ""),
        (None, {"job/memory.max": "9000", "job/memory.current": "5000"}, 4001, "group has 4000 left"),
        (
            None,
            {"job/memory.max": "9", "job/memory.current": "9", "job/memory.stat": "inactive_file 7\n"},
            8,
            "its control group has 7 left",
        ),
    ],
)
def test_limits(
    limit: str | None,
    files: dict[str, str],
    total: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(commit_memory.LIMIT_VARIABLE, raising=False)
    if limit is not None:
        monkeypatch.setenv(commit_memory.LIMIT_VARIABLE, limit)
    for name, text in {"proc/self/cgroup": "0::/job\n", **files}.items():
        file = tmp_path / (f"sys/fs/cgroup/{name}" if name.startswith("job") else name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = commit_memory.refusal(total, total, root=str(tmp_path))
    assert (said in found) if said else not found


def test_a_commit_beyond_the_limit_is_refused_and_the_buffers_stay() -> None:
    store = CommitStore(lambda total, more: f"{total} of which {more}" if total > 8192 else "")
    rank = rank_of(store)
    commit(rank, 1, b"1" * 4096)
    with pytest.raises(CommitMemoryError, match=r"of 4097 bytes is kept twice .* 16384 of which 8192"):
        rank.buffer(4097, number=2)
    assert bytes(rank.view(1)) == b"1" * 4096
    store.close()


def test_a_rank_that_may_not_map_a_commit_keeps_what_it_had(
    store: CommitStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = rank_of(store)
    commit(rank, 1, b"1" * 4096)
    with monkeypatch.context() as patch:
        patch.setattr(commit_memory.mmap, "mmap", _no_memory)
        for _ in range(2):
            with pytest.raises(
                CommitMemoryError, match="to map a commit of 8192 bytes: Cannot allocate memory"
            ):
                rank.buffer(8192, number=2)
    assert rank.held() == (1,) and bytes(rank.view(1)) == b"1" * 4096
    commit(rank, 2, b"2" * 8192)
    assert rank.held() == (2, 1)


def _no_memory(*_: object) -> None:
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


def test_nothing_is_left_open() -> None:
    before = os.listdir("/proc/self/fd")
    store = CommitStore()
    rank = rank_of(store)
    commit(rank, 1, b"1")
    rank.view(1)
    rank.close()
    store.close()
    assert os.listdir("/proc/self/fd") == before


def test_a_commit_from_a_file_has_its_path_until_ranks_write_one_of_that_number(store: CommitStore) -> None:
    path = "/files/" + "é" * 300 + "/commit"
    store.take(7, 100, os.memfd_create("file"), path)
    rank = rank_of(store)
    assert (rank.held(), rank.origin(7), rank.origin(5), rank.origin(6)) == ((7,), path, "", "")
    commit(rank, 8, b"8")
    assert (rank.origin(8), rank.origin(7)) == ("", path)
    commit(rank, 9, b"9")
    assert (rank.origin(9), rank.held()) == ("", (9, 8))


def test_a_long_path_of_a_file_is_cut_off(store: CommitStore) -> None:
    store.take(8, 1, os.memfd_create("file"), "/" + "x" * 4000)
    assert rank_of(store).origin(8) == "/" + "x" * 1015


def test_memory_that_a_file_takes_the_place_of_is_given_back(store: CommitStore) -> None:
    before = len(os.listdir("/proc/self/fd"))
    store.take(7, 5000, os.memfd_create("file"), "/files/commit")
    assert len(os.listdir("/proc/self/fd")) == before, "it came with a descriptor, and one went for it"

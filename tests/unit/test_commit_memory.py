"""Commits in memory of a host: numbers set last, buffers that grow, limits, and ranks that die meanwhile."""

import errno
import os
import signal
from unittest import mock

import pytest

from ringleader.agents.elastic import commit_memory
from ringleader.agents.elastic.commit_memory import CommitMemory, CommitMemoryError, CommitStore
from ringleader.agents.elastic.generation_page import (
    BOTH,
    BROKEN,
    ENDED_RANK,
    EXIT_CODE,
    LAST_UPDATE,
    UPDATES,
    PageReader,
    PageWriter,
)


@pytest.fixture
def store():
    made = CommitStore(lambda total, more: "")
    yield made
    made.close()


def rank_of(store, told=None):
    """A rank, whose agent answers at once."""
    heard = [] if told is None else told
    return CommitMemory(
        lambda nbytes: [os.dup(fd) for fd in store.descriptors(nbytes)],
        lambda number, nbytes: heard.append((number, nbytes)),
    )


def commit(rank, number, content):
    rank.buffer(len(content), number=number)[:] = content
    rank.set_number(number, len(content))


def test_two_commits_are_held_and_every_rank_reads_them(store):
    told = []
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
def test_a_rank_killed_while_it_writes_leaves_the_commit_before(store):
    commit(rank_of(store), 1, b"a" * 10000)
    commit(rank_of(store), 2, b"b" * 10000)
    pid = os.fork()
    if pid == 0:
        rank_of(store).buffer(10000, number=3)[:5000] = b"c" * 5000
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    after = rank_of(store)
    assert after.held() == (2,) and bytes(after.view(2)) == b"b" * 10000


def test_a_job_that_goes_on_from_an_older_commit_forgets_the_newer(store):
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


def test_frozen_commits_wait_and_then_say_why(store, monkeypatch):
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
        (None, {"proc/meminfo": "MemAvailable:   4 kB\n"}, 4096, ""),
        (None, {"proc/meminfo": "MemAvailable:   4 kB\n"}, 4097, "the host has 4096 left"),
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
def test_limits(limit, files, total, said, tmp_path, monkeypatch):
    monkeypatch.delenv(commit_memory.LIMIT_VARIABLE, raising=False)
    if limit is not None:
        monkeypatch.setenv(commit_memory.LIMIT_VARIABLE, limit)
    for name, text in {"proc/self/cgroup": "0::/job\n", **files}.items():
        file = tmp_path / (f"sys/fs/cgroup/{name}" if name.startswith("job") else name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = commit_memory.refusal(total, total, root=str(tmp_path))
    assert (said in found) if said else not found


def test_a_commit_beyond_the_limit_is_refused_and_the_buffers_stay():
    store = CommitStore(lambda total, more: f"{total} of which {more}" if total > 8192 else "")
    rank = rank_of(store)
    commit(rank, 1, b"1" * 4096)
    with pytest.raises(CommitMemoryError, match=r"of 4097 bytes is kept twice .* 16384 of which 8192"):
        rank.buffer(4097, number=2)
    assert bytes(rank.view(1)) == b"1" * 4096
    store.close()


def test_a_rank_that_may_not_map_a_commit_keeps_what_it_had(monkeypatch):
    before, store = os.listdir("/proc/self/fd"), CommitStore()
    rank = rank_of(store)
    commit(rank, 1, b"1" * 4096)
    with monkeypatch.context() as patch:
        refused = mock.Mock(side_effect=OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
        patch.setattr(commit_memory.mmap, "mmap", refused)
        for _ in range(2):
            with pytest.raises(CommitMemoryError, match="a commit of 8192 bytes: Cannot allocate memory"):
                rank.buffer(8192, number=2)
    assert rank.held() == (1,) and bytes(rank.view(1)) == b"1" * 4096
    commit(rank, 2, b"2" * 8192)
    assert rank.held() == (2, 1)
    rank.close()
    store.close()
    assert os.listdir("/proc/self/fd") == before, "nothing is left open"


def test_a_commit_from_a_file_has_its_path_until_ranks_write_one_of_that_number(store):
    path, before = "/files/" + "é" * 300 + "/commit", len(os.listdir("/proc/self/fd"))
    store.take(7, 5000, os.memfd_create("file"), path)
    assert len(os.listdir("/proc/self/fd")) == before, "it came with a descriptor, and one went for it"
    rank = rank_of(store)
    assert (rank.held(), rank.origin(7), rank.origin(5), rank.origin(6)) == ((7,), path, "", "")
    commit(rank, 8, b"8")
    assert (rank.origin(8), rank.origin(7)) == ("", path)
    commit(rank, 9, b"9")
    assert (rank.origin(9), rank.held()) == ("", (9, 8))


def test_a_long_path_of_a_file_is_cut_off(store):
    store.take(8, 1, os.memfd_create("file"), "/" + "x" * 4000)
    assert rank_of(store).origin(8) == "/" + "x" * 1015


FENCE = -1
_NUMBER_OF_1 = commit_memory._FIRST + 2


class Words:
    """Words of a page that note who touches them."""

    def __init__(self, words, log):
        self._words, self._log = words, log

    def __getitem__(self, word):
        self._log.append(word)
        return self._words[word]

    def __setitem__(self, word, value):
        self._log.append(word)
        self._words[word] = value

    def release(self):
        self._words.release()


@pytest.fixture
def writer():
    made = PageWriter(1)
    yield made
    made.close()


def watched(page):
    log = []
    page._words = Words(page._words, log)
    page._fence = lambda: log.append(FENCE)
    return log


def test_a_break_is_announced_after_its_reason(writer):
    log = watched(writer)
    writer.mark_broken(3, 7)
    assert log[-2:] == [FENCE, BROKEN]
    assert {ENDED_RANK, EXIT_CODE} <= set(log[:-2])
    log.clear()
    writer.notify(2, BOTH)
    assert log == [LAST_UPDATE, FENCE, UPDATES], "as an update is after what it did"


def test_a_rank_reads_the_reason_after_the_announcement(writer):
    writer.mark_broken(3, 7)
    writer.notify(2, BOTH)
    reader = PageReader(writer.fd)
    log = watched(reader)
    assert reader.why() == (3, 7)
    assert log == [BROKEN, FENCE, ENDED_RANK, EXIT_CODE]
    log.clear()
    assert reader.updates() == (2, BOTH)
    assert log == [UPDATES, FENCE, LAST_UPDATE]


def test_a_commit_is_complete_after_all_of_it(monkeypatch):
    log = []
    get, set_word = commit_memory._Header.get, commit_memory._Header.set

    def noting_get(self, word):
        log.append(word)
        return get(self, word)

    def noting_set(self, word, value):
        log.append(word)
        set_word(self, word, value)

    monkeypatch.setattr(commit_memory, "Fence", lambda: lambda: log.append(FENCE))
    monkeypatch.setattr(commit_memory._Header, "get", noting_get)
    monkeypatch.setattr(commit_memory._Header, "set", noting_set)
    store = CommitStore()
    store.take(1, 100, os.memfd_create("read"), "/a/file")
    assert log[-2:] == [FENCE, _NUMBER_OF_1] and _NUMBER_OF_1 + 1 in log[:-2]
    log.clear()
    assert store.nbytes(1) == 100
    assert log == [_NUMBER_OF_1, FENCE, _NUMBER_OF_1 + 1]
    log.clear()
    store.keep_up_to(0)
    assert log[-2:] == [_NUMBER_OF_1, FENCE]
    store.close()


def test_buffers_grow_and_views_stay(store):
    one, other = rank_of(store), rank_of(store)
    commit(one, 1, b"a" * 100)
    before = one.view(1)
    commit(one, 2, b"b" * 1_000_000)
    assert bytes(before) == b"a" * 100 == bytes(one.view(1))
    assert bytes(other.view(1)) == b"a" * 100 and bytes(other.view(2)) == b"b" * 1_000_000

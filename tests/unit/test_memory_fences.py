"""Order in pages that processes share: what is announced is written first, and read last."""

import os
from collections.abc import Iterator

import pytest

from ringleader.agents.elastic import commit_memory
from ringleader.agents.elastic.commit_memory import CommitStore
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

FENCE = -1
_NUMBER_OF_1 = commit_memory._FIRST + 2


class Words:
    """Words of a page that note who touches them."""

    def __init__(self, words: memoryview, log: list[int]) -> None:
        self._words, self._log = words, log

    def __getitem__(self, word: int) -> int:
        self._log.append(word)
        return self._words[word]

    def __setitem__(self, word: int, value: int) -> None:
        self._log.append(word)
        self._words[word] = value

    def release(self) -> None:
        self._words.release()


@pytest.fixture
def writer() -> Iterator[PageWriter]:
    made = PageWriter(1)
    yield made
    made.close()


def watched(page: PageReader | PageWriter) -> list[int]:
    log: list[int] = []
    page._words = Words(page._words, log)  # type: ignore[assignment]
    page._fence = lambda: log.append(FENCE)  # type: ignore[assignment]
    return log


def test_a_break_is_announced_after_its_reason(writer: PageWriter) -> None:
    log = watched(writer)
    writer.mark_broken(3, 7)
    assert log[-2:] == [FENCE, BROKEN]
    assert {ENDED_RANK, EXIT_CODE} <= set(log[:-2])


def test_an_update_is_announced_after_what_it_did(writer: PageWriter) -> None:
    log = watched(writer)
    writer.notify(2, BOTH)
    assert log == [LAST_UPDATE, FENCE, UPDATES]


def test_a_rank_reads_the_reason_after_the_announcement(writer: PageWriter) -> None:
    writer.mark_broken(3, 7)
    writer.notify(2, BOTH)
    reader = PageReader(writer.fd)
    log = watched(reader)
    assert reader.why() == (3, 7)
    assert log == [BROKEN, FENCE, ENDED_RANK, EXIT_CODE]
    log.clear()
    assert reader.updates() == (2, BOTH)
    assert log == [UPDATES, FENCE, LAST_UPDATE]


def test_a_commit_is_complete_after_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[int] = []
    get, set_word = commit_memory._Header.get, commit_memory._Header.set

    def noting_get(self: commit_memory._Header, word: int) -> int:
        log.append(word)
        return get(self, word)

    def noting_set(self: commit_memory._Header, word: int, value: int) -> None:
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

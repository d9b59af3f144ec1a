"""Committed state in memory of a host: two buffers that outlive ranks, and a page with their numbers.

    header page   word 0: frozen; then for each buffer: number of its commit (0: not complete), bytes of it;
                  from byte 1024 on for each buffer: length of a path, the path of the file that it came from
    buffer 0, 1   commit number n is in buffer n % 2

All three are memfds that the host agent holds; ranks map them. Whoever writes a commit first takes the number
of its buffer away and sets it last, so that a rank killed meanwhile leaves the other buffer, which holds the
commit before. Standard library only: the host agent uses ``CommitStore``, ranks use ``CommitMemory``.
"""

from __future__ import annotations

import mmap
import os
import time
from struct import Struct

from ringleader.agents.light_imports import Callable, Sequence
from ringleader.agents.memory_fence import Fence

BUFFERS = 2
_WORD = Struct("<Q")
_FROZEN = 0
_FIRST = 8
"""Word at which the buffers' entries begin."""
_ORIGIN = 128
"""Words of each buffer's path, the first of which is its length; those of buffer 0 begin after as many."""
FROZEN_SECONDS = 60.0
"""For which a rank waits where commits are frozen; long before that the host agent has ended it or thawed."""
FROZEN_PAUSE = 0.02
LIMIT_VARIABLE = "RINGLEADER_COMMIT_LIMIT"
"""Bytes that both buffers of a host may take together."""


class CommitMemoryError(MemoryError):
    """There is no memory for a commit, or no commit of that number; the words say which and why."""


class _Header:
    """The header page, mapped."""

    def __init__(self, fd: int) -> None:
        self._page = mmap.mmap(fd, mmap.PAGESIZE)
        self._fence = Fence()

    def get(self, word: int) -> int:
        return int(_WORD.unpack_from(self._page, word * _WORD.size)[0])

    def set(self, word: int, value: int) -> None:
        _WORD.pack_into(self._page, word * _WORD.size, value)

    def number(self, index: int) -> int:
        """Number of the commit that a buffer holds; 0: none that is complete. What it holds is read after."""
        number = self.get(_FIRST + 2 * index)
        self._fence()
        return number

    def nbytes(self, index: int) -> int:
        return self.get(_FIRST + 2 * index + 1)

    def complete(self, index: int, number: int, nbytes: int, origin: str = "") -> None:
        self.set(_FIRST + 2 * index + 1, nbytes)
        place, text = (1 + index) * _ORIGIN, origin.encode(errors="surrogateescape")
        text = text[: (_ORIGIN - 1) * _WORD.size]
        start = (place + 1) * _WORD.size
        self._page[start : start + len(text)] = text
        self.set(place, len(text))
        self._fence()  # whoever reads the number finds all of the commit
        self.set(_FIRST + 2 * index, number)

    def origin(self, index: int) -> str:
        """Path of the file that a commit was read from; empty: ranks wrote it."""
        place = (1 + index) * _ORIGIN
        start = (place + 1) * _WORD.size
        return self._page[start : start + self.get(place)].decode(errors="replace")

    def invalidate(self, index: int) -> None:
        self.set(_FIRST + 2 * index, 0)
        self._fence()  # before anything is written there

    def held(self) -> tuple[int, ...]:
        """Numbers of the complete commits, the newest first."""
        return tuple(sorted(filter(None, map(self.number, range(BUFFERS))), reverse=True))

    def close(self) -> None:
        self._page.close()


# --- the host agent's side --------------------------------------------------------------------------------


class CommitStore:
    """The buffers as the host agent holds them; nothing takes memory until a rank asks for it."""

    def __init__(self, limit: Callable[[int, int], str] | None = None) -> None:
        """``limit``: says why there is no room for a number of bytes, some of them new; see ``refusal``."""
        self._limit = limit if limit is not None else refusal
        self._header_fd = os.memfd_create("ringleader-commits")
        os.ftruncate(self._header_fd, mmap.PAGESIZE)
        self._header = _Header(self._header_fd)
        self._buffers = [os.memfd_create(f"ringleader-commit-{index}") for index in range(BUFFERS)]
        self._size = 0

    def descriptors(self, nbytes: int) -> list[int]:
        """Return the descriptors of the header and of the buffers, which hold at least this many bytes each.

        What they hold stays, and so do mappings of them. Raises CommitMemoryError beyond the limit.
        """
        self.check(nbytes)
        self._grow(nbytes)
        return list(self.fds)

    def check(self, nbytes: int) -> None:
        """Raise CommitMemoryError where this many bytes are beyond the limit."""
        size = _pages(nbytes)
        if size > self._size and (why := self._limit(BUFFERS * size, BUFFERS * (size - self._size))):
            raise CommitMemoryError(f"a commit of {nbytes} bytes is kept twice on each host: {why}")

    def _grow(self, nbytes: int) -> None:
        size = _pages(nbytes)
        if size > self._size:
            try:
                for fd in self._buffers:
                    os.ftruncate(fd, size)
            except OSError as error:
                raise CommitMemoryError(f"no memory for a commit of {nbytes} bytes: {error.strerror}")
            self._size = size

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors of the header and of the buffers."""
        return (self._header_fd, *self._buffers)

    def held(self) -> tuple[int, ...]:
        """Return the numbers of the complete commits, the newest first."""
        return self._header.held()

    def nbytes(self, number: int) -> int:
        """Return the bytes of a commit; 0 where it is not held."""
        index = number % BUFFERS
        return self._header.nbytes(index) if number and self._header.number(index) == number else 0

    def buffer(self, number: int) -> int:
        """Return the descriptor of the buffer in which a commit of this number lies, or would."""
        return self._buffers[number % BUFFERS]

    def keep_up_to(self, number: int) -> None:
        """Forget commits newer than ``number``, from which the job continues and numbers again."""
        for index in range(BUFFERS):
            if self._header.number(index) > number:
                self._header.invalidate(index)

    def take(self, number: int, nbytes: int, memory: int, path: str) -> None:
        """Hold a commit that was read from the file of that path into a memfd, which is ours from now on.

        Raises CommitMemoryError where ranks have asked for their memory already; it stays the caller's then.
        """
        if self._size:
            raise CommitMemoryError("ranks had begun before it was read")
        index = number % BUFFERS
        before, self._buffers[index] = self._buffers[index], memory
        self._grow(nbytes)
        os.close(before)
        self._header.complete(index, number, nbytes, path)

    def freeze(self, frozen: bool) -> None:
        """Have ranks wait before they complete a commit, or wait no longer."""
        self._header.set(_FROZEN, int(frozen))

    @property
    def frozen(self) -> bool:
        """Whether ranks wait."""
        return bool(self._header.get(_FROZEN))

    def close(self) -> None:
        """Give everything back; ranks that have it mapped keep it until they end."""
        self._header.close()
        for fd in self.fds:
            os.close(fd)


def _pages(nbytes: int) -> int:
    """Return the bytes of a buffer that holds this many."""
    return -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE


def refusal(total: int, more: int, *, root: str = "/") -> str:
    """Return why the buffers cannot take this many bytes, ``more`` than now, in words; nothing where they
    can.

    ``RINGLEADER_COMMIT_LIMIT`` counts, else what this process's control groups and the machine have left.
    """
    given = os.environ.get(LIMIT_VARIABLE, "")
    if given.isascii() and given.isdigit():
        if total <= int(given):
            return ""
        return f"that takes {total} bytes, {LIMIT_VARIABLE} allows {given}"
    for what, left in (("its control group", _group_left(root)), ("the host", _host_left(root))):
        if left is not None and more > left:
            hint = f"commit less, grant more memory, or start fewer ranks there ({LIMIT_VARIABLE} overrides)"
            return f"{more} bytes more are needed, {what} has {left} left; {hint}"
    return ""


def memory_left(root: str = "/") -> int | None:
    """Return the bytes that a process may still take, by its control groups and the host; None: unknown."""
    return min((left for left in (_group_left(root), _host_left(root)) if left is not None), default=None)


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - pathlib costs 5 ms
            return file.read()
    except OSError:
        return ""


def _host_left(root: str) -> int | None:
    kibibytes = _field(f"{root}/proc/meminfo", "MemAvailable:")
    return None if kibibytes is None else kibibytes * 1024


def _group_left(root: str) -> int | None:
    """Bytes that our control group (version 2) and those above it may still take, the tightest of them."""
    from ringleader.agents.usable_cores import group_directories

    left = None
    for name in group_directories(_text(f"{root}/proc/self/cgroup")):
        place = f"{root}/{name}"
        most, used = _text(f"{place}/memory.max").strip(), _text(f"{place}/memory.current").strip()
        if most.isdigit() and used.isdigit():
            reclaimable = _field(f"{place}/memory.stat", "inactive_file") or 0
            free = max(0, int(most) - int(used) + reclaimable)
            left = free if left is None else min(left, free)
    return left


def _field(path: str, name: str) -> int | None:
    """Return the number behind a name at the beginning of a line."""
    found = (line.split() for line in _text(path).splitlines())
    return next((int(words[1]) for words in found if words[:1] == [name]), None)


# --- a rank's side ----------------------------------------------------------------------------------------


class CommitMemory:
    """The buffers as a rank sees them.

    To write commit n: every local rank copies its part into ``buffer(nbytes, number=n)``; they meet; local
    rank 0 calls ``set_number(n, nbytes)``. Numbers go up by one from the commit that the generation continued
    from. Views stay valid for as long as the caller keeps them, also where a later commit is larger. Over a
    ``generation_client.RankConnection``:
    ``CommitMemory(lambda nbytes: connection.commit_memory(nbytes)[1], connection.committed)``.
    """

    def __init__(
        self, request: Callable[[int], Sequence[int]], tell: Callable[[int, int], None] | None = None
    ) -> None:
        """``request(nbytes)``: the agent's descriptors, header first, for buffers of at least this many
        bytes; they are ours to close; its own error where the agent refuses. ``tell(number, nbytes)``: says
        to the agent that a commit is complete.
        """
        self._request = request
        self._tell = tell
        self._header: _Header | None = None
        self._buffers: list[mmap.mmap] = []
        self._size = 0

    def buffer(self, nbytes: int, *, number: int) -> memoryview:
        """Return the memory, of this many bytes, in which commit ``number`` is to lie; the one before stays.

        Every local rank may call this, in any order; from now until ``set_number`` that buffer holds no
        commit. Raises CommitMemoryError where there is no memory for it.
        """
        header = self._mapped(nbytes)
        index = number % BUFFERS
        header.invalidate(index)
        return memoryview(self._buffers[index])[:nbytes]

    def set_number(self, number: int, nbytes: int) -> None:
        """Declare a commit complete: for one local rank, once all have written and met.

        Waits while commits are frozen. Raises CommitMemoryError where they stay so.
        """
        header = self._mapped(nbytes)
        until = time.monotonic() + FROZEN_SECONDS
        while header.get(_FROZEN):
            if time.monotonic() > until:
                what = f"commit {number} could not be completed: for {FROZEN_SECONDS:g} s"
                raise CommitMemoryError(f"{what} this host's agent has heard nothing from the launcher")
            time.sleep(FROZEN_PAUSE)
        header.complete(number % BUFFERS, number, nbytes)
        if self._tell is not None:
            self._tell(number, nbytes)

    def held(self) -> tuple[int, ...]:
        """Return the numbers of the commits that are complete on this host, the newest first."""
        return self._mapped(0).held()

    def newest(self) -> int:
        """Return the newest of them; 0 where there is none."""
        return max(self.held(), default=0)

    def view(self, number: int) -> memoryview:
        """Return a commit's bytes, for reading. Raises CommitMemoryError where this host does not hold it."""
        header = self._mapped(0)
        index = number % BUFFERS
        if not number or header.number(index) != number:
            held = ", ".join(map(str, header.held())) or "none"
            raise CommitMemoryError(f"this host does not hold commit {number}; it holds {held}")
        nbytes = header.nbytes(index)
        self._mapped(nbytes)
        return memoryview(self._buffers[index])[:nbytes].toreadonly()

    def origin(self, number: int) -> str:
        """Return the path, on this host, of the file that a commit was read from; empty: from none."""
        header = self._mapped(0)
        return header.origin(number % BUFFERS) if header.number(number % BUFFERS) == number else ""

    def close(self) -> None:
        """Let go of the memory; views that are still in use keep theirs."""
        self._drop()
        if self._header is not None:
            self._header.close()
            self._header = None
        self._size = 0

    def _mapped(self, nbytes: int) -> _Header:
        """Have at least this many bytes of each buffer mapped."""
        if self._header is not None and nbytes <= self._size:
            return self._header
        header, *buffers = self._request(nbytes)
        try:
            if self._header is None:
                self._header = _Header(header)
            size = min(os.fstat(fd).st_size for fd in buffers)
            mapped = [mmap.mmap(fd, size) for fd in buffers if size]
        except OSError as error:
            raise CommitMemoryError(f"no memory to map a commit of {nbytes} bytes: {error.strerror}")
        else:
            self._drop()
            self._buffers, self._size = mapped, size
        finally:
            for fd in (header, *buffers):
                os.close(fd)
        return self._header

    def _drop(self) -> None:
        """Unmap the buffers; one that somebody has a view of is unmapped with the last view."""
        for buffer in self._buffers:
            try:
                buffer.close()
            except BufferError:
                continue
        self._buffers = []

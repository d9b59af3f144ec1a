"""Commits of a state: written together by all ranks, read again, and told to ranks that do not hold them.

`commit_layout` is how they are laid out in memory, `elastic` the states.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy

from ringleader.adapters.array_operations import BROADCAST_IN_PLACE
from ringleader.adapters.commit_layout import (
    ArrayBytes,
    ArrayCodec,
    Captured,
    Content,
    Part,
    combined,
    lay_out,
    make_head,
    next_pieces,
    put_together,
    read_commit,
    take_apart,
    write_head,
    write_slice,
)
from ringleader.adapters.numpy_adapter import Array
from ringleader.adapters.object_exchange import gather_objects, sum_numbers
from ringleader.adapters.process_sets import global_process_set
from ringleader.engine.engine_session import Session
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.operations import ReduceOp
from ringleader.engine.process_lifecycle import PROCESS

if TYPE_CHECKING:
    from ringleader.agents.elastic.commit_memory import CommitMemory

CHECKED_BYTES, CHECKED_ARRAYS = 4 << 20, 32
"""So much of the state, of this many arrays, is compared with the other ranks' at each commit, in turn."""
CHECKED_WHOLE = 2
"""Commits of a generation in which all of it is: the first may be of what all have just taken over."""
CHUNK_BYTES = 64 << 20
"""So much of it travels at once to ranks that do not have it."""


_NO_MEMORY = 2
"""What a rank says of a commit that its host has no memory for; 1: of any other error, 0: of none."""


def _failure(error: Exception | None) -> int:
    return 0 if error is None else _NO_MEMORY if isinstance(error, MemoryError) else 1


class CommitError(RuntimeError):
    """A state could not be committed; raised on all ranks, with the words of one that could not."""


class CommitPeers:
    """The ranks that commit together: here one that commits by itself."""

    rank, size, local_rank, local_size = 0, 1, 0, 1

    def most(self, numbers: Sequence[int], name: str) -> list[int]:
        """Return the largest of every number over all ranks."""
        return list(numbers)

    def gather(self, value: Any, name: str) -> list[Any]:
        """Return everybody's value, in rank order."""
        return [value]

    def broadcast(self, memory: Array, name: str) -> None:
        """Fill memory with rank 0's, in place."""

    def give_back_memory(self) -> None:
        """Give back this rank's memory that is only kept for later."""
        if PROCESS.session is not None:
            PROCESS.session.short_of_memory.call()


class SessionPeers(CommitPeers):
    """All ranks of a session. Every call is collective."""

    def __init__(self, session: Session) -> None:
        """Speak on the session's engine."""
        self._engine = session.engine
        self.give_back_memory = session.short_of_memory.call  # type: ignore[method-assign]
        ranks = session.ranks
        self.rank, self.size = ranks.rank, ranks.size
        self.local_rank, self.local_size = ranks.local_rank, ranks.local_size

    def most(self, numbers: Sequence[int], name: str) -> list[int]:
        """See `CommitPeers`."""
        return sum_numbers(self._engine, array("q", numbers), name, ReduceOp.MAX)

    def gather(self, value: Any, name: str) -> list[Any]:
        """See `CommitPeers`."""
        return gather_objects(self._engine, value, name)

    def broadcast(self, memory: Array, name: str) -> None:
        """See `CommitPeers`."""
        BROADCAST_IN_PLACE.run(memory, name, global_process_set, 0)


@dataclass(kw_only=True)
class Received:
    """What a rank is to take over from rank 0."""

    values: dict[str, Any] = field(default_factory=dict)
    """Name of a part → its value, for parts that were different."""
    moved: bool = False
    """Whether any array had to travel, alike on all ranks."""
    same_commit: bool = False
    """Whether all ranks hold the same commit, alike on all ranks."""
    newest: int = 0
    """Number of the newest commit that any rank comes from, alike on all ranks."""
    per_rank: bool = False
    """Whether any rank has something of its own to keep, alike on all ranks."""


Told = tuple[tuple[Any, ...], int, int]
"""What rank 0 sends about an array: what it is, its length in bytes, its checksum."""


def _told(parts: Sequence[Part], *, sums: bool) -> tuple[list[tuple[str, bytes, int]], list[Told]]:
    """Return all but the bytes of arrays: name, outline and arrays of each part, and what all arrays are."""
    arrays = [a for part in parts for a in part.arrays]
    told = [(a.spec, a.nbytes, a.checksum(0, a.nbytes) if sums else 0) for a in arrays]
    return [(part.name, part.outline, len(part.arrays)) for part in parts], told


class ProcessCommits:
    """Commits in memory of this process: of one rank, and of a job that is not elastic.

    See `ringleader.agents.elastic.commit_memory.CommitMemory`: commit ``n`` is written into one half while
    commit ``n - 1`` stays.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._buffers = [bytearray(), bytearray()]
        self._complete: dict[int, tuple[int, int]] = {}

    def buffer(self, nbytes: int, *, number: int) -> memoryview:
        """Return memory in which a commit of this number is to lie."""
        half = number % 2
        self._complete.pop(half, None)
        if len(self._buffers[half]) < nbytes:
            self._buffers[half] = bytearray(nbytes)
        return memoryview(self._buffers[half])[:nbytes]

    def set_number(self, number: int, nbytes: int) -> None:
        """Declare it complete."""
        self._complete[number % 2] = (number, nbytes)

    def held(self) -> Sequence[int]:
        """Return the numbers of the complete commits."""
        return [number for number, _nbytes in self._complete.values()]

    def view(self, number: int) -> memoryview:
        """Return the bytes of one."""
        known, nbytes = self._complete[number % 2]
        if known != number:
            raise ValueError(f"commit {number} is not held any more")
        return memoryview(self._buffers[number % 2])[:nbytes].toreadonly()

    def origin(self, number: int) -> str:
        """Return the path of the file that a commit was read from; empty: this process wrote it."""
        return ""


class Commits:
    """The commits of one state."""

    def __init__(self, codec: ArrayCodec) -> None:
        """Begin with commits in memory of this process, which nobody else takes part in."""
        self.codec = codec
        self.number = 0
        """Of the commit that the state came from or went into last, 0 for none."""
        self.memory: CommitMemory | ProcessCommits = ProcessCommits()
        self.peers = CommitPeers()
        self._equal = True
        self._checked, self._whole = 0, CHECKED_WHOLE
        self._kinds: tuple[list[Any], int] = [], 0
        """What there was at the last commit, and its checksum."""

    def join(self, memory: CommitMemory | ProcessCommits, peers: CommitPeers) -> None:
        """Continue with these ranks, and commits in memory of the host."""
        if isinstance(self.memory, ProcessCommits):  # numbers of this process's own mean nothing there
            self.number = 0
        self.memory, self.peers = memory, peers
        self._equal, self._checked, self._whole = True, 0, CHECKED_WHOLE

    # writing

    def write(
        self,
        captured: Callable[[], Mapping[str, Captured]],
        news: Sequence[int],
        *,
        after: int | None = None,
    ) -> list[int]:
        """Commit; return the largest of each of ``news`` over all ranks, which travel with it.

        ``after``: the newest commit of any rank, where all of them have just taken over what rank 0 has, and
        have nothing of their own: there is nothing to agree on before they write.

        `CommitError`, on all ranks, where one of them has a value that cannot be pickled or no memory; the
        commit before stays.
        """
        number, written, error, failed, agreed = self._attempt(captured, news, after)
        if failed == _NO_MEMORY:
            error = None  # its traceback holds what was taken apart
            # All ranks of a host give back what they only keep before one of them asks it again.
            self.peers.give_back_memory()
            self.peers.most([0], "elastic.commit.given_back")
            number, written, error, failed, agreed = self._attempt(captured, news, after)
        self._raise_together(failed, error)
        if self.peers.local_rank == 0:
            self.memory.set_number(number, written)
        self.number = number
        return agreed

    def _attempt(
        self, captured: Callable[[], Mapping[str, Captured]], news: Sequence[int], after: int | None
    ) -> tuple[int, int, Exception | None, int, list[int]]:
        """Return the number of the commit, and what `_write_together` does."""
        parts, error = self._take_apart(captured)
        number, everybodys, failed = (after, [], 0) if after is not None else self._agree(parts, error)
        written, agreed = 0, list[int]()
        if not failed:
            written, error, failed, agreed = self._write_together(parts, error, number + 1, everybodys, news)
        if failed:
            self._checked, self._whole = 0, CHECKED_WHOLE  # alike again, also where nothing was taken apart
        return number + 1, written, error, failed, agreed

    def _write_together(
        self,
        parts: Sequence[Part],
        error: Exception | None,
        number: int,
        everybodys: Sequence[Any],
        news: Sequence[int],
    ) -> tuple[int, Exception | None, int, list[int]]:
        """Write a commit unless there is an ``error`` already.

        Return its length, this rank's error, whether any rank has one (`_NO_MEMORY`: where memory was
        refused), and the largest of each of ``news`` over all ranks.
        """
        written = 0
        try:
            if error is None:
                written = self._write(parts, number, everybodys)
        except HorovodInternalError:
            raise
        except Exception as problem:  # memory of the host may refuse; the others wait for this rank
            error = problem
        failed, *agreed = self.peers.most([_failure(error), *news], "elastic.commit.written")
        return written, error, failed, agreed

    def _agree(self, parts: Sequence[Part], error: Exception | None) -> tuple[int, list[Any], int]:
        """Return the newest commit of any rank, what is each rank's own, where that is kept, and `_failure`.

        Notes whether the ranks have equal states, unless a rank has an ``error``.
        """
        mine = self._description(parts)
        facts = [_failure(error), any(p.per_rank is not None for p in parts), not self._equal]
        *flags, number = self.peers.most(
            [*facts, *mine, *(-one for one in mine), self.number], "elastic.commit"
        )
        failed, per_rank, unequal = flags[:3]
        if failed:
            return 0, [], failed
        highest, lowest = flags[3:5], [-one for one in flags[5:]]
        self._equal = not unequal and highest == lowest
        own = {part.name: part.per_rank for part in parts if part.per_rank is not None}
        return number, self.peers.gather(own, "elastic.commit.own") if per_rank else [], 0

    def _take_apart(
        self, captured: Callable[[], Mapping[str, Captured]]
    ) -> tuple[list[Part], Exception | None]:
        try:
            return [take_apart(name, one, self.codec) for name, one in captured().items()], None
        except HorovodInternalError:
            raise
        except Exception as error:
            if self.peers.size == 1 and not isinstance(error, MemoryError):
                raise
            return [], error

    def _raise_together(self, failed: int, error: Exception | None) -> None:
        if not failed:
            return
        mine = "" if error is None else str(error) or type(error).__name__
        words = self.peers.gather(mine, "elastic.commit.why")
        rank, text = next((rank, text) for rank, text in enumerate(words) if text)
        raise CommitError(f"rank {rank} cannot commit its state: {text}") from error

    def _description(self, parts: Sequence[Part]) -> list[int]:
        """Return what replicas must have equal: what there is, and some of its bytes."""
        if self.peers.size == 1:
            return [0, 0]
        kinds = [(part.name, part.specs, part.differing) for part in parts]
        if kinds != self._kinds[0]:
            self._kinds = kinds, zlib.crc32(repr(kinds).encode())
        arrays = [
            a for part in parts for a, differs in zip(part.arrays, part.differing, strict=True) if not differs
        ]
        sizes = [one.nbytes for one in arrays]
        if self._whole:
            self._whole -= 1
            pieces = [(at, 0, nbytes) for at, nbytes in enumerate(sizes)]
        else:
            start = self._checked if self._checked < sum(sizes) else 0
            pieces, self._checked = next_pieces(sizes, start, CHECKED_BYTES, CHECKED_ARRAYS)
        return [self._kinds[1], combined(arrays[at].checksum(begin, end) for at, begin, end in pieces)]

    def _write(self, parts: Sequence[Part], number: int, everybodys: Sequence[Any]) -> int:
        """Write what is this rank's part of a commit; return its length, which local rank 0 knows."""
        peers = self.peers
        layout = lay_out(parts, equal=self._equal)
        head = b""
        if peers.local_rank == 0:
            head = make_head(parts, layout, size=peers.size, per_rank=everybodys)
        memory = self.memory.buffer(layout.head_at + len(head), number=number)
        write_slice(memory, layout, *layout.slice_of(peers.local_rank, peers.local_size))
        if peers.local_rank == 0:
            write_slice(memory, layout, layout.end_of_equal, layout.head_at)
            write_head(memory, layout, head)
        return layout.head_at + len(head)

    # reading

    def newest(self) -> int:
        """Return the newest commit that this host holds, 0 for none."""
        return max(self.memory.held(), default=0)

    def read(self, number: int) -> Content | None:
        """Return a commit's content, None where it is not held here."""
        if number == 0 or number not in self.memory.held():
            return None
        self.number = number
        return read_commit(self.memory.view(number))

    # telling the others

    def offer(
        self,
        captured: Callable[[], Mapping[str, Captured]],
        broadcast: Callable[[Any], Any],
        *,
        shared: bool,
    ) -> Received:
        """Return what this rank is to take over so that it has what rank 0 has. Collective.

        Arrays travel only where ranks do not all hold the same commit, or have changed it since. ``shared``:
        commits are those of all ranks, not of each by itself.
        """
        parts, error = self._take_apart(captured)
        compares = shared and self.number > 0  # with nothing from a commit there is nothing alike
        told: list[tuple[str, bytes, int]] = []  # of each part of rank 0's: name, outline, number of arrays
        theirs: list[Told] = []
        if self.peers.size > 1:
            told, theirs = broadcast(_told(parts, sums=compares) if self.peers.rank == 0 else None)
        mine = {part.name: part for part in parts}
        counterparts: list[ArrayBytes | None] = []  # this rank's arrays, in the order of rank 0's
        for name, _outline, count in told:
            own_arrays = mine[name].arrays if name in mine else []
            counterparts += [*own_arrays, *[None] * count][:count]
        wanted = [
            int(not (compares and a and a.spec == spec and a.checksum(0, a.nbytes) == total))
            for a, (spec, _nbytes, total) in zip(counterparts, theirs, strict=True)
        ]
        own = int(any(part.per_rank is not None for part in parts))
        failed, per_rank, newest, oldest, *moves = self.peers.most(
            [int(error is not None), own, self.number, -self.number, *wanted], "elastic.sync"
        )
        self._raise_together(failed, error)
        same = shared and newest == -oldest and newest > 0
        received = Received(same_commit=same, newest=newest, per_rank=bool(per_rank))
        if self.peers.size == 1:
            return received
        if not same:  # then all ranks want everything, and know that of each other
            moves = [1] * len(moves)
        found = self._bring([at for at, moved in enumerate(moves) if moved], theirs, counterparts)
        received.moved = any(moves)
        start = 0
        for name, outline, count in told if self.peers.rank != 0 else ():
            numbers = range(start, start := start + count)
            same_outline = name in mine and mine[name].outline == outline
            if not (same_outline and not any(moves[at] for at in numbers)):
                arrays = [self._made(theirs[at], found.get(at), counterparts[at]) for at in numbers]
                received.values[name] = put_together(outline, arrays)
        return received

    def _made(self, what: Told, memory: Array | None, own: ArrayBytes | None) -> Any:
        """Return an array as rank 0 has it: of memory that came, or else like this rank's own."""
        spec, nbytes, _total = what
        if memory is None:
            assert own is not None
            memory = numpy.empty(nbytes, "uint8")
            own.read_into(memory.data, 0)
        return self.codec.make(spec, memory.data, copy=True)

    def _bring(
        self,
        numbers: Sequence[int],
        theirs: Sequence[Told],
        mine: Sequence[ArrayBytes | None],
    ) -> dict[int, Array]:
        """Broadcast the arrays of these numbers, `CHUNK_BYTES` at once; return the bytes of each."""
        found: dict[int, Array] = {}
        batch: list[int] = []
        total = 0
        for number in numbers:
            batch.append(number)
            total += theirs[number][1]
            if total < CHUNK_BYTES and number != numbers[-1]:
                continue
            joined, end = numpy.empty(total, "uint8"), 0
            for at in batch:
                found[at] = joined[end : (end := end + theirs[at][1])]
                if self.peers.rank == 0:
                    mine[at].read_into(found[at].data, 0)  # type: ignore[union-attr]
            if total:
                self.peers.broadcast(joined, "elastic.sync.arrays")
            batch, total = [], 0
        return found

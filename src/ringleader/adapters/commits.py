"""Commits of a state: written together by all ranks, read again, and told to ranks that do not hold them.

`commit_layout` is how they lie in memory, `elastic` the states.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy

from ringleader.adapters.array_operations import BROADCAST_IN_PLACE
from ringleader.adapters.commit_layout import (
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
from ringleader.adapters.membership import CommitMemory, ProcessCommits
from ringleader.adapters.numpy_adapter import Array
from ringleader.adapters.object_exchange import gather_objects, sum_numbers
from ringleader.adapters.process_sets import global_process_set
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.operations import ReduceOp
from ringleader.engine.session import Session

CHECKED_BYTES, CHECKED_ARRAYS = 4 << 20, 32
"""So much of the state, of so many arrays, is held against the other ranks' at each commit, in turn."""
CHECKED_WHOLE = 2
"""Commits of a generation in which all of it is: the first may be of what all have just taken over."""
CHUNK_BYTES = 64 << 20
"""So much of it travels at once to ranks that do not have it."""


class CommitError(RuntimeError):
    """A state could not be committed; raised on all ranks, with the words of one that could not."""


class CommitPeers(Protocol):
    """The ranks that commit together."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    def most(self, numbers: Sequence[int], name: str) -> list[int]:
        """Return the largest of every number over all ranks."""

    def gather(self, value: Any, name: str) -> list[Any]:
        """Return everybody's value, in rank order."""

    def broadcast(self, memory: Array, name: str) -> None:
        """Fill memory with rank 0's, in place."""


class Alone:
    """A rank that commits by itself."""

    rank, size, local_rank, local_size = 0, 1, 0, 1

    def most(self, numbers: Sequence[int], name: str) -> list[int]:
        """See `CommitPeers`."""
        return list(numbers)

    def gather(self, value: Any, name: str) -> list[Any]:
        """See `CommitPeers`."""
        return [value]

    def broadcast(self, memory: Array, name: str) -> None:
        """See `CommitPeers`."""


class SessionPeers:
    """All ranks of a session. Every call is collective."""

    def __init__(self, session: Session) -> None:
        """Speak on the session's engine."""
        self._engine = session.engine
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


Told = tuple[str, bytes, list[tuple[tuple[Any, ...], int, int]]]
"""What rank 0 tells of a part of its state: name, outline, and of each array its description, its length in
bytes, and its checksum; all but the bytes of the arrays."""


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


class Commits:
    """The commits of one state."""

    def __init__(self, codec: ArrayCodec) -> None:
        """Begin with commits in memory of this process, which nobody else takes part in."""
        self.codec = codec
        self.number = 0
        """Of the commit that the state came from or went into last, 0 for none."""
        self.memory: CommitMemory = ProcessCommits()
        self.peers: CommitPeers = Alone()
        self._equal = True
        self._checked, self._whole = 0, CHECKED_WHOLE
        self._kinds: tuple[list[Any], int] = [], 0
        """What there was at the last commit, and its checksum."""

    def join(self, memory: CommitMemory, peers: CommitPeers) -> None:
        """Go on with these ranks, and commits in memory of the host."""
        if isinstance(
            self.peers, Alone
        ):  # numbers of commits that were this process's own mean nothing there
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
        parts, error = self._take_apart(captured)
        number, everybodys = (after, []) if after is not None else self._agree(parts, error)
        written = 0
        try:
            if error is None:
                written = self._write(parts, number + 1, everybodys)
        except HorovodInternalError:
            raise
        except Exception as problem:  # memory of the host may refuse; the others wait for this rank
            error = problem
        failed, *agreed = self.peers.most([int(error is not None), *news], "elastic.commit.written")
        self._raise_together(failed, error)
        if self.peers.local_rank == 0:
            self.memory.set_number(number + 1, written)
        self.number = number + 1
        return agreed

    def _agree(self, parts: Sequence[Part], error: Exception | None) -> tuple[int, list[Any]]:
        """Return the newest commit of any rank, and what is each rank's own, where that is kept.

        Notes whether the ranks have equal states. `CommitError`, on all ranks, where one has an ``error``.
        """
        mine = self._description(parts)
        facts = [int(error is not None), any(p.per_rank is not None for p in parts), not self._equal]
        *flags, number = self.peers.most(
            [*facts, *mine, *(-one for one in mine), self.number], "elastic.commit"
        )
        failed, per_rank, unequal = flags[:3]
        self._raise_together(failed, error)
        highest, lowest = flags[3:5], [-one for one in flags[5:]]
        self._equal = not unequal and highest == lowest
        own = {part.name: part.per_rank for part in parts if part.per_rank is not None}
        return number, self.peers.gather(own, "elastic.commit.own") if per_rank else []

    def _take_apart(
        self, captured: Callable[[], Mapping[str, Captured]]
    ) -> tuple[list[Part], Exception | None]:
        try:
            return [take_apart(name, one, self.codec) for name, one in captured().items()], None
        except HorovodInternalError:
            raise
        except Exception as error:
            if self.peers.size == 1:
                raise
            return [], error

    def _raise_together(self, failed: int, error: Exception | None) -> None:
        if not failed:
            return
        words = self.peers.gather("" if error is None else str(error), "elastic.commit.why")
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
        write_slice(memory, layout.equal, *layout.slice_of(peers.local_rank, peers.local_size))
        if peers.local_rank == 0:
            write_slice(memory, layout.differing, 0, layout.head_at)
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
        theirs: list[Told] = []
        if self.peers.size > 1:
            theirs = broadcast(_told(parts, sums=compares) if self.peers.rank == 0 else None)
        mine = {part.name: part for part in parts}
        wanted = [
            int(not (compares and _has(mine, name, at, spec, total)))
            for name, _outline, arrays in theirs
            for at, (spec, _nbytes, total) in enumerate(arrays)
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
        found = self._bring(theirs, mine, moves)
        received.moved = any(moves)
        if self.peers.rank != 0:
            received.values = self._taken(theirs, mine, moves, found)
        return received

    def _bring(self, theirs: list[Told], mine: Mapping[str, Part], moves: Sequence[int]) -> dict[int, Array]:
        """Broadcast the arrays that somebody wants; return them by their number among all arrays."""
        found: dict[int, Array] = {}
        for batch in _batches(theirs, moves):
            joined = numpy.empty(sum(nbytes for *_place, nbytes in batch), "uint8")
            at = 0
            for number, name, index, nbytes in batch:
                if self.peers.rank == 0:
                    mine[name].arrays[index].read_into(joined.data[at : at + nbytes], 0)
                found[number] = joined[at : at + nbytes]
                at += nbytes
            self.peers.broadcast(joined, "elastic.sync.arrays")
        return found

    def _taken(
        self,
        theirs: list[Told],
        mine: Mapping[str, Part],
        moves: Sequence[int],
        found: Mapping[int, Array],
    ) -> dict[str, Any]:
        """Return the values of parts that differ from rank 0's."""
        values: dict[str, Any] = {}
        number = 0
        for name, outline, described in theirs:
            numbers = range(number, number + len(described))
            number += len(described)
            own = mine.get(name)
            if own is not None and own.outline == outline and not any(moves[at] for at in numbers):
                continue
            arrays = []
            for at, (spec, nbytes, _total) in enumerate(described):
                memory = found.get(numbers[at])
                if memory is None:
                    memory = numpy.empty(nbytes, "uint8")
                    mine[name].arrays[at].read_into(memory.data, 0)
                arrays.append(self.codec.make(spec, memory.data, copy=True))
            values[name] = put_together(outline, arrays)
        return values


def _told(parts: Sequence[Part], *, sums: bool) -> list[Told]:
    return [
        (p.name, p.outline, [(a.spec, a.nbytes, a.checksum(0, a.nbytes) if sums else 0) for a in p.arrays])
        for p in parts
    ]


def _has(mine: Mapping[str, Part], name: str, at: int, spec: tuple[Any, ...], total: int) -> bool:
    """Return whether this rank has an array like rank 0's."""
    part = mine.get(name)
    if part is None or at >= len(part.arrays) or part.arrays[at].spec != spec:
        return False
    return part.arrays[at].checksum(0, part.arrays[at].nbytes) == total


def _batches(theirs: list[Told], moves: Sequence[int]) -> Iterator[list[tuple[int, str, int, int]]]:
    """Yield arrays that travel together: number among all, part, number in the part, bytes."""
    batch: list[tuple[int, str, int, int]] = []
    total = number = 0
    for name, _outline, arrays in theirs:
        for index, (_spec, nbytes, _total) in enumerate(arrays):
            if moves[number] and nbytes:
                batch.append((number, name, index, nbytes))
                total += nbytes
            number += 1
            if total >= CHUNK_BYTES:
                yield batch
                batch, total = [], 0
    if batch:
        yield batch

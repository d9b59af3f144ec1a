"""The memory that a rank shares with its MPI proxy: how it is divided, and how requests go through it. Pure.

    header        4096 bytes: words `HEAD`, `TAIL`, `ASLEEP`, `COMPLETED`, `WAITING`; from byte 2048 on the
                  words of the last error
    requests      SLOTS records of 128 bytes: 16 integers each; the rank writes, the proxy reads
    completions   SLOTS slots of 64 bytes: the proxy writes, the rank reads
    data          the rest, for short messages

A request has a slot, in which the proxy writes the request's own number when it is done: a number is never
used twice, so a slot that was used before is not taken for this one's. `channel` is the rank's side of it,
`proxy` the other one.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

from ringleader.agents.memory_fence import Fence

HEADER_BYTES = 4096
SLOTS = 2048
"""Most requests at a time."""
RECORD_BYTES = 128
SLOT_BYTES = 64
DATA_START = HEADER_BYTES + SLOTS * (RECORD_BYTES + SLOT_BYTES)
"""Where the data begin."""
HEAD, TAIL, ASLEEP, COMPLETED, WAITING, ERROR_BYTES = 0, 8, 16, 24, 32, 40
"""Words of the header by number, each in its own cache line: requests made and taken, whether the proxy
sleeps; requests done, whether the rank sleeps; the length of the last error."""
_ERROR_START, _ERROR_END = 2048, HEADER_BYTES
_RECORD = struct.Struct("=16q")
_SLOTS_START = (HEADER_BYTES + SLOTS * RECORD_BYTES) // 8
_SLOT_WORDS = SLOT_BYTES // 8
RING = 0
"""Number of the ring's own memory; that of others follows."""
EMPTY = -2
"""In place of the number of shared memory: an operand without bytes."""
ALIGNMENT = 64
"""Blocks begin at multiples of a cache line."""


class Memory(NamedTuple):
    """A piece of memory that both see."""

    number: int = -1
    """Number of the shared memory, -1 for none, `EMPTY` for no bytes."""
    offset: int = 0
    """Where it begins there."""
    nbytes: int = 0


NOTHING = Memory()


class Record(NamedTuple):
    """One request; what a call does not need is 0 or empty memory."""

    number: int
    """Its number: the slot in the low 16 bits, a serial number above."""
    call: int
    """A `communicator.Call`."""
    comm: int = 0
    """Number of the communicator, as the rank counts them."""
    source: Memory = NOTHING
    target: Memory = NOTHING
    datatype: int = 0
    """Of a reduction: the place in `communicator.DTYPES`."""
    operation: int = 0
    """Of a reduction: the place in `communicator.OPERATIONS`; the key of a communicator that is made."""
    peer: int = 0
    """The root, the rank that gets or gives a message, -1 for any."""
    tag: int = 0
    listed: Memory = NOTHING
    """A list of integers of 64 bits, or a text."""


class Completion(NamedTuple):
    """What the proxy says of a request that is done."""

    error: str = ""
    source: int = 0
    """Of a message: the rank that sent it, -1 where a probe found none."""
    nbytes: int = 0


class RequestRing:
    """The ring's memory, seen by either side: each uses its own half of the methods."""

    def __init__(self, memory: memoryview) -> None:
        """Take the memory: zeros when the first side comes."""
        if len(memory) <= DATA_START:
            raise ValueError(f"a ring of {len(memory)} bytes has no room for data")
        self.memory = memory
        """All of it."""
        self._words = memory.cast("B").cast("q")
        self._fence = Fence()
        self._next = self._words[HEAD]

    def _sleeps(self, flag: int, counter: int, seen: int) -> bool:
        """Say that this side is about to sleep; return False, and that it is not, where more was done."""
        self._words[flag] = 1
        self._fence()
        if self._words[counter] != seen:
            self._words[flag] = 0
            return False
        return True

    # the rank's half

    def push(self, record: Record) -> bool:
        """Hand a request over; return whether the proxy is to be woken. There is room: it has a slot."""
        at = HEADER_BYTES + self._next % SLOTS * RECORD_BYTES
        number, call, comm, source, target, datatype, operation, peer, tag, listed = record
        _RECORD.pack_into(
            self.memory, at, number, call, comm, *source, *target, datatype, operation, peer, tag, *listed
        )
        self._fence()
        self._next += 1
        self._words[HEAD] = self._next
        self._fence()
        return self._words[ASLEEP] != 0

    def done(self, number: int) -> bool:
        """Return whether a request is done."""
        return self._words[_SLOTS_START + (number & 0xFFFF) * _SLOT_WORDS] == number

    def completion(self, number: int) -> Completion:
        """Return what the proxy says of a request that is done."""
        self._fence()
        at = _SLOTS_START + (number & 0xFFFF) * _SLOT_WORDS
        error, source, nbytes = self._words[at + 1 : at + 4]
        words = ""
        if error:
            length = self._words[ERROR_BYTES]
            words = bytes(self.memory[_ERROR_START : _ERROR_START + length]).decode(errors="replace")
        return Completion(words or ("an unknown error" if error else ""), source, nbytes)

    @property
    def completed(self) -> int:
        """Return how many requests are done so far."""
        return self._words[COMPLETED]

    def rank_sleeps(self, seen: int) -> bool:
        """Say that the rank is about to sleep; return False, and that it does not, where more are done."""
        return self._sleeps(WAITING, COMPLETED, seen)

    def rank_awake(self) -> None:
        """Say that the rank looks by itself again."""
        self._words[WAITING] = 0

    # the proxy's half

    def pop(self) -> Record | None:
        """Return the next request, None where there is none."""
        tail = self._words[TAIL]
        if tail == self._words[HEAD]:
            return None
        self._fence()
        words = _RECORD.unpack_from(self.memory, HEADER_BYTES + tail % SLOTS * RECORD_BYTES)
        self._fence()
        self._words[TAIL] = tail + 1
        source, target, listed = Memory(*words[3:6]), Memory(*words[6:9]), Memory(*words[13:16])
        number, call, comm = words[:3]
        datatype, operation, peer, tag = words[9:13]
        return Record(number, call, comm, source, target, datatype, operation, peer, tag, listed)

    def complete(self, number: int, completion: Completion) -> bool:
        """Say that a request is done; return whether the rank is to be woken."""
        at = _SLOTS_START + (number & 0xFFFF) * _SLOT_WORDS
        if completion.error:
            words = completion.error.encode()[: _ERROR_END - _ERROR_START]
            self.memory[_ERROR_START : _ERROR_START + len(words)] = words
            self._words[ERROR_BYTES] = len(words)
        self._words[at + 1] = int(bool(completion.error))
        self._words[at + 2] = completion.source
        self._words[at + 3] = completion.nbytes
        self._fence()
        self._words[at] = number
        self._fence()
        self._words[COMPLETED] += 1
        self._fence()
        return self._words[WAITING] != 0

    def proxy_sleeps(self) -> bool:
        """Say that the proxy is about to sleep; return False, and that it does not, where a request came."""
        return self._sleeps(ASLEEP, HEAD, self._words[TAIL])

    def proxy_awake(self) -> None:
        """Say that the proxy looks by itself again."""
        self._words[ASLEEP] = 0


class Slots:
    """Numbers for requests: of a slot that is free, and never the same again."""

    def __init__(self) -> None:
        """Begin with all slots free."""
        self._free = list(range(SLOTS - 1, -1, -1))
        self._serial = 0

    def take(self) -> int | None:
        """Return a number, None where all slots are in use."""
        if not self._free:
            return None
        self._serial += 1
        return self._serial << 16 | self._free.pop()

    def give_back(self, number: int) -> None:
        """Have the slot of a request that is done used again."""
        self._free.append(number & 0xFFFF)


class BlockAllocator:
    """Which parts of one piece of memory are in use: offsets alone.

    First fit over a list of free spans; there are few blocks at a time, those of requests under way.
    """

    def __init__(self, start: int, stop: int) -> None:
        """Give out what lies between two offsets; ``start`` is a multiple of `ALIGNMENT`."""
        self._free = [(start, stop)]
        self._used: dict[int, int] = {}

    def take(self, nbytes: int) -> int | None:
        """Return the offset of a block of this many bytes, None where none is free."""
        room = max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
        for at, (start, stop) in enumerate(self._free):
            if stop - start >= room:
                self._free[at : at + 1] = [(start + room, stop)] if stop - start > room else []
                self._used[start] = start + room
                return start
        return None

    def give_back(self, offset: int) -> None:
        """Have a block given out again; KeyError where it is not in use."""
        start, stop = offset, self._used.pop(offset)
        at = bisect_left(self._free, (start, stop))
        if at < len(self._free) and self._free[at][0] == stop:
            stop = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == start:
            at -= 1
            start = self._free.pop(at)[0]
        self._free.insert(at, (start, stop))

    @property
    def unused(self) -> bool:
        """Return whether no block is in use."""
        return not self._used

"""The port to MPI: ranks in order, and calls between them, each begun and then tested or waited for.

`mpi_communicator` makes the calls in this process; in an elastic job `mpi_proxy.proxy_communicator` hands
them to the MPI proxy beside the rank, which makes them with `mpi_communicator`. Memory of a call is exactly
as long as what travels.
"""

from __future__ import annotations

import ctypes
import json
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from struct import Struct
from typing import Any, Protocol

from ringleader.engine.reduction_kernels import ITEMSIZE

ANY = -1
"""In place of a rank: whichever."""
BLOCK_BYTES = 512
"""A block: the length of a rank's message, and where there is room for it, the message."""
_LENGTH = Struct("=q")
SHORT_BYTES = BLOCK_BYTES - _LENGTH.size
"""The longest message that a block has room for."""


NAP_SECONDS = 0.00002
"""One sleep. A rank that sleeps leaves its processor to whoever has work, and is woken at once when the time
is over; one that only yields would wait for the others' time slices."""
LONG_NAP_SECONDS = 0.0005
"""One sleep of a wait that is longer than `SHORT_SECONDS`."""
SHORT_SECONDS = 0.1
NAP_SHARE = 1 / 16
"""A wait for messages naps for this share of the time that it has lasted: each look at them makes MPI work,
which takes the processor from ranks that share it, and from backward where that runs meanwhile."""

LOOKS = 3
"""Times that MPI is tested in one look: where a message has arrived, Open MPI reads it at the first test,
takes the collective call that it is for a step further at the second, and then finds that this is done.
Between 2 hosts of a lab with 2 ranks each an all-reduce of 8 bytes took 1.3 ms with one, 0.9 with two, 0.6
with three; a fourth changed nothing."""


class Call(IntEnum):
    """What is called. The numbers are those of requests to a proxy."""

    MAP = 1
    """To a proxy: take shared memory: its number, and its name as text."""
    FORGET = 2
    """To a proxy: let shared memory go."""
    CREATE = 3
    """To a proxy: make a communicator of the ranks in the list, with a key that is the same on all."""
    FREE = 4
    """To a proxy: free a communicator."""
    ALLREDUCE = 5
    """Without ``source`` in place."""
    ALLGATHER = 6
    """As much of each rank."""
    ALLGATHERV = 7
    """``listed`` holds the bytes of each rank, and then where they begin in ``target``."""
    BROADCAST = 8
    """``target`` of the rank ``peer``."""
    ALLTOALL = 9
    """As much for each rank."""
    BARRIER = 10
    SEND = 11
    RECEIVE = 12
    PROBE = 13


DTYPES = tuple(dtype for dtype in ITEMSIZE if dtype not in ("float16", "bfloat16"))
"""Element types that MPI reduces; the place is the number in requests to a proxy."""
OPERATIONS = ("SUM", "MIN", "MAX", "PROD", "BOR", "BAND")
"""Reductions by their names in MPI; the place is the number."""

_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_view.restype = ctypes.py_object
_WRITE = 0x200


def memory_at(address: int, nbytes: int) -> memoryview:
    """Return the memory at an address, which the caller keeps alive."""
    found: memoryview = _view(address or 1, nbytes, _WRITE) if nbytes else memoryview(bytearray())
    return found


class Request(Protocol):
    """A call under way. What it was given stays alive until it is done."""

    def Test(self) -> bool:  # noqa: N802 - mpi4py's name
        """Return whether it is done."""

    def Wait(self) -> object:  # noqa: N802
        """Wait until it is done."""


KEEPS_ORDER = platform.machine().lower() in ("x86_64", "amd64")
"""Whether every processor sees the writes of another one in the order in which they were made."""


class Segment:
    """Shared memory of the ranks of a communicator, which are on one host: as much of each, visible to all.

    A group frees it when no array over it is left in any process of the host, because an array does not know
    that its memory is gone.
    """

    number = 0
    """Tells the segments of a group apart; it is the same on all ranks."""
    zeros = False
    """Whether it holds zeros at first."""
    parts: list[Any]
    """Memory of each rank, in the order of the communicator."""
    fence: Callable[[], None] | None = None
    """Order this rank's reads and writes of the memory before it against those after it. None where the
    processor keeps the order of reads and that of writes, so that flags need nothing more."""

    def looked_at(self) -> bool:
        """Return whether arrays over the memory are alive outside this object."""
        return any(count > _ALONE for count in _holders(self.parts))

    def free(self) -> None:
        """Give it back; collective over the ranks of the host, and every rank must mean it."""
        raise NotImplementedError


def _holders(parts: list[Any]) -> list[int]:
    return [sys.getrefcount(part) for part in parts]


_ALONE = _holders([object()])[0]
"""What is counted for an object that only the list holds: versions of Python count differently."""


MOST_LISTS = 4
"""Lists of addresses for which a packed copy keeps what it has found: where arrays are taken from, and where
results go, which is not the same memory each time if they are new."""


class PackedCopy:
    """Copies arrays of given lengths to and from one piece of memory, in which they lie without gaps.

    What a subclass finds of arrays is kept as long as they lie where they lay.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        """``lengths`` are the bytes of each array, none of them 0."""
        self._lengths = list(lengths)
        self._known: list[tuple[list[int], Any]] = []

    def pack(self, addresses: list[int]) -> None:
        """Copy the arrays at these addresses into the memory."""
        raise NotImplementedError

    def unpack(self, addresses: list[int]) -> None:
        """Copy the memory to arrays at these addresses."""
        raise NotImplementedError

    def _found(self, addresses: list[int]) -> Any:
        for at, (known, found) in enumerate(self._known):
            if known == addresses:
                self._known.append(self._known.pop(at))  # the one not used for longest goes first
                return found
        found = self._look_up(addresses)
        if len(self._known) >= MOST_LISTS:
            self._drop(self._known.pop(0)[1])
        self._known.append((addresses, found))
        return found

    def _look_up(self, addresses: list[int]) -> Any:
        raise NotImplementedError

    def _drop(self, found: Any) -> None:
        """Give back what `_look_up` made."""

    def close(self) -> None:
        """Let go of what was made for it. Whoever still copies with it has that made again."""
        for _, found in self._known:
            self._drop(found)
        self._known = []


class SlicedCopy(PackedCopy):
    """Copies arrays one by one, by views of their memory. See `communicator.PackedCopy`."""

    def __init__(self, address: int, lengths: Sequence[int]) -> None:
        """``address`` is that of the memory, ``lengths`` are the bytes of each array."""
        super().__init__(lengths)
        memory, ends = memory_at(address, sum(lengths)), list(accumulate(lengths))
        self._slices = [memory[end - length : end] for end, length in zip(ends, self._lengths, strict=True)]

    def pack(self, addresses: list[int]) -> None:
        for packed, array in zip(self._slices, self._found(addresses), strict=True):
            packed[:] = array

    def unpack(self, addresses: list[int]) -> None:
        for packed, array in zip(self._slices, self._found(addresses), strict=True):
            array[:] = packed

    def _look_up(self, addresses: list[int]) -> list[memoryview]:
        return [memory_at(*place) for place in zip(addresses, self._lengths, strict=True)]


class Communicator:
    """Some ranks, in order. A subclass makes the calls."""

    rank: int
    """Number of this rank in it."""
    size: int
    """Its ranks."""
    proxied = False
    """Whether an MPI proxy makes the calls. Then nothing may wait inside of one, and there is always room for
    shared memory."""

    def begin(
        self,
        call: Call,
        *,
        source: Any = None,
        target: Any = None,
        dtype: str = "uint8",
        operation: str = "SUM",
        peer: int = 0,
        tag: int = 0,
        listed: Sequence[int] = (),
    ) -> Request:
        """Begin a call. ``dtype`` and ``operation`` are those of a reduction; ``peer`` may be `ANY`."""
        raise NotImplementedError

    def run(self, call: Call, **operands: Any) -> None:
        """Make a collective call and wait for it."""
        self.begin(call, **operands).Wait()

    def probe(self, source: int, tag: int) -> tuple[int, int] | None:
        """Return who has sent a message with this tag, and its bytes, as far as it is known to be there.

        It is to be received then: it may not be found again.
        """
        raise NotImplementedError

    # communicators and memory made of it; each is collective over its ranks

    def duplicate(self) -> Communicator:
        """Return another one of the same ranks."""
        raise NotImplementedError

    def split(self, colors: Sequence[int]) -> Communicator:
        """Return one of the ranks that have this one's color; ``colors`` are those of all, by rank."""
        raise NotImplementedError

    def on_host(self) -> Communicator:
        """Return one of the ranks of this host."""
        raise NotImplementedError

    def part(self, ranks: Sequence[int], *, tag: int) -> Communicator:
        """Return one of some of the ranks. Collective over these alone; ``tag`` tells it from others."""
        raise NotImplementedError

    def free(self) -> None:
        """Give it back."""
        raise NotImplementedError

    def shared_memory(self, nbytes: int) -> Segment:
        """Return ``nbytes`` of shared memory of each rank; they are on one host.

        Each rank's part begins on a new page. `RuntimeError` where there is none.
        """
        raise NotImplementedError

    def packed_copy(self, address: int, lengths: Sequence[int]) -> PackedCopy:
        """Return what copies arrays of these bytes, none of them 0, to and from the memory at an address."""
        return SlicedCopy(address, lengths)

    def of(self, comm: Any) -> Communicator:
        """Return a communicator of mpi4py's that a script has made; `ValueError` where no script has one."""
        raise ValueError("The ranks of an elastic job have no communicators of MPI's: give a list of ranks.")

    # facts

    def numbers_in(self, other: Communicator) -> list[int]:
        """Return by rank its number in another communicator, a negative one where it does not exist."""
        raise NotImplementedError

    def firsts_on_hosts(self) -> list[int] | None:
        """Return by rank the first rank on its host, None where nobody knows without asking."""
        return None

    def messages(
        self,
        mine: bytes,
        run: Callable[..., None] | None = None,
        gather: Callable[[Any, Any, Sequence[int], Sequence[int]], None] | None = None,
    ) -> list[bytes]:
        """Return every rank's bytes, in rank order: short ones in one call.

        ``run`` makes the calls; ``gather`` brings long messages into memory: what it is given is sent, where
        they go, and the bytes of each rank and where they begin.
        """
        run, everything = run or self.run, bytearray(BLOCK_BYTES * self.size)
        run(Call.ALLGATHER, source=block_of(mine), target=everything)
        starts = list(range(0, len(everything), BLOCK_BYTES))
        counts = [_LENGTH.unpack_from(everything, start)[0] for start in starts]
        if max(counts) <= SHORT_BYTES:
            starts = [start + _LENGTH.size for start in starts]
        else:
            starts = [sum(counts[:rank]) for rank in range(self.size)]
            everything = bytearray(sum(counts))
            if gather is None:
                run(Call.ALLGATHERV, source=mine, target=everything, listed=[*counts, *starts])
            else:
                gather(mine, everything, counts, starts)
        return [bytes(everything[start : start + count]) for start, count in zip(starts, counts, strict=True)]

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value, in rank order: such as JSON has."""
        words = json.dumps(value, separators=(",", ":")).encode()
        return [json.loads(message) for message in self.messages(words)]


class Mailbox:
    """Messages that no rank waits for, on a communicator over which nothing else travels with their tags."""

    def __init__(self, comm: Communicator) -> None:
        """Use a communicator."""
        self._comm = comm
        self._sent: list[tuple[bytes, Request]] = []

    def send(self, message: bytes, rank: int, tag: int) -> None:
        """Begin to send a message."""
        self._sent.append((message, self._comm.begin(Call.SEND, source=message, peer=rank, tag=tag)))

    def sent(self) -> bool:
        """Return whether every message has left; asking also moves them on."""
        self._sent = [(message, request) for message, request in self._sent if not request.Test()]
        return not self._sent

    def received(self, tag: int, source: int = ANY) -> Iterator[tuple[int, bytes]]:
        """Take what is there; yield the sender and the bytes of each. One thread at a time may do so."""
        while (found := self._comm.probe(source, tag)) is not None:
            sender, nbytes = found
            memory = bytearray(nbytes)
            self._comm.begin(Call.RECEIVE, target=memory, peer=sender, tag=tag).Wait()
            yield sender, bytes(memory)


def nap_seconds(waited: float, share: float = NAP_SHARE) -> float:
    """Return how long to sleep between two looks, after ``waited`` seconds: up to this share of them."""
    nap = max(NAP_SECONDS, share * waited) if waited < SHORT_SECONDS else LONG_NAP_SECONDS
    return min(nap, LONG_NAP_SECONDS)


def block_of(message: bytes) -> bytearray:
    """Return a message's block."""
    block = bytearray(BLOCK_BYTES)
    _LENGTH.pack_into(block, 0, len(message))
    if len(message) <= SHORT_BYTES:
        block[_LENGTH.size : _LENGTH.size + len(message)] = message
    return block


RequestSleep = Callable[[float, int], int]
"""Given seconds and a number: sleeps until more requests than that are done, at most that long; returns how
many are."""


@dataclass(frozen=True, kw_only=True)
class World:
    """All ranks that were started together, as this one reaches them: see `open_world`."""

    everybody: Communicator
    """They, in order."""
    threads: bool = True
    """Whether any thread may make calls."""
    slot: int | None = None
    """Number of this rank's slot on its host in an elastic job, None where its launcher has not said it."""
    membership: Any = None
    """In an elastic job this rank's part in the present generation (`mpi_proxy.membership.Membership`)."""
    why_broken: Callable[[], str] = str
    """Says why no rank can continue, empty as long as they can: the end of one in an elastic job."""
    sleep: RequestSleep | None = None
    """Sleeps until requests are done, None where nothing wakes this rank then."""

    @property
    def generation(self) -> int:
        """Return the number of the generation of an elastic job, 0 in other jobs."""
        return 0 if self.membership is None else int(self.membership.generation)

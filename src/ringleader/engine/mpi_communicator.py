"""Calls of MPI in this process, by mpi4py: communicators (see `communicator`), windows, packed copies.

Ranks and MPI proxies use it. `loaded_mpi` loads MPI.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from ringleader.engine.communicator import (
    DTYPES,
    KEEPS_ORDER,
    Call,
    Communicator,
    PackedCopy,
    Request,
    Segment,
    World,
    memory_at,
)
from ringleader.engine.reduction_kernels import ITEMSIZE

SLICED_BYTES = 32 << 10
"""Arrays that are this long on average are copied one by one: MPI's copy of their bytes takes longer then."""
_NAMES = {
    Call.ALLREDUCE: "Allreduce",
    Call.ALLGATHER: "Allgather",
    Call.ALLGATHERV: "Allgatherv",
    Call.BROADCAST: "Bcast",
    Call.ALLTOALL: "Alltoall",
    Call.BARRIER: "Barrier",
    Call.SEND: "Send",
    Call.RECEIVE: "Recv",
}
_TYPES = {dtype: f"{dtype.upper()}_T" for dtype in DTYPES}
_TYPES.update({"bool": "UINT8_T", "float32": "FLOAT", "float64": "DOUBLE"})


def mpi_world(mpi: Any) -> World:
    """Return all ranks that an MPI launcher started."""
    threads = mpi.Query_thread() == mpi.THREAD_MULTIPLE
    return World(everybody=MpiCommunicator(mpi, mpi.COMM_WORLD), threads=threads)


class MpiCommunicator(Communicator):
    """A communicator of mpi4py's.

    Its ranks may be numbered in another order than MPI's: MPI duplicates a communicator without waiting
    inside of it, but in no other order. Ranks that continue after a failure are numbered anew, while their
    proxies are the same. A message to or from a peer is one of another number then, and the parts of a
    gathered array are received where they belong. Reductions are as MPI orders them.
    """

    def __init__(
        self,
        mpi: Any,
        comm: Any,
        places: Sequence[int] | None = None,
        *,
        like: MpiCommunicator | None = None,
    ) -> None:
        """Take the module and a communicator, which goes to this one.

        ``places``: by rank as it is numbered here, its number in ``comm``; None: the same. ``like``: one with
        the same ranks, where ``comm`` is still being made and can't be asked for them.
        """
        self._mpi, self.comm = mpi, comm
        known = comm if like is None else like.comm
        self.size: int = known.size
        self._places = list(range(self.size) if places is None else places)
        self._ranks = sorted(range(self.size), key=self._places.__getitem__)
        """By number in ``comm``, the rank here."""
        self._reordered = self._ranks != list(range(self.size))
        self.rank: int = self._ranks[known.rank]

    def begin(self, call: Call, **operands: Any) -> Request:
        name, arguments, options = self._call(call, **operands)
        request: Request = getattr(self.comm, f"I{name.lower()}")(*arguments, **options)
        return request

    def run(self, call: Call, **operands: Any) -> None:
        """See `Communicator`: waits inside of MPI."""
        name, arguments, options = self._call(call, **operands)
        getattr(self.comm, name)(*arguments, **options)

    def _call(
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
    ) -> tuple[str, list[Any], dict[str, Any]]:
        """Return the method of mpi4py's, and what it is given."""
        mpi, name, byte = self._mpi, _NAMES[call], self._mpi.BYTE
        if call is Call.ALLREDUCE:
            kind, elements = getattr(mpi, _TYPES[dtype]), _nbytes(target) // ITEMSIZE[dtype]
            mine = mpi.IN_PLACE if source is None else [source, elements, kind]
            return name, [mine, [target, elements, kind]], {"op": getattr(mpi, operation)}
        if call is Call.SEND:
            return name, [[source, _nbytes(source), byte]], {"dest": self._places[peer], "tag": tag}
        if call is Call.RECEIVE:
            sender = mpi.ANY_SOURCE if peer < 0 else self._places[peer]
            return name, [[target, _nbytes(target), byte]], {"source": sender, "tag": tag}
        if call is Call.BROADCAST:
            return name, [[target, _nbytes(target), byte]], {"root": self._places[peer]}
        if call is Call.BARRIER:
            return name, [], {}
        if call is Call.ALLGATHERV:
            counts, starts = listed[: self.size], listed[self.size :]
        else:  # as much of each rank, or for each
            each = _nbytes(target) // self.size
            counts, starts = [each] * self.size, [each * rank for rank in range(self.size)]
            if not self._reordered:
                mine = each if call is Call.ALLTOALL else _nbytes(source)
                return name, [[source, mine, byte], [target, each, byte]], {}
        parts = [[counts[rank] for rank in self._ranks], [starts[rank] for rank in self._ranks], byte]
        if call is Call.ALLTOALL:
            return "Alltoallv", [[source, *parts], [target, *parts]], {}
        return "Allgatherv", [[source, _nbytes(source), byte], [target, *parts]], {}

    def probe(self, source: int, tag: int) -> tuple[int, int] | None:
        mpi, status = self._mpi, self._mpi.Status()
        sender = mpi.ANY_SOURCE if source < 0 else self._places[source]
        if not self.comm.Iprobe(source=sender, tag=tag, status=status):
            return None
        return self._ranks[status.Get_source()], status.Get_count(mpi.BYTE)

    def of(self, comm: Any) -> MpiCommunicator:
        return MpiCommunicator(self._mpi, comm)

    def duplicate(self) -> MpiCommunicator:
        return MpiCommunicator(self._mpi, self._in_mpis_order().Dup())

    def begin_duplicate(self) -> tuple[MpiCommunicator, Request]:
        """Begin `duplicate`, and wait for nobody: the result is there when the request is done."""
        made, request = self._in_mpis_order().Idup()
        return MpiCommunicator(self._mpi, made, like=self), request

    def _in_mpis_order(self) -> Any:
        """Return the communicator of mpi4py's to make another one of: that has MPI's order of ranks."""
        assert not self._reordered, "a communicator in another order than MPI's makes no others"
        return self.comm

    def split(self, colors: Sequence[int]) -> MpiCommunicator:
        return MpiCommunicator(self._mpi, self._in_mpis_order().Split(color=colors[self.rank], key=self.rank))

    def on_host(self) -> MpiCommunicator:
        kind = self._mpi.COMM_TYPE_SHARED
        return MpiCommunicator(self._mpi, self._in_mpis_order().Split_type(kind, key=self.rank))

    def part(self, ranks: Sequence[int], *, tag: int) -> MpiCommunicator:
        whole = self._in_mpis_order().Get_group()
        group = whole.Incl(list(ranks))
        made = self.comm.Create_group(group, tag=tag)
        group.Free()
        whole.Free()
        return MpiCommunicator(self._mpi, made)

    def in_order(self, members: Sequence[int]) -> MpiCommunicator:
        """Return it with ranks in the order of its members, which are ascending in this one."""
        ascending = sorted(members)
        return MpiCommunicator(self._mpi, self._in_mpis_order(), [ascending.index(one) for one in members])

    def free(self) -> None:
        if self.comm != self._mpi.COMM_SELF:
            self.comm.Free()

    def numbers_in(self, other: Communicator) -> list[int]:
        assert isinstance(other, MpiCommunicator)
        ours, theirs = self._in_mpis_order().Get_group(), other._in_mpis_order().Get_group()
        numbers = list(ours.Translate_ranks(list(range(self.size)), theirs))
        ours.Free()
        theirs.Free()
        return numbers

    def shared_memory(self, nbytes: int) -> MpiSegment:
        return MpiSegment(self._mpi, self, nbytes)

    def packed_copy(self, address: int, lengths: Sequence[int]) -> PackedCopy:
        if sum(lengths) >= SLICED_BYTES * len(lengths):
            return super().packed_copy(address, lengths)
        return MpiPackedCopy(self._mpi, address=address, lengths=lengths)


def _nbytes(memory: Any) -> int:
    return memoryview(memory).nbytes


class MpiSegment(Segment):
    """A shared window of MPI-3, which does not promise zeros.

    What is left at the end of the process is freed before MPI's own end.
    """

    def __init__(self, mpi: Any, host: MpiCommunicator, nbytes: int) -> None:
        """Allocate; collective over the ranks of the host."""
        info = mpi.Info.Create()
        info.Set("alloc_shared_noncontig", "true")
        try:
            self._window = mpi.Win.Allocate_shared(nbytes, 1, info=info, comm=host.comm)
        except Exception as error:
            raise RuntimeError(
                f"the ranks of this host get no shared memory of {nbytes:,} bytes each ({error}): see that "
                "/dev/shm can be written and has room (df /dev/shm; for a container --shm-size)"
            ) from error
        finally:
            info.Free()
        self._window.Lock_all(mpi.MODE_NOCHECK)
        first, number = host.gather([mpi.COMM_WORLD.rank, next(_NUMBERS)])[0]
        self._key: tuple[int, int] = (first, number)
        _WINDOWS[self._key] = self
        # A query may report the room up to the next page; what was asked for is what is used.
        starts = [self._window.Shared_query(rank)[0].address for rank in range(host.size)]
        self.parts = [mpi.buffer.fromaddress(start, nbytes) for start in starts]
        self.fence = None if KEEPS_ORDER else self._window.Sync

    def free(self) -> None:
        del _WINDOWS[self._key]
        self.parts = []
        self._window.Unlock_all()
        self._window.Free()


_NUMBERS = count()
_WINDOWS: dict[tuple[int, int], MpiSegment] = {}
"""The windows of this process, by the rank that was first in each and the number that it gave it: the same on
all of its ranks. It mirrors state of the MPI library, which is one per process."""


def free_windows_left() -> None:
    """Free the windows that no group has given back; all ranks do, when they end, and look at them no more.

    MPI's own end would free them, each process in the order of its table, which differs where ranks were
    in different groups: each would wait in another window for the others. Here the order is one for all.
    """
    for _, window in sorted(_WINDOWS.items()):
        window.free()


class MpiPackedCopy(PackedCopy):
    """Copies many arrays by one call of MPI. See `communicator.PackedCopy`.

    A framework's copy of one small array costs more than its bytes do. MPI packs all of them at once, by a
    datatype that holds their addresses, over the memory from the first array to the last.
    """

    def __init__(self, mpi: Any, *, address: int, lengths: Sequence[int]) -> None:
        """``address`` is that of the memory, ``lengths`` are the bytes of each array, none of them 0."""
        super().__init__(lengths)
        self._mpi, self._memory = mpi, mpi.buffer.fromaddress(address, sum(lengths))

    def pack(self, addresses: list[int]) -> None:
        datatype, around = self._found(addresses)
        datatype.Pack(around, self._memory, 0, self._mpi.COMM_SELF)

    def unpack(self, addresses: list[int]) -> None:
        datatype, around = self._found(addresses)
        datatype.Unpack(self._memory, 0, around, self._mpi.COMM_SELF)

    def _look_up(self, addresses: list[int]) -> tuple[Any, memoryview]:
        first = min(addresses)
        starts = [address - first for address in addresses]
        datatype = self._mpi.BYTE.Create_hindexed(self._lengths, starts).Commit()
        # MPI counts elements by the length of the memory: it is one datatype long.
        return datatype, memory_at(first, datatype.extent)

    def _drop(self, found: tuple[Any, memoryview]) -> None:
        found[0].Free()

"""Which call of mpi4py's a call becomes, also where ranks are numbered in another order than MPI's."""

from types import SimpleNamespace
from typing import Any

import pytest

from ringleader.engine.communicator import ANY, DTYPES, OPERATIONS, Call
from ringleader.engine.mpi_communicator import MpiCommunicator

NAMES = (
    "UINT8_T",
    "INT8_T",
    "UINT16_T",
    "INT16_T",
    "UINT32_T",
    "INT32_T",
    "UINT64_T",
    "INT64_T",
    "FLOAT",
    "DOUBLE",
)


class Raw:
    """A communicator of three ranks that notes its calls; this one is MPI's rank 1."""

    size, rank = 3, 1

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: self.calls.append((name, arguments, options))

    def Iprobe(self, source: int, tag: int, status: Any) -> bool:
        status.found = source
        return True


class Status:
    found = 0

    def Get_source(self) -> int:
        return max(self.found, 0)

    def Get_count(self, kind: str) -> int:
        return 7


MPI = SimpleNamespace(
    BYTE="BYTE",
    IN_PLACE="IN_PLACE",
    ANY_SOURCE=-99,
    Status=Status,
    **{name: name for name in (*NAMES, *OPERATIONS)},
)


def called(call: Call, places: list[int] | None = None, **operands: Any) -> tuple[str, Any, Any]:
    raw = Raw()
    MpiCommunicator(MPI, raw, places).begin(call, **operands)
    return raw.calls[0]


def test_in_its_own_order() -> None:
    one, three = bytearray(4), bytearray(12)
    assert called(Call.ALLGATHER, source=one, target=three) == (
        "Iallgather",
        ([one, 4, "BYTE"], [three, 4, "BYTE"]),
        {},
    )
    assert called(Call.ALLTOALL, source=three, target=three)[1] == ([three, 4, "BYTE"], [three, 4, "BYTE"])
    assert called(Call.ALLGATHERV, source=one, target=three, listed=[4, 3, 5, 0, 4, 7])[1][1] == [
        three,
        [4, 3, 5],
        [0, 4, 7],
        "BYTE",
    ]


def test_in_another_order_peers_and_parts_are_mpis() -> None:
    """Here rank 0 is MPI's 2, rank 1 is MPI's 0, rank 2 is MPI's 1."""
    places, one, three = [2, 0, 1], bytearray(4), bytearray(12)
    assert MpiCommunicator(MPI, Raw(), places).rank == 2
    parts = [[4, 4, 4], [4, 8, 0], "BYTE"]
    assert called(Call.ALLGATHER, places, source=one, target=three) == (
        "Iallgatherv",
        ([one, 4, "BYTE"], [three, *parts]),
        {},
    )
    assert called(Call.ALLTOALL, places, source=three, target=three) == (
        "Ialltoallv",
        ([three, *parts], [three, *parts]),
        {},
    )
    assert called(Call.ALLGATHERV, places, source=one, target=three, listed=[4, 3, 5, 0, 4, 7])[1][1] == [
        three,
        [3, 5, 4],
        [4, 7, 0],
        "BYTE",
    ]
    assert called(Call.SEND, places, source=one, peer=0, tag=5)[2] == {"dest": 2, "tag": 5}
    assert called(Call.RECEIVE, places, target=one, peer=1)[2]["source"] == 0
    assert called(Call.BROADCAST, places, target=one, peer=2)[2] == {"root": 1}
    comm = MpiCommunicator(MPI, Raw(), places)
    assert comm.probe(0, 1) == (0, 7)
    assert comm.probe(ANY, 1) == (1, 7), "MPI's rank 0 has sent it"


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(dtype: str) -> None:
    memory = bytearray(24)
    (source, target), options = called(Call.ALLREDUCE, target=memory, dtype=dtype, operation="MAX")[1:]
    assert source == "IN_PLACE" and options == {"op": "MAX"}
    assert target[0] is memory and target[1] in (24, 12, 6, 3) and target[2] in NAMES


def test_memory_without_bytes_is_taken() -> None:
    nothing = bytearray()
    name, (source, target), _ = called(Call.ALLTOALL, [1, 0, 2], source=nothing, target=nothing)
    assert name == "Ialltoallv" and source[1] == [0, 0, 0] == target[2]


def test_a_duplicate_in_the_making_is_not_asked() -> None:
    """MPI gives no answer about a communicator before the request that makes it is done."""
    made, request = object(), object()
    raw = Raw()
    raw.Idup = lambda: (made, request)  # type: ignore[attr-defined]
    duplicate, under_way = MpiCommunicator(MPI, raw).begin_duplicate()
    assert (duplicate.comm, duplicate.rank, duplicate.size, under_way) == (made, 1, 3, request)


@pytest.mark.parametrize(
    "make",
    [
        lambda comm: comm.duplicate(),
        lambda comm: comm.begin_duplicate(),
        lambda comm: comm.split([0, 0, 0]),
        lambda comm: comm.part([0, 1], tag=1),
        lambda comm: comm.in_order([2, 1, 0]),
        lambda comm: comm.numbers_in(MpiCommunicator(MPI, Raw())),
    ],
)
def test_none_is_made_of_one_in_another_order(make: Any) -> None:
    """MPI would number its ranks as it does itself."""
    with pytest.raises(AssertionError, match="another order"):
        make(MpiCommunicator(MPI, Raw(), [2, 0, 1]))

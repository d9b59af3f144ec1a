"""Times of the ways an array can go on one host, and the table made from them.

A few milliseconds once per world, before the first small gradients or after some small operations. Every rank
takes part; the first rank's numbers count for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ringleader.collectives.digest_barrier import HostBoard
from ringleader.collectives.kernels import Kernels
from ringleader.collectives.operations import Call, ReduceOp
from ringleader.collectives.transports.algorithm_table import MEASURED_BYTES, Choice, Way, choose
from ringleader.collectives.transports.plain_mpi import MpiTransport
from ringleader.collectives.transports.registered_memory import Registered
from ringleader.collectives.transports.staging_buffers import Slots

TIMED_BYTES = 512 << 10
"""Calls of a way that are timed together reduce about so much in all …"""
FEWEST_CALLS, MOST_CALLS = 6, 64
"""… in at least and at most so many calls: the first ones after something else are slower than the rest."""
ROUNDS = 5
"""Times of each way, of which the best counts: what disturbed the others is not the way's."""
DTYPE = "float32"


def measure(
    *, kernels: Kernels, board: HostBoard, slots: Slots, registered: Registered, plain: MpiTransport
) -> Choice:
    """Time every way at every size and return the table, equal on all ranks. Collective."""
    board.barrier()  # what lies in the slots has been read by all
    in_place: dict[int, Mapping[Way, float]] = {}
    ordinary: dict[int, Mapping[Way, float]] = {}
    for nbytes in MEASURED_BYTES:
        calls = min(MOST_CALLS, max(FEWEST_CALLS, TIMED_BYTES // nbytes))
        shared, private = _ways(kernels, board, slots, registered, plain, nbytes // 4)
        in_place[nbytes] = {way: _best(call, board, calls) for way, call in shared.items()}
        ordinary[nbytes] = {way: _best(call, board, calls) for way, call in private.items()}
    board.barrier()
    numbers = [plain.wire.integers(number)[0] for number in choose(in_place, ordinary).as_list()]
    return Choice.from_list(numbers)


def _ways(
    kernels: Kernels,
    board: HostBoard,
    slots: Slots,
    registered: Registered,
    plain: MpiTransport,
    count: int,
) -> tuple[dict[Way, Callable[[], None]], dict[Way, Callable[[], None]]]:
    """Return what is timed for registered memory, and for any other."""
    call = Call(kind="allreduce", dtype=DTYPE, shape=(count,))
    array = kernels.empty((count,), DTYPE)
    shared = slots.views(DTYPE, count)
    for one in (array, *shared):
        kernels.zero(one)
    board.barrier()
    by_mpi, direct = plain.reducer.prepared(array, DTYPE), plain.reducer.one_call(DTYPE, count, ReduceOp.SUM)
    reduce_shared = kernels.everywhere(registered.cut(shared, DTYPE, count))

    def one_call() -> None:
        if by_mpi is not None:
            by_mpi(ReduceOp.SUM, 1.0)

    def in_place() -> None:
        reduce_shared(ReduceOp.SUM, 1.0)
        board.barrier()

    def met_one_call() -> None:
        board.barrier()
        if direct is not None:
            direct(array, array)

    def everyone() -> None:
        slots.lay_out(array, call, count)
        board.barrier()
        slots.reduce_all(array, DTYPE, count, ReduceOp.SUM, 1.0)

    def slices() -> None:
        slots.lay_first_out(array, call)
        board.barrier()
        slots.reduce_slices(array, array, call, ReduceOp.SUM, 1.0)

    return (
        {Way.MPI: one_call, Way.IN_PLACE: in_place},
        {Way.MPI: met_one_call, Way.EVERYONE: everyone, Way.SLICES: slices},
    )


def _best(call: Callable[[], None], board: HostBoard, calls: int) -> float:
    best = float("inf")
    call()
    for _ in range(ROUNDS):
        board.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls)
    return best

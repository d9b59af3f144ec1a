"""Times of the algorithms by which an array can be reduced on one host, and the table made from them.

A few milliseconds once per group, before the first small gradients or after some small operations. Every rank
takes part; the first rank's numbers count for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ringleader.collectives.digest_barrier import SharedFlags
from ringleader.collectives.operations import ReduceOp
from ringleader.collectives.transports.algorithm_table import MEASURED_BYTES, Algorithm, OneHostTable, choose
from ringleader.collectives.transports.one_shot import OneShot
from ringleader.collectives.transports.shared_memory_transport import SharedMemory
from ringleader.collectives.transports.staging_buffers import StagedReduction, StagingBuffers
from ringleader.collectives.transports.two_shot import TwoShot

TIMED_BYTES = 512 << 10
"""Calls of an algorithm that are timed together reduce about so much in all …"""
FEWEST_CALLS, MOST_CALLS = 6, 64
"""… in at least and at most so many calls: the first ones after something else are slower than the rest."""
ROUNDS = 5
"""Times of each algorithm, of which the best counts: what disturbed the others is not its own."""
DTYPE = "float32"


def measure(shared: SharedMemory, staging: StagingBuffers) -> OneHostTable:
    """Time every algorithm at every size and return the table, equal on all ranks. Collective."""
    flags, plain = shared.flags, shared.plain
    flags.barrier()  # what lies in the staging buffers has been read by all
    in_place: dict[int, Mapping[Algorithm, float]] = {}
    ordinary: dict[int, Mapping[Algorithm, float]] = {}
    for nbytes in MEASURED_BYTES:
        calls = min(MOST_CALLS, max(FEWEST_CALLS, TIMED_BYTES // nbytes))
        in_segment, elsewhere = _candidates(shared, staging, nbytes // 4)
        in_place[nbytes] = {
            algorithm: _best_seconds(call, flags, calls) for algorithm, call in in_segment.items()
        }
        ordinary[nbytes] = {
            algorithm: _best_seconds(call, flags, calls) for algorithm, call in elsewhere.items()
        }
    flags.barrier()
    numbers = [plain.mpi_calls.integers(number)[0] for number in choose(in_place, ordinary).as_list()]
    return OneHostTable.from_list(numbers)


def _candidates(
    shared: SharedMemory, staging: StagingBuffers, count: int
) -> tuple[dict[Algorithm, Callable[[], None]], dict[Algorithm, Callable[[], None]]]:
    """Return what is timed for registered memory, and for any other."""
    kernels, flags, reducer = shared.kernels, shared.flags, shared.plain.reducer
    array, flat = kernels.empty((count,), DTYPE), staging.flat(DTYPE)
    source = flat.take(array)
    views = [flat.give(one) for one in staging.short(0, DTYPE, count)]
    for one in (array, *views):
        kernels.zero(one)
    flags.barrier()
    by_mpi, direct = reducer.prepared(array, DTYPE), reducer.one_call(DTYPE, count, ReduceOp.SUM)
    reduce_shared = kernels.everywhere(shared.registered.cut(views, DTYPE, count))

    def one_call() -> None:
        if by_mpi is not None:
            by_mpi(ReduceOp.SUM, 1.0)

    def in_place() -> None:
        reduce_shared(ReduceOp.SUM, 1.0)
        flags.barrier()

    def met_one_call() -> None:
        flags.barrier()
        if direct is not None:
            direct(array, array)

    def staged(reduction: StagedReduction) -> Callable[[], None]:
        def stage_and_reduce() -> None:
            reduction.stage(source)
            flags.barrier()
            reduction.reduce(source, source)

        return stage_and_reduce

    one_shot = OneShot(staging, DTYPE, count, ReduceOp.SUM, prescale=1.0, factor=1.0)
    two_shot = TwoShot(staging, flags, DTYPE, ReduceOp.SUM, prescale=1.0, factor=1.0)
    return (
        {Algorithm.MPI: one_call, Algorithm.IN_PLACE: in_place},
        {
            Algorithm.MPI: met_one_call,
            Algorithm.ONE_SHOT: staged(one_shot),
            Algorithm.TWO_SHOT: staged(two_shot),
        },
    )


def _best_seconds(call: Callable[[], None], flags: SharedFlags, calls: int) -> float:
    best = float("inf")
    call()
    for _ in range(ROUNDS):
        flags.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls)
    return best

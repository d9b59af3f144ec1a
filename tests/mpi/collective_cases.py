"""What the ranks of `test_bench_collectives` run: every operation of every implementation.

argv: the implementations. Each result is compared with what is computed here out of all ranks' bytes, which
plain mpi4py brings, and with the count of wrong elements that the bench gives; then one element is spoilt,
and has to be counted.
"""

import sys

import numpy

from ringleader.bench.collective_implementations import (
    NotOfferedError,
    NumpyEngine,
    PlainMpi,
    TorchDistributed,
    TorchEngine,
)
from ringleader.bench.collective_memory import host_memory, registered_memory
from ringleader.bench.collective_plan import DTYPES, REDOPS, REDUCING
from ringleader.bench.collective_values import Case, decoded, encoded, wrong_elements
from ringleader.measurements.collective import OPERATIONS

COUNT = 700
KINDS = {"prod": numpy.multiply, "min": numpy.minimum, "max": numpy.maximum}


def expected(case: Case, every: list[bytes]) -> numpy.ndarray:
    """Return what this rank must get of what all ranks brought, as numbers; or as bytes of what is moved."""
    data = [numpy.frombuffer(one, numpy.uint8) for one in every]
    if case.operation in REDUCING:
        numbers = [
            decoded(one, case.dtype) if "float" in case.dtype else one.view(case.dtype).astype("int64")
            for one in data
        ]
        total = numbers[0]
        for one in numbers[1:]:
            total = KINDS.get(case.redop, numpy.add)(total, one)
        if case.redop == "avg":
            total = total / case.ranks
        if case.operation == "reducescatter":
            return total[case.rank * case.count : (case.rank + 1) * case.count]
        return total
    part = case.part_bytes
    if case.operation == "allgather":
        return numpy.concatenate(data)
    if case.operation == "broadcast":
        return data[case.root]
    if case.operation == "sendrecv":
        return data[(case.rank - 1) % case.ranks]
    return numpy.concatenate([one[case.rank * part : (case.rank + 1) * part] for one in data])


def check(name, implementation, case, in_place, memory, world):
    """Do one operation, compare its result, return whether it is offered."""
    from ringleader.bench.collective_values import sent

    send, receive = memory
    source = receive if in_place else send
    try:
        call = implementation.prepare(case, send, receive, in_place=in_place)
    except NotOfferedError:
        return False
    receive.clear()
    mine = sent(case, 3, 0, case.sent_bytes)
    start = case.rank * case.part_bytes if in_place and case.operation == "allgather" else 0
    if not (in_place and case.operation == "broadcast" and case.rank != case.root):
        source.write(start, mine)
    every = world.allgather(mine.tobytes())
    got = call.result(call.run()).copy()
    implementation.finish()
    what = f"{name} {case} in_place={in_place}"
    assert wrong_elements(case, 3, got) == 0, what
    want = expected(case, every)
    if case.operation in REDUCING:
        numbers = decoded(got, case.dtype) if "float" in case.dtype else got.view(case.dtype)
        near = {"rtol": 0.02 if case.redop == "avg" and "float" in case.dtype else 0}
        numpy.testing.assert_allclose(numbers, want, atol=0, err_msg=what, **near)
        if case.redop != "avg":
            assert numpy.array_equal(got, encoded(want, case.dtype)), what
    else:
        assert numpy.array_equal(got, want), what
    got[-1] ^= 0x55
    assert wrong_elements(case, 3, got) == 1, what
    world.Barrier()
    return True


def main() -> None:
    """Check all that was named; rank 0 prints how many operations each implementation offered."""
    makers = {
        "torch": TorchEngine,
        "numpy": NumpyEngine,
        "mpi": PlainMpi,
        "gloo": lambda: TorchDistributed("gloo", seconds=60),
    }
    implementations = {name: makers[name]() for name in sys.argv[1:]}
    from mpi4py import MPI

    world = MPI.COMM_WORLD.Dup()
    memories = {}
    nbytes = COUNT * 8 * world.size
    for name, implementation in implementations.items():
        offered = 0
        for dtype in DTYPES:
            memories["host"] = (host_memory(nbytes), host_memory(nbytes))
            if name == "torch":
                memories["registered"] = (host_memory(nbytes), registered_memory(nbytes, dtype))
            for operation in OPERATIONS:
                for redop in REDOPS if operation in REDUCING else ("none",):
                    case = Case(
                        operation=operation,
                        dtype=dtype,
                        redop=redop,
                        root=world.size - 1,
                        count=COUNT,
                        ranks=world.size,
                        rank=world.rank,
                    )
                    for in_place in (False, True) if operation not in ("alltoall", "sendrecv") else (False,):
                        for memory in memories.values():
                            offered += check(name, implementation, case, in_place, memory, world)
            memories.clear()
        if world.rank == 0:
            print(name, offered, flush=True)
    for implementation in reversed(implementations.values()):
        implementation.close()


if __name__ == "__main__":
    main()

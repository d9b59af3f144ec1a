"""Time of an allreduce of float32 on one host: ours, MPI's own, Gloo's, and what the cores can move.

    python benchmarks/allreduce.py [--ranks 2] [--rounds 21] [--pin]

``transport`` reduces memory that the engine registered, as gradients are. ``registered`` is the public
``hvd.allreduce_`` of a tensor that ``hvd.registered_empty`` made, ``moved`` that of one that
``hvd.register_`` moved there, and ``ordinary`` that of any other tensor, all with the check that all ranks
asked for the same. ``cores`` is every rank doing ``torch.add`` on as many bytes, on its own. All in one run,
in turns, every result checked. The last case is many small tensors.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

import ringleader.torch as hvd
from _pairs import best_ratio, context, in_turns, keep, part, ratio, ready, timed, verdict
from ringleader.engine.operations import ReduceOp
from ringleader.torch.basics import session
from rows import BY_CASE, required

SIZES = [4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20]
ROWS = {4 << 10: "4 KiB", 1 << 20: "1 MiB", 8 << 20: "8 MiB", 64 << 20: "64 MiB"}
"""Sizes that have rows in `rows.REQUIREMENTS`."""
TENSORS = 161
"""As many as ResNet-50 has gradients."""


def arms_for(nbytes: int) -> dict[str, Callable[[], object]]:
    """Return what is timed, after one checked call of each."""
    from mpi4py import MPI

    count, size = nbytes // 4, hvd.size()
    engine, flags = session().engine, session().group.flags
    transport, region = engine.transport, engine.register(count, "float32")
    registered, moved = hvd.registered_empty(count), hvd.register_(torch.zeros(count))
    ordinary, theirs, gloo = torch.zeros(count), torch.zeros(count), torch.zeros(count)
    array = theirs.numpy()
    a, b, c = torch.ones(count), torch.ones(count), torch.ones(count)

    def ours() -> None:
        flags.barrier()
        transport.exchange(region, ReduceOp.SUM, 1.0)

    arms = {
        "transport": (ours, region.mine),
        "registered": (lambda: hvd.allreduce_(registered, op=hvd.Sum), registered),
        "moved": (lambda: hvd.allreduce_(moved, op=hvd.Sum), moved),
        "ordinary": (lambda: hvd.allreduce_(ordinary, op=hvd.Sum), ordinary),
        "MPI": (lambda: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, array), theirs),
        "Gloo": (lambda: torch.distributed.all_reduce(gloo), gloo),
        "cores": (lambda: torch.add(a, b, out=c), None),
    }
    for name, (arm, tensor) in arms.items():
        if tensor is None:
            continue
        tensor.copy_(torch.arange(count) % 97 * (hvd.rank() + 1))
        hvd.barrier()
        arm()
        want = torch.arange(count) % 97 * sum(range(1, size + 1))
        assert torch.equal(tensor, want.float()), f"{name} computed a wrong sum of {nbytes} bytes"
        tensor.zero_()  # so that repeated sums stay finite
        hvd.barrier()
    return {name: arm for name, (arm, _tensor) in arms.items()}


def many_arms() -> dict[str, Callable[[], object]]:
    """Return the arms of many small tensors, after one checked call of each."""
    from mpi4py import MPI

    ours = [torch.full((1000,), float(hvd.rank() + at)) for at in range(TENSORS)]
    theirs = [tensor.clone() for tensor in ours]
    arrays = [tensor.numpy() for tensor in theirs]
    names = [f"tensor.{at}" for at in range(TENSORS)]

    def asynchronous() -> None:
        handles = [
            hvd.allreduce_async_(tensor, name=name, op=hvd.Max)
            for tensor, name in zip(ours, names, strict=True)
        ]
        for handle in handles:
            hvd.synchronize(handle)

    def loop() -> None:
        for array in arrays:
            MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, array, op=MPI.MAX)

    for arm, tensors in ((asynchronous, ours), (loop, theirs)):
        arm()
        for at, tensor in enumerate(tensors):
            assert (tensor == hvd.size() - 1 + at).all(), at
    return {"hvd.allreduce_async_": asynchronous, "MPI": loop}


def verdicts(nbytes: int, times: dict[str, list[float]]) -> tuple[dict[str, float], list[str]]:
    """Return the ratios of one size, and a line for each that something is required of."""
    against = {
        f"{peer}/{arm}": (ratio(times[peer], times[arm]), best_ratio(times[peer], times[arm]))
        for arm in ("transport", "registered", "moved", "ordinary")
        for peer in ("MPI", "Gloo", "cores")
    }
    ratios = {name: middle for name, (middle, _best) in against.items()}
    ratios |= {f"{name}, fastest rounds": best for name, (_middle, best) in against.items()}
    lines = []
    for arm in ("ordinary", "registered"):
        row = BY_CASE.get(f"{ROWS.get(nbytes)}, {arm}")
        if row is not None:
            reached = ratios[f"MPI/{arm}"]
            lines.append(row.verdict(1 / reached if row.at_most else reached))
    if nbytes == SIZES[0]:
        lines.append(verdict("4 KiB, transport over MPI", 1 / ratios["MPI/transport"], 1.3, at_most=True))
    if nbytes == 1 << 20:
        lines.append(verdict("1 MiB, moved by hvd.register_", ratios["MPI/moved"], 3.0))
    if nbytes == SIZES[-1]:
        lines.append(verdict("64 MiB, cores over transport", ratios["cores/transport"], 0.85))
    return ratios, lines


def main() -> None:
    """Run and print."""
    args = ready(__doc__, __file__, rounds=21)
    if args is None:
        return
    first = hvd.rank() == 0
    result: dict[str, object] = {}
    if first:
        print("bytes, then µs (medians): transport, registered, moved, ordinary, MPI, Gloo, cores")
    for nbytes in SIZES:
        arms = arms_for(nbytes)
        times, medians = timed(arms, meet=hvd.barrier, rounds=args.rounds, nbytes=nbytes)
        ratios, lines = verdicts(nbytes, times)
        result[str(nbytes)] = {"seconds": medians, "ratios": ratios}
        if first:
            print(f"{nbytes:>9}" + "".join(f"{value * 1e6:>11.1f}" for value in medians.values()))
            print("\n".join(lines), end="\n" if lines else "")
    times = in_turns(many_arms(), meet=hvd.barrier, rounds=args.rounds, block=10)
    over = ratio(times["hvd.allreduce_async_"], times["MPI"])
    result["many"] = {"tensors": TENSORS, "seconds": times, "ours over MPI": over}
    if first:
        medians = {name: f"{statistics.median(values) * 1e6:.0f} µs" for name, values in times.items()}
        print(f"{TENSORS} tensors of 4 kB: {medians}")
        print(required("161 × 4 kB, async", over))
        print(f"    {context()}")
        keep("allreduce", {"ranks": args.ranks, "rounds": args.rounds, "pinned": args.pin, "sizes": result})
    part()


if __name__ == "__main__":
    main()

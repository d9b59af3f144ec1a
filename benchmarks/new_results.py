"""Time of the calls that scripts make on one host: an average in a new result, by name, begun, in a group.

    python benchmarks/new_results.py [--ranks 2] [--rounds 21] [--pin]

``sum`` and ``average`` are ``hvd.allreduce_``, in place; ``new`` is ``hvd.allreduce(x)`` as it is, ``named``
with a name, ``begun`` ``hvd.allreduce_async`` and ``synchronize``, ``grouped`` four tensors of as many bytes
together; each replaces the result before, as a loop does. Beside them Open MPI's sum into a new array and
Gloo's in place. ``torch.add`` on as many bytes, every rank on its own, says what the memory allows: ``cores``
into a third array, ``added`` in place, ``added new`` into two arrays by turns, where a loop's results are.
All in one run, in turns, every result checked; then the same for float64 and bfloat16.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy
import torch

import ringleader.torch as hvd
from _pairs import best_ratio, context, keep, part, ratio, ready, timed
from rows import BY_CASE

SIZES = {"1 MiB": 1 << 20, "8 MiB": 8 << 20, "64 MiB": 64 << 20}
PARTS = (8, 4, 3, 1)
"""Sixteenths of the bytes that each tensor of a group has."""
CALLS = ("average", "new", "named", "begun", "grouped")
PEERS = ("sum", "average", "MPI", "Gloo", "cores")
DTYPES = {"": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


class Arms:
    """What is timed for one size and type."""

    def __init__(self, nbytes: int, dtype: torch.dtype) -> None:
        """Make the tensors."""
        self._count = nbytes // dtype.itemsize
        self._mine = (self._values() * (hvd.rank() + 1)).to(dtype)
        self._tensors = {name: self._mine.clone() for name in ("sum", "average", "Gloo")}
        self._group = list(self._mine.clone().split([self._count * part // 16 for part in PARTS]))
        self._last: object = None

    def _values(self) -> torch.Tensor:
        """Even numbers, small enough for exact sums in bfloat16."""
        return torch.arange(self._count) % 16 * 2.0

    def _kept(self, call: Callable[[], object]) -> Callable[[], None]:
        """Return an arm that replaces the last result, of any arm, which lives until the next is there."""

        def run() -> None:
            self._last = call()

        return run

    def all(self) -> dict[str, Callable[[], None]]:
        """Return the arms, each called and checked once."""
        from mpi4py import MPI

        mine, tensors = self._mine, self._tensors
        arms = {
            "sum": self._kept(lambda: hvd.allreduce_(tensors["sum"], op=hvd.Sum)),
            "average": self._kept(lambda: hvd.allreduce_(tensors["average"])),
            "new": self._kept(lambda: hvd.allreduce(mine)),
            "named": self._kept(lambda: hvd.allreduce(mine, name="named")),
            "begun": self._kept(lambda: hvd.synchronize(hvd.allreduce_async(mine, name="begun"))),
            "grouped": self._kept(lambda: hvd.grouped_allreduce(self._group)),
        }
        if mine.dtype is not torch.bfloat16:
            array = mine.numpy()

            def fresh() -> object:
                out = numpy.empty_like(array)
                MPI.COMM_WORLD.Allreduce(array, out)
                return out

            arms["MPI"] = self._kept(fresh)
        a, b, c = mine.clone(), mine.clone(), torch.empty_like(mine)
        arms["Gloo"] = self._kept(lambda: torch.distributed.all_reduce(tensors["Gloo"]))
        for name, arm in arms.items():
            hvd.barrier()
            arm()
            self._check(name)
        for tensor in tensors.values():
            tensor.zero_()  # so that repeated sums stay finite
        results = itertools.cycle([c, torch.empty_like(c)])
        arms["cores"] = lambda: torch.add(a, b, out=c)
        arms["added"] = lambda: torch.add(a, b, out=a)
        arms["added new"] = lambda: torch.add(a, b, out=next(results))
        return arms

    def _check(self, name: str) -> None:
        got = self._tensors[name] if name == "Gloo" else self._last
        parts = got if isinstance(got, list) else [got]
        flat = torch.cat([torch.as_tensor(one).float() for one in parts])
        total = self._values() * sum(range(1, hvd.size() + 1))
        if name not in ("sum", "MPI", "Gloo"):
            total = total / hvd.size()
        assert torch.equal(flat, total), f"{name} computed a wrong result of {self._count} elements"


def verdicts(size: str, kind: str, times: dict[str, list[float]]) -> tuple[dict[str, float], list[str]]:
    """Return the ratios of one size and type, and a line for each that something is required of."""
    ratios: dict[str, float] = {}
    for call in CALLS:
        for peer in PEERS:
            if peer in times and peer != call:
                ratios[f"{call}/{peer}"] = ratio(times[call], times[peer])
                ratios[f"{call}/{peer}, fastest rounds"] = best_ratio(times[call], times[peer])
    ratios["added new/added"] = ratio(times["added new"], times["added"])
    place = ", ".join(word for word in (size, kind) if word)
    rows = {"average in place": "average/sum", "64 MiB, new, over MPI": "new/MPI"}
    rows |= {call: f"{call}/average" for call in CALLS[1:]}
    lines = []
    for row, quotient in rows.items():
        found = BY_CASE.get(row if row.startswith(place) else f"{place}, {row}")
        if found is not None:
            lines.append(found.verdict(ratios[quotient]))
    return ratios, lines


def main() -> None:
    """Run and print."""
    args = ready(__doc__, __file__, rounds=21)
    if args is None:
        return
    first = hvd.rank() == 0
    result: dict[str, object] = {}
    for kind, dtype in DTYPES.items():
        for size, nbytes in SIZES.items():
            if kind and size == "1 MiB":
                continue
            arms = Arms(nbytes, dtype).all()
            times, medians = timed(arms, meet=hvd.barrier, rounds=args.rounds, nbytes=nbytes)
            ratios, lines = verdicts(size, kind, times)
            result[f"{size} {kind}".strip()] = {"seconds": medians, "ratios": ratios}
            if first:
                shown = ", ".join(f"{name} {value * 1e6:.0f}" for name, value in medians.items())
                print(f"{size} {kind or 'float32'}, µs: {shown}")
                print(f"    torch.add, two results by turns over in place: {ratios['added new/added']:.3f}")
                print("\n".join(lines), end="\n" if lines else "")
    if first:
        print(f"    {context()}")
        keep("new_results", {"ranks": args.ranks, "rounds": args.rounds, "pinned": args.pin, "sizes": result})
    part()


if __name__ == "__main__":
    main()

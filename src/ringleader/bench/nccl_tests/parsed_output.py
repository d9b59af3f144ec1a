"""What was read of nccl-tests' output, before it is known which operation and how many ranks it was."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ringleader.bench.collective_plan import PARTED, dtype_named
from ringleader.errors import Fault
from ringleader.measurements.collective import (
    OPERATIONS,
    CollectiveResult,
    CollectiveRun,
    CollectiveSeries,
    RankProcess,
    Sweep,
    Timing,
    bus_factor,
)
from ringleader.scaling import Context, HostContext

TOLERANCE = 0.12
"""Between busbw / algbw of a file and the factor of an operation: both are printed with two decimals."""
LEAST_RATE_SHOWN = 0.5
"""GB/s below which two decimals say too little."""


Kind = tuple[str, str, int]
"""Element type and reduction as nccl-tests writes them, and the root."""


@dataclass(kw_only=True)
class ParsedTable:
    """One table of a test."""

    implementation: str = "nccl"
    rows: dict[Kind, list[CollectiveResult]] = field(default_factory=dict)
    note: str = ""
    factors: list[float] = field(default_factory=list)
    """busbw / algbw of the rows that are large enough to show it."""

    def add(self, kind: Kind, result: CollectiveResult, *rates: tuple[Any, Any]) -> None:
        """Take a row; ``rates``: algbw and busbw as printed (GB/s), out of place and in place."""
        self.rows.setdefault(kind, []).append(result)
        for algorithm, bus in rates:
            is_known = isinstance(algorithm, int | float) and isinstance(bus, int | float)
            if is_known and algorithm >= LEAST_RATE_SHOWN:
                self.factors.append(bus / algorithm)
                return


@dataclass(kw_only=True)
class ParsedTest:
    """One run of a program of nccl-tests."""

    operation: str = ""
    """One of ``OPERATIONS``; empty: the output does not say it."""
    tables: list[ParsedTable] = field(default_factory=list)
    sweep: Sweep | None = None
    processes: list[RankProcess] = field(default_factory=list)
    ranks: int | None = None
    """``None``: as many as there are processes."""
    memory: str = "cuda"
    date: str = ""
    arguments: tuple[str, ...] = ()
    complete: bool = False
    """Its footer was there."""
    error: str = ""
    """What the program said of a failure."""

    @property
    def factor(self) -> float | None:
        """busbw / algbw of the middle row; ``None``: too small to show it, or not there."""
        found = [factor for table in self.tables for factor in table.factors]
        return statistics.median(found) if found else None


def operation_named(program: str) -> str:
    """Return the operation of ``all_reduce_perf``, ``/opt/bin/alltoall_perf_mpi``, or ours; else nothing."""
    word = program.strip().split()[0].rpartition("/")[2] if program.strip() else ""
    plain = word.partition("_perf")[0].replace("_", "").replace("-", "").lower()
    return plain if plain in OPERATIONS else ""


def runs_of(
    test: ParsedTest, *, operation: str, ranks: int | None, name: str, source: str
) -> tuple[list[CollectiveRun], list[Fault]]:
    """Return a run for each element type, reduction and root of a test; faults where it is another test.

    ``operation``: what the user says it is; ``ranks``: what he says, where the output does not.
    """
    if test.operation and test.operation != operation:
        what = f"is the output of {test.operation}"
        return [], [Fault(where=source, what=what, hint=f"ringleader bench {test.operation} --from-file …")]
    count = test.ranks or len(test.processes) or ranks or _ranks_from_factor(test, operation) or 0
    faults = _wrong_ranks(test, count, source) or _other_factor(test, operation, count, source)
    if faults:
        return [], faults
    kinds = dict.fromkeys(kind for table in test.tables for kind in table.rows)
    names = [name] if len(kinds) == 1 else [f"{name}-{number}" for number in range(1, len(kinds) + 1)]
    hosts = list(dict.fromkeys(process.host for process in test.processes))
    each = {sum(process.host == host for process in test.processes) for host in hosts}
    empty = CollectiveRun(
        name=name,
        context=Context(
            command=test.arguments or (f"{operation}_perf",),
            date=test.date,
            hosts=tuple(HostContext(name=host, hostname=host) for host in hosts),
        ),
        operation=operation,
        ranks=count,
        per_host=each.pop() if len(each) == 1 else 0,
        dtype="",
        redop="",
        memory=test.memory,
        sweep=test.sweep,
        processes=tuple(test.processes),
        failure=test.error or ("" if test.complete else "the output ends before its footer"),
    )
    runs = [
        replace(
            empty,
            name=own,
            dtype=dtype_named(kind[0]) or kind[0],
            redop=kind[1],
            root=kind[2],
            series=tuple(_series(table, kind) for table in test.tables),
        )
        for own, kind in zip(names, kinds, strict=True)
    ]
    return runs, []


def _wrong_ranks(test: ParsedTest, count: int, source: str) -> list[Fault]:
    """Return a fault where it is not known how many ranks there were, or each of them ran alone."""
    if not count:
        what = "does not say how many ranks there were"
        return [Fault(where=source, what=what, hint="add -n with their number")]
    if len({process.rank for process in test.processes}) < len(test.processes):
        what = "is of several processes that did not know of each other: each is rank 0"
        return [Fault(where=source, what=what, hint="build nccl-tests with MPI=1 and run it again")]
    if count == 1:
        return [Fault(where=source, what="is of one rank, which has nobody to exchange with")]
    return []


def _series(table: ParsedTable, kind: Kind) -> CollectiveSeries:
    by_size: dict[int, list[CollectiveResult]] = {}
    for result in table.rows.get(kind, ()):
        if result.size:
            by_size.setdefault(result.size, []).append(result)
    results = tuple(
        replace(
            found[0],
            out_of_place=_together([one.out_of_place for one in found]),
            in_place=_together([one.in_place for one in found]),
        )
        for _size, found in sorted(by_size.items())
    )
    return CollectiveSeries(implementation=table.implementation, results=results, note=table.note)


def _together(timings: Sequence[Timing | None]) -> Timing | None:
    """Return the mean of the cycles of one size (``-N``); a single one as it is."""
    found = [timing for timing in timings if timing is not None]
    if len(found) < 2:
        return found[0] if found else None
    seconds = [timing.seconds for timing in found]
    counts = [timing.wrong for timing in found if timing.wrong is not None]
    return Timing(
        seconds=statistics.fmean(seconds),
        low=min(seconds),
        high=max(seconds),
        wrong=sum(counts) if counts else None,
    )


def _ranks_from_factor(test: ParsedTest, operation: str) -> int | None:
    """Return the number of ranks by busbw / algbw, where the operation's factor depends on it."""
    factor = test.factor
    if factor is None or not (operation == "allreduce" or operation in PARTED):
        return None
    whole = 2.0 if operation == "allreduce" else 1.0
    if not factor < whole:
        return None
    ranks = round(whole / (whole - factor))
    return ranks if abs(bus_factor(operation, ranks) - factor) < 0.01 and ranks <= 16 else None


def _other_factor(test: ParsedTest, operation: str, ranks: int, source: str) -> list[Fault]:
    """Return a fault where busbw / algbw is not that of the operation."""
    factor, wanted = test.factor, bus_factor(operation, ranks)
    if factor is None:
        return []
    # Before June 2020 algbw of allgather and reducescatter was printed as busbw.
    known = (wanted, 1.0) if operation in PARTED else (wanted,)
    if any(abs(factor - one) <= TOLERANCE * one for one in known):
        return []
    fits = [one for one in OPERATIONS if abs(bus_factor(one, ranks) - factor) <= TOLERANCE * factor]
    what = f"has {factor:.3g} times as much busbw as algbw; {operation} on {ranks} ranks has {wanted:.3g}"
    hint = f"it may be the output of {' or '.join(fits)}" if fits else "say with -n how many ranks there were"
    return [Fault(where=source, what=what, hint=hint)]

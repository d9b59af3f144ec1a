"""A series as nccl-tests prints it: header lines that begin with ``#``, one row per size, a footer.

Widths and rounding are those of nccl-tests 2.19 (src/util.cu): programs that read its output read this.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.bench.collective_plan import DTYPES
from ringleader.measurements.collective import (
    CollectiveResult,
    CollectiveRun,
    CollectiveSeries,
    Timing,
    bus_factor,
)

MISSING = " ".join(["", f"{'N/A':>8}", f"{'N/A':>7}", f"{'N/A':>7}", f"{'N/A':>7}"])
"""What stands for a measurement that there is not; nccl-tests prints spaces, which no program can split."""
PROGRAMS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "alltoall": "alltoall",
    "sendrecv": "sendrecv",
}
"""Operation → what nccl-tests calls its program, without ``_perf``."""


def bandwidths(run: CollectiveRun, result: CollectiveResult, timing: Timing) -> tuple[float, float]:
    """Return algbw and busbw in bytes per second."""
    algorithm = result.size / timing.seconds if timing.seconds > 0 else 0.0
    return algorithm, algorithm * bus_factor(run.operation, run.ranks)


def average_bus_bandwidth(run: CollectiveRun, series: CollectiveSeries) -> float:
    """Return the mean over all rows, in and out of place, in bytes per second; 0 where there is none.

    It is nccl-tests' own, and depends on which sizes were asked for: compare it between equal sweeps only.
    """
    every = [bandwidths(run, result, timing)[1] for result in series.results for timing in result.timings]
    return sum(every) / len(every) if every else 0.0


def wrong_rows(series: CollectiveSeries) -> int:
    """Return nccl-tests' "out of bounds values": measurements with a wrong element."""
    return sum(bool(timing.wrong) for result in series.results for timing in result.timings)


def as_text(run: CollectiveRun) -> str:
    """Return the tables of all series, one below the other."""
    lines = [*header(run)]
    for series in run.series:
        lines += table(run, series)
    if run.failure:
        lines.append(f"# Ended early: {run.failure}")
    return "\n".join(lines) + "\n"


def header(run: CollectiveRun) -> Iterator[str]:
    """Yield what was measured, where, with what."""
    context = run.context
    version = f" version {context.ringleader}" if context.ringleader else ""
    torch = f" torch {context.torch}" if context.torch else ""
    yield f"# ringleader bench{version} {f'{context.mpi}{torch}'.strip()}".rstrip()
    yield f"# Collective test starting: {run.operation} ({PROGRAMS[run.operation]}_perf in nccl-tests)"
    if (sweep := run.sweep) is not None:
        factor = sweep.step_factor > 1
        step = f"{sweep.step_factor}(factor)" if factor else f"{sweep.step_bytes}(bytes)"
        yield (
            f"# minBytes {sweep.minimum} maxBytes {sweep.maximum} step: {step} warmup iters: {sweep.warmup}"
            f" iters: {sweep.iterations} validation: {sweep.checks}"
        )
    hosts = len({process.host for process in run.processes}) or len(context.hosts) or 1
    machine = " (one machine)" if context.one_machine else ""
    each = f", {run.per_host} on each" if run.per_host and hosts > 1 else ""
    yield f"# {run.ranks} ranks on {hosts} host{'s' * (hosts != 1)}{each}{machine}, memory: {run.memory}"
    if run.line_rate is not None:
        yield f"# Line rate of a host: {run.line_rate / 1e9:.3g} GB/s"
    yield "#"
    if run.processes:
        yield "# Using devices"
    for process in run.processes:
        yield (
            f"#  Rank {process.rank:2} Group  0 Pid {process.pid:6} on {process.host:>10}"
            f" device {process.device or 'CPU'}"
        )


def table(run: CollectiveRun, series: CollectiveSeries) -> Iterator[str]:
    """Yield the lines of one series."""
    yield "#"
    yield f"# Implementation: {series.implementation}"
    if series.note:
        yield f"# Note: {series.note}"
    if not series.results:
        return
    yield "#"
    yield (
        f"# {'':>10}  {'':>12}  {'':>8}  {'':>6}  {'':>6}" + " " * 11 + "out-of-place" + " " * 23 + "in-place"
    )
    names = "{:>7}  {:>6}  {:>6}  {:>6}"
    left = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  "
    once = names.format("time", "algbw", "busbw", "#wrong")
    units = names.format("(us)", "(GB/s)", "(GB/s)", "")
    yield left.format("size", "count", "type", "redop", "root") + f"{once}  {once}"
    yield (left.format("(B)", "(elements)", "", "", "") + f"{units}  {units}").rstrip()
    for result in series.results:
        yield row(run, result)
    fewer = [one for one in series.results if run.sweep and (one.iterations or 0) < run.sweep.iterations]
    for result in fewer:
        if result.iterations is not None:
            yield f"# Fewer iterations for {result.size} B: {result.iterations}"
    wrong = wrong_rows(series)
    yield f"# {'Out of bounds values':<20} : {wrong} {'FAILED' if wrong else 'OK'}"
    yield f"# {'Avg bus bandwidth':<20} : {average_bus_bandwidth(run, series) / 1e9:g} "
    yield "#"


def row(run: CollectiveRun, result: CollectiveResult) -> str:
    """Return the line of one size."""
    dtype = DTYPES[run.dtype][0] if run.dtype in DTYPES else run.dtype
    left = f"{result.size:12}  {result.count:12}  {dtype:>8}  {run.redop:>6}  {run.root:6}"
    return left + "".join(_timing(run, result, timing) for timing in (result.out_of_place, result.in_place))


def _timing(run: CollectiveRun, result: CollectiveResult, timing: Timing | None) -> str:
    if timing is None:
        return MISSING
    algorithm, bus = bandwidths(run, result, timing)
    wrong = "   N/A" if timing.wrong is None else f"{timing.wrong:6g}"
    return (
        f"  {fitted(timing.seconds * 1e6, 7)}  {fitted(algorithm / 1e9, 6)}  {fitted(bus / 1e9, 6)}  {wrong}"
    )


def fitted(value: float, width: int) -> str:
    """Return a number with as many decimals, two at most, as its column has room for."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def comparison(run: CollectiveRun) -> str:
    """Return how many times as long each other implementation takes, size by size; empty where there is none.

    Behind it in parentheses: the same of the fastest rounds, which other work on the machine disturbed least.
    """
    measured = [series for series in run.series if series.results]
    if not measured:
        return ""
    first, columns = measured[0], dict[str, list[str]]()
    for place in ("out_of_place", "in_place"):
        for other in measured[1:]:
            known = {result.size: getattr(result, place) for result in reversed(other.results)}
            cells = [_ratios(getattr(one, place), known.get(one.size)) for one in first.results]
            if any(cells):
                columns[f"{other.implementation} {place.replace('_', '-')}"] = cells
    if not columns:
        return ""
    name = first.implementation
    title = f"# Time of others over {name}'s, in parentheses of the fastest rounds; above 1: {name} is faster"
    rows = [[str(result.size) for result in first.results], *columns.values()]
    lines = [
        f"# {size:>10}" + "".join(f"  {cell or 'N/A':>18}" for cell in cells)
        for size, *cells in [("size", *columns), *zip(*rows, strict=True)]
    ]
    return "\n".join([title, *lines]) + "\n"


def _ratios(mine: Timing | None, theirs: Timing | None) -> str:
    """Return ``2.00 (1.95)``: times as long, and of the fastest rounds; empty where one was not measured."""
    if mine is None or theirs is None or not mine.seconds or not theirs.seconds:
        return ""
    fastest = f" ({theirs.low / mine.low:.2f})" if mine.low and theirs.low else ""
    return f"{theirs.seconds / mine.seconds:.2f}{fastest}"

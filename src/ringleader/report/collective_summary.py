"""A run of one collective, in sentences and tables. Pure."""

from __future__ import annotations

import shlex

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.rate_text import byte_rate
from ringleader.measurements.collective import CollectiveResult, CollectiveRun, bus_factor
from ringleader.report.bus_bandwidth import Bandwidth, bandwidth, bursts, curve, limit_of, peak, shown_timing
from ringleader.report.context_facts import ONE_MACHINE, context_facts, day
from ringleader.report.number_format import gigabytes, percent, plural, seconds
from ringleader.report.run_summary import NONE, RunSummary, Table, without_empty_columns


def summary(run: CollectiveRun) -> RunSummary:
    """Put a run into words and tables."""
    curves = {series.implementation: curve(run, series) for series in run.series}
    curves = {name: points for name, points in curves.items() if points}
    return RunSummary(
        name=run.name,
        kind=f"Collective: {run.operation}",
        headline=_headline(run, curves),
        date=day(run.context.date),
        tiles=tuple(_tiles(run, curves)),
        cautions=tuple(_cautions(run)),
        tables=(_by_implementation(run, curves), *_by_size(run)) if curves else (),
        findings=tuple(_findings(run, curves)),
        findings_title="What it means",
        facts=tuple(_facts(run)),
    )


def results(run: CollectiveRun) -> list[dict[str, object]]:
    """Return all sizes of all implementations with their rates, as JSON values."""
    found: list[dict[str, object]] = []
    for series in run.series:
        for result in series.results:
            row: dict[str, object] = {"implementation": series.implementation, "size": result.size}
            for side, timing in (("out_of_place", result.out_of_place), ("in_place", result.in_place)):
                row[side] = None if timing is None else vars(bandwidth(run, result, timing))
            found.append(row)
    return found


def _who(run: CollectiveRun) -> str:
    hosts = run.ranks // run.per_host if run.per_host else len(run.context.hosts)
    return f"{plural(run.ranks, 'rank')} on {plural(max(hosts, 1), 'host')}"


def _headline(run: CollectiveRun, curves: dict[str, list[tuple[int, Bandwidth]]]) -> str:
    if run.wrong:
        return f"{run.operation} on {_who(run)} gave wrong results: {plural(run.wrong, 'element')} in all."
    if not curves:
        return f"{run.operation} on {_who(run)}: nothing was measured yet."
    name, points = next(iter(curves.items()))
    limit = limit_of(run)
    size, best = peak(points, limit)
    text = (
        f"{run.operation} on {_who(run)}: {name} reaches {byte_rate(best.busbw)} busbw at {byte_size(size)}"
    )
    if limit is not None:
        text += f", {percent(best.busbw / limit)} of what the line allows"
    rest = [
        f"{other} {byte_rate(peak(found, limit)[1].busbw)}"
        for other, found in curves.items()
        if other != name
    ]
    return text + (f"; at their best, {', '.join(rest)}." if rest else ".")


def _tiles(run: CollectiveRun, curves: dict[str, list[tuple[int, Bandwidth]]]) -> list[tuple[str, str]]:
    if not curves:
        return []
    name, points = next(iter(curves.items()))
    limit = limit_of(run)
    size, best = peak(points, limit)
    tiles = [(byte_rate(best.busbw), f"busbw of {name} at {byte_size(size)}")]
    if limit is not None:
        tiles.append((percent(best.busbw / limit), f"of the {byte_rate(limit)} that the line allows"))
    smallest, first = points[0]
    tiles.append((seconds(first.seconds), f"for {byte_size(smallest)}, the smallest size"))
    return tiles


def _cautions(run: CollectiveRun) -> list[str]:
    found = []
    if run.failure:
        found.append(f"The run ended early ({run.failure}); what was measured before is shown.")
    for series in run.series:
        wrong = [result.size for result in series.results if any(timing.wrong for timing in result.timings)]
        if wrong:
            sizes = ", ".join(byte_size(size) for size in wrong[:4]) + (", …" if len(wrong) > 4 else "")
            ranks = sorted(
                {one.rank for one in run.wrong_results if one.implementation == series.implementation}
            )
            which = (
                f" ({'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks[:8]))})"
                if ranks
                else ""
            )
            found.append(
                f"{series.implementation} computed wrong values at {sizes}{which}: its rates mean nothing."
            )
        if series.note:
            what = "is incomplete" if series.results else "is missing"
            found.append(f"{series.implementation} {what}: {series.note}.")
    timings = [timing for series in run.series for result in series.results for timing in result.timings]
    if timings and all(timing.wrong is None for timing in timings):
        found.append("The results were not checked.")
    if run.context.one_machine:
        found.append(ONE_MACHINE)
    return found


def _by_implementation(run: CollectiveRun, curves: dict[str, list[tuple[int, Bandwidth]]]) -> Table:
    limit = limit_of(run)
    rows = []
    for name, points in curves.items():
        size, best = peak(points, limit)
        half = next(size for size, one in points if one.busbw >= best.busbw / 2)
        rows.append(
            (
                name,
                gigabytes(best.busbw),
                byte_size(size),
                NONE if limit is None else percent(best.busbw / limit),
                byte_size(half),
                f"{seconds(points[0][1].seconds)} ({byte_size(points[0][0])})",
            )
        )
    names = ("implementation", "best busbw, GB/s", "at", "of the line", "half of it from", "smallest size")
    return without_empty_columns(
        Table(key="implementations", title="Implementations", names=names, rows=tuple(rows))
    )


def _by_size(run: CollectiveRun) -> list[Table]:
    names = ("size", "time", "algbw, GB/s", "busbw, GB/s", "low–high", "wrong",
             "in place: time", "in place: busbw", "in place: wrong")  # fmt: skip
    factor = bus_factor(run.operation, run.ranks)
    tables = []
    for index, series in enumerate(run.series):
        rows = tuple(_row(run, result) for result in series.results)
        note = (
            f"As in nccl-tests: algbw is the size over the time, busbw is {factor:g} times that. Low and "
            "high are the slowest and the fastest batch of iterations."
        )
        if rows:
            title = f"{series.implementation}, by size"
            table = Table(key=f"sizes-{index}", title=title, names=names, rows=rows, note=note)
            tables.append(without_empty_columns(table))
    return tables


def _row(run: CollectiveRun, result: CollectiveResult) -> tuple[str, ...]:
    out, inside = (
        None if timing is None else bandwidth(run, result, timing)
        for timing in (result.out_of_place, result.in_place)
    )
    return (
        byte_size(result.size),
        NONE if out is None else seconds(out.seconds),
        NONE if out is None else gigabytes(out.algbw),
        NONE if out is None else gigabytes(out.busbw),
        _extent(out),
        _wrong(out),
        NONE if inside is None else seconds(inside.seconds),
        NONE if inside is None else gigabytes(inside.busbw),
        _wrong(inside),
    )


def _extent(one: Bandwidth | None) -> str:
    if one is None or one.busbw_low is None or one.busbw_high is None:
        return NONE
    return f"{gigabytes(one.busbw_low)}–{gigabytes(one.busbw_high)}"


def _wrong(one: Bandwidth | None) -> str:
    return NONE if one is None or one.wrong is None else str(one.wrong)


def _findings(run: CollectiveRun, curves: dict[str, list[tuple[int, Bandwidth]]]) -> list[str]:
    found = []
    limit = limit_of(run)
    if limit is not None and run.line_rate is not None and curves:
        text = f"The line: the ports of one host carry {byte_rate(run.line_rate)}"
        if run.per_host > 1:
            text += f"; with {plural(run.per_host, 'rank')} on each host that allows {byte_rate(limit)} busbw"
            text += ", because ranks of one host exchange without the line"
        found.append(text + ".")
    for name, points in curves.items():
        if sizes := bursts(points, limit):
            where = f"{name} at {_span(sizes)}"
            found.append(f"{where}: faster than the line, so buffers took the bytes: not its best.")
    names = list(curves)
    for other in names[1:]:
        found += _against(run, names[0], other)
    return found


def _against(run: CollectiveRun, one: str, other: str) -> list[str]:
    """Compare two implementations size by size; only where no batch of the one reaches into the other's."""
    sides = {}
    for name in (one, other):
        series = next(series for series in run.series if series.implementation == name)
        sides[name] = {result.size: shown_timing(result) for result in series.results}
    faster, slower = list[int](), list[int]()
    common = 0
    for size in sorted(sides[one]):
        a, b = sides[one][size], sides[other].get(size)
        if a is None or b is None or a.low is None or a.high is None or b.low is None or b.high is None:
            continue
        common += 1
        (faster if a.high < b.low else slower if a.low > b.high else []).append(size)
    if not common:
        return []
    parts = [
        f"{word} at {plural(len(sizes), 'size')} ({_span(sizes)})"
        for word, sizes in (("faster", faster), ("slower", slower))
        if sizes
    ]
    if not parts:
        return [f"{one} and {other}: at none of {plural(common, 'size')} does a difference show."]
    rest = common - len(faster) - len(slower)
    tail = f"; at {plural(rest, 'other size')} no difference shows" if rest else ""
    return [f"{one} is {' and '.join(parts)} than {other}{tail}."]


def _span(sizes: list[int]) -> str:
    first, last = byte_size(sizes[0]), byte_size(sizes[-1])
    return first if first == last else f"{first} to {last}"


_MEMORY = {"host": "host memory", "registered": "memory that the engine shares", "cuda": "GPU memory"}


def _facts(run: CollectiveRun) -> list[tuple[str, str]]:
    found = [
        ("Command", shlex.join(run.context.command)),
        ("Operation", run.operation + (f", root {run.root}" if run.root >= 0 else "")),
        ("Ranks", f"{run.ranks}" + (f", {run.per_host} on each host" if run.per_host else "")),
        ("Elements", run.dtype + (f", {run.redop}" if run.redop not in ("", "none") else "")),
        ("Buffers", _MEMORY.get(run.memory, run.memory)),
        ("Line rate of a host", "" if run.line_rate is None else byte_rate(run.line_rate)),
    ]
    return [*((name, text) for name, text in found if text), *context_facts(run.context)]

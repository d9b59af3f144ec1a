"""Reads what nccl-tests writes with ``-J``, versions 1 to 3, and what we write in its layout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ringleader.bench.nccl_tests.parsed_output import (
    ParsedTable,
    ParsedTest,
    operation_named,
)
from ringleader.bench.run_file import json_of
from ringleader.errors import Fault, RequestError
from ringleader.measurements.collective import CollectiveResult, RankProcess, Sweep, Timing


def parse_json(text: str, source: str) -> list[ParsedTest]:
    """Return the tests of a document, or of a list of them; RequestError names what cannot be read."""
    document = json_of(text, source)
    every = document if isinstance(document, list) else [document]
    faults: list[Fault] = []
    tests = []
    for number, one in enumerate(every):
        place = f"[{number}]." if isinstance(document, list) else ""
        try:
            tests.append(_test(one, place))
        except _WrongError as wrong:
            faults.append(Fault(where=f"{source}: {wrong}", what=wrong.what))
    if faults or not tests:
        raise RequestError(faults or Fault(where=source, what="holds no results of nccl-tests"))
    return tests


class _WrongError(Exception):
    """A place in the document, and what is wrong there."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(place)
        self.what = what


def _test(document: Any, place: str) -> ParsedTest:
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise _WrongError(f"{place}results", "is missing: nccl-tests writes a list there")
    config = _object(document.get("config"))
    ours = _object(document.get("ringleader"))
    arguments = tuple(str(word) for word in _list(document.get("args")))
    errors = [str(one) for one in _list(document.get("errors")) if one]
    operation = str(ours.get("operation", "")) or operation_named(arguments[0] if arguments else "")
    ranks = ours.get("ranks")
    return ParsedTest(
        operation=operation,
        tables=_tables(document, ours, place),
        sweep=_sweep(config),
        processes=_processes(config, document),
        ranks=ranks if isinstance(ranks, int) else None,
        memory=str(ours.get("memory", "cuda")),
        date=str(document.get("start_time", "")),
        arguments=arguments,
        complete="out_of_bounds" in document,
        error="; ".join(errors) if not document["results"] or ours else "",
    )


def _tables(document: Mapping[str, Any], ours: Mapping[str, Any], place: str) -> list[ParsedTable]:
    series = _list(ours.get("series"))
    if not series:
        return [_table(ParsedTable(), document["results"], f"{place}results")]
    found = []
    for at, one in enumerate(map(_object, series)):
        table = ParsedTable(implementation=str(one.get("implementation", "")), note=str(one.get("note", "")))
        rows = _list(one.get("results"))
        found.append(_table(table, rows, f"{place}ringleader.series[{at}].results"))
    return found


def _table(table: ParsedTable, rows: list[Any], where: str) -> ParsedTable:
    """Return the table with its rows."""
    for at, row in enumerate(map(_object, rows)):
        place, iterations = f"{where}[{at}]", row.get("actual_iterations")
        out, inside = row.get("out_of_place"), row.get("in_place")
        root = _whole(row.get("root", -1), f"{place}.root")
        result = CollectiveResult(
            size=_whole(row.get("size"), f"{place}.size"),
            count=_whole(row.get("count"), f"{place}.count"),
            out_of_place=_timing(out, f"{place}.out_of_place"),
            in_place=_timing(inside, f"{place}.in_place"),
            iterations=iterations if isinstance(iterations, int) and iterations > 0 else None,
        )
        rates = [(one.get("alg_bw"), one.get("bus_bw")) for one in map(_object, (out, inside))]
        table.add((str(row.get("type", "")), str(row.get("redop", "none")), root), result, *rates)
    return table


def _timing(value: Any, place: str) -> Timing | None:
    if not isinstance(value, dict):
        return None
    wrong = value.get("nwrong")
    microseconds = _number(value.get("time", value.get("cpu_time")), f"{place}.time")
    if not microseconds:
        return None
    low, high = value.get("low"), value.get("high")
    return Timing(
        seconds=microseconds / 1e6,
        low=None if low is None else _number(low, f"{place}.low") / 1e6,
        high=None if high is None else _number(high, f"{place}.high") / 1e6,
        wrong=None if wrong is None else int(_number(wrong, f"{place}.nwrong")),
    )


def _sweep(config: Mapping[str, Any]) -> Sweep | None:
    names = ("minimum_bytes", "maximum_bytes", "warmup_iters", "iterations", "validation")
    found = {name: config.get(name) for name in names}
    if not all(isinstance(value, int) for value in found.values()):
        return None
    factor, step = config.get("step_factor", 1), config.get("step_bytes", 0)
    return Sweep(
        minimum=config["minimum_bytes"],
        maximum=config["maximum_bytes"],
        step_factor=factor if isinstance(factor, int) else 1,
        step_bytes=step if isinstance(step, int) else 0,
        warmup=config["warmup_iters"],
        iterations=config["iterations"],
        checks=config["validation"],
    )


def _processes(config: Mapping[str, Any], document: Mapping[str, Any]) -> list[RankProcess]:
    devices = [_object(one) for one in _list(config.get("devices", document.get("devices")))]
    group = devices[0].get("group", 0) if devices else 0
    return [
        RankProcess(
            rank=one["rank"],
            host=str(one.get("hostname", "")),
            pid=one["pid"] if isinstance(one.get("pid"), int) else 0,
            device="" if one.get("device_info") == "CPU" else str(one.get("device_info", "")),
        )
        for one in devices
        if isinstance(one.get("rank"), int) and one.get("group", 0) == group
    ]


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any, place: str) -> float:
    """Return a number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise _WrongError(place, f"{value!r:.40} is not a number")
    return float(value)


def _whole(value: Any, place: str) -> int:
    """Return an integer, which nccl-tests writes as text at times."""
    try:
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return int(value)
    except ValueError:
        pass
    raise _WrongError(place, f"{value!r:.40} is not an integer")

"""A run in the layout of nccl-tests' ``-J`` (version 3), with what is ours under ``ringleader``.

``results`` are those of the first series. As there, a root and a truth are text, ``nwrong`` is null where
nothing was checked, times are microseconds and bandwidths GB/s.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ringleader.bench.collective_plan import DTYPES
from ringleader.bench.nccl_tests.text_table import average_bus_bandwidth, bandwidths, wrong_rows
from ringleader.measurements.collective import (
    CollectiveResult,
    CollectiveRun,
    CollectiveSeries,
    Timing,
    bus_factor,
)

VERSION = 3


def as_document(run: CollectiveRun) -> dict[str, Any]:
    """Return the run as JSON has it."""
    first = run.series[0] if run.series else CollectiveSeries(implementation="", results=())
    return {
        "version": VERSION,
        "start_time": run.context.date,
        "args": list(run.context.command),
        "env": [],
        "nccl_version": 0,
        "config": _config(run),
        **_results(run, first),
        "errors": [run.failure] if run.failure else [],
        "ringleader": {
            "name": run.name,
            "operation": run.operation,
            "ranks": run.ranks,
            "per_host": run.per_host,
            "bus_factor": bus_factor(run.operation, run.ranks),
            "memory": run.memory,
            "line_rate": run.line_rate,
            "context": asdict(run.context),
            "series": [
                {"implementation": one.implementation, "note": one.note, **_results(run, one)}
                for one in run.series
            ],
            "wrong_results": [asdict(one) for one in run.wrong_results],
        },
    }


def _config(run: CollectiveRun) -> dict[str, Any]:
    config: dict[str, Any] = {"nthreads": 1, "ngpus": 1}
    sweep = run.sweep
    if sweep is not None:
        config |= {"minimum_bytes": sweep.minimum, "maximum_bytes": sweep.maximum}
        step = (
            ("step_factor", sweep.step_factor) if sweep.step_factor > 1 else ("step_bytes", sweep.step_bytes)
        )
        config |= {step[0]: step[1], "warmup_iters": sweep.warmup, "iterations": sweep.iterations}
        config |= {"aggregated_iterations": 1, "validation": sweep.checks, "graph": 0}
    config["devices"] = [
        {
            "rank": process.rank,
            "group": 0,
            "pid": process.pid,
            "hostname": process.host,
            "device": -1 if not process.device else 0,
            "device_hex": "",
            "device_info": process.device or "CPU",
        }
        for process in run.processes
    ]
    return config


def _results(run: CollectiveRun, series: CollectiveSeries) -> dict[str, Any]:
    wrong = wrong_rows(series)
    return {
        "results": [_result(run, series, one) for one in series.results],
        "out_of_bounds": {"count": wrong, "okay": _truth(not wrong)},
        "average_bus_bandwidth": {
            "bandwidth": average_bus_bandwidth(run, series) / 1e9,
            "okay": "unchecked",
        },
    }


def _result(run: CollectiveRun, series: CollectiveSeries, result: CollectiveResult) -> dict[str, Any]:
    return {
        "size": result.size,
        "count": result.count,
        "type": DTYPES[run.dtype][0] if run.dtype in DTYPES else run.dtype,
        "redop": run.redop,
        "root": f"{run.root:6}",
        "out_of_place": _timing(run, result, result.out_of_place),
        "in_place": _timing(run, result, result.in_place),
        "actual_iterations": result.iterations or 0,
        "experiment_name": series.implementation,
    }


def _timing(run: CollectiveRun, result: CollectiveResult, timing: Timing | None) -> dict[str, Any] | None:
    if timing is None:
        return None
    algorithm, bus = bandwidths(run, result, timing)
    return {
        "time": timing.seconds * 1e6,
        "alg_bw": algorithm / 1e9,
        "bus_bw": bus / 1e9,
        "nwrong": timing.wrong,
        "low": None if timing.low is None else timing.low * 1e6,
        "high": None if timing.high is None else timing.high * 1e6,
    }


def _truth(value: bool) -> str:
    return "true" if value else "false"

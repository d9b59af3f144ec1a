"""How fast a rank computes, copies memory, and copies to and from its GPUs.

``main`` is what the ranks of ``doctor --active`` run, all at once: argv[1] is a ``SpeedPlan`` as JSON, each
answers ``speed``, the fields of a ``RankSpeed``, and the same again with its GPUs. No MPI: where two hosts do
not reach each other, it would hang.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy

from ringleader.agents.hardware import gpus
from ringleader.agents.sysfs import text
from ringleader.dataclass_json import from_document
from ringleader.launch.rank_answer import send

KERNEL = 256
"""Rows of the matrices of the kernel: 2·256³ = 34 MFLOP, about a millisecond of one core, so that a rank that
shares its core is interrupted in few of the runs."""
LEAST_RUNS = 5
COPY_BYTES = 64 * 1024 * 1024
"""Copied where the caches are not known to be larger than a quarter of it."""
MOST_COPY_BYTES = 1024 * 1024 * 1024
GPU_BYTES = 64 * 1024 * 1024

Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class SpeedPlan:
    """What each rank measures."""

    seconds: float
    """Of each measurement."""
    ranks: int = 1
    """This many share a host's memory."""

    @property
    def most_seconds(self) -> float:
        """What everything may take at most, starts aside."""
        return 6 * self.seconds + 30.0


@dataclass(frozen=True, kw_only=True)
class GpuCopy:
    """Copies between a GPU and pinned memory of its host. Bytes per second."""

    device: int
    name: str
    to_gpu: float
    from_gpu: float


@dataclass(frozen=True, kw_only=True)
class RankSpeed:
    """How fast one rank computes, all ranks at once."""

    rank: int
    host: str
    kernel_seconds: float
    """Median time of one run of the kernel."""
    kernel_runs: int
    copy_rate: float | None = None
    """Bytes read plus bytes written per second, of a copy larger than the caches; ``None``: not measured."""
    gpus: tuple[GpuCopy, ...] = ()
    gpu_note: str = ""
    """Why no GPU was measured."""


def times_of(run: Callable[[], object], seconds: float, clock: Clock, least: int = LEAST_RUNS) -> list[float]:
    """Return the seconds of each run, ``least`` or more, for about this long.

    One before them does not count: threads of a library start there, and CUDA.
    """
    run()
    times: list[float] = []
    until = clock() + seconds
    while len(times) < least or clock() < until:
        began = clock()
        run()
        times.append(clock() - began)
    return times


def kernel_times(seconds: float, *, clock: Clock = time.perf_counter) -> tuple[float, ...]:
    """Return the seconds of each run of the kernel, a float32 matrix product, for about this long."""
    left = numpy.full((KERNEL, KERNEL), 1.0 / KERNEL, dtype=numpy.float32)
    right, product = left.copy(), numpy.empty_like(left)
    return tuple(times_of(lambda: numpy.matmul(left, right, out=product), seconds, clock))


def copy_rate(seconds: float, *, size: int, clock: Clock = time.perf_counter) -> float | None:
    """Return bytes per second, read and written, of a copy of ``size`` bytes; ``None``: no memory for it.

    Of several copies the median.
    """
    try:
        source = numpy.ones(size, dtype=numpy.uint8)
        target = numpy.zeros(size, dtype=numpy.uint8)  # pages are there only after a write
    except MemoryError:
        return None
    times = times_of(lambda: numpy.copyto(target, source), seconds, clock, least=3)
    return 2 * size / statistics.median(times)


def copy_bytes(ranks: int = 1, root: Path = Path("/")) -> int:
    """Return four times the largest cache, at least ``COPY_BYTES``, at most a 16th of the free memory.

    ``ranks``: this many copy at once and share the memory.
    """
    caches = (root / "sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    largest = max((_cache_bytes(text(entry)) for entry in caches), default=0)
    wanted = min(max(COPY_BYTES, 4 * largest), MOST_COPY_BYTES)
    free = _available(text(root / "proc/meminfo"))
    return wanted if free is None else max(1024 * 1024, min(wanted, free // 16 // ranks))


def _cache_bytes(word: str) -> int:
    """``32768K`` → bytes."""
    scale = {"K": 1024, "M": 1024 * 1024}.get(word[-1:], 1)
    digits = word.rstrip("KM")
    return int(digits) * scale if digits.isdigit() else 0


def _available(meminfo: str) -> int | None:
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            with contextlib.suppress(ValueError, IndexError):
                return int(line.split()[1]) * 1024
    return None


def gpu_copies(seconds: float, *, devices: Sequence[str]) -> tuple[GpuCopy, ...]:
    """Return the copies between pinned memory and each GPU that PyTorch sees.

    ``devices``: ids of the GPUs that this rank may use, as CUDA_VISIBLE_DEVICES has them.

    PyTorch is imported only where there is a GPU. Raises ImportError without PyTorch, RuntimeError with
    CUDA's words where it cannot be used.
    """
    if not devices:
        return ()
    import torch  # type: ignore[import-not-found, unused-ignore]

    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch sees no GPU: torch.cuda.is_available() is False")
    found = []
    for index in range(torch.cuda.device_count()):
        host = torch.empty(GPU_BYTES, dtype=torch.uint8, pin_memory=True)
        device = torch.empty(GPU_BYTES, dtype=torch.uint8, device=f"cuda:{index}")
        found.append(
            GpuCopy(
                device=_number(devices, index),
                name=torch.cuda.get_device_name(index),
                to_gpu=_gpu_rate(torch, device, host, index, seconds),
                from_gpu=_gpu_rate(torch, host, device, index, seconds),
            )
        )
    return tuple(found)


def _number(devices: Sequence[str], index: int) -> int:
    """A rank may see only its own GPU, as device 0."""
    name = devices[index] if index < len(devices) else ""
    return int(name) if name.isdigit() else index


def _gpu_rate(torch: Any, target: Any, source: Any, index: int, seconds: float) -> float:
    """Bytes per second of ``target.copy_(source)``; of several copies the median."""

    def copy() -> None:
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize(index)

    return GPU_BYTES / statistics.median(times_of(copy, seconds, time.perf_counter))


def main() -> None:
    """Measure what the plan says."""
    plan = from_document(SpeedPlan, json.loads(sys.argv[1]))
    times = kernel_times(plan.seconds)
    speed = {
        "kernel_seconds": statistics.median(times),
        "kernel_runs": len(times),
        "copy_rate": copy_rate(plan.seconds, size=copy_bytes(plan.ranks)),
    }
    send("speed", speed)
    found: tuple[GpuCopy, ...] = ()
    note = ""
    try:
        found = gpu_copies(plan.seconds / 4, devices=gpus(os.environ))
    except (ImportError, RuntimeError) as error:
        note = (str(error).strip().splitlines() or [type(error).__name__])[0]
    send("speed", {**speed, "gpus": [asdict(one) for one in found], "gpu_note": note})


if __name__ == "__main__":
    main()

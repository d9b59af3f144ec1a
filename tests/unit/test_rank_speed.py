"""How fast a rank computes and copies: the numbers are those of the clock, and buffers fit the machine."""

import itertools
from pathlib import Path

import pytest

from ringleader.bench.rank_speed import (
    COPY_BYTES,
    LEAST_RUNS,
    copy_bytes,
    copy_rate,
    gpu_copies,
    kernel_times,
)


def clock_of(step):
    ticks = itertools.count()
    return lambda: next(ticks) * step


def test_times_of_the_kernel_are_the_clocks_own():
    times = kernel_times(0.0, clock=clock_of(0.5))
    assert times == (0.5,) * LEAST_RUNS


def test_a_copy_counts_what_is_read_and_what_is_written():
    assert copy_rate(0.0, size=1000, clock=clock_of(0.25)) == 8000.0


@pytest.mark.parametrize(
    ("cache", "free", "size"),
    [
        ("32768K", 64 << 20, 128 << 20),
        ("1024K", 64 << 20, COPY_BYTES),
        ("512M", 1 << 20, 64 << 20),
        ("", 0, 1 << 20),
    ],
)
def test_the_buffer_is_larger_than_the_caches_and_small_beside_the_memory(tmp_path: Path, cache, free, size):
    place = tmp_path / "sys/devices/system/cpu/cpu0/cache/index3"
    place.mkdir(parents=True)
    (place / "size").write_text(f"{cache}\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {free} kB\n")
    assert copy_bytes(root=tmp_path) == size
    assert copy_bytes(4, root=tmp_path) == max(1 << 20, min(size, free * 1024 // 64))


def test_where_nothing_is_known_the_usual_buffer_is_taken(tmp_path: Path):
    assert copy_bytes(root=tmp_path) == COPY_BYTES


def test_without_a_gpu_nothing_is_imported():
    assert gpu_copies(0.1, devices=[]) == ()

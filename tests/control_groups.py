"""Control groups with a CPU quota, for tests as root."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

VERSION_1 = Path("/sys/fs/cgroup/cpu")
PERIOD = 100_000


@contextmanager
def control_group(cpus: float | None, parent: Path | None = None) -> Iterator[Path]:
    """Make a group with this many CPUs (None: no limit of its own); skips where that is not allowed."""
    root = VERSION_1 if VERSION_1.is_dir() else Path("/sys/fs/cgroup")
    group = (parent or root) / f"ringleader-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    try:
        try:
            if root == VERSION_1:
                (group / "cpu.cfs_quota_us").write_text("-1" if cpus is None else str(round(cpus * PERIOD)))
            else:
                (group / "cpu.max").write_text(f"{'max' if cpus is None else round(cpus * PERIOD)} {PERIOD}")
        except OSError as error:
            pytest.skip(f"this control group takes no quota: {error.strerror}")
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Remove it once the last process in it has ended."""
    for _ in range(100):
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return
    group.rmdir()

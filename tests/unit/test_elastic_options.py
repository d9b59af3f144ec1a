"""What is wrong with the bounds of an elastic job is told before anything starts, all of it at once."""

from typing import Any

import pytest

from ringleader.plan.elastic_options import ElasticOptions


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"min_np": 4, "max_np": 2}, ["--min-np, --max-np"]),
        ({"min_hosts": 4, "max_hosts": 2}, ["--min-hosts, --max-hosts"]),
        ({"min_np": 0}, ["--min-np"]),
        ({"max_np": 0}, ["--max-np"]),
        ({"min_hosts": 0, "max_hosts": -1}, ["--min-hosts", "--max-hosts"]),
        ({"min_np": 3}, ["-n"]),
        ({"max_np": 1}, ["-n"]),
        ({"slots": 0}, ["--slots-per-host"]),
        ({"checkpoint_every": 0}, ["--checkpoint-every"]),
        ({"checkpoint_dir": ""}, ["--checkpoint-dir"]),
        ({"rank_restarts": -1, "reset_limit": -1}, ["--rank-restarts", "--reset-limit"]),
        ({"timeout": 0.0, "hang_seconds": float("nan")}, ["--elastic-timeout", "--elastic-hang-seconds"]),
        ({"cooldown": (1.0, 1.0)}, []),
        ({"cooldown": (100.0, 10.0)}, ["--blacklist-cooldown-range"]),
        ({"cooldown": (0.0, 5.0)}, ["--blacklist-cooldown-range"]),
        ({"cooldown": (1.0, 1e9)}, ["--blacklist-cooldown-range"]),
        ({"cooldown": (float("nan"), 5.0)}, ["--blacklist-cooldown-range"]),
        ({}, []),
    ],
)
def test_bounds(values: dict[str, Any], where: list[str]) -> None:
    assert [fault.where for fault in ElasticOptions(**values).faults(2)] == where

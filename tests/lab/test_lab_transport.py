"""What carried the bytes of a job: the engine's counts against the counters of the hosts' links."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ringleader.engine.transports.pipeline import FIRST_BYTES, LAST_BYTES, REPEATS

pytestmark = [pytest.mark.lab, pytest.mark.mpi]

PROGRAM = """
import sys
import numpy as np
from ringleader.adapters.array_operations import ALLREDUCE
from ringleader.adapters.basics import begin_session
from ringleader.adapters.numpy_adapter import NumpyAdapter
from ringleader.adapters.process_sets import global_process_set
from ringleader.adapters.reductions import Sum

begin_session(NumpyAdapter, None, None)
array = np.ones(2 << 20, "float32")
for _ in range(int(sys.argv[1])):
    ALLREDUCE.run(array, None, global_process_set, Sum)
"""
MIB = 1 << 20


def exchanged(ringleader: Any, lab: Any, folder: Path, times: int, *words: str) -> tuple[Any, Any]:
    """Run allreduces of 8 MiB on one rank of each of two hosts; return how it ended and its document."""
    script, written = folder / "exchange.py", folder / "out.json"
    script.write_text(PROGRAM)
    hosts = ",".join(f"{host.name}:1" for host in lab.hosts[:2])
    done = ringleader(
        *("run", "-H", hosts, "--ssh-config", lab.ssh_config, "--json-file", str(written), *words),
        *("--", sys.executable, str(script), str(times)),
        timeout=170,
    )
    return done, json.loads(written.read_text())


MEASUREMENT = 2 * REPEATS * (FIRST_BYTES + LAST_BYTES)
"""Bytes at most that the two ranks of a host send to see how fast the line is; no array's."""


@pytest.mark.long
@pytest.mark.parametrize("times", [8, 128], ids=["64MiB", "1GiB"])
def test_the_engines_bytes_are_those_of_the_link(
    lab: Any, ringleader: Any, tmp_path: Path, times: int
) -> None:
    done, document = exchanged(ringleader, lab, tmp_path, times, "--require", "tcp")
    assert done.returncode == 0, done.stderr
    names = [host.name for host in lab.hosts[:2]]
    for name in names:
        assert f"ringleader: {name} to other hosts: TCP on eth0 100%" in done.stderr
    bytes_each_way = times * 8 * MIB
    for host in document["proof"]["hosts"]:
        assert host["between"]["exchanged"] == 2 * bytes_each_way
        (link,) = [one for one in host["carried"] if one["name"] == "eth0"]
        for way in ("sent", "received"):
            assert bytes_each_way <= link["moved"][way] <= 1.05 * bytes_each_way + MEASUREMENT


def test_hosts_without_rdma_are_named_before_anything_starts(
    lab: Any, ringleader: Any, tmp_path: Path
) -> None:
    done, document = exchanged(ringleader, lab, tmp_path, 1, "--require", "rdma")
    assert done.returncode == document["exit_code"] == 3
    for host in lab.hosts[:2]:
        assert f"ringleader: {host.name}: rdma is required, and it has no RDMA device" in done.stderr
    assert "plan" not in document

"""``ringleader doctor`` alone: facts of this host."""

from __future__ import annotations

import json

import pytest

from ringleader.cli.main import main
from ringleader.doctor.host_findings import limits, shm
from ringleader.finding import Level


def test_it_tells_what_a_job_would_find(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    levels = {one["id"]: one["level"] for one in told["checks"]}
    assert ended.value.code == (0 if told["ok"] else 3)
    assert {"host", "python", "mpi", "torch", "cores", "gpus", "ssh", "shm", "limits"} <= set(levels)
    assert levels["python"] == levels["mpi"] == levels["cores"] == "PASS"


def test_what_a_container_lacks_is_said():
    assert shm(0, 0).level is Level.FAULT
    assert shm(64 << 20, 64 << 20).level is Level.WARNING and "--shm-size" in shm(64 << 20, 64 << 20).hint
    assert shm(64 << 30, 60 << 30).level is Level.PASSED
    assert limits((1024, 1024), (-1, -1), -1).level is Level.WARNING
    found = limits((1024, 524288), (100, 200), 65536)
    assert found.level is Level.PASSED and "locked memory 65536 bytes" in found.what

"""``ringleader doctor --image`` on this machine, for real: libraries load, sshd starts, two ranks meet."""

import json
import os
import time
from pathlib import Path

import pytest

from ringleader.doctor import two_rank_test
from ringleader.doctor.import_checks import ImportChecks
from ringleader.doctor.training_step import FRAMEWORKS

ORDER = (
    *("image", "python", "torch", "tensorflow", "mxnet", "horovod", "driver", "nccl", "mpi", "mpi4py", "ucx"),
    *("libfabric", "libibverbs", "providers", "libraries", "user", "home", "memlock", "keys", "pip", "apt"),
    *("sshd", "login", "ranks", *(f"training {one}" for one in FRAMEWORKS)),
)


@pytest.mark.long
@pytest.mark.timeout(330)
def test_this_machine(workplace) -> None:
    done = workplace.run("doctor", "--image", "--json", within=290)
    found = json.loads(done.stdout)
    checks = {one["id"]: one for one in found["checks"]}
    assert done.returncode == (0 if found["ok"] else 3), done.stderr
    assert [id for id in ORDER if id in checks] == [one["id"] for one in found["checks"]]
    assert found["image"] is None
    wanted = ("python", "torch", "mpi", "mpi4py", "sshd", "login", "ranks")
    for id in (*wanted, "training torch", "training tensorflow"):
        assert checks[id]["level"] == "PASS", checks[id]
    assert checks["ranks"]["what"] == (
        "2 ranks, started from a session of that sshd, agree on a sum through ringleader.torch"
    )
    assert not [one for one in checks.values() if one["level"] == "FAIL"]
    assert not list(workplace.tmp.glob("ringleader-*/*"))


def test_the_list_alone_starts_nothing_and_is_the_same_each_time(workplace) -> None:
    first, second = (workplace.run("doctor", "--sbom", "-") for _ in range(2))
    assert first.returncode == 0 and first.stdout == second.stdout, first.stderr
    assert json.loads(first.stdout)["bomFormat"] == "CycloneDX"


# --- sshd -------------------------------------------------------------------------------------------------


@pytest.fixture
def checks(workplace) -> ImportChecks:
    return ImportChecks(environ=workplace.environ, end=time.monotonic() + 170)


def test_nothing_of_the_sshd_is_left(checks: ImportChecks, workplace) -> None:
    found = two_rank_test.run(checks, own_config=False, frameworks=())
    assert (found.start_error, found.login_error, found.ranks_error) == ("", "", "")
    assert found.over == "ssh"
    assert found.ranks["size"] == 2
    assert not workplace.gone_within(10.0)


@pytest.mark.long
def test_an_sshd_that_does_not_start_says_why(workplace, tmp_path: Path) -> None:
    sshd = tmp_path / "sshd"
    sshd.write_text("#!/bin/sh\necho 'Missing privilege separation directory: /run/sshd' >&2\nexit 255\n")
    sshd.chmod(0o755)
    environ = {**workplace.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    found = two_rank_test.run(
        ImportChecks(environ=environ, end=time.monotonic() + 170), own_config=False, frameworks=()
    )
    assert "sshd ended with 255; Missing privilege separation directory" in found.start_error
    assert (found.over, found.ranks_error) == ("local", "")

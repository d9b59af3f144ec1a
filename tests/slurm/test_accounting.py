"""A real Slurm with accounting (slurmdbd on MariaDB): what is known of a job that the controller forgot."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Workplace
from tests.slurm import cluster
from tests.time_limits import patience

from ringleader.errors import RefusedError, RequestError
from ringleader.slurm.controller import Slurm
from ringleader.slurm.job_state import end_of

pytestmark = [pytest.mark.process, pytest.mark.long]


@pytest.fixture(scope="module")
def accounting() -> Iterator[cluster.SlurmCluster]:
    """A cluster that forgets a job seconds after its end; slurmdbd does not."""
    place = Path(tempfile.mkdtemp(prefix="rls-", dir="/tmp"))
    try:
        with cluster.running(cluster.SlurmCluster(place=place, accounting=True)) as found:
            yield found
    finally:
        shutil.rmtree(place, ignore_errors=True)


def submitted(slurm: Slurm, place: Path, program: str, *words: str) -> str:
    words = ("--time=5", f"--output={place}/slurm-%j.out", f"--chdir={place}", *words)
    return asyncio.run(slurm.submit(f"#!/bin/bash\n{program}\n", words, {}))


def until_forgotten(accounting: cluster.SlurmCluster, number: str) -> None:
    end = time.monotonic() + patience(150.0)
    while accounting.run("scontrol", "show", "job", number).returncode == 0:
        assert time.monotonic() < end
        time.sleep(0.5)


@pytest.mark.timeout(600)
def test_a_job_that_the_controller_has_forgotten_is_found_in_accounting(
    accounting: cluster.SlurmCluster, workplace: Workplace, tmp_path: Path
) -> None:
    slurm = Slurm(os.environ | accounting.environ)
    programs = {"true": "echo done", "three": "exit 3", "killed": "kill -9 $$", "long": "sleep 60"}
    numbers = {
        name: submitted(slurm, tmp_path, code, f"--job-name={name}") for name, code in programs.items()
    }
    accounting.until_job(numbers["long"], "RUNNING")
    asyncio.run(slurm.cancel(numbers["long"]))
    before = {}
    for name, number in numbers.items():
        accounting.until_job(number, "COMPLETED", "FAILED", "CANCELLED")
        before[name] = asyncio.run(slurm.job(number))
    codes = {"true": 0, "three": 3, "killed": 137, "long": 143}
    assert {name: end_of(job).exit_code for name, job in before.items()} == codes  # type: ignore[union-attr]
    for number in numbers.values():
        until_forgotten(accounting, number)
    for name, number in numbers.items():
        after = asyncio.run(slurm.job(number))
        assert end_of(after) == end_of(before[name])
        assert (after.nodes, after.partition) == (before[name].nodes, before[name].partition)
        assert (after.title, after.user) == (name, before[name].user)
    user = workplace.environ | accounting.environ
    shown = workplace.run("slurm", "status", numbers["three"], env=user).stdout.decode()
    assert "failed" in shown and "exit code 3" in shown
    shown = workplace.run("slurm", "logs", numbers["true"], env=user, cwd=tmp_path)
    assert shown.stdout == b"done\n"
    with pytest.raises(RefusedError, match="job 99999: Slurm does not know it"):
        asyncio.run(slurm.job("99999"))


@pytest.mark.parametrize(
    ("words", "where", "hint"),
    [
        ("--account=nobody", "--account", "Invalid account"),
        ("--nodes=9", "--nodes, -n", "More processors requested than permitted"),
        ("--nothing", "--sbatch-arg", "unrecognized option"),
    ],
)
def test_what_slurm_refuses_names_the_option(
    accounting: cluster.SlurmCluster, tmp_path: Path, words: str, where: str, hint: str
) -> None:
    """Other texts of Slurm: tests/unit/test_slurm_job_state.py."""
    with pytest.raises(RequestError) as caught:
        submitted(Slurm(os.environ | accounting.environ), tmp_path, "true", *words.split())
    assert [fault.where for fault in caught.value.faults] == [where]
    assert hint in caught.value.faults[0].hint


def test_a_limit_of_the_account_is_named(accounting: cluster.SlurmCluster, tmp_path: Path) -> None:
    change = ("sacctmgr", "--immediate", "modify", "user", "root", "set")
    accounting.run(*change, "MaxSubmitJobs=0")
    try:
        with pytest.raises(RequestError) as caught:
            submitted(Slurm(os.environ | accounting.environ), tmp_path, "true")
    finally:
        accounting.run(*change, "MaxSubmitJobs=-1")
    assert caught.value.faults[0].what == "a limit of your account or QOS does not allow it"


@pytest.mark.timeout(300)
def test_accounting_that_is_down_is_named_and_hinders_no_job(
    accounting: cluster.SlurmCluster, tmp_path: Path
) -> None:
    slurm = Slurm(os.environ | accounting.environ)
    accounting.kill("slurmdbd")
    try:
        number = submitted(slurm, tmp_path, "exit 4")
        accounting.until_job(number, "FAILED")
        with pytest.raises(RefusedError) as caught:
            asyncio.run(slurm.job("99999"))
    finally:
        accounting.start_slurmdbd()
    assert str(caught.value).startswith(
        "sacct: Slurm's accounting does not answer\n    → is slurmdbd running?"
    )

"""Clusters for tests of Slurm: real daemons, on this machine or on the hosts of a lab, once for all tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.lab.conftest import unique_name
from tests.slurm import cluster

from ringleader.errors import RefusedError
from ringleader.lab import requirements, saved_state


@dataclass
class Place:
    """A cluster as a user sees it, and what tests do to it."""

    environ: dict[str, str]
    """Variables of a user of this cluster."""
    workdir: Path
    real: cluster.SlurmCluster

    def run(self, *argv: str) -> None:
        """Run a program of an administrator."""
        subprocess.run(argv, env=os.environ | self.environ, check=True, timeout=60)

    def down(self, what: str) -> dict[str, str]:
        """Return variables with which the ``controller`` or ``munge`` does not answer."""
        text = (self.real.place / "slurm.conf").read_text()
        port = cluster.free_ports("127.0.0.1", 1)[0]
        change = {"controller": ("(SlurmctldPort=).*", rf"\g<1>{port}"), "munge": ("munge.socket", "none")}
        other = self.workdir / "slurm.conf"
        other.write_text(re.sub(*change[what], text) + "MessageTimeout=2\n")
        return self.environ | {"SLURM_CONF": str(other)}


@pytest.fixture(scope="session")
def real_slurm() -> Iterator[cluster.SlurmCluster]:
    """Slurm's daemons for this run of tests."""
    place = Path(tempfile.mkdtemp(prefix="rls-", dir="/tmp"))
    try:
        with cluster.running(cluster.SlurmCluster(place=place)) as found:
            yield found
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def lab_slurm() -> Iterator[cluster.LabCluster]:
    """Slurm's daemons on four hosts of a lab, with two slots each."""
    cluster.check_installed()
    name, place = unique_name("q"), Path(tempfile.mkdtemp(prefix="rls-", dir="/tmp"))
    ringleader = (sys.executable, "-m", "ringleader", "lab")
    words = ("--hosts", "4", "--slots", "2", "--bandwidth", "8gbit", "--ssh-port", "38")
    try:
        requirements.check_machine(os.environ)
        subprocess.run((*ringleader, "up", "--lab-name", name, *words), check=True, timeout=90)
        with cluster.running(cluster.lab_cluster(place, saved_state.load(name))) as found:
            assert isinstance(found, cluster.LabCluster)
            yield found
    except RefusedError as error:
        pytest.skip(str(error))
    finally:
        subprocess.run((*ringleader, "down", "--lab-name", name), check=True, timeout=90)
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def place(real_slurm: cluster.SlurmCluster, tmp_path: Path) -> Iterator[Place]:
    """A user's place; afterwards no job is left, and all nodes are idle."""
    workdir, real = tmp_path / "work dir", real_slurm
    workdir.mkdir()
    yield Place(environ=real.environ, workdir=workdir, real=real)
    real.run("scancel", "--user=root", "--signal=KILL", "--full")
    real.run("scancel", "--user=root")
    for name in real.names:
        real.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
    real.until_idle(*real.names)

"""Clusters for tests of Slurm: real daemons, on this machine or on the hosts of a lab, once for all tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.labs import a_lab
from tests.slurm import cluster


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
    place = Path(tempfile.mkdtemp(prefix="rls-", dir="/tmp"))
    try:
        with (
            a_lab("q", "--bandwidth", "8gbit", hosts=4, port=38) as lab,
            cluster.running(cluster.lab_cluster(place, lab)) as found,
        ):
            assert isinstance(found, cluster.LabCluster)
            yield found
    finally:
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

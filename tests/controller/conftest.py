"""A fake cluster with Jobs and nodes, and operators that run beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controller.running import Running
from tests.kube.conftest import fake, start
from tests.kube.fake import FakeCluster, StandInOptions

from ringleader.kubernetes.mpijob.crd import crd

__all__ = ["fake", "start"]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A fake cluster whose Pods start at once and end when the test says so."""
    with FakeCluster(stand_in=StandInOptions(), bookmark_every=0.5) as made:
        made.create(crd())
        yield made


@pytest.fixture
def kubeconfig(cluster: FakeCluster, tmp_path: Path) -> Path:
    """A kubeconfig of the cluster's administrator."""
    return cluster.write_kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
def operator(kubeconfig: Path) -> Iterator[Running]:
    """An operator that works."""
    with Running(kubeconfig) as running:
        yield running

"""Fixtures for tests that talk to a cluster: the fake one, and a kubeconfig for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kube.fake import FakeCluster, StandInOptions
from tests.kube.user_session import Command, Start

from ringleader.kubernetes.mpijob.crd import crd


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    """A fake cluster that knows MPIJobs; its Pods do what the test says."""
    with FakeCluster(stand_in=StandInOptions(kubelet="driven")) as cluster:
        cluster.create(crd())
        yield cluster


@pytest.fixture
def kubeconfig(fake: FakeCluster, tmp_path: Path) -> Path:
    """A kubeconfig of the fake cluster's administrator."""
    return fake.write_kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
def start(kubeconfig: Path) -> Iterator[Start]:
    """Start ``ringleader`` with some words; what is left of it at the end is ended."""
    started: list[Command] = []

    def begin(*words: str, kubeconfig: Path | None = kubeconfig, **options: Any) -> Command:
        started.append(Command(words, kubeconfig=kubeconfig, **options))
        return started[-1]

    yield begin
    for command in started:
        command.kill()

"""The checks, put to the fake, or to the cluster that ``TEST_KUBECONFIG`` names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kube.conformance.ground import Check, install_crd
from tests.kube.conformance.http import Server, connected, server_of
from tests.kube.conformance.suite import CHECKS, put
from tests.kube.fake import FakeCluster, StandInOptions
from tests.kube.fake.access import ADMIN_TOKEN

from ringleader.kubernetes.mpijob.crd import crd

REAL = os.environ.get("TEST_KUBECONFIG", "")


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Server, FakeCluster | None]]:
    """The server to judge, and the handles of the fake if it is one."""
    if REAL:
        server = server_of(Path(REAL))
        was_installed = asyncio.run(_install(server))
        yield server, None
        if was_installed:
            asyncio.run(_uninstall(server))
        return
    with FakeCluster(stand_in=StandInOptions(kubelet="driven", jobs=False)) as fake:
        fake.create(crd())
        yield Server(url=fake.url, token=ADMIN_TOKEN), fake


async def _install(server: Server) -> bool:
    async with connected(server) as http:
        return await install_crd(http)


async def _uninstall(server: Server) -> None:
    async with connected(server) as http:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd()['metadata']['name']}"
        await http.call("DELETE", path)


@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_check(check: Check, place: tuple[Server, FakeCluster | None]) -> None:
    server, fake = place
    if check.fake_only and fake is None:
        pytest.skip(check.fake_only)
    put(check, server, fake=fake)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_check_cites_its_source(check: Check) -> None:
    assert check.cites.startswith(("https://", "facts")), check.cites

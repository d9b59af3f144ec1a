"""The Lease: who works, who waits, and when somebody must stop."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.controller.running import BRISK, PATIENCE, Running, job, wait
from tests.kube.fake import FakeCluster

from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.kubeconfig import credentials
from ringleader.kubernetes.operator.runtime.leader_election import Leader, LeaseOptions, LostLeadError
from ringleader.kubernetes.operator.runtime.process import ProcessOptions


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


Make = Callable[[str], Leader]


@asynccontextmanager
async def candidates(fake: FakeCluster, path: Path, **config: str) -> AsyncIterator[tuple[Make, Hand]]:
    """What makes candidates over one connection, and their clock; requests are kept."""
    fake.write_kubeconfig(path / "kubeconfig", **config)
    fake.server.keeps_requests = True
    cluster = Cluster(await credentials(kubeconfig=str(path / "kubeconfig")))
    clock = Hand()

    def make(identity: str) -> Leader:
        terms = LeaseOptions(namespace="default", identity=identity, retry=0.01)
        return Leader(cluster, terms, steady=clock, now=lambda: 1.7e9 + clock())

    try:
        async with asyncio.timeout(60):
            yield make, clock
    finally:
        await cluster.close()


def spec(fake: FakeCluster) -> dict[str, Any]:
    return fake.get("leases", "mpi-operator")["spec"]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


async def requests(fake: FakeCluster, count: int) -> None:
    """Wait for more requests."""
    before = len(fake.server.seen)
    await until(lambda: len(fake.server.seen) > before + count)


async def test_the_second_gets_the_lease_when_it_is_given_back(fake, tmp_path):
    async with candidates(fake, tmp_path) as (make, _):
        first, second = make("a"), make("b")
        await first.give_back()  # what it does not hold
        await first.take()
        assert spec(fake)["holderIdentity"] == "a"
        waits = asyncio.create_task(second.take())
        await requests(fake, 3)
        assert not waits.done()
        await first.give_back()
        await waits
        assert second.is_leader and not first.is_leader
        assert (spec(fake)["holderIdentity"], spec(fake)["leaseTransitions"]) == ("b", 1)
        fake.faults.go_away()
        await second.give_back()  # never fails
        assert not second.is_leader


async def test_a_lease_that_nobody_renews_is_taken_after_its_duration_and_its_holder_gives_up(fake, tmp_path):
    async with candidates(fake, tmp_path) as (make, clock):
        first, second = make("a"), make("b")
        await first.take()
        waits = asyncio.create_task(second.take())
        await requests(fake, 3)
        clock.time += 14
        await requests(fake, 3)
        assert not waits.done(), "it has not run out yet"
        clock.time += 2
        await waits
        with pytest.raises(LostLeadError, match="could not be renewed"):
            await first.hold()
        assert not first.is_leader


async def test_a_holder_whose_lease_was_taken_stops(fake, tmp_path):
    async with candidates(fake, tmp_path) as (make, _):
        first = make("a")
        await first.take()
        fake.change("leases", "mpi-operator", lambda lease: lease["spec"].update(holderIdentity="b"))
        with pytest.raises(LostLeadError, match="b has taken it") as lost:
            await first.hold()
        assert "that controller works now" in lost.value.faults[0].hint
        assert not first.is_leader
        await first.give_back()
        assert spec(fake)["holderIdentity"] == "b"


async def test_a_holder_that_cannot_renew_gives_up_before_another_may_take_the_lease(fake, tmp_path):
    async with candidates(fake, tmp_path) as (make, clock):
        first = make("a")
        await first.take()
        fake.faults.go_away()
        holds = asyncio.create_task(first.hold())
        clock.time += 9.9
        await asyncio.sleep(0)
        assert first.is_leader
        clock.time += 0.2
        with pytest.raises(LostLeadError, match="could not be renewed for 10 s") as lost:
            await holds
        assert "works now" not in str(lost.value), "nobody is known to hold it"
        assert not first.is_leader


async def test_a_short_absence_of_the_server_costs_nothing(fake, tmp_path):
    async with candidates(fake, tmp_path) as (make, clock):
        first = make("a")
        await first.take()
        before = spec(fake)["renewTime"]
        fault = fake.faults.refuse(500, resource="leases", times=3)
        holds = asyncio.create_task(first.hold())
        clock.time += 5
        await until(lambda: fault.hits == 3 and spec(fake)["renewTime"] > before)
        assert not holds.done() and first.is_leader
        holds.cancel()


async def test_a_renewal_that_hangs_leaves_time_for_another(fake, tmp_path):
    cluster = Cluster(await credentials(kubeconfig=str(fake.write_kubeconfig(tmp_path / "k"))), timeout=60.0)
    terms = LeaseOptions(namespace="default", identity="a", retry=0.01, attempt=0.3)
    first = Leader(cluster, terms, steady=time.monotonic, now=time.time)
    try:
        async with asyncio.timeout(60):
            await first.take()
            before = spec(fake)["renewTime"]
            hung = fake.faults.slow(30.0, resource="leases", times=1)
            holds = asyncio.create_task(first.hold())
            await until(lambda: (hung.hits and spec(fake)["renewTime"] > before) or holds.done())
            assert not holds.done() and first.is_leader
            holds.cancel()
    finally:
        fake.faults.clear()
        await cluster.close()


async def test_a_renewal_costs_one_request_while_nobody_else_writes(fake, tmp_path):
    async with candidates(fake, tmp_path) as (make, _):
        first = make("a")
        await first.take()
        fake.server.seen.clear()
        holds = asyncio.create_task(first.hold())
        await requests(fake, 4)
        assert {verb for verb, _ in fake.server.seen} == {"update"}
        fake.change("leases", "mpi-operator", lambda lease: lease["metadata"].update(labels={"x": "y"}))
        await requests(fake, 6)
        assert first.is_leader and not holds.done()
        assert fake.get("leases", "mpi-operator")["metadata"]["labels"] == {"x": "y"}, "it was read anew"
        holds.cancel()


async def test_of_those_who_take_a_free_lease_at_once_one_gets_it(fake, tmp_path):
    async with candidates(fake, tmp_path) as (make, _):
        leaders = [make(f"c{number}") for number in range(5)]
        tasks = [asyncio.create_task(one.take()) for one in leaders]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await requests(fake, 20)
        assert sum(one.is_leader for one in leaders) == 1
        for task in tasks:
            task.cancel()


async def test_who_may_not_write_leases_is_told_so(fake, tmp_path):
    async with candidates(fake, tmp_path, token=fake.add_user("eve")) as (make, _):
        with pytest.raises(ApiError, match=r"cannot get resource .*leases"):
            await make("a").take()


# Terms of an operator that renews its Lease often.
HOLDING = ProcessOptions(**BRISK, lease=LeaseOptions(namespace="default", identity="a", retry=0.02))


def test_the_lease_is_renewed_while_the_operator_computes(cluster, kubeconfig):
    with Running(kubeconfig, terms=HOLDING) as running:
        wait(lambda: cluster.get("leases", "mpi-operator"), "it leads")
        done = threading.Event()
        try:
            running.keep_busy(done)
            for _ in range(3):
                before = spec(cluster)["renewTime"]
                wait(lambda before=before: spec(cluster)["renewTime"] != before, "it is renewed")
        finally:
            done.set()
    assert spec(cluster)["holderIdentity"] == "", "it is given back at the end"


def test_a_lead_that_is_lost_while_passes_end_breaks_them_off(cluster, kubeconfig):
    with Running(kubeconfig, terms=HOLDING) as running:
        wait(lambda: cluster.get("leases", "mpi-operator"), "it leads")
        hung = cluster.faults.slow(PATIENCE, verb="create", resource="services", times=None)
        cluster.create(job())
        wait(lambda: hung.hits, "a pass is under way")
        running.begin_to_stop()
        cluster.change("leases", "mpi-operator", lambda lease: lease["spec"].update(holderIdentity="b"))
        error = running.wait_for_end()
        cluster.faults.clear()
    assert "b has taken it" in str(error)

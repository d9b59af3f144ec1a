"""Of several controllers one works: who holds the Lease."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
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


@dataclass
class Hand:
    """A clock that is set by hand."""

    time: float = 1000.0

    def __call__(self) -> float:
        return self.time


Make = Callable[[str], Leader]


def play(
    fake: FakeCluster, path: Path, script: Callable[[Make, Hand], Coroutine[Any, Any, None]], token: str = ""
) -> None:
    """Run a script that makes candidates over one connection and one clock."""

    async def run() -> None:
        fake.write_kubeconfig(path, **({"token": token} if token else {}))
        cluster = Cluster(await credentials(kubeconfig=str(path)))
        clock = Hand()

        def make(identity: str) -> Leader:
            terms = LeaseOptions(namespace="default", identity=identity, retry=0.01)
            return Leader(cluster, terms, steady=clock, now=lambda: 1.7e9 + clock())

        try:
            async with asyncio.timeout(60):
                await script(make, clock)
        finally:
            await cluster.close()

    asyncio.run(run())


def spec(fake: FakeCluster) -> dict[str, Any]:
    lease = fake.get("leases", "mpi-operator")
    return lease["spec"]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


def test_the_first_takes_the_lease_and_the_second_gets_it_when_it_is_given_back(fake, tmp_path):
    async def script(make: Make, clock: Hand) -> None:
        first, second = make("a"), make("b")
        await first.take()
        assert spec(fake)["holderIdentity"] == "a"
        waits = asyncio.create_task(second.take())
        fake.server.keeps_requests = True
        await until(lambda: len(fake.server.seen) > 3)
        assert not waits.done()
        await first.give_back()
        await waits
        assert second.is_leader
        assert not first.is_leader
        assert spec(fake)["holderIdentity"] == "b"
        assert spec(fake)["leaseTransitions"] == 1

    play(fake, tmp_path / "kubeconfig", script)


def test_a_lease_that_nobody_renews_is_taken_after_its_duration_and_its_holder_gives_up(fake, tmp_path):
    async def script(make: Make, clock: Hand) -> None:
        first, second = make("a"), make("b")
        await first.take()
        waits = asyncio.create_task(second.take())
        fake.server.keeps_requests = True
        await until(lambda: len(fake.server.seen) > 3)
        clock.time += 14
        seen = len(fake.server.seen)
        await until(lambda: len(fake.server.seen) > seen + 3)
        assert not waits.done(), "it has not run out yet"
        clock.time += 2
        await waits
        with pytest.raises(LostLeadError, match="could not be renewed"):
            await first.hold()
        assert not first.is_leader

    play(fake, tmp_path / "kubeconfig", script)


def test_a_holder_whose_lease_was_taken_stops(fake, tmp_path):
    async def script(make: Make, clock: Hand) -> None:
        first = make("a")
        await first.take()
        fake.change("leases", "mpi-operator", lambda lease: lease["spec"].update(holderIdentity="b"))
        with pytest.raises(LostLeadError, match="b has taken it") as lost:
            await first.hold()
        assert "that controller works now" in lost.value.faults[0].hint
        assert not first.is_leader
        await first.give_back()
        assert spec(fake)["holderIdentity"] == "b"

    play(fake, tmp_path / "kubeconfig", script)


def test_a_holder_that_cannot_renew_gives_up_before_another_may_take_the_lease(fake, tmp_path):
    async def script(make: Make, clock: Hand) -> None:
        first = make("a")
        await first.take()
        fake.faults.go_away()
        holds = asyncio.create_task(first.hold())
        clock.time += 9.9
        fake.server.keeps_requests = True
        await asyncio.sleep(0)
        assert first.is_leader
        clock.time += 0.2
        with pytest.raises(LostLeadError, match="could not be renewed for 10 s") as lost:
            await holds
        assert "works now" not in str(lost.value), "nobody is known to hold it"
        assert not first.is_leader

    play(fake, tmp_path / "kubeconfig", script)


def test_a_short_absence_of_the_server_costs_nothing(fake, tmp_path):
    async def script(make: Make, clock: Hand) -> None:
        first = make("a")
        await first.take()
        before = spec(fake)["renewTime"]
        fault = fake.faults.refuse(500, resource="leases", times=3)
        holds = asyncio.create_task(first.hold())
        clock.time += 5
        await until(lambda: fault.hits == 3 and spec(fake)["renewTime"] > before)
        assert not holds.done()
        assert first.is_leader
        holds.cancel()

    play(fake, tmp_path / "kubeconfig", script)


async def test_a_renewal_that_hangs_leaves_time_for_another(fake, tmp_path):
    path = fake.write_kubeconfig(tmp_path / "kubeconfig")
    cluster = Cluster(await credentials(kubeconfig=str(path)), timeout=60.0)
    terms = LeaseOptions(namespace="default", identity="a", retry=0.01, attempt=0.3)
    first = Leader(cluster, terms, steady=time.monotonic, now=time.time)
    try:
        async with asyncio.timeout(60):
            await first.take()
            before = spec(fake)["renewTime"]
            hung = fake.faults.slow(30.0, resource="leases", times=1)
            holds = asyncio.create_task(first.hold())
            await until(lambda: (hung.hits and spec(fake)["renewTime"] > before) or holds.done())
            assert not holds.done()
            assert first.is_leader
            holds.cancel()
    finally:
        fake.faults.clear()
        await cluster.close()


def test_a_renewal_costs_one_request_while_nobody_else_writes(fake, tmp_path):
    async def script(make: Make, clock: Hand) -> None:
        first = make("a")
        await first.take()
        fake.server.keeps_requests = True
        holds = asyncio.create_task(first.hold())
        await until(lambda: len(fake.server.seen) >= 4)
        assert {verb for verb, _ in fake.server.seen} == {"update"}
        fake.change("leases", "mpi-operator", lambda lease: lease["metadata"].update(labels={"x": "y"}))
        before = len(fake.server.seen)
        await until(lambda: len(fake.server.seen) > before + 6)
        assert first.is_leader and not holds.done()
        assert fake.get("leases", "mpi-operator")["metadata"]["labels"] == {"x": "y"}, "it was read anew"
        holds.cancel()

    play(fake, tmp_path / "kubeconfig", script)


def test_of_two_who_take_a_free_lease_at_once_one_gets_it(fake, tmp_path):
    async def script(make: Make, clock: Hand) -> None:
        candidates = [make(f"c{number}") for number in range(5)]
        tasks = [asyncio.create_task(one.take()) for one in candidates]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        fake.server.keeps_requests = True
        await until(lambda: len(fake.server.seen) > 20)
        leaders = [one for one in candidates if one.is_leader]
        assert len(leaders) == 1
        for task in tasks:
            task.cancel()

    play(fake, tmp_path / "kubeconfig", script)


def test_who_may_not_write_leases_is_told_so(fake, tmp_path):
    async def script(make: Make, clock: Hand) -> None:
        with pytest.raises(ApiError, match=r"cannot get resource .*leases"):
            await make("a").take()

    play(fake, tmp_path / "kubeconfig", script, token=fake.add_user("eve"))


def test_giving_back_never_fails(fake, tmp_path):
    async def script(make: Make, clock: Hand) -> None:
        first = make("a")
        await first.give_back()
        await first.take()
        fake.faults.go_away()
        await first.give_back()
        assert not first.is_leader

    play(fake, tmp_path / "kubeconfig", script)


def holding(**times: float) -> ProcessOptions:
    """Return the terms of an operator that renews its Lease often."""
    lease = LeaseOptions(namespace="default", identity="a", **({"retry": 0.02} | times))
    return ProcessOptions(**BRISK, lease=lease)


def test_the_lease_is_renewed_while_the_operator_computes(cluster, kubeconfig):
    with Running(kubeconfig, terms=holding()) as running:
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
    with Running(kubeconfig, terms=holding()) as running:
        wait(lambda: cluster.get("leases", "mpi-operator"), "it leads")
        hung = cluster.faults.slow(PATIENCE, verb="create", resource="services", times=None)
        cluster.create(job())
        wait(lambda: hung.hits, "a pass is under way")
        running.begin_to_stop()
        cluster.change("leases", "mpi-operator", lambda lease: lease["spec"].update(holderIdentity="b"))
        error = running.wait_for_end()
        cluster.faults.clear()
    assert "b has taken it" in str(error)

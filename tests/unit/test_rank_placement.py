from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.errors import RequestError
from ringleader.plan.job import Host, Job, Placement
from ringleader.plan.rank_placement import HostFacts, Plan, place, share

Make = Callable[..., HostFacts]


def job(np: int | None = None, hosts: int = 1, **words: object) -> Job:
    """A job over that many hosts; what they are called is in the facts."""
    named = tuple(Host(name=f"h{index}") for index in range(hosts))
    return Job(command=("true",), np=np, hosts=named, **words)  # type: ignore[arg-type]


def where(plan: Plan) -> list[tuple[str, int]]:
    return [(plan.hosts[one.host_index].host.name, one.local_rank) for one in plan.ranks]


def test_by_slot_fills_a_host_before_the_next(make_facts: Make) -> None:
    plan = place(job(5), (make_facts("a", 2), make_facts("b", 4)))
    assert where(plan) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    assert plan.counts() == (2, 3)


def test_by_node_takes_one_of_each_in_turn_and_passes_full_hosts(make_facts: Make) -> None:
    facts = (make_facts("a", 1), make_facts("b", 3), make_facts("c", 2))
    plan = place(job(6, placement=Placement.NODE), facts)
    assert where(plan) == [("a", 0), ("b", 0), ("c", 0), ("b", 1), ("c", 1), ("b", 2)]


def test_without_a_number_every_slot_is_taken(make_facts: Make) -> None:
    assert place(job(None), (make_facts("a", 2), make_facts("b", 3))).size == 5


def test_without_a_number_and_without_hosts_there_is_one_rank(make_facts: Make) -> None:
    plan = place(job(None, hosts=0), (make_facts("localhost", None, cores=8),))
    assert plan.size == 1
    assert plan.ranks[0].cpus == tuple(range(8))


def test_a_host_without_slots_takes_one_rank_for_each_core(make_facts: Make) -> None:
    assert place(job(None), (make_facts("a", None, cores=3),)).size == 3


def test_a_host_with_gpus_and_without_slots_takes_one_rank_for_each_gpu(make_facts: Make) -> None:
    facts = (make_facts("a", None, cores=8, gpus=("0", "1")),)
    assert place(job(None), facts).size == 2
    assert place(job(None, share_gpus=True), facts).size == 8


def test_a_host_whose_cores_are_unknown_takes_one(make_facts: Make) -> None:
    plan = place(job(None), (make_facts("a", None, cores=0),))
    assert (plan.size, plan.ranks[0].cpus, plan.ranks[0].threads) == (1, (), 1)


def test_hosts_without_ranks_are_left_out_and_the_others_renumbered(make_facts: Make) -> None:
    plan = place(job(2), (make_facts("a", 2), make_facts("b", 2)))
    assert [facts.host.name for facts in plan.hosts] == ["a"]
    assert {one.host_index for one in plan.ranks} == {0}


def test_too_many_ranks_are_refused_with_the_slots_there_are(make_facts: Make) -> None:
    with pytest.raises(RequestError) as caught:
        place(job(9), (make_facts("a", 2), make_facts("b", None, cores=4)))
    fault = caught.value.faults[0]
    assert fault.where == "-n"
    assert "9 ranks asked for, 6 slots there, one for each core (a:2, b:4)" in fault.what
    assert "--oversubscribe" in fault.hint


def test_too_many_ranks_for_the_gpus_of_bare_hosts_say_so(make_facts: Make) -> None:
    with pytest.raises(RequestError) as caught:
        place(job(4), (make_facts("a", None, cores=8, gpus=("0", "1")),))
    assert "one for each GPU" in caught.value.faults[0].what
    assert "--share-gpus" in caught.value.faults[0].hint


@pytest.mark.parametrize("placement", list(Placement))
def test_what_is_over_the_slots_goes_round_the_hosts(make_facts: Make, placement: Placement) -> None:
    facts = (make_facts("a", 1), make_facts("b", 2), make_facts("c", 1))
    plan = place(job(9, oversubscribe=True, placement=placement), facts)
    assert plan.counts() == (3, 4, 2)


def test_max_slots_hold_when_oversubscribing(make_facts: Make) -> None:
    facts = (make_facts("a", 1, max_slots=2), make_facts("b", 1))
    assert place(job(6, oversubscribe=True), facts).counts() == (2, 4)
    limited = (make_facts("a", 1, max_slots=2), make_facts("b", 1, max_slots=1))
    with pytest.raises(RequestError, match="at most 3 with max_slots"):
        place(job(4, oversubscribe=True), limited)
    assert place(job(2), limited).counts() == (1, 1)


def test_two_names_of_one_machine_are_one_host(make_facts: Make) -> None:
    facts = (
        make_facts("a", 2, identity="x"),
        make_facts("b", 1, identity="y"),
        make_facts("a.local", 2, identity="x"),
    )
    plan = place(job(None), facts)
    assert plan.counts() == (4, 1)
    assert [one.local_rank for one in plan.ranks] == [0, 1, 2, 3, 0]
    cores = [core for one in plan.on_host(0) for core in one.cpus]
    assert len(cores) == len(set(cores))


def test_cores_are_shared_out_whole_and_in_order(make_facts: Make) -> None:
    plan = place(job(3), (make_facts("a", 3, cores=8),))
    assert [one.cpus for one in plan.ranks] == [(0, 1), (2, 3, 4), (5, 6, 7)]
    assert [one.threads for one in plan.ranks] == [2, 3, 3]


def test_more_ranks_than_cores_roam_with_one_thread(make_facts: Make) -> None:
    plan = place(job(3), (make_facts("a", 3, cores=2),))
    assert [(one.cpus, one.threads) for one in plan.ranks] == [((), 1)] * 3


def test_unbound_ranks_still_get_their_share_of_threads(make_facts: Make) -> None:
    plan = place(job(2, bind="none"), (make_facts("a", 2, cores=8),))
    assert [(one.cpus, one.threads) for one in plan.ranks] == [((), 4)] * 2


def test_threads_as_asked_for(make_facts: Make) -> None:
    assert place(job(1, threads=7), (make_facts("a", 1, cores=2),)).ranks[0].threads == 7


def test_a_rank_is_bound_to_all_hardware_threads_of_its_cores(make_facts: Make) -> None:
    plan = place(job(2), (make_facts("a", 2, cores=2, cpusets=((0, 2), (1, 3))),))
    assert [(one.cpus, one.threads) for one in plan.ranks] == [((0, 2), 1), ((1, 3), 1)]


def test_each_local_rank_gets_its_gpu_and_ids_are_kept(make_facts: Make) -> None:
    mig = ("MIG-b7d3e4a0-1f2c-5d3e-8a9b-0c1d2e3f4a5b", "MIG-c8e4f5b1-2a3d-5e4f-9bac-1d2e3f4a5b6c")
    plan = place(job(4), (make_facts("a", 2, gpus=mig), make_facts("b", 2, gpus=("0", "1"))))
    assert [one.gpu for one in plan.ranks] == [*mig, "0", "1"]


def test_more_ranks_than_gpus_are_refused_on_every_such_host(make_facts: Make) -> None:
    facts = (
        make_facts("a", 3, gpus=("0",)),
        make_facts("b", 1, gpus=("0",)),
        make_facts("c", 2, gpus=("0",)),
    )
    with pytest.raises(RequestError) as caught:
        place(job(6), facts)
    assert [fault.where for fault in caught.value.faults] == ["host a", "host c"]
    assert "3 ranks for 1 GPU" in caught.value.faults[0].what


def test_gpus_are_shared_in_turn_when_asked(make_facts: Make) -> None:
    plan = place(job(4, share_gpus=True), (make_facts("a", 4, gpus=("0", "1")),))
    assert [one.gpu for one in plan.ranks] == ["0", "1", "0", "1"]


def test_all_gpus_are_seen_by_all_unless_each_is_to_see_its_own(make_facts: Make) -> None:
    plan = place(job(2), (make_facts("a", 2, gpus=("0", "1")),))
    assert [(one.gpu, one.visible_gpus) for one in plan.ranks] == [("0", "0,1"), ("1", "0,1")]
    plan = place(job(2, all_gpus=False), (make_facts("a", 2, gpus=("0", "1")),))
    assert [(one.gpu, one.visible_gpus) for one in plan.ranks] == [("0", "0"), ("1", "1")]


def test_no_gpu_leaves_the_variable_alone(make_facts: Make) -> None:
    assert place(job(1), (make_facts("a", 1),)).ranks[0].gpu is None


@given(st.integers(0, 40), st.integers(1, 20))
def test_shares_cover_everything_once_when_there_is_enough(count: int, parts: int) -> None:
    items = tuple(range(count))
    shares = [share(items, part, parts) for part in range(parts)]
    if count >= parts:
        assert tuple(item for one in shares for item in one) == items
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    else:
        assert all(len(one) == min(1, count) for one in shares)


@given(
    slots=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    more=st.integers(-20, 12),
    placement=st.sampled_from(Placement),
    oversubscribe=st.booleans(),
)
def test_every_plan_is_whole_and_consistent(
    make_facts: Make, slots: list[int], more: int, placement: Placement, oversubscribe: bool
) -> None:
    np = max(1, sum(slots) + more)
    facts = tuple(make_facts(f"h{index}", count) for index, count in enumerate(slots))
    asked = job(np, hosts=len(slots), placement=placement, oversubscribe=oversubscribe)
    if np > sum(slots) and not oversubscribe:
        with pytest.raises(RequestError):
            place(asked, facts)
        return
    plan = place(asked, facts)
    assert [one.rank for one in plan.ranks] == list(range(np))
    assert len({(one.host_index, one.local_rank) for one in plan.ranks}) == np
    by_name = dict(zip((f"h{index}" for index in range(len(slots))), slots, strict=True))
    for index, host in enumerate(plan.hosts):
        here = plan.on_host(index)
        assert [one.local_rank for one in here] == list(range(len(here)))
        assert {one.local_size for one in here} == {len(here)}
        assert plan.counts()[index] == len(here) >= 1
        if np <= sum(slots):
            assert len(here) <= by_name[host.host.name]
    by_local: dict[int, list[int]] = {}
    for one in sorted(plan.ranks, key=lambda one: one.host_index):
        by_local.setdefault(one.local_rank, []).append(one.cross_rank)
    sizes = Counter(one.local_rank for one in plan.ranks)
    for local, cross_ranks in by_local.items():
        assert cross_ranks == list(range(sizes[local]))
    assert all(one.cross_size == sizes[one.local_rank] for one in plan.ranks)
    if placement is Placement.SLOT:
        order = [one.host_index for one in plan.ranks]
        assert order == sorted(order)


def test_more_ranks_than_a_host_can_have_processes_for(make_facts) -> None:
    facts = (replace(make_facts("h1"), processes=32768), make_facts("h2"))
    job = Job(command=("x",), np=100_000, hosts=(Host(name="h1"), Host(name="h2")), oversubscribe=True)
    with pytest.raises(RequestError, match="50000 ranks need 100000 processes; it allows 32768"):
        place(job, facts)
    assert place(replace(job, np=32768), facts).size == 32768

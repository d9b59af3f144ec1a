from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.errors import RequestError
from ringleader.plan.job import Host, Job, Placement
from ringleader.plan.rank_placement import place, share

GPUS, MIG = (
    ("0", "1"),
    ("MIG-b7d3e4a0-1f2c-5d3e-8a9b-0c1d2e3f4a5b", "MIG-c8e4f5b1-2a3d-5e4f-9bac-1d2e3f4a5b6c"),
)


def job(np=None, hosts=1, **words):
    """A job over that many hosts; what they are called is in the facts."""
    named = tuple(Host(name=f"h{index}") for index in range(hosts))
    return Job(command=("true",), np=np, hosts=named, **words)


def where(plan):
    return [(plan.hosts[one.host_index].host.name, one.local_rank) for one in plan.ranks]


def test_two_names_of_one_machine_are_one_host(make_facts):
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


@given(st.integers(0, 40), st.integers(1, 20))
def test_shares_cover_everything_once_when_there_is_enough(count, parts):
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
def test_every_plan_is_whole_and_consistent(make_facts, slots, more, placement, oversubscribe):
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
    by_local = {}
    for one in sorted(plan.ranks, key=lambda one: one.host_index):
        by_local.setdefault(one.local_rank, []).append(one.cross_rank)
    sizes = Counter(one.local_rank for one in plan.ranks)
    for local, cross_ranks in by_local.items():
        assert cross_ranks == list(range(sizes[local]))
    assert all(one.cross_size == sizes[one.local_rank] for one in plan.ranks)
    if placement is Placement.SLOT:
        order = [one.host_index for one in plan.ranks]
        assert order == sorted(order)


def test_which_host_a_rank_is_on(make_facts):
    plan = place(job(5), (make_facts("a", 2), make_facts("b", 4)))
    assert where(plan) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    assert plan.counts() == (2, 3)
    facts = (make_facts("a", 1), make_facts("b", 3), make_facts("c", 2))
    plan = place(job(6, placement=Placement.NODE), facts)
    assert where(plan) == [("a", 0), ("b", 0), ("c", 0), ("b", 1), ("c", 1), ("b", 2)]
    plan = place(job(2), (make_facts("a", 2), make_facts("b", 2)))
    assert [facts.host.name for facts in plan.hosts] == ["a"] and {one.host_index for one in plan.ranks} == {
        0
    }


def test_how_many_ranks_where_no_number_is_given(make_facts):
    for slots, host, words, size in (
        (2, {}, {}, 2),
        (None, {"cores": 3}, {}, 3),
        (None, {"cores": 8, "gpus": GPUS}, {}, 2),
        (None, {"cores": 8, "gpus": GPUS}, {"share_gpus": True}, 8),
        (None, {"cores": 0}, {}, 1),
        (None, {"cores": 8}, {"hosts": 0}, 1),
    ):
        plan = place(job(None, **words), (make_facts("a", slots, **host),))
        assert plan.size == size
        if size == 1:
            assert (plan.ranks[0].cpus, plan.ranks[0].threads) == (
                tuple(range(host["cores"])),
                host["cores"] or 1,
            )


@pytest.mark.parametrize(
    ("np", "host", "words", "cpus", "threads"),
    [
        (3, {"cores": 8}, {}, [(0, 1), (2, 3, 4), (5, 6, 7)], [2, 3, 3]),
        (3, {"cores": 2}, {}, [()] * 3, [1] * 3),
        (2, {"cores": 8}, {"bind": "none"}, [()] * 2, [4] * 2),
        (1, {"cores": 2}, {"threads": 7}, [(0, 1)], [7]),
        (2, {"cores": 2, "cpusets": ((0, 2), (1, 3))}, {}, [(0, 2), (1, 3)], [1, 1]),
    ],
    ids=["whole cores in order", "more ranks roam", "unbound", "as asked for", "all threads of a core"],
)
def test_cores_and_threads(make_facts, np, host, words, cpus, threads):
    plan = place(job(np, **words), (make_facts("a", np, **host),))
    assert [one.cpus for one in plan.ranks] == cpus and [one.threads for one in plan.ranks] == threads


def test_gpus(make_facts):
    plan = place(job(4), (make_facts("a", 2, gpus=MIG), make_facts("b", 2, gpus=GPUS)))
    assert [one.gpu for one in plan.ranks] == [*MIG, *GPUS]
    plan = place(job(4, share_gpus=True), (make_facts("a", 4, gpus=GPUS),))
    assert [one.gpu for one in plan.ranks] == ["0", "1", "0", "1"]
    for all_gpus, seen in ((True, ["0,1", "0,1"]), (False, ["0", "1"])):
        plan = place(job(2, all_gpus=all_gpus), (make_facts("a", 2, gpus=GPUS),))
        assert [one.visible_gpus for one in plan.ranks] == seen and [one.gpu for one in plan.ranks] == [*GPUS]
    assert place(job(1), (make_facts("a", 1),)).ranks[0].gpu is None


def test_what_is_over_the_slots_goes_round_the_hosts(make_facts):
    facts = (make_facts("a", 1), make_facts("b", 2), make_facts("c", 1))
    for placement in Placement:
        assert place(job(9, oversubscribe=True, placement=placement), facts).counts() == (3, 4, 2)
    facts = (make_facts("a", 1, max_slots=2), make_facts("b", 1))
    assert place(job(6, oversubscribe=True), facts).counts() == (2, 4)
    limited = (make_facts("a", 1, max_slots=2), make_facts("b", 1, max_slots=1))
    assert place(job(2), limited).counts() == (1, 1)


def refused(make_facts, asked, *hosts):
    facts = tuple(replace(make_facts(name, slots, **words), processes=32768) for name, slots, words in hosts)
    with pytest.raises(RequestError) as caught:
        place(asked, facts)
    return caught.value.faults


def test_too_many_ranks_are_refused_with_what_there_is(make_facts):
    (fault,) = refused(make_facts, job(9), ("a", 2, {}), ("b", None, {"cores": 4}))
    assert fault.where == "-n" and "--oversubscribe" in fault.hint
    assert "9 ranks asked for, 6 slots there, one for each core (a:2, b:4)" in fault.what
    (fault,) = refused(make_facts, job(4), ("a", None, {"cores": 8, "gpus": GPUS}))
    assert "one for each GPU" in fault.what and "--share-gpus" in fault.hint
    hosts = ("a", 1, {"max_slots": 2}), ("b", 1, {"max_slots": 1})
    (fault,) = refused(make_facts, job(4, oversubscribe=True), *hosts)
    assert "at most 3 with max_slots" in fault.what
    one = {"gpus": ("0",)}
    faults = refused(make_facts, job(6), ("a", 3, one), ("b", 1, one), ("c", 2, one))
    assert [fault.where for fault in faults] == ["host a", "host c"]
    assert "3 ranks for 1 GPU" in faults[0].what
    many = ("a", None, {}), ("b", None, {})
    fault, _ = refused(make_facts, job(100_000, hosts=2, oversubscribe=True), *many)
    assert "50000 ranks need 100000 processes; it allows 32768" in fault.what
    fits = tuple(replace(make_facts(name), processes=32768) for name in "ab")
    assert place(job(32768, hosts=2, oversubscribe=True), fits).size == 32768

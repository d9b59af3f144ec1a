"""Several names of one machine in an elastic job."""

from __future__ import annotations

import pytest

from ringleader.launch.elastic.layout import agent_numbers, machines_together, names_apart
from ringleader.plan.job import Host, Job
from ringleader.plan.rank_placement import HostFacts, place


def facts(name, slots, identity, cpus=(0, 1, 2, 3), **more):
    return HostFacts(
        host=Host(name=name, slots=slots),
        hostname="m",
        identity=identity,
        is_local=True,
        cpus=cpus,
        cpusets=tuple((cpu, cpu + 8) for cpu in cpus),
        **more,
    )


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ((("a", (0,)), ("b", (0,)), ("a2", (0, 1))), (("a", (0,)), ("a2", (0, 1)), ("b", (0,)))),
        ((("b", (0,)), ("a2", (0,)), ("c", (0,)), ("a", (0,))), "b a2 a c"),
        ((("b", (0,)), ("c", (1,))), "b c"),
        ((), ""),
    ],
)
def test_the_names_of_a_machine_follow_one_another(layout, expected):
    found = machines_together(layout, {"a": "m", "a2": "m", "b": "other"})
    if isinstance(expected, str):
        assert [host for host, _ in found] == expected.split() and set(found) == set(layout)
    else:
        assert found == expected


def test_agents_of_a_machine_are_numbered_in_the_order_of_its_names():
    looked_at = {one.host.name: one for one in (facts("a", 1, "m"), facts("b", 1, "n"), facts("c", 1, "m"))}
    assert [*agent_numbers(looked_at).values()] == [0, 0, 1]


def test_the_names_of_a_machine_divide_its_cores_and_gpus_and_are_placed_as_hosts():
    hosts = (
        facts("localhost", 2, "m", gpus=("0", "1", "2")),
        facts("127.0.0.1", 1, "m", gpus=("0", "1", "2")),
    )
    apart = names_apart(hosts)
    assert [one.cpus for one in apart] == [(0, 1), (2, 3)]
    assert [one.cpusets for one in apart] == [((0, 8), (1, 9)), ((2, 10), (3, 11))]
    assert [one.gpus for one in apart] == [("0", "1"), ("2",)]
    job = Job(command=("x",), np=3, hosts=tuple(one.host for one in hosts))
    plan, of_mpi = place(job, apart), place(job, hosts)
    assert [(one.host_index, one.local_rank, one.cross_size) for one in plan.ranks] == [
        (0, 0, 2),
        (0, 1, 1),
        (1, 0, 2),
    ]
    assert of_mpi.counts() == (3,) and plan.counts() == (2, 1)


def test_with_fewer_cores_than_slots_no_rank_is_bound():
    hosts = (facts("localhost", 2, "m", cpus=(0, 1)), facts("::1", 2, "m", cpus=(0, 1), gpus=("0",)))
    apart = names_apart(hosts)
    assert [one.cpus for one in apart] == [(0,), (1,)] and apart[1].gpus == ("0",)
    job = Job(command=("x",), np=4, hosts=tuple(one.host for one in hosts), share_gpus=True)
    assert {one.cpus for one in place(job, apart).ranks} == {()}


def test_a_machine_with_one_name_stays_as_it_is():
    hosts = (facts("h1", 2, "m"), facts("h2", None, "n"))
    assert names_apart(hosts) == hosts

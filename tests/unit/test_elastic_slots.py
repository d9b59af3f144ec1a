"""Slots, names of one machine, and code of the hosts of an elastic job."""

from __future__ import annotations

from ringleader.launch.elastic.elastic_hosts import other_packages, other_script
from ringleader.launch.elastic.job_context import slots_kept
from ringleader.launch.elastic.layout import agent_numbers, machines_together, names_apart
from ringleader.plan.job import Host, Job
from ringleader.plan.rank_placement import HostFacts, place


def plan_of(*slots):
    facts = tuple(
        HostFacts(
            host=Host(name=f"h{number}", slots=count),
            hostname=f"h{number}",
            identity=str(number),
            is_local=False,
            cpus=tuple(range(8)),
            gpus=("0", "1", "2", "3"),
        )
        for number, count in enumerate(slots)
    )
    return place(Job(command=("x",), np=sum(slots), hosts=tuple(one.host for one in facts)), facts)


def test_ranks_have_the_numbers_gpus_and_cores_of_their_slots():
    whole = plan_of(4, 2)
    kept = slots_kept(plan_of(3, 1), whole, (("h0", (0, 2, 3)), ("h1", (1,))))
    found = [(one.rank, one.host_index, one.local_rank, one.local_size, one.gpu) for one in kept.ranks]
    assert found == [(0, 0, 0, 3, "0"), (1, 0, 2, 3, "2"), (2, 0, 3, 3, "3"), (3, 1, 1, 1, "1")]
    # hvd.local_rank() is the slot, so set_device of it finds the slot's GPU also where the plan sees fewer.
    assert {one.visible_gpus for one in kept.ranks} == {"0,1,2,3"}
    assert [one.cpus for one in kept.ranks] == [whole.ranks[rank].cpus for rank in (0, 2, 3, 5)]


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


def test_the_names_of_a_machine_follow_one_another():
    for layout, expected in (
        ((("a", (0,)), ("b", (0,)), ("a2", (0, 1))), (("a", (0,)), ("a2", (0, 1)), ("b", (0,)))),
        ((("b", (0,)), ("a2", (0,)), ("c", (0,)), ("a", (0,))), "b a2 a c"),
        ((("b", (0,)), ("c", (1,))), "b c"),
        ((), ""),
    ):
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
    hosts = (facts("h1", 2, "m"), facts("h2", None, "n"))
    assert names_apart(hosts) == hosts, "a machine with one name stays as it is"


def test_scripts_and_packages():
    same = "a" * 64
    for began_with, there in ((same, same), (same, ""), ("", "b" * 64)):
        assert other_script("train.py", began_with=began_with, there=there) == ""
    found = other_script("train.py", began_with=same, there="b" * 64)
    assert "the script train.py" in found and "SHA-256 bbbbbbbbbbbb… there, aaaaaaaaaaaa… then" in found
    for there, said in (
        ({"torch": "2.4.0", "numpy": "2.1", "extra": "1"}, ""),
        ({"torch": "2.3.1", "numpy": "2.1"}, "torch is 2.3.1 there, 2.4.0 on h1"),
        ({"torch": "2.3", "numpy": "1"}, "torch is 2.3 there, 2.4.0 on h1; numpy is 1 there, 2.1 on h1"),
        ({"torch": ""}, ""),
    ):
        assert other_packages(there, known={"torch": "2.4.0", "numpy": "2.1", "mine": ""}, of="h1") == said

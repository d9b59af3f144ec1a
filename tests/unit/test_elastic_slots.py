"""What the ranks of an elastic job keep where slots of their host are left out."""

from ringleader.launch.elastic.job_context import slots_kept
from ringleader.plan.job import Host, Job
from ringleader.plan.rank_placement import HostFacts, Plan, place


def plan_of(*slots: int) -> Plan:
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

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.errors import RequestError
from ringleader.plan.host_list import parse_hostfile
from ringleader.plan.job import Family, Job, Placement
from ringleader.plan.rank_placement import place
from ringleader.render.hostfile import bare_name, hostfile_text, in_turns, mpi_name, user_of

HYDRA = (Family.MPICH, Family.INTEL)


def plan_of(facts, np, placement=Placement.SLOT):
    hosts = tuple(fact.host for fact in facts)
    return place(Job(command=("true",), np=np, hosts=hosts, placement=placement), facts)


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("placement", list(Placement))
def test_golden(make_facts, golden, family, placement):
    names = ("node1", "alice@node2.cluster", "10.0.0.3", "fe80::1%eth0", "under_score")
    facts = tuple(make_facts(name, 2) for name in names)
    golden(f"hostfile.{family}.{placement}", hostfile_text(plan_of(facts, 10, placement), family))


@given(st.lists(st.text(alphabet="ax:-_.%@f3", min_size=1, max_size=8), min_size=2, max_size=2, unique=True))
def test_aliases_are_never_shared(names):
    one, other = (bare_name(name) for name in names)
    for family in Family:
        assert (mpi_name(one, family) == mpi_name(other, family)) == (one == other)


@pytest.mark.parametrize("family", HYDRA)
def test_hydra_cannot_number_unequal_hosts_in_turns(make_facts, family):
    plan = plan_of((make_facts("a", 3), make_facts("b", 1)), 4, Placement.NODE)
    with pytest.raises(RequestError, match="--map-by node"):
        hostfile_text(plan, family)
    plan = plan_of((make_facts("a", 1), make_facts("b", 3)), 4, Placement.NODE)
    assert not in_turns(plan), "these turns are as slots"
    assert hostfile_text(plan, family) == "a:1\nb:3\n"


@pytest.mark.parametrize("family", list(Family))
def test_this_machine_has_a_name_that_every_mpi_knows_for_its_own(make_facts, family):
    def text(name):
        here = replace(make_facts(name, 2), hostname="this", addresses=("10.0.0.1",), is_local=True)
        return hostfile_text(plan_of((here,), 2), family)

    for name in ("127.0.1.1", "127.0.0.2", "also-this", "this.example.org", "::1"):
        assert text(name).startswith("localhost")
    for name in ("this", "10.0.0.1", "127.0.0.1"):
        assert text(name).startswith(name), "one that an MPI knows stays"


SLOTS = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@given(slots=SLOTS, leave=st.integers(0, 6), family=st.sampled_from(Family), by_node=st.booleans())
def test_what_is_written_is_read_back_as_the_plan(make_facts, slots, leave, family, by_node):
    names = ["h1", "h2.x", "fe80::1", "bob@h4", "h_5"][: len(slots)]
    facts = tuple(make_facts(name, count) for name, count in zip(names, slots, strict=True))
    placement = Placement.NODE if by_node else Placement.SLOT
    plan = plan_of(facts, max(1, sum(slots) - leave), placement)
    try:
        text = hostfile_text(plan, family)
    except RequestError:
        assert family in HYDRA
        assert len(set(plan.counts())) > 1
        return
    parsed = parse_hostfile(text)
    assert parsed.faults == ()
    ranks = ranks_of(parsed.hosts, plan.size, in_turns(plan), family)
    assert ranks == [mpi_name(plan.hosts[one.host_index].host.name, family) for one in plan.ranks]


def ranks_of(hosts, np, turns, family):
    """Number ranks as the MPIs were seen to do (Open MPI 4.1 and 5.0, MPICH 4.0): host names by rank."""
    if family in HYDRA:
        cycle = [host.name for host in hosts for _ in range(host.slots or 0)]
        return [cycle[rank % len(cycle)] for rank in range(np)]
    assert all(host.slots == host.max_slots for host in hosts)
    if not turns:
        return [host.name for host in hosts for _ in range(host.slots or 0)]
    deepest = max(host.slots or 0 for host in hosts)
    return [host.name for turn in range(deepest) for host in hosts if turn < (host.slots or 0)]


def test_a_user_is_taken_off():
    assert (bare_name("bob@h1"), user_of("bob@h1")) == ("h1", "bob")
    assert (bare_name("h1"), user_of("h1")) == ("h1", "")

"""The decider of elastic jobs, by tables and by the stories of ``membership_stories.txt``."""

from inspect import signature
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operations import growth
from tests.stories import stories
from tests.unit.elastic_simulation import Phase, Simulation, message, phase_of
from tests.unit.membership_story import play

from ringleader.agents.protocol import HOST_MESSAGES
from ringleader.launch.elastic.layout import (
    chosen_layout,
    common_commit,
    generation_order,
    size_of,
    slots_of,
)
from ringleader.launch.elastic.membership import decide
from ringleader.launch.elastic.membership_messages import NEWS
from ringleader.launch.elastic.membership_state import Limits, State

STORIES = stories(Path(__file__).with_name("membership_stories.txt"))


@pytest.mark.parametrize("title", STORIES)
def test_a_story(title):
    play(STORIES[title])


def running(*, hosts=None, **limits):
    """Return a job that trains."""
    job = Simulation(limits=Limits(**limits))
    job.offer(**(hosts or {"h1": 2, "h2": 2}))
    assert job.settle() is Phase.RUNNING, job.log
    return job


def incarnations(job):
    return tuple(member.incarnation for member in job.told[max(job.told)].members)


def last(job):
    return job.told[max(job.told)]


def test_times_of_hosts_and_ranks_and_of_a_worlds_repairs():
    """A short time for hosts is none for ranks; a world is renewed after many repairs."""
    job = Simulation(limits=Limits(min_np=2, timeout=1.0, start_timeout=30.0))
    job.offer(h1=2)
    job.hosts["h1"] = True
    job.tell("host_ready", host="h1", slots=2)
    for ranks in (2, 0):
        job.now += 20.0
        job.tell("tick")
        assert len(job.ranks) == ranks
    job = running(hosts={"h1": 2}, rank_restarts=1000)
    for _ in range(50):
        job.kill_rank(max(job.ranks))
        assert job.settle() is Phase.RUNNING
    assert last(job).world == 2


def test_the_layout_of_a_world():
    for offered, before, excluded, most, most_hosts, expected in (
        ({"a": 2, "b": 2}, (), set(), 3, None, (("a", (0, 1)), ("b", (0,)))),
        ({"a": 2, "b": 2}, (("b", (0, 1)),), set(), None, None, (("b", (0, 1)), ("a", (0, 1)))),
        ({"a": 2, "b": 2}, (), {("a", 0)}, None, None, (("a", (1,)), ("b", (0, 1)))),
        ({"a": 2, "b": 2, "c": 2}, (), set(), None, 2, (("a", (0, 1)), ("b", (0, 1)))),
        ({"a": 3}, (("a", (1, 2)),), set(), 2, None, (("a", (1, 2)),)),
        ({}, (("a", (0,)),), set(), None, None, ()),
    ):
        found = chosen_layout(
            offered.items(), before=before, excluded=excluded, most=most, most_hosts=most_hosts
        )
        assert found == expected


def test_the_commit_to_go_on_from():
    for held, expected in (
        ({}, 0),
        ({"a": (4, 5), "b": (5, 6)}, 5),
        ({"a": (5, 6), "b": (5, 6), "new": ()}, 6),
        ({"old run": (500,), "a": (39, 40), "b": (40, 41), "c": (41, 42)}, 41),
        ({"late": (5, 6), "a": (9, 10), "b": (9, 10), "new": ()}, 10),
    ):
        assert common_commit(held) == expected


def test_how_the_ranks_of_a_generation_are_numbered():
    for present, restore_hosts, expected in (
        # A new rank has the number of the one before it; new hosts come last.
        ({("a", 0): 0, ("a", 1): 9, ("b", 0): 2, ("b", 1): 3}, (), [0, 9, 2, 3]),
        ({("new", 0): 9, ("b", 0): 2, ("b", 1): 3}, (), [2, 3, 9]),
        # Rank 0 has trained and holds the commit: another host comes first, or another rank of the only one.
        ({("a", 0): 9, ("a", 1): 1, ("b", 0): 2, ("b", 1): 3}, (), [2, 3, 9, 1]),
        ({("a", 0): 9, ("a", 1): 1, ("b", 0): 2, ("b", 1): 3}, ("a",), [1, 9, 2, 3]),
        ({("a", 0): 9, ("a", 1): 1, ("b", 0): 10, ("b", 1): 3}, ("a", "b"), [1, 9, 10, 3]),
        ({("a", 0): 9, ("a", 1): 10, ("b", 0): 11}, (), [9, 10, 11]),
    ):
        order = generation_order(present, before=(0, 1, 2, 3), restore_hosts=restore_hosts)
        assert [incarnation for _, incarnation in order] == expected


def test_a_survivor_that_notices_first_is_not_blamed():
    job = running()
    del job.ranks[1]
    job.ranks[0].generation, job.ranks[0].waits = 0, True
    job.tell("rank_waiting", incarnation=0, after=1, reason="reset")
    assert job.state.trouble.why == "rank 0 on h1 left the generation: reset"
    job.tell("rank_ended", incarnation=1, signal=9)
    assert job.state.trouble.why == "rank 1 on h1 was killed by SIGKILL"
    assert job.settle() is Phase.RUNNING


def test_while_all_hosts_are_out_the_job_waits_for_one_that_comes_back():
    job = running(hosts={"h1": 2}, exclude_hosts=True, cooldown=(1.0, 2.0), fixed_hosts=True, timeout=100.0)
    job.kill_rank(1, code=1)
    job.offer()
    job.settle(seconds=50)
    assert phase_of(job.state) is Phase.GATHERING and job.excluded == ["h1"]
    job.offer(h1=2)
    assert job.settle() is Phase.RUNNING and incarnations(job) == (2, 3)
    job.kill_rank(3, code=1)
    job.offer()
    began = job.now
    job.settle()
    assert job.finished and job.state.result.exit_code == 1 and job.now >= began + 100
    assert "none came within 100 s" in job.state.result.reason


def started(ranks=2):
    """Return a job whose ranks run and have not called init."""
    job = Simulation(limits=Limits(min_np=ranks))
    job.offer(h1=ranks)
    job.hosts["h1"] = True
    job.tell("host_ready", host="h1", slots=ranks)
    assert len(job.ranks) == ranks
    return job


def test_a_rank_that_returns_before_the_others_have_called_init():
    for fact, code, reason in (
        (message("rank_ended", incarnation=0, exit_code=0), 0, ""),
        (message("rank_ended", incarnation=0, exit_code=5), 5, "after another one had returned"),
        (message("rank_waiting", incarnation=0, after=0), 3, "without calling init"),
    ):
        job = started()
        job.tell("rank_ended", incarnation=1, exit_code=0)
        assert job.state.result is None and len(job.ranks) == 2
        job.tell(**fact)
        assert job.state.result.exit_code == code and reason in job.state.result.reason


def test_what_a_new_rank_saw_before_the_generation_began_does_not_count():
    job = running(hosts={"h1": 2})
    job.commit(5)
    job.offer(h1=3)
    assert max(job.ranks) == 2
    for commits in ((), (4, 5), (6, 7)):
        job.tell("rank_waiting", incarnation=2, after=0, commits=commits)
        assert job.state.hosts["h1"].commits == (5,)


def test_a_host_holds_what_its_rank_says_when_it_leaves():
    job = running(hosts={"h1": 2})
    for number in (5, 6):
        job.commit(number)
    job.commits["h1"] = {6}  # commit 7 was being written in the place of commit 5
    job.kill_rank(1)
    job.answer(0)
    assert job.state.hosts["h1"].commits == (6,)


def test_a_host_that_says_it_goes_is_left_without_waiting_for_new_ranks():
    job = running()
    job.commit(4)
    job.offer(h1=2, h2=2, h3=2)
    job.answer(0)  # h3 is there
    rest = [number for number, rank in job.ranks.items() if rank.host == "h3"]
    assert len(rest) == 2 and job.state.next_world == 2
    job.pending = [one for one in job.pending if not _of_ranks(one, job, rest)]  # they import
    job.tell("notice", host="h2", why="SIGTERM")
    assert job.state.next_world == 3 and job.worlds[3].layout == (("h1", (0, 1)),)
    job.ranks[rest[0]].waits = True
    job.tell("rank_waiting", incarnation=rest[0])
    assert job.state.next_world == 3, "one is ready before the world is"
    while job.pending:
        job.answer(0)
    job.commit(5)
    while job.pending:
        job.answer(0)
    assert last(job).hosts == ["h1"] and last(job).restore == 5
    job.ranks[rest[1]].waits = True
    job.tell("rank_waiting", incarnation=rest[1])
    assert job.settle() is Phase.RUNNING
    assert last(job).hosts == ["h1", "h3"] and set(job.hosts) == {"h1", "h3"}
    assert set(rest) < set(incarnations(job)), "they were not started anew"


def _of_ranks(answer, job, numbers):
    fact = answer()
    if fact and fact["do"] == "rank_waiting":
        job.ranks[fact["incarnation"]].waits = False
        return fact["incarnation"] in numbers
    return False


@given(
    layout=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    trained=st.sets(st.integers(0, 11), min_size=1),
    holders=st.sets(st.integers(0, 3)),
)
def test_rank_0_has_trained_and_all_hosts_but_its_own_keep_the_order_of_their_slots(layout, trained, holders):
    slots = [(f"h{host}", slot) for host, count in enumerate(layout) for slot in range(count)]
    present = {slot: number if number in trained else 100 + number for number, slot in enumerate(slots)}
    before = [number for number in present.values() if number < 100]
    restore = {f"h{host}" for host in holders}
    order = generation_order(present, before=before, restore_hosts=restore)
    assert dict(order) == present
    hosts = list(dict.fromkeys(host for (host, _), _ in order))
    runs = {host: [slot for (name, slot), _ in order if name == host] for host in hosts}
    assert [slot for host in hosts for slot in runs[host]] == [slot for (_, slot), _ in order], "together"
    for host in hosts[1:]:
        assert runs[host] == sorted(runs[host])
    able = [host for host in hosts if host in restore] or hosts
    assert hosts[0] in able
    if any(present[host, slot] < 100 for host in able for slot in runs[host]):
        assert order[0][1] < 100
    if any(present[host, 0] < 100 for host in able):
        assert runs[hosts[0]] == sorted(runs[hosts[0]])


def test_hosts_that_are_all_replaced_hand_their_state_over_first():
    for limits in ({}, {"max_np": 4}, {"max_hosts": 2}):
        job = running(**limits)
        job.commit(3)
        job.offer(h3=2, h4=2)
        assert job.settle() is Phase.RUNNING
        orders = [job.told[number] for number in sorted(job.told)]
        for before, after in pairwise(orders):
            old = {member.incarnation for member in before.members}
            assert old & {member.incarnation for member in after.members}, "somebody has the state"
            assert after.restore >= 3
        assert set(last(job).hosts) == {"h3", "h4"} and len(orders) == 3
        assert set(job.hosts) == {"h3", "h4"} and len(job.ranks) == 4


def test_too_few_hosts_are_waited_for_and_then_given_up():
    job = running(min_np=3, timeout=100.0)
    job.lose_host("h2")
    while phase_of(job.state) is not Phase.GATHERING:
        job.now += 0.2
        job.tell("tick")
    began = job.now
    job.offer(h1=2, h3=2)
    assert job.settle() is Phase.RUNNING and job.now < began + 100
    assert last(job).hosts == ["h1", "h3"]
    job.lose_host("h3")
    job.settle()
    assert job.finished and job.state.result.exit_code == 3
    assert "2 slots that can take ranks, 3 needed; none came within 100 s" in job.state.result.reason


def test_a_host_that_reads_a_file_is_not_refused_while_it_makes_progress():
    job = Simulation(limits=Limits(start_timeout=60.0))
    job.offer(h1=2)
    (ready,), job.pending = job.pending, []
    for _ in range(5):
        job.now += 50
        job.tell("checkpoint_loading", host="h1")
    job.pending = [ready]
    assert job.settle() is Phase.RUNNING
    job.tell("checkpoint_loading", host="h1")  # it is ready: nothing is waited for
    assert job.state.hosts["h1"].deadline is None


class Thousands:
    """A job of hosts with 8 ranks each, whose messages are decided as a session does: all alike together."""

    def __init__(self, size):
        self.state = State(limits=Limits(rank_restarts=100))
        self.hosts = tuple((f"h{number}", 8) for number in range(size // 8))

    def begin(self):
        """Form generation 1; return its ranks."""
        orders = decide(self.state, [message("hosts_seen", hosts=self.hosts)], 0.0)
        ready = [message("host_ready", host=order["host"], slots=8) for order in orders]
        orders = decide(self.state, ready, 1.0)
        (world,) = [order for order in orders if order["do"] == "start_world"]
        spawned = [order["incarnation"] for order in orders if order["do"] == "spawn"]
        assert size_of(world["layout"]) == len(spawned) == 8 * len(self.hosts)
        self.form(world, spawned, 1, 2.0)
        return spawned

    def form(self, world, ranks, number, now):
        """All proxies of a world are ready, and all ranks take part in its generation."""
        proxies = range(size_of(world["layout"]))
        words = [message("proxy_ready", world=world["world"], world_rank=rank) for rank in proxies]
        assert not decide(self.state, words, now)
        waiting = [
            message("rank_waiting", incarnation=one, after=number - 1, arrival=f"arrival {one}")
            for one in ranks
        ]
        orders = decide(self.state, waiting, now + 0.5)
        (begun,) = [order for order in orders if order["do"] == "generation"]
        assert sorted(one[0] for one in begun["members"]) == sorted(ranks)
        assert sorted(begun["arrivals"]) == sorted(f"arrival {one}" for one in ranks)
        attached = [message("rank_attached", incarnation=one, generation=number) for one in ranks]
        decide(self.state, attached, now + 1)
        assert phase_of(self.state) is Phase.RUNNING


def whole_life(size):
    """A host is lost, the next generation has the others, and all of them return."""

    def run():
        job = Thousands(size)
        job.begin()
        state = job.state
        gone = [one for one, rank in state.ranks.items() if rank.host == "h1"]
        decide(state, [message("rank_gone", incarnation=one) for one in gone], 10.0)
        orders = decide(state, [message("host_lost", host="h1", why="it is silent")], 10.0)
        assert [order["do"] for order in orders if order["do"] == "end_generation"]
        orders = decide(state, [message("tick")], 11.0)
        left = list(state.ranks)
        job.form(next(order for order in orders if order["do"] == "start_world"), left, 2, 12.0)
        words = [("rank_detached", {"generation": state.last_generation}), ("rank_gone", {})]
        for do, more in (*words, ("rank_ended", {"exit_code": 0})):
            orders = decide(state, [message(do, incarnation=one, **more) for one in left], 20.0)
        assert phase_of(state) is Phase.OVER and orders[-1]["do"] == "finish"

    return run


def failures_of_all(size):
    """All ranks fail in different ways, and are replaced."""
    job = Thousands(size)
    ended = [message("rank_ended", incarnation=one, exit_code=1 + one % 100) for one in job.begin()]

    def run():
        orders = decide(job.state, ended, 10.0)
        assert len([order for order in orders if order["do"] == "spawn"]) == size

    return run


@pytest.mark.parametrize("act", [whole_life, failures_of_all])
def test_what_is_decided_grows_with_the_ranks(act):
    """What all report is decided together: looking at all ranks for each of them would take minutes."""
    assert growth(act, 64, 512) < 1.2


@pytest.mark.parametrize("name", sorted(NEWS.keys() & HOST_MESSAGES.keys()))
def test_a_host_agents_message_has_what_the_decider_reads(name):
    wanted = set(signature(NEWS[name]).parameters) - {"state", "host", "_"}
    assert wanted <= set(HOST_MESSAGES[name])


@pytest.mark.parametrize(
    ("silent", "hosts"), [({"h1", "h2"}, {"h1", "h2"}), ({"h2"}, {"h1"})], ids=["all of them", "one"]
)
def test_hosts_that_say_nothing_are_left_out_where_others_do_not(silent, hosts):
    """Where nothing comes from any host the hosts are not to blame: the next world is of all of them."""
    job = Simulation(limits=Limits(start_timeout=60.0))
    answer = job._proxy_answer

    def proxy_answer(order, rank):
        is_silent = order.world == 1 and slots_of(order.layout)[rank][0] in silent
        return None if is_silent else answer(order, rank)

    job._proxy_answer = proxy_answer
    job.offer(h1=2, h2=2)
    assert job.settle() is Phase.RUNNING, job.log
    assert {host for host, _ in job.worlds[2].layout} == hosts and len(last(job).members) == 2 * len(hosts)
    assert set(job.excluded) == {"h1", "h2"} - hosts

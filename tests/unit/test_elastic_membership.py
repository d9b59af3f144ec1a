"""The decider of elastic jobs, by tables: what happens, and what it makes of it."""

from __future__ import annotations

from inspect import signature
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.elastic_simulation import Member, Phase, Simulation, message, phase_of

from ringleader.agents.protocol import HOST_MESSAGES
from ringleader.launch.elastic.layout import chosen_layout, common_commit, generation_order, size_of
from ringleader.launch.elastic.membership import TIDY_SECONDS, decide
from ringleader.launch.elastic.membership_messages import NEWS
from ringleader.launch.elastic.membership_state import Limits, State
from ringleader.launch.elastic_history import line_of


def running(*, hosts: dict[str, int] | None = None, **limits) -> Simulation:
    """Return a job that trains."""
    job = Simulation(limits=Limits(**limits))
    job.offer(**(hosts or {"h1": 2, "h2": 2}))
    assert job.settle() is Phase.RUNNING, job.log
    return job


def incarnations(job: Simulation) -> tuple[int, ...]:
    return tuple(member.incarnation for member in job.told[max(job.told)].members)


def last(job: Simulation) -> Any:
    return job.told[max(job.told)]


@pytest.mark.parametrize(
    ("offered", "before", "excluded", "most", "most_hosts", "expected"),
    [
        ({"a": 2, "b": 1}, (), set(), None, None, (("a", (0, 1)), ("b", (0,)))),
        ({"a": 2, "b": 2}, (), set(), 3, None, (("a", (0, 1)), ("b", (0,)))),
        ({"a": 2, "b": 2}, (("b", (0, 1)),), set(), None, None, (("b", (0, 1)), ("a", (0, 1)))),
        ({"a": 2, "b": 2}, (), {("a", 0)}, None, None, (("a", (1,)), ("b", (0, 1)))),
        ({"a": 2, "b": 2}, (), {("a", 0), ("a", 1)}, None, None, (("b", (0, 1)),)),
        ({"a": 2, "b": 2, "c": 2}, (), set(), None, 2, (("a", (0, 1)), ("b", (0, 1)))),
        ({"a": 3}, (("a", (1, 2)),), set(), 2, None, (("a", (1, 2)),)),
        ({}, (("a", (0,)),), set(), None, None, ()),
    ],
)
def test_the_layout_of_a_world(offered, before, excluded, most, most_hosts, expected):
    found = chosen_layout(offered.items(), before=before, excluded=excluded, most=most, most_hosts=most_hosts)
    assert found == expected


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({}, 0),
        ({"a": (), "b": ()}, 0),
        ({"a": (4, 5), "b": (5, 6)}, 5),
        ({"a": (5, 6), "b": (5, 6), "new": ()}, 6),
        ({"a": (1, 2), "b": (7, 8)}, 8),
        ({"old run": (500,), "a": (40, 39), "b": (40,), "c": (40, 39)}, 40),
        ({"old run": (500,), "a": (39, 40), "b": (40, 41), "c": (41, 42)}, 41),
        ({"late": (5, 6), "a": (9, 10), "b": (9, 10), "new": ()}, 10),
    ],
)
def test_the_commit_to_go_on_from(held, expected):
    assert common_commit(held) == expected


@pytest.mark.parametrize(
    ("present", "restore_hosts", "expected"),
    [
        ({("a", 0): 0, ("a", 1): 9, ("b", 0): 2, ("b", 1): 3}, (), [0, 9, 2, 3]),
        ({("a", 0): 0, ("a", 1): 1, ("b", 0): 9, ("b", 1): 3}, ("a", "b"), [0, 1, 9, 3]),
        ({("a", 0): 9, ("a", 1): 1, ("b", 0): 2, ("b", 1): 3}, (), [2, 3, 9, 1]),
        ({("a", 0): 9, ("a", 1): 1, ("b", 0): 2, ("b", 1): 3}, ("a",), [1, 9, 2, 3]),
        ({("a", 0): 9, ("a", 1): 1, ("b", 0): 10, ("b", 1): 3}, ("a", "b"), [1, 9, 10, 3]),
        ({("a", 0): 9, ("a", 1): 1}, (), [1, 9]),
        ({("a", 0): 0, ("a", 1): 1, ("b", 0): 2, ("b", 1): 3}, ("b",), [2, 3, 0, 1]),
        ({("new", 0): 9, ("b", 0): 2, ("b", 1): 3}, (), [2, 3, 9]),
        ({("a", 0): 9, ("a", 1): 10, ("b", 0): 11}, (), [9, 10, 11]),
    ],
    ids=[
        "a new rank has the number of the one before it",
        "on another host, too",
        "rank 0 has trained: another host comes first",
        "another rank of the only host that holds the commit comes first",
        "where no first slot has trained, one of the first host's",
        "or of the only host's",
        "rank 0 holds the commit",
        "new hosts come last",
        "all are new",
    ],
)
def test_how_the_ranks_of_a_generation_are_numbered(present, restore_hosts, expected):
    order = generation_order(present, before=(0, 1, 2, 3), restore_hosts=restore_hosts)
    assert [incarnation for _, incarnation in order] == expected
    assert dict(order) == present


def test_a_job_starts_when_hosts_ranks_and_proxies_are_ready():
    job = running()
    assert incarnations(job) == (0, 1, 2, 3)
    assert vars(last(job)) == {
        "do": "generation",
        "number": 1,
        "world": 1,
        "restore": 0,
        "hosts": ["h1", "h2"],
        "members": [Member(incarnation=n, world_rank=n, host_index=n // 2) for n in range(4)],
        "arrivals": [""],
    }


def test_a_rank_that_is_killed_is_replaced_on_the_same_world():
    job = running()
    job.commit(1)
    job.kill_rank(1)
    ended = [line for line in job.log if "end_generation" in line]
    assert (
        "'number': 1, 'rank': 1, 'incarnation': 1, 'exit_code': None, 'signal': 9, 'host': 'h1'" in ended[0]
    )
    assert job.settle() is Phase.RUNNING
    assert incarnations(job) == (0, 4, 2, 3) and last(job).world == 1 and last(job).restore == 1
    event = job.events[-1]
    assert event.kind == "generation" and event.why == "rank 1 on h1 was killed by SIGKILL"
    assert event.commit == 1 and event.size == 4


def test_a_survivor_that_notices_first_is_not_blamed():
    job = running()
    del job.ranks[1]
    job.ranks[0].generation, job.ranks[0].waits = 0, True
    job.tell("rank_waiting", incarnation=0, after=1, reason="reset")
    assert job.state.trouble.why == "rank 0 on h1 left the generation: reset"
    job.tell("rank_ended", incarnation=1, signal=9)
    assert job.state.trouble.why == "rank 1 on h1 was killed by SIGKILL"
    assert job.settle() is Phase.RUNNING


def test_two_ranks_at_once():
    job = running()
    job.kill_rank(0)
    job.kill_rank(3)
    assert job.settle() is Phase.RUNNING
    assert incarnations(job) == (2, 5, 4, 1)


def test_each_of_two_ranks_that_fail_together_is_told_of_once():
    job = running()
    job.kill_rank(3)
    job.kill_rank(0)
    assert job.settle() is Phase.RUNNING
    lines = [text for event in job.events if (text := line_of(event))]
    assert len([line for line in lines if "rank 3 on h2 was killed by SIGKILL" in line]) == 1
    assert [line for line in lines if "rank 0" in line] == ["rank 0 on h1 was killed by SIGKILL"]


def test_a_rank_that_fails_like_one_before_that_had_its_number_is_told_of():
    job = running(hosts={"h1": 2})
    job.kill_rank(0)
    while len(job.told) < 2:
        job.answer(0)
    job.kill_rank(1)  # which is rank 0 now, while not all take part in its generation yet
    assert job.settle() is Phase.RUNNING
    lines = [text for event in job.events if "rank 0 on h1 was killed by SIGKILL" in (text := line_of(event))]
    assert len(lines) == 2 and "generation" not in lines[0] and "generation" in lines[1]


def test_a_new_rank_that_fails_before_it_takes_part_is_told_of():
    job = running(hosts={"h1": 2})
    job.kill_rank(1)
    job.kill_rank(max(job.ranks), code=1, words="ImportError: x")
    assert job.settle() is Phase.RUNNING
    (event,) = [event for event in job.events if event.kind == "rank_failed"]
    assert line_of(event) == "a new rank on h1 ended with exit code 1 (ImportError: x)"


def test_the_end_names_the_rank_that_failed_first_and_the_last_one():
    job = running(hosts={"h1": 2}, min_np=2, rank_restarts=0, timeout=50.0)
    job.kill_rank(1)
    job.kill_rank(0, code=7, words="HorovodInternalError: rank 1")
    job.settle()
    assert job.finished and job.state.result.exit_code == 137 and job.state.result.whose == "rank 1"
    assert job.state.result.reason.startswith("rank 1 on h1 was killed by SIGKILL; rank 0 on h1 ended with")


def test_the_end_names_the_host_that_was_lost():
    job = running(min_np=4, fixed_hosts=True)
    job.kill_rank(0)
    assert job.settle() is Phase.RUNNING
    job.lose_host("h2")
    job.settle()
    assert job.finished and job.state.result.exit_code == 3
    assert job.state.result.reason.startswith("h2 was lost: silent; 2 slots")


def test_a_slot_without_restarts_left_is_left_out():
    job = running(hosts={"h1": 2}, rank_restarts=2)
    for _ in range(3):
        job.kill_rank(max(job.ranks))
        assert job.settle() is Phase.RUNNING
    assert len(incarnations(job)) == 1 and last(job).world == 1
    assert any(event.kind == "slot_left_out" for event in job.events)


def test_the_last_slot_left_out_ends_the_job_with_the_ranks_code():
    job = running(hosts={"h1": 1}, rank_restarts=0)
    job.kill_rank(0)
    job.settle()
    assert job.finished and job.state.result.exit_code == 137
    assert "rank 0 on h1 was killed by SIGKILL" in job.state.result.reason


def test_horovods_way_leaves_out_the_whole_host():
    job = running(exclude_hosts=True)
    job.kill_rank(1, code=1)
    assert job.settle() is Phase.RUNNING
    assert incarnations(job) == (2, 3) and job.excluded == ["h1"]


@pytest.mark.parametrize("fixed_hosts", [True, False])
def test_while_all_hosts_are_out_the_job_waits_for_one_that_comes_back(fixed_hosts):
    limits = {"exclude_hosts": True, "cooldown": (1.0, 2.0), "fixed_hosts": fixed_hosts, "timeout": 100.0}
    job = running(hosts={"h1": 2}, **limits)
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


def started(ranks: int = 2) -> Simulation:
    """Return a job whose ranks run and have not called init."""
    job = Simulation(limits=Limits(min_np=ranks))
    job.offer(h1=ranks)
    job.hosts["h1"] = True
    job.tell("host_ready", host="h1", slots=ranks)
    assert len(job.ranks) == ranks
    return job


def test_ranks_that_call_no_init_run_to_their_ends():
    job = started()
    job.tell("rank_ended", incarnation=1, exit_code=0)
    assert job.state.result is None and len(job.ranks) == 2
    job.tell("rank_ended", incarnation=0, exit_code=0)
    assert job.state.result.exit_code == 0


@pytest.mark.parametrize(
    ("fact", "code", "reason"),
    [
        (message("rank_ended", incarnation=0, exit_code=5), 5, "after another one had returned"),
        (message("rank_waiting", incarnation=0, after=0), 3, "without calling init"),
    ],
)
def test_a_rank_that_returns_before_the_others_have_called_init(fact, code, reason):
    job = started()
    job.tell("rank_ended", incarnation=1, exit_code=0)
    job.tell(**fact)
    assert job.state.result.exit_code == code and reason in job.state.result.reason


def test_a_lost_host_means_a_new_world_of_the_others():
    job = running(hosts={"h1": 2, "h2": 2, "h3": 2})
    job.commit(7)
    job.lose_host("h1")
    assert job.settle() is Phase.RUNNING
    assert incarnations(job) == (2, 3, 4, 5) and last(job).world == 2 and last(job).restore == 7
    assert last(job).hosts == ["h2", "h3"]
    assert job.excluded == ["h1"]


def test_a_commit_that_a_host_has_dropped_is_not_gone_on_from():
    job = running()
    job.commit(5)
    job.commit_on(["h1"], 6)
    assert job.settle() is Phase.RUNNING and last(job).restore == 5, "only h1 held commit 6"
    job.lose_host("h2")
    assert job.settle() is Phase.RUNNING
    assert last(job).restore == 5 and job.state.hosts["h1"].commits == (5,)


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


def test_a_host_that_says_it_goes_is_left_though_another_one_is_being_started():
    job = running()
    job.offer(h1=2, h2=2, h3=2)
    job.pending.clear()  # h3 does not answer
    job.tell("notice", host="h2", why="SIGTERM")
    assert job.state.next_world, "what is ready is planned with"
    while job.pending:
        job.answer(0)
    job.commit(5)
    while job.pending:
        job.answer(0)
    assert last(job).hosts == ["h1"] and phase_of(job.state) is Phase.RUNNING


@pytest.mark.parametrize("waits", [False, True])
def test_a_host_that_says_it_goes_is_left_without_waiting_for_new_ranks(waits):
    job = running()
    job.commit(4)
    job.offer(h1=2, h2=2, h3=2)
    job.answer(0)  # h3 is there
    rest = [number for number, rank in job.ranks.items() if rank.host == "h3"]
    assert len(rest) == 2 and job.state.next_world == 2
    job.pending = [one for one in job.pending if not _of_ranks(one, job, rest)]  # they import
    job.tell("notice", host="h2", why="SIGTERM")
    assert job.state.next_world == 3 and job.worlds[3].layout == (("h1", (0, 1)),)
    if waits:  # one is ready before the world is
        job.ranks[rest[0]].waits = True
        job.tell("rank_waiting", incarnation=rest[0])
        assert job.state.next_world == 3
    while job.pending:
        job.answer(0)
    job.commit(5)
    while job.pending:
        job.answer(0)
    assert last(job).hosts == ["h1"] and last(job).restore == 5
    for number in rest[waits:]:
        job.ranks[number].waits = True
        job.tell("rank_waiting", incarnation=number)
    assert job.settle() is Phase.RUNNING
    assert last(job).hosts == ["h1", "h3"] and set(job.hosts) == {"h1", "h3"}
    assert set(rest) < set(incarnations(job)), "they were not started anew"


def _of_ranks(answer, job, numbers) -> bool:
    fact = answer()
    if fact and fact["do"] == "rank_waiting":
        job.ranks[fact["incarnation"]].waits = False
        return fact["incarnation"] in numbers
    return False


def test_ranks_that_were_told_of_a_change_make_it_though_another_one_follows():
    job = running()
    job.offer(h1=2, h2=2, h3=2)
    job.settle(commits=False)
    assert job.notified and job.state.notified == 2
    job.offer(h1=2, h2=2, h3=2, h4=2)
    job.settle(commits=False)
    assert job.state.next_world == 2 and 2 in job.worlds
    job.commit(5)
    assert job.settle() is Phase.RUNNING
    assert last(job).hosts == ["h1", "h2", "h3", "h4"]
    told = [event for event in job.events if event.kind == "generation"]
    assert [event.size for event in told] == [4, 6, 8]
    assert [event.why for event in told[1:]] == ["the hosts changed", "the hosts changed"]


def test_a_lost_host_is_the_cause_though_its_ranks_were_missed_first():
    job = running()
    job.commit(3)
    job.tell("rank_ended", incarnation=2, words="its agent is gone without a word")
    assert "rank 2 on h2 is gone" in job.state.trouble.why
    job.lose_host("h2")
    assert job.settle() is Phase.RUNNING
    assert job.events[-1].kind == "generation" and job.events[-1].why == "h2 was lost: silent"


def test_a_lost_mpirun_costs_no_rank():
    job = running()
    job.lose_world(1)
    assert job.settle() is Phase.RUNNING
    assert incarnations(job) == (0, 1, 2, 3) and last(job).world == 2


def test_a_new_host_is_joined_at_a_commit_and_the_old_world_ends_after_that():
    job = running(hosts={"h1": 2})
    job.offer(h1=2, h2=2)
    job.settle(commits=False)
    assert phase_of(job.state) is Phase.PREPARING and job.notified
    assert "'preparing': True" in "".join(job.log)
    assert [rank.waits for rank in job.ranks.values()] == [False, False, True, True]
    assert set(job.worlds) == {1, 2}
    job.commit(5)
    assert job.settle() is Phase.RUNNING
    assert incarnations(job) == (0, 1, 2, 3) and last(job).restore == 5
    assert set(job.worlds) == {2}
    assert "'counter': 1, 'result': 1" in "".join(job.log)
    assert not job.state.preparing and "'preparing': False" in "".join(job.log)


def test_a_removed_host_is_left_at_a_commit():
    job = running()
    job.offer(h2=2)
    assert job.settle() is Phase.RUNNING
    assert incarnations(job) == (2, 3) and "'counter': 1, 'result': 2" in "".join(job.log)
    assert set(job.hosts) == {"h2"} and "'end_host', 'host': 'h1'" in "".join(job.log)


def test_what_is_not_needed_ends_when_the_first_steps_are_over():
    job = running()
    job.offer(h2=2)
    job.settle(commits=False)
    job.commit(5)
    while job.pending:
        job.answer(0)
    assert phase_of(job.state) is Phase.RUNNING and last(job).members[0].incarnation == 2
    assert set(job.worlds) == {1, 2} and set(job.ranks) == {0, 1, 2, 3} and set(job.hosts) == {"h1", "h2"}
    job.now += TIDY_SECONDS + 0.01
    job.tell("tick")
    while job.pending:
        job.answer(0)
    assert set(job.worlds) == {2} and set(job.ranks) == {2, 3} and set(job.hosts) == {"h2"}


def test_a_host_that_comes_back_at_once_finds_its_ranks():
    job = running()
    job.offer(h2=2)
    job.settle(commits=False)
    job.commit(5)
    while job.pending:
        job.answer(0)
    job.offer(h1=2, h2=2)
    assert job.settle() is Phase.RUNNING
    assert set(incarnations(job)) == {0, 1, 2, 3}


@pytest.mark.parametrize("killed", [(), (0,), (3, 1), (0, 2)])
def test_ranks_that_exchange_between_hosts_are_those_of_the_same_slots(killed):
    """Proxies have made communicators of these when their world began."""
    job = running()
    for incarnation in killed:
        job.kill_rank(incarnation)
        assert job.settle() is Phase.RUNNING
    for offer in ({"h1": 2, "h2": 2, "h3": 2}, {"h2": 2, "h3": 2}, {"h3": 2, "h1": 2, "h2": 2}):
        job.commit(5)
        job.offer(**offer)
        assert job.settle() is Phase.RUNNING
        members = last(job).members
        assert all(member.world_rank % 2 == rank % 2 for rank, member in enumerate(members))


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


def test_a_short_time_for_hosts_is_none_for_ranks():
    job = Simulation(limits=Limits(min_np=2, timeout=1.0, start_timeout=30.0))
    job.offer(h1=2)
    job.hosts["h1"] = True
    job.tell("host_ready", host="h1", slots=2)
    job.now += 20.0
    job.tell("tick")
    assert len(job.ranks) == 2
    job.now += 20.0
    job.tell("tick")
    assert not job.ranks


def test_two_names_of_a_machine_are_two_hosts_of_one_machine_of_the_mpis():
    job = Simulation(limits=Limits(exclude_hosts=True), machines={"localhost": "m", "127.0.0.1": "m"})
    job.offer(localhost=2, h2=2)
    job.settle()
    job.offer(localhost=2, h2=2, **{"127.0.0.1": 2})
    assert job.settle() is Phase.RUNNING
    assert [host for host, _ in job.worlds[max(job.worlds)].layout] == ["localhost", "127.0.0.1", "h2"]
    assert last(job).hosts == ["localhost", "h2", "127.0.0.1"], "new ranks come last"
    assert [member.world_rank for member in last(job).members] == [0, 1, 4, 5, 2, 3]
    job.kill_rank(0)
    assert job.settle() is Phase.RUNNING
    assert last(job).hosts == ["h2", "127.0.0.1"] and job.excluded == ["localhost"]


@pytest.mark.parametrize("limits", [{}, {"max_np": 4}, {"max_hosts": 2}])
def test_hosts_that_are_all_replaced_hand_their_state_over_first(limits):
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


def test_a_host_that_says_it_leaves_is_left():
    job = running()
    job.tell("notice", host="h2", why="SIGTERM")
    assert job.settle() is Phase.RUNNING
    assert incarnations(job) == (0, 1)


def test_a_host_that_left_and_is_on_offer_still_may_come_back():
    """The source may never have been without its name: another Pod has it by now."""
    job = running()
    job.tell("notice", host="h2", why="SIGTERM")
    job.settle()
    assert "h2" not in job.hosts and job.excluded == ["h2"]
    job.offer(h1=2)  # while it is out
    job.settle()
    job.offer(h1=2, h2=2)
    assert job.settle() is Phase.RUNNING
    assert last(job).hosts == ["h1", "h2"]


def test_a_host_below_the_least_is_not_left():
    job = running(min_np=4)
    job.offer(h1=2)
    assert job.settle() is Phase.RUNNING
    assert incarnations(job) == (0, 1, 2, 3)


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


def test_a_rank_that_dies_while_the_next_world_starts_is_replaced_on_the_present_one():
    job = running(hosts={"h1": 2})
    job.offer(h1=2, h2=2)
    job.answer(0)
    assert phase_of(job.state) is Phase.PREPARING
    job.kill_rank(1)
    assert job.settle() is Phase.RUNNING
    assert len(incarnations(job)) == 4 and 0 in incarnations(job) and 1 not in incarnations(job)


def test_a_rank_that_dies_during_the_switch():
    job = running(hosts={"h1": 2})
    job.offer(h1=2, h2=2)
    job.settle(commits=False)
    job.commit(5)
    job.answer(0)
    assert job.state.generation is None and job.state.trouble.why == "the hosts changed"
    job.kill_rank(1)
    assert job.settle() is Phase.RUNNING
    assert len(incarnations(job)) == 4 and incarnations(job)[0] == 0


def test_all_ranks_that_fail_alike_end_the_job():
    job = running()
    for rank in range(4):
        job.kill_rank(rank, code=1, words=f"ValueError: {rank}")
    job.settle()
    assert job.finished and job.state.result.exit_code == 1
    assert "rank 0 on h1 ended with exit code 1 (ValueError: 0)" in job.state.result.reason


def test_a_script_that_fails_before_its_first_init_ends_the_job():
    job = Simulation()
    job.offer(h1=2)
    job.answer(0)
    for rank in range(2):
        job.now += 5
        job.kill_rank(rank, code=1, words="SyntaxError: invalid syntax")
    job.settle()
    assert job.finished and job.state.result.exit_code == 1


def test_ranks_that_return_are_not_replaced_and_end_the_job():
    job = running()
    for rank in range(4):
        job.give_back(rank)
    assert job.finished and job.state.result.exit_code == 0


def test_ranks_that_leave_one_after_the_other_at_the_end_start_no_world():
    job = running()
    for rank in range(4):
        job.ranks[rank].generation = 0
        job.tell("rank_detached", incarnation=rank, generation=1)
    assert set(job.state.worlds) == {1}


def past_the_last_commit(job: Simulation) -> None:
    for rank in job.ranks.values():
        rank.past = True


def leaves(job: Simulation, host: str, how: str) -> None:
    """A host leaves by a notice, or because the source of hosts names it no more; what follows is done."""
    if how == "notice":
        job.tell("notice", host=host, why="SIGTERM")
    else:
        job.offer(**{name: 2 for name in job.hosts if name != host})
    job.settle(commits=False)


@pytest.mark.parametrize("how", ["notice", "removed"])
@pytest.mark.parametrize("hosts", [("h1",), ("h1", "h2")])
@pytest.mark.parametrize("together", [True, False])
def test_ranks_past_their_last_commit_return_though_a_host_leaves(how, hosts, together):
    job = running(hosts=dict.fromkeys(hosts, 2))
    past_the_last_commit(job)
    leaves(job, hosts[-1], how)
    if together:
        for step in range(3 * len(job.ranks)):
            job.finish_step(step % (2 * len(hosts)))
    else:
        for rank in range(2 * len(hosts)):
            job.give_back(rank)
    assert job.finished and job.state.result.exit_code == 0, job.state.result
    assert job.state.last_generation == 1 and len(job.state.spawned) == 2 * len(hosts)


@pytest.mark.parametrize("how", ["notice", "removed"])
def test_a_host_that_leaves_when_a_rank_has_returned_changes_nothing(how):
    job = running()
    past_the_last_commit(job)
    job.give_back(0)
    leaves(job, "h2", how)
    assert not job.finished and phase_of(job.state) is Phase.RUNNING
    for rank in range(1, 4):
        job.give_back(rank)
    assert job.finished and job.state.result.exit_code == 0


def test_the_end_of_a_world_does_not_end_ranks_that_return():
    job = running()
    past_the_last_commit(job)
    job.give_back(3)
    job.lose_world(1)
    job.now += 1
    job.tell("tick")
    for rank in range(3):
        job.give_back(rank)
    assert job.finished and job.state.result.exit_code == 0


def test_a_host_whose_ranks_have_returned_may_be_lost():
    job = running()
    past_the_last_commit(job)
    job.give_back(2)
    job.give_back(3)
    job.lose_host("h2")
    job.give_back(0)
    job.give_back(1)
    assert job.finished and job.state.result.exit_code == 0


def test_a_host_that_is_lost_with_a_rank_after_others_have_returned_ends_the_job():
    job = running()
    past_the_last_commit(job)
    for rank in range(3):
        job.give_back(rank)
    job.lose_host("h2")
    job.settle()
    assert job.finished and job.state.result.exit_code == 3
    assert job.state.result.reason == "h2 was lost: silent, after a rank of the job had returned"


def test_no_rank_is_killed_for_a_change_of_hosts_after_another_one_has_returned():
    """The others have more to do than the first: nobody waits for them to leave for another world."""
    job = running(hang_seconds=20.0)
    past_the_last_commit(job)
    leaves(job, "h2", "notice")
    job.give_back(0)
    job.now += 1000
    job.tell("tick")
    for rank in range(1, 4):
        job.give_back(rank)
    assert job.finished and job.state.result.exit_code == 0


def test_a_failure_after_another_rank_returned_is_the_jobs():
    job = running()
    job.give_back(0)
    job.kill_rank(1)
    job.settle()
    assert job.finished and job.state.result.exit_code == 137


@pytest.mark.parametrize("waits_first", [True, False])
@pytest.mark.parametrize("host_leaves", [True, False])
def test_a_rank_that_wants_another_generation_after_one_has_returned_waits_for_nobody(
    waits_first, host_leaves
):
    job = running(hosts={"h1": 2})
    if host_leaves:
        leaves(job, "h1", "notice")
    for rank in range(2):
        job.ranks[rank].generation = 0
        job.tell("rank_detached", incarnation=rank, generation=1)
    facts = [
        message("rank_waiting", incarnation=1, after=1),
        message("rank_ended", incarnation=0, exit_code=0),
    ]
    for fact in facts if waits_first else reversed(facts):
        job.tell(**fact)
    job.settle()
    assert job.finished and job.state.result.exit_code == 3
    assert (
        job.state.result.reason == "rank 1 on h1 waits for the others, after a rank of the job had returned"
    )


def test_too_many_resets():
    job = running(reset_limit=1)
    job.kill_rank(0)
    assert job.settle() is Phase.RUNNING
    job.kill_rank(1)
    job.settle()
    assert job.finished and job.state.result.exit_code == 137
    assert "--reset-limit" in job.state.result.reason


def test_a_rank_that_hangs_is_ended_and_replaced():
    job = running(hang_seconds=10.0)
    job.kill_rank(0)
    job.pending = [one for one in job.pending if one() is not None and False]  # nobody answers
    job.now += 11
    job.tell("tick")
    assert "'kill', 'incarnation': 1" in "".join(job.log)


def test_a_world_that_does_not_start_is_given_up_after_three_times():
    job = Simulation()
    job.offer(h1=2)
    job.answer(0)
    for _ in range(3):
        job.lose_world(max(job.worlds))
        job.now += 0.2
        job.tell("tick")
    job.settle()
    assert job.finished and job.state.result.exit_code == 3


def test_a_host_of_a_world_that_stays_silent_is_left_out():
    job = Simulation(limits=Limits(start_timeout=60.0))
    job.offer(h1=2, h2=2)
    job.answer(0)
    job.answer(0)
    job.pending = [one for one in job.pending if not _of_host(one, job, "h2")]
    assert job.settle() is Phase.RUNNING
    assert last(job).hosts == ["h1"] and job.excluded == ["h2"]


def _of_host(answer, job, host) -> bool:
    fact = answer()
    if fact and fact["do"] == "rank_waiting":
        job.ranks[fact["incarnation"]].waits = False
    if fact and fact["do"] == "proxy_ready":
        layout = job.worlds[fact["world"]].layout
        return [name for name, slots in layout for _ in slots][fact["world_rank"]] == host
    return False


def test_a_refused_host_is_named_and_the_job_goes_on():
    job = running(hosts={"h1": 2})
    job.tell("hosts_seen", hosts=(("h1", 2), ("h2", 2)))
    job.pending.clear()
    job.tell("host_refused", host="h2", why="another torch")
    assert job.settle() is Phase.RUNNING
    assert [event.who for event in job.events if event.kind == "host_refused"] == ["h2"]


def test_a_signal_ends_everything():
    job = running()
    job.tell("stop_requested", exit_code=143, whose="ringleader", reason="stopped by SIGTERM")
    assert phase_of(job.state) is Phase.STOPPING
    job.settle()
    assert job.finished and job.state.result.exit_code == 143 and not job.hosts


def test_a_world_is_renewed_after_many_repairs():
    job = running(hosts={"h1": 2}, rank_restarts=1000)
    for _ in range(50):
        job.kill_rank(max(job.ranks))
        assert job.settle() is Phase.RUNNING
    assert last(job).world == 2


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


@pytest.mark.parametrize("size", [1024, 4096])
def test_thousands_of_ranks_form_a_generation(size):
    """What all report is decided together: looking at all ranks for each of them would take minutes."""
    hosts = {f"h{number}": 8 for number in range(size // 8)}
    state = State(limits=Limits())
    orders = decide(state, [message("hosts_seen", hosts=tuple(hosts.items()))], 0.0)
    ready = [message("host_ready", host=order["host"], slots=8) for order in orders]
    orders = decide(state, ready, 1.0)
    (world,) = [order for order in orders if order["do"] == "start_world"]
    spawned = [order["incarnation"] for order in orders if order["do"] == "spawn"]
    assert size_of(world["layout"]) == len(spawned) == size
    proxies = [message("proxy_ready", world=world["world"], world_rank=rank) for rank in range(size)]
    waiting = [message("rank_waiting", incarnation=one, arrival=f"arrival {one}") for one in spawned]
    orders = decide(state, [fact for pair in zip(proxies, waiting, strict=True) for fact in pair], 2.0)
    (begun,) = orders
    assert begun["do"] == "generation" and [one[0] for one in begun["members"]] == spawned
    assert begun["arrivals"] == [f"arrival {one}" for one in spawned]
    attached = [message("rank_attached", incarnation=one, generation=1) for one in spawned]
    orders = decide(state, attached, 3.0)
    assert phase_of(state) is Phase.RUNNING and len(orders) == 1
    orders = decide(state, [message("rank_ended", incarnation=5, signal=9)], 4.0)
    assert [order for order in orders if order["do"] == "spawn"]


@pytest.mark.parametrize("name", sorted(NEWS.keys() & HOST_MESSAGES.keys()))
def test_a_host_agents_message_has_what_the_decider_reads(name):
    wanted = set(signature(NEWS[name]).parameters) - {"state", "host", "_"}
    assert wanted <= set(HOST_MESSAGES[name])

"""Which rank others wait for: records of ranks in, one verdict out."""

import copy
import random

import pytest

from ringleader.launch.hang_verdict import Verdict, judge, read_record
from ringleader.launch.python_stacks import Line, Stack

SCRIPT = "/home/u/train.py"
STUCK = 60.0
"""Seconds that a hanging rank has waited."""


def call(number, op="all_reduce", size=8, *, done=True, age=None, group="0", dtype="Float", **more):
    """One entry of a record; by default one second apart, the last one a minute ago."""
    age = STUCK + 10 - number if age is None else age
    return {
        "group": group, "backend": "gloo", "op": op, "seq": number, "p2p": False, "sizes": [[size]],
        "dtypes": [dtype], "done": done, "age": age, **more,
    }  # fmt: skip


def record(rank, *entries, size=4, groups=None, at=None):
    groups = {"0": list(range(size)), **(groups or {})}
    return {
        "kind": "collectives",
        "pid": 1,
        "rank": rank,
        "size": size,
        "groups": groups,
        "entries": list(entries),
        "at": at,
    }


def waiting(number, **words):
    return call(number, done=False, age=STUCK, **words)


def verdict(*records, **words) -> Verdict:
    stacks = {one["rank"]: stack(one["rank"], 40, "main") for one in records} | words.pop("stacks", {})
    return judge({one["rank"]: one for one in records}, stacks=stacks, **words)


BEFORE = [call(number) for number in range(1, 5)]


def stack(rank, line, function="load"):
    return Stack(rank=rank, pid=rank, is_first=True, main=(Line(file=SCRIPT, line=line, function=function),))


def test_a_rank_that_leaves_out_a_collective_is_missing():
    found = verdict(
        *(record(rank, *BEFORE, waiting(5)) for rank in (0, 2, 3)),
        record(1, *BEFORE),
        stacks={1: stack(1, 33)},
    )
    assert (found.kind, found.ranks, found.waiting) == ("missing", (1,), (0, 2, 3))
    assert (found.operation, found.number, found.group, found.seconds) == (
        "all_reduce",
        5,
        "the default group",
        STUCK,
    )
    assert found.text == (
        "rank 1 is missing: ranks 0, 2, 3 wait in all_reduce number 5 of the default group, for 60 s now"
    )
    assert found.places == (
        "rank 1 is at train.py:33 in load; its last collective was all_reduce of [8], number 4 of the "
        "default group, 66 s ago",
        "ranks 0, 2, 3 are in all_reduce of [8] at train.py:40 in main",
    )


def test_a_rank_with_another_shape_is_named_with_both():
    found = verdict(
        *(record(rank, *BEFORE, waiting(5)) for rank in (0, 1, 3)),
        record(2, *BEFORE, waiting(5, size=9), at=[SCRIPT, 41, "main"]),
    )
    assert (found.kind, found.ranks, found.waiting) == ("shape", (2,), (0, 1, 3))
    assert "called all_reduce number 5 of the default group with another shape" in found.text
    assert found.places == (
        "rank 2 is in all_reduce of [9] at train.py:41 in main",
        "ranks 0, 1, 3 are in all_reduce of [8] at train.py:40 in main",
    )


@pytest.mark.parametrize("odd", ["dtype", "size"])
def test_another_type_is_another_shape_and_another_view_is_not(odd):
    other = {"dtype": {"dtype": "Double"}, "size": {"sizes": [[4, 2]]}}[odd]
    entries = {**waiting(5), **({"dtypes": ["Double"]} if odd == "dtype" else other)}
    found = verdict(*(record(rank, *BEFORE, waiting(5)) for rank in (0, 1, 2)), record(3, *BEFORE, entries))
    assert found.kind == {"dtype": "shape", "size": "all arrived"}[odd]


def test_a_mismatch_that_passed_accuses_nobody():
    found = verdict(record(0, call(4), waiting(5), size=2), record(1, call(4, size=9), waiting(5), size=2))
    assert (found.kind, found.number) == ("all arrived", 5)


def test_a_mismatch_that_failed_on_all_ranks_is_named():
    records = [record(rank, *BEFORE, call(5, size=9 if rank == 2 else 8, age=0.1)) for rank in range(4)]
    ended = dict.fromkeys(range(4), "failed with exit code 1")
    found = verdict(*records, ended=ended, failed=set(ended))
    assert (found.kind, found.ranks, found.number) == ("shape", (2,), 5)


def test_an_operation_whose_shapes_may_differ_has_no_other_shape():
    found = verdict(*(record(rank, *BEFORE, waiting(5, op="alltoall", size=rank + 1)) for rank in range(4)))
    assert found.kind == "all arrived" and not found.accuses


def test_another_operation_is_one_too_many_or_left_out():
    found = verdict(
        *(record(rank, *BEFORE, waiting(5)) for rank in (0, 1, 3)),
        record(2, *BEFORE, waiting(5, op="broadcast"), at=[SCRIPT, 50, "main"]),
    )
    assert (found.kind, found.ranks, found.operation) == ("operation", (2,), "all_reduce")
    assert "rank 2 is in broadcast of [8] at train.py:50 in main" in found.places


def test_operations_that_ranks_call_in_turn_are_another_order():
    one = [waiting(5), waiting(6, op="broadcast")]
    other = [waiting(5, op="broadcast"), waiting(6)]
    found = verdict(*(record(rank, *BEFORE, *one) for rank in (0, 1, 3)), record(2, *BEFORE, *other))
    assert (found.kind, found.ranks, found.number) == ("order", (2,), 5)
    assert "rank 2 has called operations in another order than the others, from number 5" in found.text


def test_two_ranks_that_disagree_are_both_named():
    found = verdict(record(0, waiting(1), size=2), record(1, waiting(1, op="barrier"), size=2))
    assert (found.kind, found.ranks, found.waiting) == ("operation", (0, 1), ())
    assert "than each other" in found.text


def test_a_dead_rank_is_named_with_its_end_however_short_the_wait():
    others = [record(rank, *BEFORE, call(5, done=False, age=0.01)) for rank in (0, 2, 3)]
    found = verdict(*others, ended={1: "ended by SIGKILL"}, failed={1})
    assert (found.kind, found.ranks) == ("missing", (1,))
    assert "rank 1 (ended by SIGKILL) is missing: ranks 0, 2, 3 wait in all_reduce number 5" in found.text


def test_ranks_whose_collective_failed_with_the_peer_are_not_the_cause():
    """Gloo's entries are retired when they fail: what failed is the last that each has called."""
    others = [record(rank, *BEFORE, call(5, age=0.02)) for rank in (0, 2, 3)]
    ended = dict.fromkeys((0, 2, 3), "failed with exit code 1") | {1: "ended by SIGKILL"}
    found = verdict(*others, ended=ended, failed=set(ended))
    assert (found.kind, found.ranks, found.number) == ("missing", (1,), 5)


def test_a_rank_that_ended_well_is_missing_only_after_a_wait():
    def found(age):
        others = [record(rank, *BEFORE, call(5, done=False, age=age)) for rank in (0, 2, 3)]
        return verdict(*others, ended={1: "ended with exit code 0"})

    assert not found(0.5).accuses
    assert found(60.0).ranks == (1,) and "(ended with exit code 0)" in found(60.0).text


def test_a_rank_that_cannot_answer_is_missing_and_noted():
    found = judge({**{rank: record(rank, *BEFORE, waiting(5)) for rank in (0, 1, 2)}, 3: None})
    assert found.ranks == (3,)
    assert found.notes == ("rank 3 did not report its collectives: it did not answer in time",)


def test_of_ranks_that_wait_for_each_other_in_groups_the_free_one_is_the_cause():
    """Rank 0 waits in group 1 for rank 1, which waits in the default group for rank 3."""
    pair = {"1": [0, 1]}
    found = verdict(
        record(0, *BEFORE, waiting(1, group="1"), groups=pair),
        record(1, *BEFORE, waiting(5), groups=pair),
        record(2, *BEFORE, waiting(5), groups=pair),
        record(3, *BEFORE, groups=pair),
    )
    assert found.kind == "missing" and found.ranks == (3,)
    assert found.number == 5


def test_a_rank_that_waits_elsewhere_is_named_where_nobody_is_free():
    pair = {"1": [0, 1]}
    found = verdict(
        record(0, waiting(1, group="1"), groups=pair, size=2), record(1, waiting(1), groups=pair, size=2)
    )
    assert found.kind == "missing" and len(found.ranks) == 1
    assert "is in all_reduce of [8], number 1 of" in found.places[0]


def test_where_all_have_arrived_no_rank_is_accused():
    found = verdict(*(record(rank, *BEFORE, waiting(5)) for rank in range(4)))
    assert found.kind == "all arrived" and not found.accuses and not found.ranks
    assert "none is missing, so look at the network" in found.text


@pytest.mark.parametrize("seed", range(30))
def test_healthy_ranks_are_not_accused(seed):
    """Ranks of one program, each a little ahead of or behind the others, some in a collective."""
    choose = random.Random(seed)
    program = [(choose.choice(["all_reduce", "broadcast"]), choose.randint(1, 9)) for _ in range(200)]
    at = choose.randint(20, 190)
    records = []
    for rank in range(4):
        mine = at + choose.randint(0, 1)
        entries = [
            call(
                number + 1,
                op,
                size,
                age=(mine - number) * 0.02 + choose.random() * 0.01,
                done=number + 1 < mine,
            )
            for number, (op, size) in enumerate(program[:mine])
        ]
        records.append(record(rank, *entries[-choose.randint(5, 160) :]))
    found = verdict(*records)
    assert found.kind == "none" and not found.accuses
    assert "nothing shows that the job hangs" in found.text


def test_a_wait_counts_by_what_is_usual_unless_somebody_says_how_long_is_too_long():
    slow = [call(number, age=20.0 * (5 - number) + 30) for number in range(1, 5)]
    late = [record(0, *slow, call(5, done=False, age=30.0), size=2), record(1, *slow, size=2)]
    assert not verdict(*late).accuses
    assert verdict(*late, least=5.0).ranks == (1,)


def test_a_slow_rank_of_which_only_late_entries_are_kept_has_not_left_the_older_ones_out():
    found = verdict(
        record(0, waiting(5), size=2), record(1, *(call(number) for number in range(100, 120)), size=2)
    )
    assert found.kind != "missing"


def test_without_records_the_rank_elsewhere_is_named_and_not_accused():
    found = judge({}, stacks={rank: stack(rank, 33 if rank == 2 else 40) for rank in range(4)})
    assert (found.kind, found.ranks, found.accuses) == ("elsewhere", (2,), False)
    assert found.text == "rank 2 is elsewhere than the others: train.py:33 in load"
    alike = judge({}, stacks={rank: stack(rank, 40) for rank in range(4)})
    assert (alike.kind, alike.text) == ("none", "all ranks are at the same place: train.py:40 in load")
    apart = judge({}, stacks={0: stack(0, 33), 1: stack(1, 40)})
    assert apart.kind == "none" and apart.text.startswith("the ranks are at different places")
    assert judge({}).text == "no rank has reported a stack or a collective"


def test_ranks_that_count_themselves_otherwise_are_not_compared():
    records = [record(rank, *BEFORE, waiting(5)) for rank in (0, 2, 3)]
    renamed = {(rank + 1) % 4: one for rank, one in zip((0, 2, 3), records, strict=True)}
    assert judge(renamed).kind == "none"


def test_uncoupled_ranks_are_worlds_of_one():
    alone = {rank: record(0, waiting(rank + 1), size=1) for rank in range(3)}
    assert judge(alone).kind == "none"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({}, "no rank"),
        ({"why": "AttributeError: _world"}, "_world"),
        ({"rank": "0", "size": 4, "groups": {}, "entries": []}, "no rank"),
        ({"rank": 0, "size": 4, "groups": [], "entries": []}, "no rank"),
        ({"rank": 0, "size": 4, "groups": {}, "entries": None}, "no rank"),
        ({"rank": True, "size": 4, "groups": {}, "entries": []}, "no rank"),
    ],
)
def test_what_is_no_record_is_refused(message, why):
    with pytest.raises(ValueError, match=why):
        read_record(message)


def test_records_of_any_shape_are_read_or_refused_and_judged():
    """Whatever a rank sends, the others are judged."""
    choose = random.Random(7)
    odd = [None, -1, 1e400, float("nan"), "", "x", [], [[]], [["a"]], {}, {"a": 1}, True, [1, 2, 3], 10**30]
    good = record(1, *BEFORE, waiting(5))
    for _ in range(3000):
        wrong = copy.deepcopy(good)
        where = wrong if choose.random() < 0.3 else choose.choice(wrong["entries"])
        where[choose.choice(list(where))] = choose.choice(odd)
        if choose.random() < 0.2:
            del where[choose.choice(list(where))]
        records = {rank: record(rank, *BEFORE, waiting(5)) for rank in (0, 2, 3)}
        str(judge({**records, 1: wrong}, stacks={1: stack(1, 3)}))


def test_records_without_entries_say_that_a_rank_has_called_nothing():
    found = verdict(record(0, waiting(1), size=2), record(1, size=2), stacks={1: stack(1, 7)})
    assert found.ranks == (1,)
    assert found.places[0] == "rank 1 is at train.py:7 in load; it has called no collective yet"


def test_what_nccls_ras_service_reports_is_added():
    ras = "#0-0 (cf264af53edbe986) MISMATCH\n  Communicator ranks have different AllReduce operation counts"
    one = {**record(0, waiting(1), size=2), "ras": ras}
    found = verdict(one, record(1, size=2))
    assert found.notes == ("NCCL's RAS service reports:", *ras.splitlines())


# --- groups that are made anew, and calls of which nothing follows ----------------------------------------

FIRST_LIFE = [call(number, age=300.0 - number) for number in range(1, 12)]
"""What a rank called in the default group before it destroyed it and made it anew."""


def test_a_group_made_anew_is_judged_by_its_new_calls():
    again = [*FIRST_LIFE, call(1)]
    found = verdict(*(record(rank, *again, waiting(2)) for rank in (0, 2, 3)), record(1, *again))
    assert (found.kind, found.ranks, found.number) == ("missing", (1,), 2)


def test_a_rank_that_dies_without_a_record_in_a_groups_second_life_is_missing():
    found = verdict(
        record(0, *FIRST_LIFE, call(1), waiting(2), size=2), ended={1: "ended by SIGKILL"}, failed={1}
    )
    assert (found.kind, found.ranks, found.number) == ("missing", (1,), 2)


def test_old_and_new_calls_of_a_group_are_not_compared():
    found = verdict(
        record(0, *FIRST_LIFE, waiting(1, op="broadcast"), size=2), record(1, *FIRST_LIFE, size=2)
    )
    assert not found.accuses


def test_of_two_calls_under_one_number_the_unfinished_counts():
    found = verdict(record(0, call(1), waiting(1), size=2), record(1, size=2), ended={1: "x"}, failed={1})
    assert (found.kind, found.ranks) == ("missing", (1,))


@pytest.mark.parametrize("age", [10**400, -(10**400), float("inf"), float("nan")])
def test_an_age_beyond_all_numbers_is_left_out(age):
    assert (
        read_record(record(0, call(1), call(2, age=age))).collectives
        == read_record(record(0, call(1))).collectives
    )


def test_nothing_follows_from_what_is_queued_behind_a_call_that_all_have_made():
    queued = [waiting(number) for number in range(5, 14)]
    found = verdict(record(0, *BEFORE, waiting(5)), *(record(rank, *BEFORE, *queued) for rank in (1, 2, 3)))
    assert (found.kind, found.number) == ("all arrived", 5)


def test_a_rank_missing_in_what_is_queued_first_is_named():
    queued = [waiting(number) for number in range(5, 14)]
    found = verdict(record(0, *BEFORE), *(record(rank, *BEFORE, *queued) for rank in (1, 2, 3)))
    assert (found.kind, found.ranks, found.number) == ("missing", (0,), 5)


def test_a_broadcast_that_a_failed_root_has_left_accuses_nobody():
    found = verdict(
        record(0, call(1, op="broadcast", age=30.0), size=3),
        record(1, call(1, op="broadcast", age=30.0), size=3),
        record(2, size=3),
        ended={1: "failed with exit code 1"},
        failed={1},
    )
    assert not found.accuses


def test_a_rank_that_failed_after_its_last_call_is_missing_in_the_next():
    found = verdict(
        record(0, *BEFORE, waiting(5), size=2),
        record(1, *BEFORE, size=2),
        ended={1: "failed with exit code 1"},
        failed={1},
    )
    assert (found.kind, found.ranks, found.number) == ("missing", (1,), 5)


def test_a_rank_that_waits_to_receive_is_not_preferred_as_the_cause():
    receives = call(1, op="recv", done=False, age=STUCK, p2p=True)
    found = verdict(
        record(0, *BEFORE, receives, size=3),
        record(1, *BEFORE, size=3),
        record(2, *BEFORE, waiting(5), size=3),
    )
    assert (found.kind, found.ranks) == ("missing", (1,))


@pytest.mark.parametrize("more", [call(9, op="coalesced", p2p=True), {**call(5), "backend": "nccl"}])
def test_groups_whose_numbers_do_not_compare_accuse_nobody(more):
    found = verdict(record(0, *BEFORE, more, size=2), record(1, *BEFORE, waiting(5), waiting(6), size=2))
    assert not found.accuses


def test_a_short_disagreement_accuses_nobody():
    found = verdict(
        record(0, call(1, done=False, age=0.1), size=2),
        record(1, call(1, op="barrier", done=False, age=0.1), size=2),
    )
    assert not found.accuses


def test_without_an_unfinished_collective_the_stacks_say_who_is_elsewhere():
    records = [record(rank, *BEFORE) for rank in range(4)]
    found = verdict(*records, stacks={2: stack(2, 33)}, least=3.0)
    assert (found.kind, found.ranks) == ("elsewhere", (2,))
    assert verdict(*records, least=3.0).text == "no collective is unfinished: see the stacks"

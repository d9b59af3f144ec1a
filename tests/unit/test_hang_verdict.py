"""Which rank others wait for: records of ranks in, one verdict out."""

import copy
import random
import re

import pytest
from tests import transcripts

from ringleader.launch.hang_verdict import Verdict, judge, read_record
from ringleader.launch.python_stacks import Line, Stack

SCRIPT = "/home/u/train.py"
STUCK = 60.0
"""Seconds that a hanging rank has waited."""
WORD = re.compile(r"(\d+)(?:-(\d+))?(\?)?(?:x(\d+))?(?:/(\w+))?(?:@([\d.]+))?(?:g(\d))?")
ENTRIES = {"..": "1-4", "life": " ".join(f"{number}@{300 - number}" for number in range(1, 12))}
"""``life``: what a rank called in the default group before it destroyed it and made it anew."""


def call(number, op="all_reduce", size=8, *, done=True, age=None, group="0", dtype="Float", **more):
    """One entry of a record; by default one second apart, the last one a minute ago."""
    age = (STUCK + 10 - number if done else STUCK) if age is None else age
    return {
        "group": group, "backend": "gloo", "op": op, "seq": number, "p2p": op == "recv", "sizes": [[size]],
        "dtypes": [dtype], "done": done, "age": age, **more,
    }  # fmt: skip


def entries(text):
    """``5-7?x9/broadcast@30g1``: number(s), unfinished, of another size, operation, age, group."""
    found = []
    for word in " ".join(ENTRIES.get(word, word) for word in text.split()).split():
        first, last, is_open, size, op, age, group = WORD.fullmatch(word).groups()
        words = {"op": op, "size": size and int(size), "age": age and float(age), "group": group}
        words = {name: value for name, value in words.items() if value is not None}
        numbers = range(int(first), int(last or first) + 1)
        found += [call(number, done=not is_open, **words) for number in numbers]
    return found


def record(rank, text, size=4, at=None, more=()):
    groups = {"0": list(range(size)), "1": [0, 1]}
    made = {"kind": "collectives", "pid": 1, "rank": rank, "size": size, "groups": groups, "at": at}
    return {**made, "entries": [*entries(text), *more]}


def stack(rank, line, function="load"):
    return Stack(rank=rank, pid=rank, is_first=True, main=(Line(file=SCRIPT, line=line, function=function),))


def verdict(*calls, **words) -> Verdict:
    """``calls``: of each rank; ``dead``: it left no record."""
    made = [
        one if isinstance(one, dict) else record(rank, one, len(calls))
        for rank, one in enumerate(calls)
        if one != "dead"
    ]
    stacks = {one["rank"]: stack(one["rank"], 40, "main") for one in made} | words.pop("stacks", {})
    return judge({one["rank"]: one for one in made}, stacks=stacks, **words)


def test_a_rank_that_leaves_out_a_collective_is_missing():
    found = verdict(".. 5?", "..", ".. 5?", ".. 5?", stacks={1: stack(1, 33)})
    assert (found.kind, found.ranks, found.waiting, found.seconds) == ("missing", (1,), (0, 2, 3), STUCK)
    assert (found.operation, found.number, found.group) == ("all_reduce", 5, "the default group")
    assert found.text == (
        "rank 1 is missing: ranks 0, 2, 3 wait in all_reduce number 5 of the default group, for 60 s now"
    )
    assert found.places == (
        "rank 1 is at train.py:33 in load; its last collective was all_reduce of [8], number 4 of the "
        "default group, 66 s ago",
        "ranks 0, 2, 3 are in all_reduce of [8] at train.py:40 in main",
    )
    nothing = verdict("1?", "", stacks={1: stack(1, 7)})
    assert nothing.places[0] == "rank 1 is at train.py:7 in load; it has called no collective yet"


def test_a_rank_with_another_shape_is_named_with_both():
    found = verdict(".. 5?", ".. 5?", record(2, ".. 5?x9", at=[SCRIPT, 41, "main"]), ".. 5?")
    assert (found.kind, found.ranks, found.waiting) == ("shape", (2,), (0, 1, 3))
    assert "called all_reduce number 5 of the default group with another shape" in found.text
    assert found.places == (
        "rank 2 is in all_reduce of [9] at train.py:41 in main",
        "ranks 0, 1, 3 are in all_reduce of [8] at train.py:40 in main",
    )


def test_verdicts():
    """``--failed 012``: those ranks failed, rank 1 by a signal; ``--ended``: with exit code 0."""

    def call(*calls: str) -> tuple[int, str, str]:
        ended: dict[int, str] = {}
        if calls[-2].startswith("--"):
            for rank in map(int, calls[-1]):
                failure = "ended by SIGKILL" if rank == 1 else "failed with exit code 1"
                ended[rank] = failure if calls[-2] == "--failed" else "ended with exit code 0"
        failed = set(ended) if calls[-2] == "--failed" else set()
        found = verdict(*(calls[:-2] if ended else calls), ended=ended, failed=failed)
        about = f"{found.kind}: {found.text}\n" + "".join(f"  {one}\n" for one in found.places)
        return 0, about if found.accuses else f"nobody is accused: {about}", ""

    transcripts.check("hangs/verdicts.txt", call)


def test_another_type_is_another_shape_and_another_view_is_not():
    for odd, kind in (({"dtypes": ["Double"]}, "shape"), ({"sizes": [[4, 2]]}, "all arrived")):
        found = verdict(".. 5?", ".. 5?", record(2, "..", 3, more=[{**call(5, done=False), **odd}]))
        assert found.kind == kind


@pytest.mark.parametrize("more", [call(9, op="coalesced", p2p=True), {**call(5), "backend": "nccl"}])
def test_groups_whose_numbers_do_not_compare_accuse_nobody(more):
    assert not verdict(record(0, "..", 2, more=[more]), ".. 5? 6?").accuses


def test_a_rank_that_cannot_answer_is_missing_and_noted():
    found = judge({**{rank: record(rank, ".. 5?") for rank in (0, 1, 2)}, 3: None})
    assert found.ranks == (3,)
    assert found.notes == ("rank 3 did not report its collectives: it did not answer in time",)
    ras = "#0-0 (cf264af53edbe986) MISMATCH\n  Communicator ranks have different AllReduce operation counts"
    found = verdict({**record(0, "1?", 2), "ras": ras}, "")
    assert found.notes == ("NCCL's RAS service reports:", *ras.splitlines())


@pytest.mark.parametrize("seed", range(30))
def test_healthy_ranks_are_not_accused(seed):
    """Ranks of one program, each a little ahead of or behind the others, some in a collective."""
    choose = random.Random(seed)
    program = [(choose.choice(["all_reduce", "broadcast"]), choose.randint(1, 9)) for _ in range(200)]
    at = choose.randint(20, 190)
    records = []
    for rank in range(4):
        mine = at + choose.randint(0, 1)
        ages = [(mine + 1 - number) * 0.02 + choose.random() * 0.01 for number in range(1, mine + 1)]
        made = [
            call(number, *program[number - 1], age=age, done=number < mine)
            for number, age in enumerate(ages, 1)
        ]
        records.append(record(rank, "", more=made[-choose.randint(5, 160) :]))
    found = verdict(*records)
    assert found.kind == "none" and not found.accuses
    assert "nothing shows that the job hangs" in found.text


def test_a_wait_counts_by_what_is_usual_unless_somebody_says_how_long_is_too_long():
    slow = "1@110 2@90 3@70 4@50"
    assert not verdict(f"{slow} 5?@30", slow).accuses
    assert verdict(f"{slow} 5?@30", slow, least=5.0).ranks == (1,)


def test_without_records_the_rank_elsewhere_is_named_and_not_accused():
    def judged(*lines):
        return judge({}, stacks={rank: stack(rank, line) for rank, line in enumerate(lines)})

    found = judged(40, 40, 33, 40)
    assert (found.kind, found.ranks, found.accuses) == ("elsewhere", (2,), False)
    assert found.text == "rank 2 is elsewhere than the others: train.py:33 in load"
    assert judged(40, 40).text == "all ranks are at the same place: train.py:40 in load"
    assert judged(33, 40).text.startswith("the ranks are at different places")
    assert judge({}).text == "no rank has reported a stack or a collective"
    found = verdict(*[".."] * 4, stacks={2: stack(2, 33)}, least=3.0)  # no collective is unfinished
    assert (found.kind, found.ranks) == ("elsewhere", (2,))
    assert verdict(*[".."] * 4, least=3.0).text == "no collective is unfinished: see the stacks"


def test_ranks_that_count_themselves_otherwise_are_not_compared():
    assert judge({(rank + 1) % 4: record(rank, ".. 5?") for rank in (0, 2, 3)}).kind == "none"
    alone = {rank: record(0, f"{rank + 1}?", size=1) for rank in range(3)}
    assert judge(alone).kind == "none", "uncoupled ranks are worlds of one"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"why": "AttributeError: _world", "entries": None}, "_world"),
        ({"rank": "0"}, "no rank"),
        ({"rank": True}, "no rank"),
        ({"groups": []}, "no rank"),
        ({"entries": None}, "no rank"),
    ],
)
def test_what_is_no_record_is_refused(change, why):
    with pytest.raises(ValueError, match=why):
        read_record({**record(0, "1"), **change})


def test_records_of_any_shape_are_read_or_refused_and_judged():
    """Whatever a rank sends, the others are judged."""
    choose = random.Random(7)
    odd = [None, -1, 1e400, float("nan"), "", "x", [], [[]], [["a"]], {}, {"a": 1}, True, [1, 2, 3], 10**30]
    for _ in range(3000):
        wrong = copy.deepcopy(GOOD)
        where = wrong if choose.random() < 0.3 else choose.choice(wrong["entries"])
        where[choose.choice(list(where))] = choose.choice(odd)
        if choose.random() < 0.2:
            del where[choose.choice(list(where))]
        str(judge({**OTHERS, 1: wrong}, stacks={1: stack(1, 3)}))
    for age in (10**400, -(10**400), float("inf"), float("nan")):
        more = record(0, "1", more=[call(2, age=age)])
        assert read_record(more).collectives == read_record(record(0, "1")).collectives, "left out"


GOOD, OTHERS = record(1, ".. 5?"), {rank: record(rank, ".. 5?") for rank in (0, 2, 3)}

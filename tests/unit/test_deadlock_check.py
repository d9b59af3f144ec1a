"""Ranks that wait for each other in different groups: when that is said, and to whom."""

from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ringleader.engine import deadlock_check
from ringleader.engine.communicator import Call, Communicator
from ringleader.engine.deadlock_check import (
    DeadlockCheck,
    GroupWait,
    deadlock_across_groups,
    script_stands_still,
)

SETS = {0: (0, 1, 2), 1: (0, 2)}


def wait(group: int, *, since: float = 1.0, **groups: tuple[int, bool]) -> GroupWait:
    """Return a wait in ``group``; ``s1=(4, True)``: the rank has come to 4 meetings of set 1, and is busy."""
    return GroupWait(
        group=group,
        since=since,
        words=f"x of {group}",
        groups={int(name[1:]): came for name, came in groups.items()},
    )


def circle() -> list[GroupWait]:
    """Ranks 0 and 1 wait for all, which rank 2 has not come to; it waits for rank 0 in set 1."""
    return [
        wait(0, s0=(5, False), s1=(3, False)),
        wait(0, s0=(5, True)),
        wait(1, s0=(4, False), s1=(4, True)),
    ]


def test_every_rank_waits_for_one_that_waits_elsewhere() -> None:
    assert deadlock_across_groups(circle(), SETS) == (
        "Mismatched operations across process sets, and every rank waits: "
        "ranks 0, 1 in x of 0 for rank 2; rank 2 in x of 1 for rank 0"
    )
    assert all(GroupWait.decode(one.encode()) == one for one in circle())


@pytest.mark.parametrize(
    ("rank", "instead"),
    [
        (0, wait(0, s0=(5, False), s1=(4, False))),
        (0, wait(0, s0=(5, False), s1=(3, True))),
        (2, wait(1, s0=(5, False), s1=(4, False))),
        (2, wait(0, s0=(5, False), s1=(3, False))),
        (2, wait(7, s0=(4, False), s1=(3, False), s7=(1, True))),
    ],
    ids=["it has come", "it has something pending", "the other has come", "all in one group", "unknown set"],
)
def test_where_one_may_go_on_nothing_is_said(rank: int, instead: GroupWait) -> None:
    waits = circle()
    waits[rank] = instead
    assert deadlock_across_groups(waits, SETS) == ""


class Control(Communicator):
    """A communicator whose messages are in lists, by receiver, sender and tag."""

    def __init__(self, rank: int, boxes: Any) -> None:
        self.rank, self.size, self.boxes = rank, 3, boxes

    def probe(self, source: int, tag: int) -> tuple[int, int] | None:
        for sender in range(3) if source < 0 else [source]:
            if self.boxes[self.rank, sender, tag]:
                return sender, len(self.boxes[self.rank, sender, tag][0])
        return None

    def begin(self, call: Call, **operands: Any) -> Any:
        peer, tag = operands["peer"], operands["tag"]
        if call is Call.RECEIVE:
            operands["target"][:] = self.boxes[self.rank, peer, tag].pop(0)
        else:
            assert call is Call.SEND
            self.boxes[peer, self.rank, tag].append(operands["source"])
        return SimpleNamespace(Test=lambda: True, Wait=lambda: True)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> tuple[list[DeadlockCheck], Any]:
    """Return three ranks' checks and the messages that nobody has read."""
    monkeypatch.setattr(deadlock_check, "PAUSE_SECONDS", 0.0)
    boxes: Any = defaultdict(list)
    checks = [DeadlockCheck(Control(rank, boxes), patience=1, sets=lambda: SETS) for rank in range(3)]
    return checks, boxes


def test_all_ranks_hear_the_same_and_nothing_is_left(ranks: Any) -> None:
    checks, boxes = ranks
    heard = ["", "", ""]
    for _ in range(9):
        for rank, one in enumerate(circle()):
            heard[rank] = heard[rank] or checks[rank].look(one)
    assert set(heard) == {deadlock_across_groups(circle(), SETS)}
    for check in checks:
        check.drain()
    assert not any(boxes.values())


def test_a_rank_that_does_not_stand_still_keeps_all_from_a_verdict(ranks: Any) -> None:
    checks, boxes = ranks
    for _ in range(50):
        for rank in (0, 1):
            assert checks[rank].look(circle()[rank]) == ""
    assert max(map(len, boxes.values())) == 1  # it is asked once, however long it computes


@pytest.mark.parametrize("restless", [0, 1, 2])
def test_a_wait_that_ended_between_two_questions_does_not_count(ranks: Any, restless: int) -> None:
    checks, _ = ranks
    waits = circle()
    for look in range(30):
        waits[restless] = replace(waits[restless], since=float(look))
        assert [check.look(one) for check, one in zip(checks, waits, strict=True)] == [""] * 3


@pytest.mark.parametrize(
    ("threads", "waiting", "still"),
    [
        (["main"], [], True),
        (["main", "served"], [], True),
        (["main", "worker"], [], False),
        (["main", "worker"], [1], False),
    ],
)
def test_a_script_with_another_thread_may_ask_for_more(
    monkeypatch: pytest.MonkeyPatch, threads: list[str], waiting: list[int], still: bool
) -> None:
    def listed(current: str) -> Any:
        known = {
            name: SimpleNamespace(daemon=name == "served", ident=at) for at, name in enumerate(threads, 1)
        }
        return SimpleNamespace(
            main_thread=lambda: known["main"],
            enumerate=lambda: list(known.values()),
            current_thread=lambda: known[current],
        )

    monkeypatch.setattr(deadlock_check, "threading", listed("main"))
    assert script_stands_still(waiting) is still
    # a thread that serves says so only where the script waits for what it does
    monkeypatch.setattr(deadlock_check, "threading", listed(threads[-1]))
    assert script_stands_still([1]) is still
    if "served" in threads:
        assert not script_stands_still([])

"""The queue of one rank's operations: who waits, names that are pending, and its end."""

import threading
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ringleader.engine import deadlock_check
from ringleader.engine.communicator import Call, Communicator
from ringleader.engine.deadlock_check import (
    DeadlockCheck,
    GroupWait,
    deadlock_across_groups,
    script_stands_still,
)
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.operations import Signature, Work, signature_digest
from ringleader.engine.submission_queue import SubmissionQueue

SIGNATURE = Signature(kind="allreduce", dtype="float32", shape=(3,))


def work(name):
    digest = signature_digest(SIGNATURE)
    return Work(SIGNATURE, digest, name=name, serial=0, array=None, out=None)


def queue_of(rounds, *, error=None):
    """A queue whose rounds do all that is pending, or raise an error."""

    def run(blocked):
        rounds.append(blocked)
        if error is not None:
            raise error
        for one in list(queue.works.values()):
            queue.finish(one, None)

    queue = SubmissionQueue(run, devices=None, clock=lambda: 0.0, threads=False)
    return queue


def test_a_thread_waits_only_while_it_waits():
    """The progress thread stays out of the way of threads that wait."""
    rounds = []
    queue = queue_of(rounds)
    seen = []
    run_round = queue._run_round
    queue._run_round = lambda blocked: (seen.append(list(queue.waiting_threads)), run_round(blocked))[1]
    queue.run(work("a"))
    assert seen == [[threading.get_ident()]] and rounds == [True]
    assert queue.waiting_threads == [] and not queue.works


def test_a_wait_that_fails_is_over_too():
    queue = queue_of([], error=HorovodInternalError("a peer ended"))
    with pytest.raises(HorovodInternalError, match="a peer ended"):
        queue.run(work("a"))
    assert queue.waiting_threads == []


def test_of_several_works_none_is_taken_where_a_name_is_pending():
    queue = queue_of([])
    first = work("a")
    queue.submit(first)
    with pytest.raises(ValueError, match=r"'allreduce\.a' while an operation of that name is still pending"):
        queue.submit_all([work("b"), work("a")])
    assert list(queue.works.values()) == [first]


def test_after_its_end_everything_fails_with_the_reason():
    queue = queue_of([])
    pending = work("a")
    queue.submit(pending)
    queue.break_off("a rank has ended")
    for call in (lambda: queue.wait(pending), lambda: queue.submit(work("b"))):
        with pytest.raises(HorovodInternalError, match="a rank has ended"):
            call()
    assert not queue.works and queue.waiting_threads == []


SETS = {0: (0, 1, 2), 1: (0, 2)}


def wait(group, *, since=1.0, **groups):
    """Return a wait in ``group``; ``s1=(4, True)``: the rank has come to 4 meetings of set 1, and is busy."""
    return GroupWait(
        group=group,
        since=since,
        words=f"x of {group}",
        groups={int(name[1:]): came for name, came in groups.items()},
    )


def circle():
    """Ranks 0 and 1 wait for all, which rank 2 has not come to; it waits for rank 0 in set 1."""
    return [
        wait(0, s0=(5, False), s1=(3, False)),
        wait(0, s0=(5, True)),
        wait(1, s0=(4, False), s1=(4, True)),
    ]


def test_every_rank_waits_for_one_that_waits_elsewhere():
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
def test_where_one_may_go_on_nothing_is_said(rank, instead):
    waits = circle()
    waits[rank] = instead
    assert deadlock_across_groups(waits, SETS) == ""


class Control(Communicator):
    """A communicator whose messages are in lists, by receiver, sender and tag."""

    def __init__(self, rank, boxes):
        self.rank, self.size, self.boxes = rank, 3, boxes

    def probe(self, source, tag):
        for sender in range(3) if source < 0 else [source]:
            if self.boxes[self.rank, sender, tag]:
                return sender, len(self.boxes[self.rank, sender, tag][0])
        return None

    def begin(self, call, **operands):
        peer, tag = operands["peer"], operands["tag"]
        if call is Call.RECEIVE:
            operands["target"][:] = self.boxes[self.rank, peer, tag].pop(0)
        else:
            assert call is Call.SEND
            self.boxes[peer, self.rank, tag].append(operands["source"])
        return SimpleNamespace(Test=lambda: True, Wait=lambda: True)


@pytest.fixture
def ranks(monkeypatch):
    """Return three ranks' checks and the messages that nobody has read."""
    monkeypatch.setattr(deadlock_check, "PAUSE_SECONDS", 0.0)
    boxes = defaultdict(list)
    checks = [DeadlockCheck(Control(rank, boxes), patience=1, sets=lambda: SETS) for rank in range(3)]
    return checks, boxes


def test_all_ranks_hear_the_same_and_nothing_is_left(ranks):
    checks, boxes = ranks
    heard = ["", "", ""]
    for _ in range(9):
        for rank, one in enumerate(circle()):
            heard[rank] = heard[rank] or checks[rank].look(one)
    assert set(heard) == {deadlock_across_groups(circle(), SETS)}
    for check in checks:
        check.drain()
    assert not any(boxes.values())


def test_a_rank_that_does_not_stand_still_keeps_all_from_a_verdict(ranks):
    checks, boxes = ranks
    for _ in range(50):
        for rank in (0, 1):
            assert checks[rank].look(circle()[rank]) == ""
    assert max(map(len, boxes.values())) == 1  # it is asked once, however long it computes


@pytest.mark.parametrize("restless", [0, 1, 2])
def test_a_wait_that_ended_between_two_questions_does_not_count(ranks, restless):
    checks, _ = ranks
    waits = circle()
    for look in range(30):
        waits[restless] = replace(waits[restless], since=float(look))
        assert [check.look(one) for check, one in zip(checks, waits, strict=True)] == [""] * 3


@pytest.mark.parametrize(
    ("threads", "still"), [(["main"], True), (["main", "served"], True), (["main", "worker"], False)]
)
def test_a_script_with_another_thread_may_ask_for_more(monkeypatch, threads, still):
    known = {name: SimpleNamespace(daemon=name == "served", ident=at) for at, name in enumerate(threads, 1)}

    def listed(current):
        return SimpleNamespace(
            main_thread=lambda: known["main"],
            enumerate=lambda: list(known.values()),
            current_thread=lambda: known[current],
        )

    monkeypatch.setattr(deadlock_check, "threading", listed("main"))
    assert script_stands_still([]) is still
    # a thread that serves says so only where the script waits for what it does
    monkeypatch.setattr(deadlock_check, "threading", listed(threads[-1]))
    assert script_stands_still([1]) is still
    assert "served" not in threads or not script_stands_still([])

"""Which operations of a session go together, as arrivals and times."""

import random

from ringleader.adapters.arrival_buckets import (
    GAPS,
    LONGEST_PATIENCE,
    STRANGER_SECONDS,
    BucketPlanner,
    Position,
    cut,
)


class Rank:
    """A planner, a clock, and what was sent."""

    def __init__(self, *, cap_bytes=1 << 20, alone=False):
        self.planner = BucketPlanner(cap_bytes=cap_bytes, alone=alone)
        self.now = 100.0
        self.sent = []

    def step(self, names, *, pause=0.001, nbytes=4):
        """Have operations (one letter each) come one after the other; return what went meanwhile."""
        before = len(self.sent)
        for name in names:
            arrival = self.now + pause
            while (look := self.planner.next_look()) is not None and look < arrival:
                self.now = look
                self.look()
            self.now = arrival
            self.planner.arrived(name, nbytes, self.now)
            self.look()
        return self.sent[before:]

    def look(self):
        for batch in self.planner.due(self.now):
            self.sent.append(batch)
            for name in batch:
                position = self.planner.agreement_due(name)
                if position is not None:
                    self.planner.agree(name, position)

    def rest(self):
        """Wait as long as something waits; return what went."""
        before = len(self.sent)
        while (look := self.planner.next_look()) is not None:
            self.now = max(self.now, look)
            self.look()
        return self.sent[before:]


def joined(batches):
    return ["".join(batch) for batch in batches]


def test_from_the_second_cycle_on_all_go_when_the_last_is_there():
    rank = Rank()
    assert rank.step("abc") == [], "what was never seen goes after a silence"
    assert rank.planner.next_look() == rank.now + STRANGER_SECONDS
    assert joined(rank.rest()) == ["abc"] and rank.planner.next_look() is None
    assert joined(rank.step("bca")) == ["abc"]
    assert joined(rank.step("cab")) == ["abc"]
    assert joined(Rank(alone=True).step("ab")) == ["a", "b"], "alone nothing waits"


def test_pauses_of_backward_are_learned_and_an_operation_after_the_others():
    rank = Rank()
    rank.step("abc", pause=0.1)  # each is alone in a silence
    rank.rest()
    assert joined(rank.sent) == ["a", "b", "c"]
    for _ in range(5):
        assert joined(rank.step("abc", pause=0.15)) in (["abc"], ["a", "b", "c"])
    assert joined(rank.step("abc", pause=0.15)) == ["abc"]
    rank = Rank()
    for _ in range(6):
        for names in ("abc", "m"):
            rank.step(names)
            rank.rest()
    assert [joined(rank.step(names)) for names in ("abc", "m")] == [["abc"], ["m"]]


def test_the_agreed_order_is_cut_by_bytes_and_overlaps():
    rank = Rank(cap_bytes=8)
    for _ in range(3):
        rank.step("dcba")
        rank.rest()
    assert joined(rank.step("dcba")) == ["dc", "ba"]
    # The second bucket is there first, and waits for its turn.
    assert joined(rank.step("bacd")) == ["dc", "ba"]


def test_ranks_with_other_orders_send_the_same():
    ranks = [Rank(cap_bytes=10) for _ in range(3)]
    names = "abcdefghij"
    generator = random.Random(1)
    for step in range(40):
        for rank in ranks:
            rank.step("".join(generator.sample(names, len(names))))
            rank.rest()
        if step == 2:  # what rank 0 told
            told = {name: Position(cycle=3, index=at, nbytes=4) for at, name in enumerate(names)}
            for rank in ranks:
                for name, position in told.items():
                    rank.planner.agree(name, position)
        if step == 29:
            for rank in ranks:
                rank.planner._told.clear()  # theirs differ, as they are not connected
        if 3 <= step < 29:
            assert all(joined(rank.sent[-5:]) == ["ab", "cd", "ef", "gh", "ij"] for rank in ranks), step


def test_nothing_waits_for_ever():
    rank = Rank()
    for _ in range(3):
        rank.step("abcdefgh")
        rank.rest()
    rank.step("a")
    began = rank.now
    while len(rank.sent) < 4 or not any("a" in batch for batch in rank.sent[3:]):
        rank.step("xyz", pause=0.01)
        assert rank.now - began < GAPS * LONGEST_PATIENCE + 1.0


def test_any_arrivals_are_sent_once():
    generator = random.Random(7)
    for _ in range(60):
        rank = Rank(cap_bytes=generator.choice([4, 8, 20, 1000]))
        names = "abcdefgh"
        count = 0
        for _ in range(40):
            chosen = "".join(generator.sample(names, generator.randint(1, len(names))))
            rank.step(chosen, pause=generator.choice([0.0, 0.001, 0.006, 0.1]))
            rank.rest()
            count += len(chosen)
        assert sum(map(len, rank.sent)) == count


def test_cut():
    sizes = [("a", 3), ("b", 3), ("c", 9), ("d", 1), ("e", 1)]
    assert joined(cut(sizes, 6)) == ["ab", "c", "de"]
    assert cut([], 6) == []

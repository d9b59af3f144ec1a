"""The order in which ranks launch the operations of several groups on their devices."""

import random

from hypothesis import given
from hypothesis import strategies as st

from ringleader.engine.launch_order import MOST_INTERRUPTIONS, LaunchOrder

GROUPS = {0: (0, 1, 2, 3), 1: (0, 1), 2: (1, 2, 3), 3: (0, 2), 4: (3,)}
"""Ranks of each group."""


class Rank:
    """What one rank does; its groups continue by themselves, as threads do."""

    def __init__(self):
        self.order = LaunchOrder()
        self.under_way = {}
        self.launched = []
        self.done = dict.fromkeys(GROUPS, 0)


class World:
    """Ranks that carry out operations of all groups, in moments that a seed chooses."""

    def __init__(self, seed, *, operations, sequences):
        self.random = random.Random(seed)
        self.ranks = [Rank() for _ in range(4)]
        self.operations = operations
        self.sequences = sequences
        self.told = {}
        self.granted = {}

    def moves(self):
        """Return the ranks and groups that can continue now."""
        found = []
        for group, members in GROUPS.items():
            for number in members:
                rank = self.ranks[number]
                launch, turn = rank.under_way.get(group), rank.done[group]
                if launch is None:
                    # The ranks of a group come to its operations together.
                    if turn < self.operations and all(self.ranks[one].done[group] >= turn for one in members):
                        found.append((number, group))
                elif launch.settled:
                    if rank.order.is_next(launch):
                        found.append((number, group))
                elif len(self.told.get((group, turn), {})) == len(members):
                    found.append((number, group))
        return found

    def go_on(self, number, group):
        """Let one rank make its next move in a group."""
        rank = self.ranks[number]
        turn, launch = rank.done[group], rank.under_way.get(group)
        if launch is None:
            sequence = self.sequences and (group + turn) % 3 == 0
            launch = rank.under_way[group] = rank.order.propose(group, sequence=sequence)
            self.told.setdefault((group, turn), {})[number] = launch.message
        elif not launch.settled:
            granted = rank.order.settle(launch, list(self.told[group, turn].values()))
            assert self.granted.setdefault((group, turn), granted) == granted
            if not granted:
                self.over(rank, group)
        else:
            rank.launched.append((group, turn))
            rank.order.finish(launch)
            self.over(rank, group)

    def over(self, rank, group):
        del rank.under_way[group]
        rank.done[group] += 1

    def run(self):
        """Continue to the end; nobody may be stuck before it."""
        while moves := self.moves():
            self.go_on(*self.random.choice(moves))
        for group, members in GROUPS.items():
            assert all(self.ranks[one].done[group] == self.operations for one in members), "stuck"


@given(st.integers(0, 1 << 32), st.booleans())
def test_ranks_launch_what_they_share_in_one_order_and_none_is_stuck(seed, sequences):
    world = World(seed, operations=6, sequences=sequences)
    world.run()
    for one in world.ranks:
        for other in world.ranks:
            both = set(one.launched) & set(other.launched)
            assert [at for at in one.launched if at in both] == [at for at in other.launched if at in both]


def test_a_sequence_stands_alone():
    order = LaunchOrder()
    other = order.propose(1)
    refused = order.propose(0, sequence=True)
    assert not order.settle(refused, [refused.message])
    order.settle(other, [other.message])
    order.finish(other)
    sequence = order.propose(0, sequence=True)
    assert order.settle(sequence, [sequence.message]) and order.is_next(sequence)
    # What comes meanwhile goes through the host, and another sequence has to wait for another step.
    beside = order.propose(1)
    assert not order.settle(beside, [beside.message])
    second = order.propose(2, sequence=True)
    assert not order.settle(second, [second.message])
    order.finish(sequence)
    after = order.propose(1)
    assert order.settle(after, [after.message]) and order.is_next(after)


def test_a_script_that_interrupts_gets_no_sequences_any_more():
    order = LaunchOrder()
    sequence = order.propose(0, sequence=True)
    order.settle(sequence, [sequence.message])
    for _ in range(MOST_INTERRUPTIONS):
        beside = order.propose(0)
        order.settle(beside, [beside.message])
    order.finish(sequence)
    again = order.propose(0, sequence=True)
    assert not order.settle(again, [again.message])
    orders = [LaunchOrder(), LaunchOrder()]
    launches = [order.propose(0, sequence=True, willing=at == 0) for at, order in enumerate(orders)]
    told = [launch.message for launch in launches]
    assert not any(map(LaunchOrder.settle, orders, launches, [told, told])), "one unwilling rank is enough"

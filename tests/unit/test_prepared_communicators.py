"""Communicators that MPI proxies make ahead of time: all give the same ones, whatever happens first."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.engine.communicator import block_of
from ringleader.engine.mpi_communicator import MpiCommunicator
from ringleader.engine.mpi_proxy import creation
from ringleader.engine.mpi_proxy.creation import COMING, OF_ALL, PreparedCommunicators

HOSTS = ((0, 1), (2, 3))
"""Proxies of each host, by their ranks in the world."""


class World:
    """What duplicates the proxies have begun of each communicator, by its name."""

    def __init__(self):
        self.begun = defaultdict(lambda: defaultdict(int))
        self.starts = True
        """Whether duplicates are there at once, as each proxy waits for them when its world starts."""


class Communicator:
    """One proxy's side of a communicator: the n-th duplicates of all members are one communicator."""

    def __init__(self, world, name, members, me):
        self.world, self.name, self.members, self.me = world, name, members, me
        self.size, self.rank = len(members), members.index(me)

    def Idup(self):
        begun = self.world.begun[self.name]
        begun[self.me] += 1
        number, instant = begun[self.me], self.world.starts
        made = Communicator(self.world, f"{self.name}.{number}", self.members, self.me)
        done = SimpleNamespace(Test=lambda: instant or all(begun[one] >= number for one in self.members))
        return made, done

    def Split_type(self, kind, key):
        members = next(host for host in HOSTS if self.me in host)
        return Communicator(self.world, f"host{members[0]}", members, self.me)

    def Split(self, color, key):
        return Communicator(self.world, f"cross{color}", tuple(host[color] for host in HOSTS), self.me)

    def Allgather(self, send, receive):
        """What each proxy says of itself: its rank on its host."""
        blocks = [block_of(json.dumps(rank % len(HOSTS[0])).encode()) for rank in self.members]
        receive[0][:] = b"".join(blocks)

    def Get_group(self):
        def translate(ranks, whole):
            return [self.members[rank] for rank in ranks]

        return SimpleNamespace(Translate_ranks=translate, Free=lambda: None)

    def Iallgather(self, send, receive):
        return SimpleNamespace(Wait=lambda: True)

    def Iallreduce(self, send, receive, op):
        return SimpleNamespace(Wait=lambda: True)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    found = SimpleNamespace(now=0.0)
    time = SimpleNamespace(monotonic=lambda: found.now, sleep=lambda seconds: None)
    monkeypatch.setattr(creation, "time", time)
    return found


def proxies():
    mpi = SimpleNamespace(COMM_TYPE_SHARED=0, UINT64_T=0, BYTE=0, MAX=0)
    world = World()
    everybody = tuple(one for host in HOSTS for one in host)
    comms = [MpiCommunicator(mpi, Communicator(world, "world", everybody, me)) for me in everybody]
    made = [PreparedCommunicators(one) for one in comms]
    world.starts = False
    return made


def take(one, members, count):
    """Return the names of so many that are there."""
    taken = [one.take(members) for _ in range(count)]
    assert all(isinstance(comm, MpiCommunicator) for comm in taken), taken
    return [comm.comm.name for comm in taken if isinstance(comm, MpiCommunicator)]


def settle(there):
    while any(one.turn() for one in there):
        pass


def test_they_are_made_when_the_first_step_is_over(clock):
    there = proxies()
    for one in there:
        one.begin_generation()
    settle(there)
    assert not any(one.busy for one in there)
    clock.now = creation.QUIET_SECONDS + 0.01
    for one in there[:3]:
        one.turn()
    assert [one.busy for one in there] == [True, True, True, False]
    for one in there:
        one.begin_generation()  # while they are being made
    assert [one.take([0, 1, 2, 3]) for one in there] == [COMING] * 4, "they are to be waited for"
    settle(there)
    assert len({tuple(take(one, [0, 1, 2, 3], OF_ALL)) for one in there}) == 1


def test_ranks_in_another_order_and_a_part_of_them():
    there = proxies()
    for one in there:
        one.begin_generation()
    taken = there[0].take([2, 3, 0, 1])
    assert isinstance(taken, MpiCommunicator) and taken.rank == 2, "it is the third of them"
    assert there[0].take([0, 1, 2]) is None, "nobody has prepared that"


@given(st.data())
def test_proxies_agree_whatever_happens_first(data):
    """Turns, generations that break before all ranks have asked, and requests in any order."""
    there = proxies()
    generations = [0] * 4
    taken = defaultdict(lambda: [[] for _ in there])
    for _ in range(data.draw(st.integers(1, 60))):
        me = data.draw(st.integers(0, 3))
        what = data.draw(st.sampled_from(("begin", "turn", "ask")))
        if what == "begin" and generations[me] <= min(generations):  # no proxy is two generations ahead
            there[me].begin_generation()
            generations[me] += 1
        elif what == "turn":
            there[me].turn()
        elif what == "ask" and generations[me] and len(taken[generations[me]][me]) < OF_ALL:
            found = there[me].take([0, 1, 2, 3])
            assert found is not None, "there are as many for each generation"
            if isinstance(found, MpiCommunicator):
                taken[generations[me]][me].append(found.comm.name)
    for given_away in taken.values():
        for same in itertools.zip_longest(*given_away):
            assert len(set(same) - {None}) == 1
    everything = [name for given_away in taken.values() for name in max(given_away, key=len)]
    assert len(set(everything)) == len(everything), "given away twice"
    last = max(generations)
    for one, number in zip(there, generations, strict=True):
        for _ in range(last - number):
            one.begin_generation()
    settle(there)
    assert not any(one.busy for one in there), "one waits for ever"

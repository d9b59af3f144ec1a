"""What ranks keep of messages that were given up, and when all ranks are asked together."""

import weakref
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest

from ringleader.bench import pair_program, peer
from ringleader.bench.pair_plan import PairPlan

PLAN = PairPlan(rounds=(((0, 1),),), sizes=(8,), window=1)


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An MPI of one rank; what is given up is forgotten after each test."""
    found = SimpleNamespace(rank=0)
    module: Any = ModuleType("mpi4py")
    module.MPI = SimpleNamespace(COMM_WORLD=found, MAX=None)
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", module)
    monkeypatch.setattr(peer, "_abandoned", [])
    return found


def test_memory_in_which_a_message_may_still_arrive_is_kept(world, monkeypatch):
    def exchange(self: peer.Peer) -> None:
        raise peer.SilentPartnerError(1, "both ways", 5.0)

    monkeypatch.setattr(peer.Peer, "exchange", exchange)
    messages = pair_program.Messages(PLAN, world)
    messages.begin(1.0)
    before = weakref.ref(messages._memory.here)
    with pytest.raises(peer.SilentPartnerError):
        messages.measure((0, 1), 1, 0, 0.0)
    assert before() is not None and messages._memory.here is not before()


def test_what_all_ranks_say_is_kept_where_some_stay_silent(world: SimpleNamespace) -> None:
    arrays: list[weakref.ref[Any]] = []

    def reduce(mine: Any, everyone: Any, op: Any) -> Any:
        arrays.extend(weakref.ref(one) for one in (mine, everyone))
        return SimpleNamespace(Test=lambda: False)

    world.Iallreduce = reduce
    assert peer.any_rank_says(world, True, 0.0)
    assert [isinstance(one(), numpy.ndarray) for one in arrays] == [True, True]

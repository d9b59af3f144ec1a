"""Ranks are killed, replaced, removed and added: training continues from the commit, bit for bit."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.fork_server import RANKS
from tests.proxy_world import ProxyWorld, said

pytestmark = [pytest.mark.mpi, pytest.mark.torch, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "programs" / "elastic_training.py"
SECONDS = 150.0
STEPS = 14


class Training:
    """Ranks of an elastic job, and what a launcher would do with them."""

    def __init__(self, place: Path, slots: list[int], events: dict[str, Any]) -> None:
        self._place, self._events = place, {"killed": [], "hosts": [], **events}
        place.mkdir()
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "RINGLEADER_ELASTIC_TIMEOUT": "100"}
        environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.world = ProxyWorld(place, environ, slots=slots)
        self.ranks: dict[int, subprocess.Popen[bytes]] = {}
        self.members([self.start(slot) for slot in range(sum(slots))])
        self.world.use_world(self.world.start_world())

    def start(self, slot: int) -> tuple[int, int]:
        incarnation = len(self.ranks)
        with (self._place / f"rank{incarnation}").open("wb") as out:
            self.ranks[incarnation] = subprocess.Popen(
                RANKS.command(str(PROGRAM), json.dumps(self._events), str(STEPS)),
                env=self.world.environment(incarnation, slot),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        return incarnation, slot

    def pids(self) -> dict[int, int]:
        self.world.until(lambda: self.world.pids().keys() >= self.ranks.keys(), "all ranks", SECONDS)
        return self.world.pids()

    def members(self, members: list[tuple[int, int]]) -> None:
        with self.world.lock:
            self.world.members = members

    def ended(self, incarnation: int) -> int:
        try:
            return self.ranks[incarnation].wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise TimeoutError(self.words()) from None

    def wait_for(self, *incarnations: int) -> None:
        """Wait until ranks wait for the next generation."""
        for one in incarnations:
            self.world.until(lambda one=one: one in self.world.waiting, f"rank {one} to wait", SECONDS)

    def begin(self, members: list[tuple[int, int]], *, gone: Sequence[int] = ()) -> None:
        """Begin a generation once its members wait, at the same time without some of those that wait."""
        self.wait_for(*(incarnation for incarnation, _slot in members))
        self.members(members)
        for incarnation in gone:
            self.wait_for(incarnation)
            self.world.leave(incarnation)
            assert self.ended(incarnation) == 0, self.words()
        self.world.begin()

    def words(self) -> str:
        return "\n".join(f"{one.name}: {one.read_text()}" for one in sorted(self._place.glob("rank*")))

    def results(self) -> list[dict[str, Any]]:
        found = []
        for incarnation, _slot in self.world.members:
            assert self.ended(incarnation) == 0, self.words()
            found.append(said(self._place / f"rank{incarnation}")[-1])
        found.sort(key=lambda one: int(one["rank"]))
        assert len({one["weights"] for one in found}) == 1
        assert [one["losses"] for one in found] == [found[0]["losses"]] * len(found)
        return found

    def close(self) -> None:
        for rank in self.ranks.values():
            rank.kill()
            rank.wait(10)
        self.world.close()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Any]:
    made: list[Training] = []

    def start(slots: list[int], **events: Any) -> Training:
        made.append(Training(tmp_path / str(len(made)), slots, events))
        return made[-1]

    yield start
    for one in made:
        one.close()


def alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    for word in ("sizes", "visits", "losses", "weights"):
        assert one[word] == other[word], (word, one[word], other[word])


@pytest.mark.parametrize(
    ("slots", "victim", "events"),
    [
        pytest.param([2], 1, {}, marks=pytest.mark.long),
        pytest.param([2], 0, {"where": "backward"}, marks=pytest.mark.smoke),
        pytest.param([2, 2], 0, {"end": "raise"}, marks=pytest.mark.long),
        pytest.param([2, 2], 3, {"where": "backward"}, marks=pytest.mark.long),
        pytest.param([3], 1, {"shard": True}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_rank_that_ended_is_replaced(
    begin: Any, slots: list[int], victim: int, events: dict[str, Any]
) -> None:
    training = begin(slots, killed=[[victim, 5]], **events)
    pids = training.pids()
    assert training.ended(victim) in (-9, 1)
    members = list(training.world.members)
    new, slot = training.start(members[victim][1])
    members[victim] = (new, slot)
    # Hosts stay together, and on each those who were there come first: rank 0 is one that holds the commit.
    members.sort(key=lambda one: (one[1] >= slots[0], one[0] == new))
    training.members(members)
    results = training.results()
    assert all(one["pid"] == pids[one["incarnation"]] for one in results if one["incarnation"] != new)
    assert [one["entered"] for one in results] == [2] * len(results)
    undisturbed = begin(slots, **{name: value for name, value in events.items() if name == "shard"})
    alike(results[0], undisturbed.results()[0])
    visits = [index for step in results[0]["visits"] for index in step]
    assert len(set(visits[:96])) == 96, "a whole epoch has every index once"


@pytest.mark.long
def test_a_rank_that_ended_is_left_out_and_another_comes_later(begin: Any) -> None:
    # what is compared with: the same sizes at the same steps, but nobody is killed
    planned = begin([3], hosts=[4, 9], update=3, sets=True)
    planned.world.automatic = False
    planned.begin([(0, 0), (1, 1), (2, 2)])
    planned.world.until(lambda: len(planned.world.waiting) == 0, "the first generation")
    planned.begin([(0, 0), (1, 1)], gone=[2])
    planned.begin([(0, 0), (1, 1), planned.start(2)])
    expected = planned.results()[0]
    assert expected["sizes"] == [3] * 4 + [2] * 5 + [3] * 5

    killed = begin([3], killed=[[2, 5]], hosts=[9], sets=True)
    assert killed.ended(2) == -9
    killed.members([(0, 0), (1, 1)])
    killed.world.until(lambda: killed.world.number == 2, "the second generation")
    with killed.world.lock:
        killed.world.automatic = False
    killed.begin([(0, 0), (1, 1), killed.start(2)])
    results = killed.results()
    assert [one["entered"] for one in results] == [3] * 3
    alike(results[0], expected)


@pytest.mark.long
def test_a_host_is_removed_with_a_sharded_optimizer_and_nothing_is_lost(begin: Any) -> None:
    training = begin([1, 2], shard=True, hosts=[6], update=2)
    pids = training.pids()
    training.world.automatic = False
    training.begin([(0, 0), (1, 1), (2, 2)])
    training.world.until(lambda: not training.world.waiting, "the first generation")
    training.begin([(1, 1), (2, 2)], gone=[0])
    results = training.results()
    assert results[0]["sizes"] == [3] * 6 + [2] * 8
    assert [one["pid"] for one in results] == [pids[one] for one in (1, 2)]


@pytest.mark.long
def test_a_host_is_lost_and_the_commit_of_the_others_counts(begin: Any) -> None:
    training = begin([2, 1], killed=[[2, 5]])
    assert training.ended(2) == -9
    training.members([(0, 0), (1, 1)])
    assert training.results()[0]["sizes"] == [3] * 4 + [2] * 10

"""Ranks are killed, replaced, removed and added: training continues from the commit, bit for bit."""

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
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
        self._next = 0

    def start(self, slot: int) -> tuple[int, int]:
        """Start a rank on a slot; return its member of a generation."""
        incarnation, self._next = self._next, self._next + 1
        environ = self.world.environment(incarnation, slot)
        with (self._place / f"rank{incarnation}").open("wb") as out:
            self.ranks[incarnation] = subprocess.Popen(
                RANKS.command(str(PROGRAM), json.dumps(self._events), str(STEPS)),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        return incarnation, slot

    def pids(self) -> dict[int, int]:
        """Return the processes of all ranks once they are connected, by incarnation."""
        self.world.until(lambda: self.world.pids().keys() >= self.ranks.keys(), "all ranks", SECONDS)
        return self.world.pids()

    def members(self, members: list[tuple[int, int]]) -> None:
        with self.world.lock:
            self.world.members = members

    def ended(self, incarnation: int) -> int:
        """Wait for a rank's end; return its exit code."""
        try:
            return self.ranks[incarnation].wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise TimeoutError(self.words()) from None

    def waits(self, incarnation: int) -> None:
        self.world.until(lambda: incarnation in self.world.waiting, f"rank {incarnation} to wait", SECONDS)

    def words(self) -> str:
        return "\n".join(f"{one.name}: {one.read_text()}" for one in sorted(self._place.glob("rank*")))

    def results(self) -> list[dict[str, Any]]:
        """Return what each member printed, by rank; all have ended well."""
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
            if rank.poll() is None:
                rank.send_signal(signal.SIGKILL)
            rank.wait(10)
        self.world.close()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Any]:
    made: list[Training] = []

    def start(slots: list[int], **events: Any) -> Training:
        training = Training(tmp_path / str(len(made)), slots, events)
        made.append(training)
        members = [training.start(slot) for slot in range(sum(slots))]
        training.members(members)
        training.world.use_world(training.world.start_world())
        return training

    yield start
    for one in made:
        one.close()


def alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Assert that two trainings went the same way, to the last bit."""
    for word in ("sizes", "visits", "losses", "weights"):
        assert one[word] == other[word], (word, one[word], other[word])


def visited_once(result: dict[str, Any]) -> None:
    """Assert that the whole epochs of a training had every index at least once, and no index too often."""
    visits = [index for step in result["visits"] for index in step]
    counts = Counter(visits[:96])
    assert max(counts.values()) == 1, counts


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Trainings to which nothing happens, each run once."""
    found: dict[str, dict[str, Any]] = {}

    def result(slots: list[int], **events: Any) -> dict[str, Any]:
        key = json.dumps([slots, events])
        if key not in found:
            training = Training(tmp_path_factory.mktemp("undisturbed") / "job", slots, events)
            try:
                training.members([training.start(slot) for slot in range(sum(slots))])
                training.world.use_world(training.world.start_world())
                found[key] = training.results()[0]
            finally:
                training.close()
        return found[key]

    yield result


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
    begin: Any, undisturbed: Any, slots: list[int], victim: int, events: dict[str, Any]
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
    more = {"shard": True} if events.get("shard") else {}
    alike(results[0], undisturbed(slots, **more))
    visited_once(results[0])


def changed(training: Training, members: list[tuple[int, int]], *, gone: list[int]) -> None:
    """Continue with other members, at the same time without some of those that wait."""
    training.members(members)
    for incarnation in gone:
        training.waits(incarnation)
        training.world.leave(incarnation)
        assert training.ended(incarnation) == 0, training.words()


@pytest.mark.long
def test_a_rank_that_ended_is_left_out_and_another_comes_later(begin: Any) -> None:
    # what is compared with: the same sizes at the same steps, but nobody is killed
    planned = begin([3], hosts=[4, 9], update=3, sets=True)
    planned.world.automatic = False
    for incarnation in range(3):
        planned.waits(incarnation)
    planned.world.begin()
    planned.world.until(lambda: len(planned.world.waiting) == 0, "the first generation")
    for incarnation in range(3):
        planned.waits(incarnation)
    changed(planned, [(0, 0), (1, 1)], gone=[2])
    planned.world.begin()
    late = planned.start(2)
    for incarnation in (0, 1, late[0]):
        planned.waits(incarnation)
    planned.members([(0, 0), (1, 1), late])
    planned.world.begin()
    expected = planned.results()[0]
    assert expected["sizes"] == [3] * 4 + [2] * 5 + [3] * 5

    killed = begin([3], killed=[[2, 5]], hosts=[9], sets=True)
    assert killed.ended(2) == -9
    killed.members([(0, 0), (1, 1)])
    killed.world.until(lambda: killed.world.number == 2, "the second generation")
    with killed.world.lock:
        killed.world.automatic = False
    again = killed.start(2)
    for incarnation in (0, 1, again[0]):
        killed.waits(incarnation)
    killed.members([(0, 0), (1, 1), again])
    killed.world.begin()
    results = killed.results()
    assert [one["entered"] for one in results] == [3] * 3
    alike(results[0], expected)


@pytest.mark.long
def test_a_host_is_removed_with_a_sharded_optimizer_and_nothing_is_lost(begin: Any) -> None:
    training = begin([1, 2], shard=True, hosts=[6], update=2)
    pids = training.pids()
    training.world.automatic = False
    for incarnation in range(3):
        training.waits(incarnation)
    training.world.begin()
    training.world.until(lambda: not training.world.waiting, "the first generation")
    for incarnation in range(3):
        training.waits(incarnation)
    changed(training, [(1, 1), (2, 2)], gone=[0])
    training.world.begin()
    results = training.results()
    assert results[0]["sizes"] == [3] * 6 + [2] * 8
    assert [one["pid"] for one in results] == [pids[one] for one in (1, 2)]


@pytest.mark.long
def test_a_host_is_lost_and_the_commit_of_the_others_counts(begin: Any) -> None:
    training = begin([2, 1], killed=[[2, 5]])
    assert training.ended(2) == -9
    training.members([(0, 0), (1, 1)])
    results = training.results()
    assert results[0]["sizes"] == [3] * 4 + [2] * 10

"""When the ranks of an elastic job are started: once the first of those that live has named free ports."""

from types import SimpleNamespace
from typing import Any

from tests.operations import growth

from ringleader.launch.elastic.elastic_session import ElasticJob, ElasticRank
from ringleader.launch.supervision.session import Channels, Session
from ringleader.plan.job import Job


class Ranks(ElasticJob):
    """As much of a job as starts ranks, whose starts are noted."""

    def __init__(self) -> None:
        nobody: Any = SimpleNamespace(drop=lambda connection: None, send=lambda connection, message: None)
        channels = Channels(selector=nobody, server=nobody, listener=nobody)
        Session.__init__(self, Job(command=("x",)), channels)
        self.told: list[str] = []
        self.started: list[tuple[int, int]] = []
        self._ports, self._stopping = None, False
        self._ready, self._lowest = {}, None

    def take(self, do: str, **words: Any) -> None:
        self.told.append(do)

    def _start(self, rank: ElasticRank, ports: Any) -> None:
        rank.begun = True
        self.started.append((rank.incarnation, ports.master))

    def spawn(self, incarnation: int, place: int, host: str) -> None:
        where: Any = SimpleNamespace(host=SimpleNamespace(name=host))
        prepared: Any = SimpleNamespace(plan=SimpleNamespace(hosts=[where]))
        there: Any = SimpleNamespace(rank=place, host_index=0)
        self.add(ElasticRank(incarnation, 0, prepared, there))

    def come(self, incarnation: int) -> None:
        connection: Any = SimpleNamespace(rank=None)
        words = {"do": "hello", "rank": incarnation, "free_port": 100 + incarnation, "jax_port": 1}
        self.hello(connection, words)


def test_all_wait_for_the_ports_of_the_first() -> None:
    ranks = Ranks()
    ranks.spawn(0, 0, "a")
    ranks.spawn(1, 1, "b")
    ranks.come(1)
    assert not ranks.started
    ranks.come(0)
    assert sorted(ranks.started) == [(0, 100), (1, 100)]


def test_who_waits_for_a_rank_of_a_host_that_is_lost_starts() -> None:
    ranks = Ranks()
    ranks.spawn(0, 0, "a")
    ranks.spawn(1, 1, "b")
    ranks.come(1)
    ranks._lose_ranks("a")
    assert ranks.started == [(1, 101)]


def test_a_later_rank_starts_at_once() -> None:
    ranks = Ranks()
    for incarnation in (0, 1):
        ranks.spawn(incarnation, incarnation, "a")
        ranks.come(incarnation)
    ranks.spawn(2, 1, "a")
    ranks.come(2)
    assert ranks.started == [(0, 100), (1, 100), (2, 100)]


def test_what_is_done_grows_with_the_ranks() -> None:
    def all_come(size: int) -> Any:
        def run() -> None:
            ranks = Ranks()
            for rank in range(size):
                ranks.spawn(rank, rank, f"h{rank // 8}")
            for rank in reversed(range(size)):
                ranks.come(rank)
            ranks._lose_ranks("h0")
            assert len(ranks.started) == size

        return run

    assert growth(all_come, 64, 512) < 1.2

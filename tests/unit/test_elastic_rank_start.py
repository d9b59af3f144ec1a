"""When the ranks of an elastic job are started: once the first of those that live has named free ports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ringleader.launch.elastic import facts as f
from ringleader.launch.elastic.orders import Spawn
from ringleader.launch.elastic.rank_connections import RankConnections


class Ranks(RankConnections):
    """Ranks whose start is noted."""

    def __init__(self) -> None:
        self.told: list[f.Fact] = []
        nobody: Any = SimpleNamespace(drop=lambda connection: None, send=lambda connection, message: None)
        context: Any = SimpleNamespace(listener=None)
        super().__init__(
            context, nobody, nobody, self.told.append,
            files=None, reads=False, payload=b"", open_files=0, clock=lambda: 0.0,
        )  # fmt: skip
        self.started: list[tuple[int, int]] = []

    def _start(self, rank: Any, ports: Any) -> None:
        rank.begun = True
        self.started.append((rank.incarnation, ports.master))

    def spawn(self, incarnation: int, place: int, host: str) -> None:
        where: Any = SimpleNamespace(host=SimpleNamespace(name=host))
        prepared: Any = SimpleNamespace(plan=SimpleNamespace(hosts=[where]))
        self.add(
            Spawn(incarnation=incarnation, host=host, slot=0, world=1, restarts=0),
            prepared,
            SimpleNamespace(rank=place, host_index=0),  # type: ignore[arg-type]
        )

    def come(self, incarnation: int) -> None:
        connection: Any = SimpleNamespace(rank=None)
        self.hello(connection, {"rank": incarnation, "free_port": 100 + incarnation, "jax_port": 1})


def test_all_wait_for_the_ports_of_the_first() -> None:
    ranks = Ranks()
    ranks.spawn(0, 0, "a")
    ranks.spawn(1, 1, "b")
    ranks.come(1)
    assert not ranks.started
    ranks.come(0)
    assert ranks.started == [(0, 100), (1, 100)]


def test_who_waits_for_a_rank_of_a_host_that_is_lost_starts() -> None:
    ranks = Ranks()
    ranks.spawn(0, 0, "a")
    ranks.spawn(1, 1, "b")
    ranks.come(1)
    ranks.lose_host("a")
    assert ranks.started == [(1, 101)]


def test_a_later_rank_starts_at_once() -> None:
    ranks = Ranks()
    for incarnation in (0, 1):
        ranks.spawn(incarnation, incarnation, "a")
        ranks.come(incarnation)
    ranks.spawn(2, 1, "a")
    ranks.come(2)
    assert ranks.started == [(0, 100), (1, 100), (2, 100)]

"""A rank that waits for its next generation: as long as its host agent lives, and no longer."""

import select
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaitsError
from pathlib import Path
from typing import Any

import pytest

from ringleader.agents.elastic.generation_server import GenerationService
from ringleader.engine.exceptions import WorldError
from ringleader.engine.mpi_proxy import membership

pytestmark = pytest.mark.process
SECONDS = 10.0


class Agent:
    """The host agent's service, in a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waits = threading.Event()
        self._orders: list[Any] = []
        self._ends = False
        self._service = GenerationService(str(path), self._heard)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _heard(self, words: dict[str, Any]) -> None:
        if words["do"] == "rank_waiting":
            self.waits.set()

    def _serve(self) -> None:
        while not self._ends:
            poll = select.poll()
            for fd, events in self._service.interests():
                poll.register(fd, events)
            for fd, events in poll.poll(10):
                self._service.serve(fd, events)
            while self._orders:
                self._orders.pop()(self._service)
        self._service.close()

    def order(self, act: Any) -> None:
        self._orders.append(act)

    def end(self) -> None:
        self._ends = True
        self._thread.join(SECONDS)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path / "agent.sock")
    yield made
    made.end()


@pytest.fixture
def waiting(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Iterator[Future[Any]]:
    """A rank that waits, and has done so for longer than it waits for anything else."""
    monkeypatch.setattr(membership, "WAIT_SECONDS", 0.05)
    environ = {membership.SOCKET: str(agent.path), membership.INCARNATION: "4", membership.TIMEOUT: "0.1"}
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(membership.ElasticRank().join, environ, {})
        assert agent.waits.wait(SECONDS)
        with pytest.raises(StillWaitsError):
            found.result(0.5)
        try:
            yield found
        finally:
            agent.end()


def test_it_waits_until_it_is_told_something(agent: Agent, waiting: Future[Any]) -> None:
    agent.order(lambda service: service.leave(4, "its slot is not used any more"))
    with pytest.raises(SystemExit) as end:
        waiting.result(SECONDS)
    assert end.value.code == 0


def test_without_its_host_agent_it_ends_with_an_error_that_says_so(
    agent: Agent, waiting: Future[Any]
) -> None:
    agent.end()
    with pytest.raises(WorldError, match="the host agent has ended"):
        waiting.result(SECONDS)

"""When the ranks of an elastic job are started: once the first of those that live has named free ports."""

from types import SimpleNamespace

from tests.operations import growth

from ringleader.launch.elastic.elastic_session import ElasticJob, ElasticRank
from ringleader.launch.supervision.session import Channels, Session
from ringleader.plan.job import Job


class Ranks(ElasticJob):
    """As much of a job as starts ranks, whose starts are noted."""

    def __init__(self):
        nobody = SimpleNamespace(drop=lambda connection: None, send=lambda connection, message: None)
        channels = Channels(selector=nobody, server=nobody, listener=nobody)
        Session.__init__(self, Job(command=("x",)), channels)
        self.told = []
        self.started = []
        self._ports, self._stopping = None, False
        self._ready, self._lowest = {}, None

    def take(self, do, **words):
        self.told.append(do)

    def _start(self, rank, ports):
        rank.begun = True
        self.started.append((rank.incarnation, ports.master))

    def spawn(self, incarnation, place, host):
        where = SimpleNamespace(host=SimpleNamespace(name=host))
        prepared = SimpleNamespace(plan=SimpleNamespace(hosts=[where]))
        there = SimpleNamespace(rank=place, host_index=0)
        self.add(ElasticRank(incarnation, 0, prepared, there))

    def come(self, incarnation):
        connection = SimpleNamespace(rank=None)
        words = {"do": "hello", "rank": incarnation, "free_port": 100 + incarnation, "jax_port": 1}
        self.hello(connection, words)


def test_all_wait_for_the_ports_of_the_first():
    ranks, lost = Ranks(), Ranks()
    for job in (ranks, lost):
        job.spawn(0, 0, "a")
        job.spawn(1, 1, "b")
        job.come(1)
        assert not job.started
    ranks.come(0)
    assert sorted(ranks.started) == [(0, 100), (1, 100)]
    ranks.spawn(2, 1, "a")
    ranks.come(2)
    assert ranks.started[2:] == [(2, 100)], "a later one starts at once"
    lost._lose_ranks("a")
    assert lost.started == [(1, 101)], "who waited for a rank of a host that is lost starts"


def test_what_is_done_grows_with_the_ranks():
    def all_come(size):
        def run():
            ranks = Ranks()
            for rank in range(size):
                ranks.spawn(rank, rank, f"h{rank // 8}")
            for rank in reversed(range(size)):
                ranks.come(rank)
            ranks._lose_ranks("h0")
            assert len(ranks.started) == size

        return run

    assert growth(all_come, 64, 512) < 1.2

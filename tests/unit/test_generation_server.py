"""The host agent's service of generations, over a real socket: ranks and proxies are connections of ours."""

import errno
import mmap
import os
import select
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ringleader.agents import unix_messages
from ringleader.agents.elastic.generation_client import (
    AgentGoneError,
    Generation,
    ProxyConnection,
    RankConnection,
)
from ringleader.agents.elastic.generation_page import BOTH, PageReader, PageWriter
from ringleader.agents.elastic.generation_server import RING_BYTES, GenerationService
from ringleader.engine.exceptions import WorldError
from ringleader.engine.mpi_proxy import membership


def test_who_is_told_first_stays():
    for told, known in (
        ([(1, None), (1, 137)], (1, 137)),
        ([(None, None), (2, 3)], (2, 3)),
        ([(1, None), (2, 3)], (1, None)),
    ):
        writer = PageWriter(5)
        reader = PageReader(writer.fd)
        for rank, code in told:
            writer.mark_broken(rank, code)
        assert reader.why() == known
        writer.close()


def segment(host, one, nbytes=8192, *, key="flags", generation=3):
    """Have a rank or a proxy ask for memory; the answer and its descriptors."""
    one.say(do="segment", generation=generation, key=key, nbytes=nbytes)
    host.serve()
    return one.answer("segment", key)


pytestmark = pytest.mark.process
SECONDS = 10.0


class Host:
    """A service, and who is connected to it. Whoever waits for an answer has it served meanwhile."""

    def __init__(self, path):
        self.path = path
        self.heard = []
        self.service = GenerationService(path, self.heard.append)

    def serve(self):
        """Serve until nothing more comes."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            poll = select.poll()
            for fd, events in self.service.interests():
                poll.register(fd, events)
            came = poll.poll(20)
            if not came:
                return
            for fd, events in came:
                self.service.serve(fd, events)

    def events(self, kind):
        self.serve()
        return [one for one in self.heard if one["do"] == kind]

    def order(self, number, incarnations, world=1):
        members = [[incarnation, rank, 0, rank % 2] for rank, incarnation in enumerate(incarnations)]
        return {
            "do": "generation",
            "number": number,
            "world": world,
            "restore": 7,
            "members": members,
            "arrivals": ["new", "as it was"],
        }


@pytest.fixture(params=["host_agent.sock", "d" * 120 + "/host_agent.sock"], ids=["short", "long"])
def host(tmp_path, request):
    path = tmp_path / request.param
    path.parent.mkdir(exist_ok=True)
    made = Host(str(path))
    yield made
    made.service.close()


@pytest.fixture
def pair(host):
    """Two ranks, incarnations 10 and 11, and two proxies of world 1."""
    ranks = [RankConnection(host.path, incarnation) for incarnation in (10, 11)]
    proxies = [
        ProxyConnection(host.path, world=1, world_rank=rank, size=2, library="an MPI") for rank in (0, 1)
    ]
    host.serve()
    yield ranks, proxies
    for one in (*ranks, *proxies):
        one.close()


def started(host, ranks, number=3):
    host.service.begin(host.order(number, [rank.incarnation for rank in ranks]))
    found = [rank.next_generation(SECONDS) for rank in ranks]
    assert all(found)
    return [one for one in found if one is not None]


def test_a_generation_begins(host, pair):
    ranks, proxies = pair
    assert [peer.hello["incarnation"] for peer in host.service._of_kind("rank")] == [10, 11]
    assert [one["world_rank"] for one in host.events("proxy_ready")] == [0, 1]
    told = {"after": 0, "commits": [4, 5], "reason": "start", "arrival": "new"}
    ranks[0].wait(**told)
    assert host.events("rank_waiting") == [{"do": "rank_waiting", "incarnation": 10} | told]
    found = started(host, ranks)
    assert [one.rank for one in found] == [0, 1]
    assert {(one.number, one.restore) for one in found} == {(3, 7)}
    assert [one.arrivals for one in found] == [["new", "as it was"]] * 2
    assert PageReader(found[0].page_fd).generation == 3
    for rank, one in enumerate(found):
        order = proxies[rank].order(SECONDS)
        assert order is not None
        theirs = Generation(*order)
        assert theirs.rank == rank
        with mmap.mmap(one.ring_fd, RING_BYTES) as mine, mmap.mmap(theirs.ring_fd, RING_BYTES) as its:
            mine[:4] = b"ring"
            assert its[:4] == b"ring"
        os.eventfd_write(one.wake_fd, 5)
        assert os.eventfd_read(theirs.wake_fd) == 5
        os.eventfd_write(theirs.done_fd, 6)
        assert os.eventfd_read(one.done_fd) == 6
        theirs.close()
        one.close()
    ranks[1].attached(3)
    assert host.events("rank_attached") == [{"do": "rank_attached", "incarnation": 11, "generation": 3}]


def test_memory_of_a_rank_that_ended_is_not_held_by_the_next_with_its_descriptor(host, pair):
    ranks, _proxies = pair
    started(host, ranks)
    before = set(os.listdir("/proc/self/fd"))
    os.close(segment(host, ranks[1])[1][0])
    ranks[1].close()
    host.serve()
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in set(os.listdir("/proc/self/fd")) - before if fd]
    assert not [link for link in links if "memfd:ringleader " in link]
    message, fds = segment(host, ranks[0], 4096)
    assert message["nbytes"] == 4096
    again = RankConnection(host.path, 12)  # its descriptor in the service is that of the rank that ended
    again.free_segment(3, "flags")
    host.serve()
    more = segment(host, ranks[0], 4096)[1]
    assert os.fstat(more[0]).st_ino == os.fstat(fds[0]).st_ino, "the memory that rank 0 holds was dropped"
    for fd in (*fds, *more):
        os.close(fd)
    again.close()


@pytest.mark.parametrize("leaves", [False, True], ids=["lost", "ordered to leave"])
def test_a_lost_proxy_or_rank_breaks_its_generation_and_one_that_left_does_not(host, pair, leaves):
    ranks, proxies = pair
    page = PageReader(started(host, ranks)[0].page_fd)
    if leaves:
        ranks[1].detached(3)
        ranks[1].close()
        assert host.events("rank_gone") == [{"do": "rank_gone", "incarnation": 11, "generation": 0}]
        host.service.end_world(1)
    proxies[1].close()
    assert host.events("proxy_gone") == [{"do": "proxy_gone", "world": 1, "world_rank": 1}]
    assert page.broken() is not leaves
    assert page.why() == (None if leaves else (None, None))


@pytest.mark.parametrize(("generation", "key"), [(2, "flags"), (3, "nobody asked for it")])
def test_memory_that_is_not_there(host, pair, generation, key):
    ranks, proxies = pair
    started(host, ranks)
    proxies[0].say(do="segment", generation=generation, key=key)
    host.serve()
    message, fds = proxies[0].answer("segment", key)
    assert fds == []
    assert message["why"]


def test_a_rank_that_ends_breaks_its_generation(host, pair):
    ranks, proxies = pair
    page = PageReader(started(host, ranks)[0].page_fd)
    assert not page.broken()
    assert page.why() is None
    ranks[1].close()
    assert host.events("rank_gone") == [{"do": "rank_gone", "incarnation": 11, "generation": 3}]
    assert page.broken()
    assert page.why() == (1, None)
    host.service.end({"number": 3, "rank": 1, "incarnation": 11, "signal": 9})
    assert page.why() == (1, 137)
    for proxy in proxies:
        orders = [proxy.order(SECONDS), proxy.order(SECONDS), proxy.order(0)]
        assert [order and order[0]["do"] for order in orders] == ["generation", "end_generation", None]


def test_a_member_that_ended_before_the_order_came(host, pair):
    ranks, _proxies = pair
    ranks[1].close()
    host.serve()
    host.service.begin(host.order(3, [10, 11]))
    found = ranks[0].next_generation(SECONDS)
    assert PageReader(found.page_fd).why() == (1, None)


def test_updates_and_notices_stay_known(host, pair):
    ranks, _proxies = pair
    page = PageReader(started(host, ranks, number=3)[0].page_fd)
    assert (page.updates(), page.leaving(), page.preparing()) == ((0, 0), False, False)
    host.service.notify(2, BOTH)
    host.service.set_preparing(True)
    host.service.notice()
    later = PageReader(started(host, ranks, number=4)[0].page_fd)
    for one in (page, later):
        assert (one.updates(), one.leaving(), one.preparing()) == ((2, BOTH), True, True)
    host.service.set_preparing(False)
    assert not later.preparing()


def test_the_end_of_the_agent(host, pair):
    ranks, proxies = pair
    host.service.close()
    with pytest.raises(AgentGoneError):
        proxies[0].order(SECONDS)
    with pytest.raises(AgentGoneError):
        ranks[0].next_generation(SECONDS)
    with pytest.raises(AgentGoneError, match="no host agent"):
        RankConnection(host.path, 12)


def test_no_descriptors_are_left_behind(host, pair):
    ranks, proxies = pair

    def life(number):
        for one in started(host, ranks, number):
            one.close()
        os.close(segment(host, ranks[0], 4096, key="memory", generation=number)[1][0])
        for proxy in proxies:
            while (order := proxy.order(0)) is not None:
                for fd in order[1]:
                    os.close(fd)

    life(1)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(2, 20):
        life(number)
    assert len(os.listdir("/proc/self/fd")) == before


def test_junk_on_the_socket_ends_the_connection_alone(host, pair):
    ranks, _proxies = pair
    ranks[0]._sock.sendall(b"[1, 2")
    host.serve()
    assert [one["incarnation"] for one in host.events("rank_gone")] == [10]
    assert len(started(host, ranks[1:])) == 1


def test_a_generation_of_thousands_begins(host, pair):
    """What is said of its members, each of which arrives in its own way, is longer than a packet may be."""
    (ranks, proxies), size = pair, 4096
    arrivals = [f'{{"entry":[0,0,1,0],"cpus":"{n}-{n + 7}","host":"node{n}"}}' for n in range(size)]
    order = {
        **host.order(3, []),
        "members": [[10 + number, number, number // 8, number] for number in range(size)],
        "arrivals": arrivals,
        "hosts": [f"node{number}" for number in range(size // 8)],
    }
    host.service.begin(order)
    for number, rank in enumerate(ranks):
        generation = rank.next_generation(SECONDS)
        assert generation is not None and generation.rank == number
        assert generation.arrivals == arrivals and len(generation.world_ranks) == size
        assert PageReader(generation.page_fd).generation == 3
        generation.close()
    for number, proxy in enumerate(proxies):
        assert Generation(*proxy.order(SECONDS)).rank == number


def test_a_process_that_cannot_be_told_hears_of_its_end(host, pair, monkeypatch):
    """Without it the generation would lack a member for as long as the launcher waits."""
    ranks, _ = pair
    send = unix_messages.send

    def refuses(sock, message, fds=()):
        if message.get("do") == "generation" and message.get("rank") == 1 and len(fds) == 4:
            raise OSError(errno.EMSGSIZE, "Message too long")
        send(sock, message, fds)

    with monkeypatch.context() as patch:
        patch.setattr(unix_messages, "send", refuses)
        host.service.begin(host.order(3, [10, 11]))
    assert [one["incarnation"] for one in host.events("rank_gone")] == [11]
    with pytest.raises(AgentGoneError):
        ranks[1].next_generation(SECONDS)


@pytest.mark.parametrize("agent_ends", [False, True])
def test_a_rank_waits_for_its_next_generation_as_long_as_its_agent_lives(host, monkeypatch, agent_ends):
    """Longer than it waits for anything else."""
    monkeypatch.setattr(membership, "WAIT_SECONDS", 0.05)
    environ = {membership.SOCKET: host.path, membership.INCARNATION: "4", membership.TIMEOUT: "0.1"}
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(membership.ElasticRank().join, environ, {})
        while not host.events("rank_waiting"):
            assert not found.done()
        for _ in range(5):
            time.sleep(0.1)
            host.serve()
        assert not found.done()
        if agent_ends:
            host.service.close()
            with pytest.raises(WorldError, match="the host agent has ended"):
                found.result(SECONDS)
        else:
            host.service.leave(4, "its slot is not used any more")
            host.serve()
            with pytest.raises(SystemExit) as end:
                found.result(SECONDS)
            assert end.value.code == 0

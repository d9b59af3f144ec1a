"""What the engine counts of the bytes that it hands over."""

import pytest

from ringleader.engine.traffic import SHORT, CommunicatorTraffic, GroupTraffic, LibraryBytes, as_report


def counted(*, rank: int = 0, size: int = 4, here: tuple[int, ...] = (0, 1)) -> CommunicatorTraffic:
    hosts = 1 if len(here) == size else size // len(here)
    return CommunicatorTraffic(LibraryBytes(), rank=rank, size=size, host_ranks=here, hosts=hosts)


def sums(traffic: CommunicatorTraffic) -> dict[str, int]:
    fields = {name: getattr(traffic.total, name) for name in LibraryBytes.__slots__}
    return {name: value for name, value in fields.items() if value}


def test_messages_to_other_hosts_are_counted_exactly() -> None:
    traffic = counted()
    traffic.messages([(1, None, 10), (2, None, 20)], [(1, None, 1), (3, None, 300)])
    exact = {"sent_least": 300, "sent_most": 300, "received_least": 20, "received_most": 20}
    assert sums(traffic) == {"local": 1, "handed": 300, **exact}


@pytest.mark.parametrize("call", ["allreduce", "reduce_scatter"])
def test_on_one_host_nothing_is_sent(call: str) -> None:
    assert bounds(2, 1) == (NBYTES, NBYTES), "between two single ranks it is known exactly"
    traffic = counted()
    traffic.alltoall([7, 0, 3, 4], [7, 1, 5, 6])  # what a rank gives to itself goes nowhere
    total = traffic.total
    assert (total.sent_least, total.received_least, total.local) == (11, 7, 1)
    traffic = counted(size=2)
    getattr(traffic, call)(100)
    assert sums(traffic) == {"local": 100}


LAYOUTS = ((2, 1), (2, 8), (8, 8))
"""Hosts, and ranks on each."""
NBYTES = 64 << 20


def bounds(hosts: int, ranks: int, nbytes: int = NBYTES) -> tuple[int, int]:
    """Return the least and the most that the ranks of one host send, as they count it."""
    size, here = hosts * ranks, tuple(range(ranks))
    every = [
        CommunicatorTraffic(LibraryBytes(), rank=rank, size=size, host_ranks=here, hosts=hosts)
        for rank in here
    ]
    for one in every:
        one.allreduce(nbytes)
        assert one.total.sent_least == one.total.received_least
        assert one.total.sent_most == one.total.received_most
    return sum(one.total.sent_least for one in every), sum(one.total.sent_most for one in every)


def ring(hosts: int, ranks: int) -> list[int]:
    """Return what each host sends where every rank passes 2 (n-1) parts on to its successor."""
    size = hosts * ranks
    sent = [0] * hosts
    for rank in range(size):
        host, after = rank // ranks, (rank + 1) % size // ranks
        sent[host] += 2 * (size - 1) * (NBYTES // size) * (host != after)
    return sent


def double_tree(hosts: int, ranks: int) -> list[int]:
    """Return what each host sends in NCCL's two trees (``src/graph/trees.cc`` of 2.21), half of it in each.

    A host sends the sum of its part of the tree up, and the result down to each child. In the second tree the
    hosts are mirrored, so that who has children in one is a leaf in the other.
    """

    def parent(host: int) -> int | None:
        if host == 0:
            return None
        bit = host & -host
        up = (host ^ bit) | (bit << 1)
        return up if up < hosts else host ^ bit

    sent = [0] * hosts
    for mirror in (False, True):
        for host in range(hosts):
            if (above := parent(host)) is not None:
                first, second = (hosts - 1 - host, hosts - 1 - above) if mirror else (host, above)
                sent[first] += NBYTES // 2
                sent[second] += NBYTES // 2
    return sent


def engine(hosts: int, ranks: int) -> list[int]:
    """Return what each host sends where its ranks exchange their slices with their like on other hosts."""
    sent = []
    for host in range(hosts):
        total = LibraryBytes()
        for _ in range(ranks):
            line = CommunicatorTraffic(total, rank=host, size=hosts, host_ranks=(host,), hosts=hosts)
            part = NBYTES // ranks // hosts
            others = [(peer, None, part) for peer in range(hosts) if peer != host]
            line.messages(others, others)  # reduce-scatter
            line.messages(others, others)  # allgather
        assert total.sent_least == total.sent_most == total.received_least
        sent.append(total.sent_most)
    return sent


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", [ring, double_tree, engine])
def test_what_algorithms_move_is_within_the_bounds_of_an_allreduce(layout, algorithm):
    least, most = bounds(*layout)
    assert all(least <= sent <= most for sent in algorithm(*layout)), algorithm(*layout)
    assert least == NBYTES and most <= 2 * least


def test_ranks_dealt_out_one_by_one_pass_everything_on_to_other_hosts() -> None:
    traffic = CommunicatorTraffic(LibraryBytes(), rank=0, size=4, host_ranks=(0, 2), hosts=2)
    traffic.allreduce(NBYTES)
    assert 2 * traffic.total.sent_most == 2 * (2 * NBYTES * 3 // 4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_short_arrays_may_be_sent_in_every_round(layout: tuple[int, int]) -> None:
    least, most = bounds(*layout, nbytes=SHORT)
    doubled_ring = 4 * SHORT * (layout[0] * layout[1] - 1) // (layout[0] * layout[1])
    recursive = layout[1] * SHORT * (layout[0] - 1).bit_length()
    assert least == SHORT and most >= max(doubled_ring, recursive)


def test_an_allgather_sends_ones_own_at_least_once() -> None:
    traffic = counted(rank=1)
    traffic.allgather([1, 10, 100, 1000])
    least = {"handed": 10, "sent_least": 10, "received_least": 550}
    assert sums(traffic) == {**least, "sent_most": 1111, "received_most": 1111}


@pytest.mark.parametrize(
    ("rank", "here", "sent", "received"), [(0, (0, 1), 100, 0), (1, (0, 1), 0, 0), (2, (2, 3), 0, 50)]
)
def test_a_broadcast_leaves_its_root(rank: int, here: tuple[int, ...], sent: int, received: int) -> None:
    traffic = counted(rank=rank, here=here)
    traffic.broadcast(100, 0)
    assert (traffic.total.sent_least, traffic.total.received_least) == (sent, received)
    assert traffic.total.sent_most == 200


def test_the_report_sums_over_groups() -> None:
    first, second = GroupTraffic(), GroupTraffic()
    first.shared, second.shared = 5, 6
    first.of_library("mpi").local = 1
    second.of_library("mpi").local = 2
    second.of_library("gloo").handed = 4
    report = as_report([first, second])
    assert (report["kind"], report["shared"]) == ("traffic", 11)
    libraries = report["libraries"]
    assert libraries["mpi"]["local"] == 3 and libraries["gloo"]["handed"] == 4


def test_peers_are_told_unless_they_are_very_many() -> None:
    group = GroupTraffic()
    peers = [group.peers.setdefault(number, [0, 0]) for number in (0, 1, 4, 5)]
    traffic = CommunicatorTraffic(
        group.of_library("mpi"), rank=0, size=4, host_ranks=(0, 1), hosts=2, peers=peers
    )
    traffic.messages([(1, None, 10), (2, None, 20)], [(1, None, 1), (3, None, 300)])
    assert as_report([group, group])["peers"] == {"4": [0, 40], "5": [600, 0]}
    crowd = GroupTraffic()
    crowd.peers.update({number: [1, 1] for number in range(100)})
    assert as_report([crowd])["peers"] == {}

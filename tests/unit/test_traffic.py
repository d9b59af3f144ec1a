"""What the engine counts of the bytes that it hands over."""

from __future__ import annotations

import pytest

from ringleader.engine.traffic import CommunicatorTraffic, GroupTraffic, LibraryBytes, as_report


def counted(*, rank: int = 0, size: int = 4, here: tuple[int, ...] = (0, 1)) -> CommunicatorTraffic:
    hosts = 1 if len(here) == size else size // len(here)
    return CommunicatorTraffic(LibraryBytes(), rank=rank, size=size, host_ranks=here, hosts=hosts)


def sums(traffic: CommunicatorTraffic) -> dict[str, int]:
    fields = {name: getattr(traffic.total, name) for name in LibraryBytes.__slots__}
    return {name: value for name, value in fields.items() if value}


def test_messages_to_other_hosts_are_counted_exactly() -> None:
    traffic = counted()
    traffic.messages([(1, None, 10), (2, None, 20)], [(1, None, 1), (3, None, 300)])
    assert sums(traffic) == {
        "local": 1,
        "handed": 300,
        "sent_least": 300,
        "sent_most": 300,
        "received_least": 20,
        "received_most": 20,
    }


def test_what_a_rank_gives_to_itself_goes_nowhere() -> None:
    traffic = counted()
    traffic.alltoall([7, 0, 3, 4], [7, 1, 5, 6])
    assert sums(traffic)["sent_least"] == 11 and sums(traffic)["received_least"] == 7
    assert sums(traffic)["local"] == 1


@pytest.mark.parametrize("call", ["allreduce", "reduce_scatter"])
def test_on_one_host_nothing_is_sent(call: str) -> None:
    traffic = counted(size=2)
    getattr(traffic, call)(100)
    assert sums(traffic) == {"local": 100}


def test_an_allreduce_has_bounds() -> None:
    traffic = counted()
    traffic.allreduce(100)
    assert sums(traffic) == {
        "handed": 100,
        "sent_least": 50,
        "received_least": 50,
        "sent_most": 200,
        "received_most": 200,
    }


def test_an_allgather_sends_ones_own_at_least_once() -> None:
    traffic = counted(rank=1)
    traffic.allgather([1, 10, 100, 1000])
    assert sums(traffic) == {
        "handed": 10,
        "sent_least": 10,
        "sent_most": 1111,
        "received_least": 550,
        "received_most": 1111,
    }


@pytest.mark.parametrize(
    ("rank", "here", "sent", "received"), [(0, (0, 1), 100, 0), (1, (0, 1), 0, 0), (2, (2, 3), 0, 50)]
)
def test_a_broadcast_leaves_its_root(rank: int, here: tuple[int, ...], sent: int, received: int) -> None:
    traffic = counted(rank=rank, here=here)
    traffic.broadcast(100, 0)
    assert (traffic.total.sent_least, traffic.total.received_least) == (sent, received)
    assert traffic.total.sent_most == 200


def test_least_is_never_more_than_most() -> None:
    for size, here in ((2, (0,)), (4, (0, 1)), (8, (0,)), (6, (0, 1, 2))):
        traffic = counted(size=size, here=here)
        traffic.allreduce(960)
        traffic.reduce_scatter(960)
        traffic.broadcast(960, size - 1)
        traffic.allgather([960] * size)
        assert traffic.total.sent_least <= traffic.total.sent_most
        assert traffic.total.received_least <= traffic.total.received_most


def test_the_report_sums_over_groups() -> None:
    first, second = GroupTraffic(), GroupTraffic()
    first.shared, second.shared = 5, 6
    first.of_library("mpi").local = 1
    second.of_library("mpi").local = 2
    second.of_library("gloo").handed = 4
    report = as_report([first, second])
    assert (report["kind"], report["shared"]) == ("traffic", 11)
    libraries = report["libraries"]
    assert isinstance(libraries, dict)
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

"""Closed formulas against the simulation, and what no formula may do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.predict import event_simulation as simulation

from ringleader.predict.exchange_cost import ALGORITHMS, TREE_PIECE, Shape, all_reduce_seconds, server_traffic
from ringleader.predict.networks import Link, Network, from_curve

LINK = Link(name="a", bandwidth=1e9, latency=1e-5)
NETWORK = Network(name="a", between=LINK, within=LINK)
PIECES = round(1e8 / 2 / TREE_PIECE)


def formula(algorithm: str, size: float, hosts: int, **servers: int | bool) -> float:
    shape = Shape(hosts=hosts, per_host=1, **servers)  # type: ignore[arg-type]
    return all_reduce_seconds(algorithm, size, shape, NETWORK)


def simulated(messages: list[simulation.Message]) -> float:
    return simulation.duration(messages, bandwidth=LINK.bandwidth, latency=LINK.latency)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e8])
def test_an_exchange_takes_what_its_messages_take(size: float) -> None:
    for count in (2, 3, 8, 16):
        ring = formula("ring", size, count)
        assert ring == pytest.approx(simulated(simulation.ring(count, size)), rel=0.01)
        assert formula("hierarchical", size, count) == pytest.approx(ring)
    for count in (2, 4, 8):
        memory = (2 + 4) * size / LINK.rate  # values, sums and results of one rank on each host
        messages = simulated(simulation.pairwise(count, size))
        assert formula("engine", size, count) - memory == pytest.approx(messages, rel=0.01)
    for workers, servers, apart in ((4, 1, True), (8, 2, True), (8, 8, False)):
        messages = simulated(simulation.servers(workers, servers, size, apart=apart))
        closed = formula("servers", size, workers, servers=servers, servers_apart=apart)
        assert closed == pytest.approx(messages, rel=0.02)


@pytest.mark.parametrize(
    ("count", "size", "pieces", "error"),
    # Two trees over the same ports: which message goes first is not in the formula, hence the wider bound.
    [(4, 1e8, PIECES, 0.06), (16, 1e8, PIECES, 0.06), (8, 100.0, 1, 0.03)],
)
def test_trees_take_what_their_messages_take(count: int, size: float, pieces: int, error: float) -> None:
    messages = simulation.tree(count, size, pieces)
    assert formula("tree", size, count) == pytest.approx(simulated(messages), rel=error)


@pytest.mark.parametrize(
    ("per_host", "late"),
    # Its ports take messages as they come: the more members, the more often one has nothing to do.
    [(2, 1.03), (8, 1.4)],
)
def test_a_chain_within_a_host_takes_what_its_messages_take(per_host: int, late: float) -> None:
    messages: list[simulation.Message] = []
    for _ in range(pieces := round(1e8 / TREE_PIECE)):
        simulation.up_and_down(messages, [None, *range(per_host - 1)], range(per_host), 1e8 / pieces)
    seconds = all_reduce_seconds("tree", 1e8, Shape(hosts=1, per_host=per_host), NETWORK)
    assert 0.99 < simulated(messages) / seconds < late


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize(("hosts", "per_host"), [(1, 3), (1, 8), (64, 8)])
def test_no_bus_is_faster_than_the_link_within_a_host(algorithm: str, hosts: int, per_host: int) -> None:
    within, fast = (Link(name="w", bandwidth=rate, latency=0.0) for rate in (240e9, 47.5e9))
    network = Network(name="n", between=fast, within=within, ports=64)
    shape, size = Shape(hosts=hosts, per_host=per_host), 1e10
    moved = 2 * (shape.ranks - 1) / shape.ranks * size
    assert moved / all_reduce_seconds(algorithm, size, shape, network) <= within.rate * (1 + 1e-9)


def test_servers_beside_workers_carry_the_same_at_any_size_and_ports_share_the_bytes() -> None:
    # One server for all is the bottleneck; more servers than hosts share the hosts' ports.
    for hosts, servers, carried in ((4, 0, 75), (100, 0, 99), (10, 1, 900), (2, 4, 50)):
        shape = Shape(hosts=hosts, per_host=1, servers=servers)
        assert server_traffic(100.0, shape) == pytest.approx(carried)
    alone = Shape(hosts=1, per_host=2)
    assert all_reduce_seconds("servers", 1e9, alone, NETWORK) == pytest.approx(2 * LINK.seconds(1e9))
    two, shape = Network(name="a", between=LINK, within=LINK, ports=2), Shape(hosts=8, per_host=1)
    assert all_reduce_seconds("ring", 1e9, shape, two) == pytest.approx(formula("ring", 1e9, 8) / 2, rel=0.01)


@given(
    algorithm=st.sampled_from(ALGORITHMS),
    size=st.floats(1, 1e10),
    hosts=st.integers(1, 3000),
    per_host=st.integers(1, 16),
    factor=st.floats(1.01, 100),
)
def test_more_bytes_take_longer_and_more_bandwidth_does_not(
    algorithm: str, size: float, hosts: int, per_host: int, factor: float
) -> None:
    shape = Shape(hosts=hosts, per_host=per_host)
    now = all_reduce_seconds(algorithm, size, shape, NETWORK)
    fast = Link(name="b", bandwidth=LINK.bandwidth * factor, latency=LINK.latency)
    faster = all_reduce_seconds(algorithm, size, shape, Network(name="b", between=fast, within=fast))
    assert 0 <= faster <= now * (1 + 1e-9)
    assert now <= all_reduce_seconds(algorithm, size * factor, shape, NETWORK) * (1 + 1e-9)


def test_a_curve_is_read_between_its_points_and_carried_on_behind_them() -> None:
    link = from_curve("c", [(1e6, 1.1e-3), (1.0, 1e-4), (2e6, 2.1e-3)])
    assert [link.seconds(size) for size in (0, 1.5e6, 4e6)] == pytest.approx([1e-4, 1.6e-3, 4.1e-3])
    assert link.rate == pytest.approx(1e9) and link.latency == 1e-4
    for points, said in (
        ([(1, 1)], "at least two"),
        ([(1, 1), (1, 2)], "twice"),
        ([(1, 2), (2, 1)], "no longer"),
        ([(1, float("nan")), (2, 1)], "at least"),
        ([(1, 1e308), (2, 2e308)], "at most"),
    ):
        with pytest.raises(ValueError, match=said):
            from_curve("c", points)

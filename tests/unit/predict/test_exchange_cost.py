"""Closed formulas against the simulation, and what no formula may do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringleader.predict import event_simulation as simulation
from ringleader.predict.exchange_cost import ALGORITHMS, TREE_PIECE, Shape, all_reduce_seconds, server_traffic
from ringleader.predict.networks import Link, Network, from_curve

LINK = Link(name="a", bandwidth=1e9, latency=1e-5)
NETWORK = Network(name="a", between=LINK, within=LINK)


def formula(algorithm: str, size: float, hosts: int, **servers: int | bool) -> float:
    shape = Shape(hosts=hosts, per_host=1, **servers)  # type: ignore[arg-type]
    return all_reduce_seconds(algorithm, size, shape, NETWORK)


def simulated(messages: list[simulation.Message]) -> float:
    return simulation.duration(messages, bandwidth=LINK.bandwidth, latency=LINK.latency)


@pytest.mark.parametrize("count", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("size", [1e3, 1e6, 1e8])
def test_a_ring_takes_what_its_messages_take(count: int, size: float) -> None:
    assert formula("ring", size, count) == pytest.approx(simulated(simulation.ring(count, size)), rel=0.01)
    assert formula("hierarchical", size, count) == pytest.approx(formula("ring", size, count))


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("size", [1e3, 1e6, 1e8])
def test_the_engine_takes_what_its_messages_take(count: int, size: float) -> None:
    memory = (2 + 4) * size / LINK.rate  # values, sums and results of one rank on each host
    messages = simulated(simulation.pairwise(count, size))
    assert formula("engine", size, count) - memory == pytest.approx(messages, rel=0.01)


@pytest.mark.parametrize("count", [4, 8, 16])
def test_trees_take_what_their_messages_take(count: int) -> None:
    # Two trees over the same ports: which message goes first is not in the formula, hence the wider bound.
    size = 1e8
    messages = simulation.tree(count, size, round(size / 2 / TREE_PIECE))
    assert formula("tree", size, count) == pytest.approx(simulated(messages), rel=0.06)


@pytest.mark.parametrize("count", [4, 8])
def test_a_small_tree_is_its_latency(count: int) -> None:
    assert formula("tree", 100.0, count) == pytest.approx(
        simulated(simulation.tree(count, 100.0, 1)), rel=0.03
    )


@pytest.mark.parametrize(
    ("workers", "servers", "apart"), [(4, 1, True), (8, 2, True), (8, 8, True), (8, 8, False)]
)
@pytest.mark.parametrize("size", [1e3, 1e7])
def test_servers_take_what_their_messages_take(workers: int, servers: int, apart: bool, size: float) -> None:
    messages = simulation.servers(workers, servers, size, apart=apart)
    closed = formula("servers", size, workers, servers=servers, servers_apart=apart)
    assert closed == pytest.approx(simulated(messages), rel=0.02)


def test_servers_beside_workers_carry_the_same_at_any_size() -> None:
    assert server_traffic(100.0, Shape(hosts=4, per_host=1)) == pytest.approx(75)
    assert server_traffic(100.0, Shape(hosts=100, per_host=1)) == pytest.approx(99)
    # One server for all is the bottleneck; more servers than hosts share the hosts' ports.
    assert server_traffic(100.0, Shape(hosts=10, per_host=1, servers=1)) == pytest.approx(900)
    assert server_traffic(100.0, Shape(hosts=2, per_host=1, servers=4)) == pytest.approx(50)


@settings(max_examples=50, deadline=None)
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


def test_ports_share_the_bytes() -> None:
    two = Network(name="a", between=LINK, within=LINK, ports=2)
    shape = Shape(hosts=8, per_host=1)
    assert all_reduce_seconds("ring", 1e9, shape, two) == pytest.approx(formula("ring", 1e9, 8) / 2, rel=0.01)


def test_a_curve_is_read_between_its_points_and_carried_on_behind_them() -> None:
    link = from_curve("c", [(1e6, 1.1e-3), (1.0, 1e-4), (2e6, 2.1e-3)])
    assert link.seconds(0) == 1e-4
    assert link.seconds(1.5e6) == pytest.approx(1.6e-3)
    assert link.seconds(4e6) == pytest.approx(4.1e-3)
    assert link.rate == pytest.approx(1e9) and link.latency == 1e-4


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([(1, 1)], "at least two"),
        ([(1, 1), (1, 2)], "twice"),
        ([(1, 2), (2, 1)], "no longer"),
        ([(1, -1), (2, 1)], "at least"),
        ([(1, float("nan")), (2, 1)], "at least"),
        ([(1, 1e308), (2, 2e308)], "at most"),
    ],
)
def test_a_curve_that_cannot_be_is_refused(points: list[tuple[float, float]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_curve("c", points)

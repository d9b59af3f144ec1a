"""Seconds that one all-reduce of S bytes takes on H hosts × g ranks, a closed formula per algorithm. Pure.

α: latency, B: bytes per second of one link; _i within a host, _n of all ports of a host; n = H · g.
Each formula is in the docstring of its function, with its source; `networks` has the links.
The tests compare them with a simulation, message by message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ringleader.predict.networks import Link, Network

TREE_PIECE = 512 * 1024
"""Bytes of a piece in a tree's pipeline (NCCL's buffers: 4 MiB in eight steps)."""
TREE_EFFICIENCY = 0.85
"""Part of the bandwidth that two trees over the same ports reach (NCCL, tuning.cc)."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Where the ranks are."""

    hosts: int
    per_host: int
    servers: int = 0
    """Parameter servers; 0: one on each host."""
    servers_apart: bool = False
    """True where servers have their own hosts, with ports like those of the workers'."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.hosts * self.per_host


def all_reduce_seconds(algorithm: str, size: float, shape: Shape, network: Network) -> float:
    """Return the seconds of one all-reduce of ``size`` bytes; 0 for one rank. KeyError: no such algorithm."""
    return _FORMULAS[algorithm](size, shape, network) if shape.ranks > 1 else 0.0


def _ring_over(count: int, size: float, link: Link, ports: int = 1) -> float:
    """2(n−1)·(α + S/(n·B)): 2(n−1) steps, each with a message of S/n (Patarasuk and Yuan 2009)."""
    return 2 * (count - 1) * link.seconds(size / count / ports) if count > 1 else 0.0


def _occupied(link: Link, size: float, ports: int = 1) -> float:
    """Seconds until a link takes the next message: without the latency."""
    return max(0.0, link.seconds(size / ports) - link.latency)


def _ring(size: float, shape: Shape, network: Network) -> float:
    """2(n−1)/n·S/B of the slowest link, and the latency of 2(n−1) hops, of which 2·H go between hosts.

    NCCL's own model adds the latencies like that (tuning.cc).
    """
    count, chunk = shape.ranks, size / shape.ranks
    if shape.hosts == 1:
        return _ring_over(count, size, network.within)
    hops = 2 * (count - 1)
    between = min(2 * shape.hosts, hops)
    latency = between * network.between.latency + (hops - between) * network.within.latency
    occupied = _occupied(network.between, chunk, network.ports)
    if shape.per_host > 1:
        occupied = max(occupied, _occupied(network.within, chunk))
    return latency + hops * occupied


def _tree(size: float, shape: Shape, network: Network) -> float:
    """2·⌈log2 H⌉·(α + c/B) + 2·S/(0.85·B): a double binary tree between hosts in pieces of c bytes.

    Sanders, Speck and Träff 2009. Within a host NCCL has a chain, of which an inner member sends S up and S
    down. The ends of a tree, or of a chain, send half of that.
    """
    piece = min(size / 2, TREE_PIECE)
    latency, carried = 0.0, 0.0
    if shape.hosts > 1:
        hops = math.ceil(math.log2(shape.hosts))
        latency += 2 * hops * network.between.seconds(piece / network.ports)
        sent = (2 if shape.hosts > 2 else 1) * _occupied(network.between, size, network.ports)
        carried = sent / TREE_EFFICIENCY
    if shape.per_host > 1:
        latency += 2 * (shape.per_host - 1) * network.within.seconds(piece)
        carried = max(carried, (2 if shape.per_host > 2 else 1) * _occupied(network.within, size))
    return latency + carried


def _hierarchical(size: float, shape: Shape, network: Network) -> float:
    """2(g−1)·(α_i + S/(g·B_i)), then a ring over H hosts, in which a host's ports carry S.

    One after the other, as Horovod's NCCLHierarchicalAllreduce waits for each phase (nccl_operations.cc).
    """
    within = _ring_over(shape.per_host, size, network.within)
    return within + _ring_over(shape.hosts, size, network.between, network.ports)


def _servers(size: float, shape: Shape, network: Network) -> float:
    """2(g−1)·S/B_i and 2·(α_n + max(S_host, S·W/p)/B_n): W hosts push to p servers, and pull.

    Before, g ranks sum over one bus.
    """
    local = 2 * (shape.per_host - 1) * network.within.seconds(size) if shape.per_host > 1 else 0.0
    if shape.hosts == 1 and not shape.servers_apart:
        return local
    return local + 2 * network.between.seconds(server_traffic(size, shape) / network.ports)


def server_traffic(size: float, shape: Shape) -> float:
    """Return the bytes through the busiest host, one way, of one push."""
    servers = shape.servers or shape.hosts
    if shape.servers_apart:
        return max(size, size * shape.hosts / servers)
    # A server needs no network for the worker beside it. Several servers on a host share its ports.
    beside = math.ceil(servers / shape.hosts)
    served = size * beside / servers * (shape.hosts - 1)
    least = servers // shape.hosts
    return max(served, size * (1 - least / servers))


def _engine(size: float, shape: Shape, network: Network) -> float:
    """One host: 2·α_i + 2·g·S/B_i. Several: (2·g+4)·S/B_i + 2·(α_n + (H−1)/H·S/B_n). Ringleader's engine.

    On one host g ranks sum in a shared window: g·S read and g·S written at the memory's rate B_i, between two
    barriers. On several, g·S are read and S written for the host's sum, S read for that of the hosts, 2·S for
    the average, g·S for the copies; every host sends each other one its part of the values, then the result
    of its part, pieces behind each other in both directions.
    """
    if shape.hosts == 1:
        return 2 * network.within.latency + 2 * shape.per_host * size / network.within.rate
    memory = (2 * shape.per_host + 4) * size / network.within.rate
    part = _occupied(network.between, size / shape.hosts, network.ports)
    return memory + 2 * (network.between.latency + (shape.hosts - 1) * part)


_FORMULAS = {
    "ring": _ring,
    "tree": _tree,
    "hierarchical": _hierarchical,
    "servers": _servers,
    "engine": _engine,
}
ALGORITHMS = tuple(_FORMULAS)

"""Seconds that one collective of S bytes takes on H hosts × g ranks, a closed formula per algorithm. Pure.

α: latency, B: bytes per second of one link; _i within a host, _n of all ports of a host; n = H · g.
Each formula is in the docstring of its function, with its source; `networks` has the links.
The tests compare them with a simulation, message by message.

Over links whose kind NCCL knows (NVLink, PCIe, RDMA) each algorithm has NCCL's three protocols, and the
fastest counts, as NCCL chooses. Their latencies and bandwidths, and what a launch costs, are those of NCCL's
own model (src/graph/tuning.cc, 2.30). Besides, a large message is cut into pieces, and with the best size of
pieces filling the pipeline adds 2·√(F·T) to the T seconds that its bytes take. F is fitted to published
all-reduces (``make bench-predict``) and part of a GPU's preset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from ringleader.predict.networks import Link, Network

TREE_PIECE = 512 * 1024
"""Bytes of a piece in a tree's pipeline (NCCL's buffers: 4 MiB in eight steps)."""
TREE_EFFICIENCY = 0.85
"""Part of the bandwidth that two trees over the same ports reach (NCCL, tuning.cc)."""
PHASE_PIECE = 4 * 1024 * 1024
"""Bytes after which the next phase of a hierarchical sum begins (NCCL's buffer)."""
_MICRO = 1e-6
_RING_LATENCIES = {"nvlink": (0.6, 1.9, 3.4), "pci": (1.0, 2.5, 5.7), "net": (2.7, 4.0, 14.0)}
_TREE_LATENCIES = {"nvlink": (0.6, 1.25, 4.0), "pci": (1.0, 1.9, 4.0), "net": (5.0, 8.5, 14.0)}
"""Microseconds of a hop by kind of link: LL, LL128, Simple (tuning.cc, hwLatencies)."""
_LAUNCH = (6.6, 14.0, 8.4)
"""Microseconds before the first hop, likewise (baseLatencies)."""
_PARTS = {"ring": (0.5, 0.92, 1.0), "tree": (1 / 3.8, 0.92, 1.0)}
"""Part of the bandwidth that each protocol carries."""
_OVERHEAD = (1.0, 1.0, 3.0)
"""Least microseconds of a hop within a host of a ring between hosts (getNetOverhead)."""
_SWITCH, _SWITCH_BETWEEN = 25 * _MICRO, 20.9 * _MICRO
"""Latencies of NVLS, and of each level of its tree between hosts."""
FILL_RANKS = 8
"""Ranks of a host for which a network's ``fill`` is."""
SWITCH_RANKS = 5
"""From this many ranks of a host NCCL sums in the switch (measured on H200, see ``gpus.toml``)."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Where the ranks of a group are."""

    hosts: int
    per_host: int
    servers: int = 0
    """Parameter servers; 0: one on each host."""
    servers_apart: bool = False
    """True where servers have hosts of their own, with ports like those of the workers'."""
    beside: int = 1
    """Groups of the same hosts that exchange at the same time, and share the ports."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.hosts * self.per_host


_Cost = tuple[float, float]
"""Seconds of latency, and seconds in which bytes are carried."""


def all_reduce_seconds(algorithm: str, size: float, shape: Shape, network: Network) -> float:
    """Return the seconds of one all-reduce of ``size`` bytes; 0 for one rank. KeyError: no such algorithm."""
    return collective_seconds("allreduce", algorithm, size, shape, network)


def collective_seconds(collective: str, algorithm: str, size: float, shape: Shape, network: Network) -> float:
    """Return the seconds of one collective; ``size``: bytes of the whole array; 0 for one rank.

    ``allreduce``, ``allgather``, ``reducescatter``, or ``sendrecv`` from each rank to another. NCCL gathers
    and scatters over hosts in rings, whatever sums. KeyError: no such algorithm.
    """
    if shape.ranks == 1:
        return 0.0
    if collective == "sendrecv":
        if shape.hosts == 1:
            return network.within.seconds(size)
        return network.between.seconds(size * shape.per_host * shape.beside / network.ports)
    if collective != "allreduce":
        return _protocols_seconds("ring", 1, size, shape, network)
    has_switch = network.switch > 0 and shape.per_host >= SWITCH_RANKS
    if algorithm == "nccl":
        names = ("ring", "tree", "nvls") if has_switch else ("ring", "tree")
        return min(all_reduce_seconds(name, size, shape, network) for name in names)
    if algorithm == "nvls" and not has_switch:
        algorithm = "tree"
    if algorithm in _PARTS:
        return _protocols_seconds(algorithm, 2, size, shape, network)
    fill = 0.0 if algorithm in ("servers", "engine") else _fill(algorithm, shape, network)
    return _total(_FORMULAS[algorithm](size, shape, network), fill)


def moved_bytes(collective: str, size: float, shape: Shape) -> float:
    """Return the bytes that each rank sends in a collective, and receives, in rings."""
    rounds = 2 if collective == "allreduce" else 1
    return size if collective == "sendrecv" else rounds * size * (shape.ranks - 1) / shape.ranks


def _protocols_seconds(algorithm: str, rounds: int, size: float, shape: Shape, network: Network) -> float:
    formula = _ring if algorithm == "ring" else _tree
    fill = _fill(algorithm, shape, network)
    return min(
        launch + _total(formula(rounds, size, shape, changed), fill)
        for launch, changed in _protocols(algorithm, network, shape.hosts > 1, shape.per_host > 1)
    )


@lru_cache(maxsize=1024)
def _protocols(algorithm: str, network: Network, between: bool, within: bool) -> list[tuple[float, Network]]:
    """Return what a launch costs, and the links as a message of that protocol meets them."""
    used = [network.within.kind] * within + [network.between.kind] * between
    if not all(used):
        return [(0.0, network)]
    table = _RING_LATENCIES if algorithm == "ring" else _TREE_LATENCIES
    found = []
    for at, (launch, part, least) in enumerate(zip(_LAUNCH, _PARTS[algorithm], _OVERHEAD, strict=True)):
        if at == 1 and "pci" in used:  # LL128 needs NVLink
            continue

        def changed(link: Link, at: int = at, part: float = part, least: float = 0.0) -> Link:
            latency = max(least, table[link.kind][at]) if link.kind else 0.0
            return replace(link, latency=_MICRO * latency, efficiency=part * link.efficiency)

        links = replace(
            network,
            between=changed(network.between),
            within=changed(network.within, least=least if between else 0.0),
        )
        found.append((_MICRO * launch, links))
    return found


def _fill(algorithm: str, shape: Shape, network: Network) -> float:
    """Return F: it grows with the ranks of a host, and with the levels of a tree between hosts."""
    levels = math.ceil(math.log2(shape.hosts)) if algorithm in ("tree", "nvls") else 0
    return network.fill * shape.per_host / FILL_RANKS + (
        levels * network.between.latency if network.fill else 0.0
    )


def _total(cost: _Cost, fill: float) -> float:
    latency, carried = cost
    return latency + carried + 2 * math.sqrt(fill * carried)


def _occupied(link: Link, size: float, ports: float = 1) -> float:
    """Seconds until a link takes the next message: without the latency."""
    return max(0.0, link.seconds(size / ports) - link.latency)


def _ring(rounds: int, size: float, shape: Shape, network: Network) -> _Cost:
    """2(n−1)/n·S/B of the slowest link, and the latency of 2(n−1) hops, 2(H−1) between hosts.

    Patarasuk and Yuan 2009; the latencies as NCCL's own model adds them (tuning.cc). ``rounds``: 1 to gather
    or to scatter.
    """
    hops, chunk = rounds * (shape.ranks - 1), size / shape.ranks
    between = rounds * (shape.hosts - 1)
    latency = between * network.between.latency + (hops - between) * network.within.latency
    occupied = 0.0
    if shape.hosts > 1:
        occupied = _occupied(network.between, chunk, network.ports / shape.beside)
    if shape.per_host > 1:
        occupied = max(occupied, _occupied(network.within, chunk))
    return latency, hops * occupied


def _tree(rounds: int, size: float, shape: Shape, network: Network) -> _Cost:
    """2·⌈log2 H⌉·(α + c/B) + 2·S/(0.85·B): a double binary tree between hosts in pieces of c bytes.

    Sanders, Speck and Träff 2009. Within a host NCCL has a chain, of which an inner member sends S up and S
    down. The ends of a tree, or of a chain, send half of that.
    """
    piece = min(size / 2, TREE_PIECE)
    ports = network.ports / shape.beside
    latency, carried = 0.0, 0.0
    if shape.hosts > 1:
        hops = math.ceil(math.log2(shape.hosts))
        latency += rounds * hops * network.between.seconds(piece / ports)
        sent = (2 if shape.hosts > 2 else 1) * _occupied(network.between, size, ports)
        carried = sent / TREE_EFFICIENCY
    if shape.per_host > 1:
        latency += rounds * (shape.per_host - 1) * network.within.seconds(piece)
        carried = max(carried, (2 if shape.per_host > 2 else 1) * _occupied(network.within, size))
    return latency, carried


def _phases(size: float, within: _Cost, between: _Cost) -> _Cost:
    """Latencies one after the other; of the rest the longer, and of the shorter the first piece."""
    longer, shorter = sorted((within[1], between[1]), reverse=True)
    return within[0] + between[0], longer + shorter / max(1.0, size / PHASE_PIECE)


def _hierarchical(size: float, shape: Shape, network: Network) -> _Cost:
    """A ring over g within the host, then one over H, in which a host's ports carry S; in pieces of 4 MiB.

    2(g−1)·(α_i + S/(g·B_i)) and 2(H−1)·(α_n + S/(H·B_n)): while a piece is between hosts, the next is summed
    within them.
    """
    one_host = replace(shape, hosts=1)
    within = _ring(2, size, one_host, network) if shape.per_host > 1 else (0.0, 0.0)
    between = _ring(2, size, replace(shape, per_host=1), network) if shape.hosts > 1 else (0.0, 0.0)
    return _phases(size, within, between)


def _nvls(size: float, shape: Shape, network: Network) -> _Cost:
    """α + S/B_s in the switch of a host, with a double binary tree between hosts; in pieces of 4 MiB.

    B_s: what GPUs of a host sum in their switch (NVLink SHARP). Between two hosts each sends S, else 2·S, as
    in `_tree`. Latencies: tuning.cc, NVLS and NVLSTree.
    """
    within, between = (_SWITCH, size / network.switch), (0.0, 0.0)
    if shape.hosts > 1:
        sent = (2 if shape.hosts > 2 else 1) * _occupied(network.between, size, network.ports / shape.beside)
        between = 2 * math.ceil(math.log2(shape.hosts)) * _SWITCH_BETWEEN, sent
    return _phases(size, within, between)


def _servers(size: float, shape: Shape, network: Network) -> _Cost:
    """2(g−1)·S/B_i and 2·(α_n + max(S_host, S·W/p)/B_n): W hosts push to p servers, and pull.

    Before, g ranks sum over one bus.
    """
    local = 2 * (shape.per_host - 1) * network.within.seconds(size) if shape.per_host > 1 else 0.0
    if shape.hosts == 1 and not shape.servers_apart:
        return local, 0.0
    return local + 2 * network.between.seconds(server_traffic(size, shape) / network.ports), 0.0


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


def _engine(size: float, shape: Shape, network: Network) -> _Cost:
    """One host: 2·α_i + 2·g·S/B_i. Several: (2·g+4)·S/B_i + 2·(α_n + (H−1)/H·S/B_n). Ringleader's engine.

    On one host g ranks sum in a shared window: g·S read and g·S written at the memory's rate B_i, between two
    barriers. On several, g·S are read and S written for the host's sum, S read for that of the hosts, 2·S for
    the average, g·S for the copies; every host sends each other one its part of the values, then the result
    of its part, pieces behind each other in both directions.
    """
    if shape.hosts == 1:
        return 2 * network.within.latency, 2 * shape.per_host * size / network.within.rate
    memory = (2 * shape.per_host + 4) * size / network.within.rate
    part = _occupied(network.between, size / shape.hosts, network.ports)
    return memory, 2 * (network.between.latency + (shape.hosts - 1) * part)


_FORMULAS = {"hierarchical": _hierarchical, "nvls": _nvls, "servers": _servers, "engine": _engine}
ALGORITHMS = ("nccl", "ring", "tree", "nvls", "hierarchical", "servers", "engine")
"""``nccl``: of ring, tree and nvls the fastest; nvls: tree where no switch sums."""

"""Evidence of hosts, in few words, for tests of the proof of the transport."""

from collections.abc import Mapping, Sequence
from typing import Any

from ringleader.fabric.transport_proof import evidence

MIB = 1 << 20
KINDS = {"ib0": "infiniband", "lo": "loopback"}
PORTS: Mapping[str, dict[str, Any]] = {
    "ib": {"link_layer": "InfiniBand", "node_type": 1, "driver": "mlx5_core"},
    "roce": {"link_layer": "Ethernet", "node_type": 1, "driver": "mlx5_core"},
    "iwarp": {"link_layer": "Ethernet", "node_type": 4, "driver": "erdma"},
    "efa": {"node_type": 7, "driver": "efa"},
    "rxe": {"link_layer": "Ethernet", "node_type": 1},
}
NAMES = {"ib": "mlx5_0/1", "roce": "mlx5_1/1", "iwarp": "erdma_0/1", "efa": "rdmap0s6/1", "rxe": "rxe0/1"}


def between(mib: float, most: float | None = None) -> evidence.LibraryTraffic:
    """Return this many MiB to and from other hosts, half in each direction."""
    half, most_half = int(mib * MIB / 2), int((mib if most is None else most) * MIB / 2)
    return evidence.LibraryTraffic(
        handed=half, sent_least=half, received_least=half, sent_most=most_half, received_most=most_half
    )


def local(mib: float) -> evidence.LibraryTraffic:
    return evidence.LibraryTraffic(local=int(mib * MIB))


def host(
    moved=None,
    *,
    name="n1",
    ranks=2,
    counted=None,
    shared=0,
    nccl_log=(),
    ucx_log=(),
    transport=None,
    gpus=0,
    state="ACTIVE",
    connections=None,
    verbs=(),
    by_memory=(),
    shared_with_others=True,
    **libraries,
):
    """Return a host whose ports and interfaces moved this many MiB, half in each direction (``lo``: each
    way).

    ``moved`` has names of ``PORTS`` and of interfaces; text instead of a number stands there unreadably.
    ``None``: no counters were read. ``connections``: the same of TCP connections, by interface; those on
    ``lo`` are within the host.
    """
    traffic = evidence.EngineTraffic(
        shared_memory=int(shared * MIB),
        libraries=libraries,
        ranks_counted=ranks if counted is None else counted,
    )
    prefix = "n1:1:2 [0] NCCL INFO "
    return evidence.HostEvidence(
        host=name,
        ranks=tuple(range(ranks)),
        gpus=gpus,
        before=None if moved is None else _snapshot(dict.fromkeys(moved, 0), state),
        after=None if moved is None else _snapshot(moved, state),
        traffic=traffic if counted != 0 else None,
        nccl=(evidence.LogLines(rank=0, lines=tuple(prefix + line for line in nccl_log)),)
        if nccl_log
        else (),
        ucx=(evidence.LogLines(rank=0, lines=tuple(ucx_log)),) if ucx_log else (),
        mpi=evidence.MpiTransport(**(transport or {})),
        connections=None if connections is None else tuple(map(_connection, connections.items())),
        verbs=tuple(verbs),
        by_memory=tuple(by_memory),
        shared_with_others=shared_with_others,
    )


def _connection(one: tuple[str, float]) -> evidence.TcpConnections:
    name, half = one[0], int(one[1] * MIB / (1 if one[0] == "lo" else 2))
    peer = "n1" if name == "lo" else "n2"
    return evidence.TcpConnections(
        peer=peer, interface=name, moved=evidence.Exchanged(sent=half, received=half)
    )


def _snapshot(moved: Mapping[str, float | str], state: str = "ACTIVE") -> evidence.CounterSnapshot:
    ports, devices = {}, {}
    for name, mib in moved.items():
        if name in PORTS:
            names = ("tx_bytes", "rx_bytes") if name == "efa" else ("port_xmit_data", "port_rcv_data")
            size = 1 if name == "efa" else 4
            counters = _counters(names, mib, 2 * size)
            ports[NAMES[name]] = evidence.PortCounters(**counters, state=state, **PORTS[name])
        else:
            count = 1 if name == "lo" else 2
            devices[name] = evidence.NetDeviceCounters(
                **_counters(("tx_bytes", "rx_bytes"), mib, count), kind=KINDS.get(name, "ethernet")
            )
    return evidence.CounterSnapshot(at=0.0, rdma_ports=ports, net_devices=devices)


def _counters(names: Sequence[str], mib: float | str, unit: int) -> dict[str, Any]:
    if isinstance(mib, str):
        return {"unreadable": dict.fromkeys(names, mib)}
    return {"values": dict.fromkeys(names, int(mib * MIB) // unit)}

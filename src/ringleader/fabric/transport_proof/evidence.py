"""What one host gathered about one job's bytes: counters before and after, what the ranks exchanged, logs.

Values only; as JSON with ``dataclass_json``. Every size is in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class PortCounters:
    """The counters of one RDMA port at one time."""

    values: Mapping[str, int] = field(default_factory=dict)
    """``counters/`` and ``hw_counters/`` by file name, as written there (``port_xmit_data`` is
    in 4 bytes)."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Counter → what stood there instead of a number (``N/A (no PMA)``), or the system's error."""
    state: str = ""
    """``ACTIVE``, ``DOWN``, ``INIT``, ``ARMED``; empty: not read."""
    link_layer: str = ""
    """``InfiniBand`` or ``Ethernet``; empty: neither (EFA)."""
    node_type: int | None = None
    """1: channel adapter; 4: RNIC (iWARP); 7: unspecified (EFA)."""
    driver: str = ""
    """Kernel driver of the device: ``mlx5_core``, ``efa``."""
    netdevs: tuple[str, ...] = ()
    """Network interfaces of the same device in this network namespace."""


@dataclass(frozen=True, kw_only=True)
class NetDeviceCounters:
    """The counters of one network interface at one time."""

    values: Mapping[str, int] = field(default_factory=dict)
    """``rx_bytes``, ``tx_bytes`` …; where ethtool gives them also ``rx_vport_rdma_unicast_bytes`` and
    ``tx_vport_rdma_unicast_bytes``."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Counter → what stood there instead of a number, or the system's error."""
    kind: str = ""
    """``ethernet``, ``infiniband`` (IPoIB), ``loopback``, ``other``."""
    is_virtual: bool = False
    """No hardware of its own here: bridge, veth, bond, tunnel."""
    speed: float | None = None
    """Bits per second; ``None``: unknown."""
    addresses: tuple[str, ...] = ()
    """IP addresses but link-local ones. A virtual interface without any is not an end of a connection."""
    lower: tuple[str, ...] = ()
    """Interfaces below this one (``lower_*`` in sysfs), which count the same bytes again."""
    rdma_device: str = ""
    """RDMA device of the same hardware; empty: none."""


@dataclass(frozen=True, kw_only=True)
class CounterSnapshot:
    """All counters of a host at one time."""

    at: float
    """Unix time."""
    rdma_ports: Mapping[str, PortCounters] = field(default_factory=dict)
    """By device and port: ``mlx5_0/1``."""
    net_devices: Mapping[str, NetDeviceCounters] = field(default_factory=dict)
    """By name, those of this network namespace: ``eth0``, ``lo``."""
    unread: str = ""
    """What of it is not complete because it took too long: ``RDMA ports``; empty: all was read."""


@dataclass(frozen=True, kw_only=True)
class Exchanged:
    """Bytes in both directions."""

    sent: int = 0
    received: int = 0

    @property
    def total(self) -> int:
        """Both directions together."""
        return self.sent + self.received

    def __add__(self, other: Exchanged) -> Exchanged:
        """Return the sums of each direction."""
        return Exchanged(sent=self.sent + other.sent, received=self.received + other.received)


@dataclass(frozen=True, kw_only=True)
class LibraryTraffic:
    """What one library carried for the ranks of one host, summed over them.

    Messages between two ranks are known exactly: least and most are equal. Of a collective, whose algorithm
    the library does not tell, these are bounds.
    """

    local: int = 0
    """Handed over in groups within the host, or for a rank of it."""
    handed: int = 0
    """Handed over in groups that span hosts, whatever becomes of it."""
    sent_least: int = 0
    """To other hosts."""
    sent_most: int = 0
    received_least: int = 0
    """From other hosts."""
    received_most: int = 0

    @property
    def least(self) -> int:
        """At least so much crossed between this host and others, both directions together."""
        return self.sent_least + self.received_least

    @property
    def most(self) -> int:
        """At most so much, without headers."""
        return max(self.least, self.sent_most + self.received_most)


@dataclass(frozen=True, kw_only=True)
class EngineTraffic:
    """What the ranks of one host exchanged through our engine, summed over them."""

    shared_memory: int = 0
    """Bytes that went through memory which the ranks of the host share."""
    libraries: Mapping[str, LibraryTraffic] = field(default_factory=dict)
    """``mpi``, ``nccl``, ``gloo`` → what it carried."""
    peers: Mapping[str, Exchanged] = field(default_factory=dict)
    """What went to and came from each other host, by its name, where that is known."""
    ranks_counted: int = 0
    """Ranks whose numbers are in this. A rank that was killed told nothing."""


@dataclass(frozen=True, kw_only=True)
class TcpConnections:
    """TCP connections between two addresses of the job's hosts, by the job's processes."""

    peer: str
    """The other host; this one itself: within the host."""
    interface: str = ""
    """That of the address on this side; empty: unknown."""
    moved: Exchanged = Exchanged()
    """Payload while the job ran, as the kernel counted it (``tcp_info``)."""


@dataclass(frozen=True, kw_only=True)
class LogLines:
    """What one rank's communication library wrote about its transports."""

    rank: int
    lines: tuple[str, ...] = ()
    """Those that may matter, as ``agents.rank_evidence`` picks them."""
    left_out: int = 0
    """Lines that matter but were too many."""


@dataclass(frozen=True, kw_only=True)
class MpiTransport:
    """What is known of how the MPI moves messages. All empty: nothing."""

    family: str = ""
    """``Open MPI``, ``MPICH``, ``Intel MPI``, ``MVAPICH``."""
    version: str = ""
    pml: str = ""
    """Open MPI: ``ob1``, ``ucx``, ``cm``."""
    btls: tuple[str, ...] = ()
    """Open MPI with ob1: ``self``, ``sm``, ``vader``, ``tcp``, ``uct``, ``openib``."""
    netmod: str = ""
    """MPICH and its kin: ``ch4:ofi``, ``ch4:ucx``, ``ch3:nemesis:tcp``."""
    provider: str = ""
    """libfabric's provider: ``tcp``, ``verbs``, ``efa``, ``psm3``."""


@dataclass(frozen=True, kw_only=True)
class HostEvidence:
    """All that one host gathered for one job."""

    host: str
    """Its name in the job."""
    ranks: tuple[int, ...] = ()
    """Ranks that ran there."""
    gpus: int = 0
    """GPUs that these ranks computed on; 0: none, or unknown."""
    before: CounterSnapshot | None = None
    """Before the first rank was started; ``None``: not read."""
    after: CounterSnapshot | None = None
    """After the last rank had ended; ``None``: not read."""
    missing: str = ""
    """Why something was not gathered, a sentence without a full stop; empty: nothing is known to lack."""
    traffic: EngineTraffic | None = None
    """``None``: the ranks told nothing (they do not use our engine, or were killed)."""
    connections: tuple[TcpConnections, ...] | None = None
    """``None``: they could not be read."""
    connections_missing: str = ""
    """Why some of them are missing; empty: all were counted."""
    unowned_within: int = 0
    """Bytes of short connections within the host, of which nobody knows whose they were."""
    verbs: tuple[str, ...] = ()
    """RDMA devices that its ranks' processes had open: ``mlx5_0``."""
    by_memory: tuple[str, ...] = ()
    """Libraries of an MPI and devices of GPUs that its ranks' processes have mapped. They may move bytes
    within the host without connections."""
    nccl: tuple[LogLines, ...] = ()
    ucx: tuple[LogLines, ...] = ()
    mpi: MpiTransport = MpiTransport()
    shared_with_others: bool = True
    """Whether processes outside of the job may have moved the counters: those of a host, not those of a Pod's
    own network namespace."""

"""What libraries' logs and settings say of wires and of GPUDirect RDMA: weaker than counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ringleader.fabric.check_result import listed
from ringleader.fabric.transport_proof.bytes_moved import port_wire
from ringleader.fabric.transport_proof.evidence import HostEvidence
from ringleader.fabric.transport_proof.library_logs import NcclLog, UcxTransport, connections, nccl_log
from ringleader.fabric.transport_proof.proof import GpuDirectUse
from ringleader.fabric.wires import RDMA, Wire

SHARED_MEMORY_TRANSPORTS = frozenset({"sysv", "posix", "cma", "knem", "xpmem", "self", "sm", "mm"})
GPU_TRANSPORTS = frozenset({"cuda_ipc", "rocm_ipc", "ze_ipc"})
STAGING_TRANSPORTS = frozenset({"cuda_copy", "gdr_copy", "rocm_copy", "ze_copy", "gaudi_gdr"})
VERBS_TRANSPORTS = ("rc", "dc", "ud", "gga")
SOCKET_NETWORKS = ("socket", "fastsocket", "fastrak", "tcpx")
"""Beginnings of names of NCCL's networks that speak TCP, in lower case; Google's FasTrak does so from GPU
memory."""
MULTI_NODE_NVLINK = "P2P/MNNVL"
"""NVLink between hosts; the ranks that a channel joins have the numbers of the world's communicator."""
VERBS_NETWORKS = ("ib", "gib", "ucx", "sharp", "spectrum")
OFI_NETWORKS = ("aws libfabric", "libfabric", "ofi", "aws")


@dataclass(frozen=True, kw_only=True)
class LibraryWord:
    """What one library says."""

    shares: Mapping[Wire, float] = field(default_factory=dict)
    """Parts of 1 by the number of connections, not of bytes. Empty: it says nothing."""
    evidence: str = ""
    """Where it says so, one sentence without a full stop."""

    @property
    def main(self) -> Wire | None:
        """The wire of most connections."""
        return max(self.shares, key=lambda wire: self.shares[wire]) if self.shares else None


def said_between(host: HostEvidence, library: str) -> LibraryWord:
    """Return what ``mpi``, ``nccl`` or ``gloo`` says about the bytes between hosts."""
    if library == "nccl":
        return _nccl_between(host)
    if library == "gloo":
        return LibraryWord(shares={_socket_wire(host, ()): 1.0}, evidence="Gloo speaks TCP only")
    return _mpi(host, ("", "inter-node"), within=False)


def said_within(host: HostEvidence, library: str) -> LibraryWord:
    """Return what a library says about the bytes within the host."""
    if library == "nccl":
        return _nccl_within(host)
    if library == "gloo":
        return LibraryWord(shares={Wire.TCP: 1.0}, evidence="Gloo speaks TCP only")
    return _mpi(host, ("intra-node",), within=True)


def device_wire(host: HostEvidence, device: str, link: str = "") -> Wire:
    """Return the wire of an RDMA device (``mlx5_0``), by its port or by what a log says of it."""
    ports = host.after.rdma_ports if host.after is not None else {}
    for name, port in ports.items():
        if name.partition("/")[0] == device:
            return port_wire(port)
    by_log = {"IB": Wire.INFINIBAND, "RoCE": Wire.ROCE}.get(link)
    if by_log is not None:
        return by_log
    wires = {port_wire(port) for port in ports.values()} & RDMA
    return wires.pop() if len(wires) == 1 else Wire.UNKNOWN


def nccl_network_wire(host: HostEvidence, log: NcclLog, network: str, device: int | None) -> Wire:
    """Return the wire behind one of NCCL's networks (``IB``, ``Socket``, ``AWS Libfabric``)."""
    name = network.lower()
    if name.startswith(SOCKET_NETWORKS):
        return _socket_wire(host, log.interfaces)
    if name.startswith(OFI_NETWORKS):
        return _provider_wire(host, log.provider or "efa")
    if name.startswith(VERBS_NETWORKS):
        known = log.devices[device : device + 1] if device is not None else ()
        one = (known or log.devices)[:1]
        return device_wire(host, one[0].name, one[0].link) if one else device_wire(host, "")
    return Wire.UNKNOWN


def _nccl_between(host: HostEvidence) -> LibraryWord:
    count: Counter[Wire] = Counter()
    paths: dict[str, None] = {}
    for log in map(nccl_log, host.nccl):
        for channel in log.channels:
            if channel.transport in ("NET", "COLLNET"):
                count[nccl_network_wire(host, log, channel.network, channel.device)] += 1
                paths[channel.path] = None
            elif MULTI_NODE_NVLINK in channel.path and not {channel.source, channel.target} <= {*host.ranks}:
                count[Wire.P2P] += 1
                paths[channel.path] = None
    if count:
        return LibraryWord(shares=_shares(count), evidence=f"NCCL's channels go via {listed(paths, 3)}")
    for log in map(nccl_log, host.nccl):
        if log.network:
            wire = nccl_network_wire(host, log, log.network, None)
            return LibraryWord(shares={wire: 1.0}, evidence=f"NCCL says: Using network {log.network}")
    return LibraryWord()


def _nccl_within(host: HostEvidence) -> LibraryWord:
    count: Counter[Wire] = Counter()
    paths: dict[str, None] = {}
    for log in map(nccl_log, host.nccl):
        for channel in log.channels:
            wire = {"P2P": Wire.P2P, "SHM": Wire.SHM}.get(channel.transport)
            if wire is not None:
                count[wire] += 1
                paths[channel.path] = None
    if not count:
        return LibraryWord()
    return LibraryWord(shares=_shares(count), evidence=f"NCCL's channels go via {listed(paths, 3)}")


def _mpi(host: HostEvidence, places: tuple[str, ...], *, within: bool) -> LibraryWord:
    transports = [
        one
        for log in host.ucx
        for connection in connections(log)
        if connection.place in places or (within and connection.place == "")
        for one in connection.transports
        if one.name not in STAGING_TRANSPORTS
    ]
    wires = [(f"{one.name}/{one.device}", _transport_wire(host, one)) for one in transports]
    wanted = [
        (name, wire)
        for name, wire in wires
        if (wire in (Wire.SHM, Wire.P2P) or name.endswith("/lo")) is within and not name.startswith("self/")
    ]
    if wanted:
        # UCX moves large messages over RDMA as soon as a connection has it, whatever else is there; within
        # a host what is in its memory over shared memory.
        first = {Wire.SHM} if within else RDMA
        fast = [one for one in wanted if one[1] in first] or wanted
        names = dict.fromkeys(name for name, _ in fast)
        return LibraryWord(
            shares=_shares(Counter(wire for _, wire in fast)), evidence=f"UCX's log says {listed(names, 3)}"
        )
    return _mpi_by_components(host, within=within)


def _mpi_by_components(host: HostEvidence, *, within: bool) -> LibraryWord:
    pml, btls, provider = host.mpi.pml, host.mpi.btls, host.mpi.provider
    if pml == "ob1" and within and {"sm", "vader"} & set(btls):
        return LibraryWord(
            shares={Wire.SHM: 1.0}, evidence="Open MPI moves messages by ob1 over shared memory"
        )
    if pml == "ob1" and not within:
        if set(btls) & {"openib", "uct"}:
            return LibraryWord(
                shares={device_wire(host, ""): 1.0}, evidence="Open MPI moves messages by ob1 over verbs"
            )
        if "tcp" in btls:
            wire = _socket_wire(host, ())
            return LibraryWord(shares={wire: 1.0}, evidence="Open MPI moves messages by ob1 over TCP")
    for name in (provider, host.mpi.netmod.rpartition(":")[2]):
        wire = _provider_wire(host, name) if name and not within else Wire.UNKNOWN
        if wire is not Wire.UNKNOWN:
            family = host.mpi.family or "the MPI"
            return LibraryWord(shares={wire: 1.0}, evidence=f"{family} says that it uses {name}")
    return LibraryWord()


def _transport_wire(host: HostEvidence, one: UcxTransport) -> Wire:
    if one.name in SHARED_MEMORY_TRANSPORTS:
        return Wire.SHM
    if one.name in GPU_TRANSPORTS:
        return Wire.P2P
    if one.name == "tcp":
        return _socket_wire(host, (one.device,))
    if one.name == "srd":
        return Wire.EFA
    if one.name.startswith(VERBS_TRANSPORTS):
        return device_wire(host, one.device.partition(":")[0])
    return Wire.UNKNOWN


def _provider_wire(host: HostEvidence, provider: str) -> Wire:
    name = provider.partition(";")[0]
    if name == "efa":
        return Wire.EFA
    if name in ("tcp", "sockets", "net"):
        return _socket_wire(host, ())
    return device_wire(host, "") if name in ("verbs", "mlx", "ucx", "psm3") else Wire.UNKNOWN


def _socket_wire(host: HostEvidence, interfaces: Iterable[str]) -> Wire:
    """Return what TCP is on these interfaces; on InfiniBand it is IPoIB."""
    devices = host.after.net_devices if host.after is not None else {}
    kinds = {devices[name].kind for name in interfaces if name in devices}
    return Wire.IPOIB if kinds == {"infiniband"} else Wire.TCP


def _shares(count: Counter[Wire]) -> dict[Wire, float]:
    total = sum(count.values())
    return {wire: number / total for wire, number in count.most_common()}


def gpudirect_use(host: HostEvidence) -> GpuDirectUse:
    """Return whether a host's NICs read and wrote the memory of its GPUs, by what NCCL wrote.

    Counters cannot tell: the same bytes cross the port when they are copied through the host's memory first.
    """
    if host.gpus == 0:
        return GpuDirectUse(evidence=("its ranks use no GPU",))
    logs = tuple(map(nccl_log, host.nccl))
    return _by_channels(logs) or _by_other_lines(logs) or GpuDirectUse(evidence=_nothing(host))


def _by_channels(logs: tuple[NcclLog, ...]) -> GpuDirectUse | None:
    network = [one for log in logs for one in log.channels if one.transport in ("NET", "COLLNET")]
    if not network:
        return None
    receiving = [one for one in network if one.direction == "receive"] or network
    direct = [one for one in receiving if one.gpudirect]
    counted = f"{len(direct)} of {len(receiving)} paths on which NCCL receives end in /GDRDMA"
    if not direct:
        devices = [one for log in logs for one in log.gpudirect_devices]
        reasons = [f"{name}: {why}" for name, enabled, why in devices if why and not enabled]
        return GpuDirectUse(used=False, evidence=(f"{counted}: {network[0].path}", *dict.fromkeys(reasons)))
    sending = [one for one in network if one.direction == "send"]
    words = [counted]
    if len(direct) < len(receiving):
        return GpuDirectUse(used=None, evidence=(*words, "some ranks use it and some do not"))
    if sending and not any(one.gpudirect for one in sending):
        words.append("what is sent is copied through the host, as NCCL does by default without NVLink")
    return GpuDirectUse(used=True, evidence=tuple(words))


def _by_other_lines(logs: tuple[NcclLog, ...]) -> GpuDirectUse | None:
    said = {log.gpudirect_everywhere for log in logs} - {None}
    if len(said) == 1:
        used = said.pop()
        return GpuDirectUse(used=used, evidence=(f"NCCL says: Connected all rings, GDR {int(bool(used))}",))
    return None


def _nothing(host: HostEvidence) -> tuple[str, ...]:
    if host.traffic is not None and not {"nccl"} & set(host.traffic.libraries):
        return ("no library that reads GPUs' memory moved bytes between hosts",)
    return ("no log says whether NICs reached the memory of GPUs",)

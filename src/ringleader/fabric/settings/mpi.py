"""Variables of MPIs and what they speak through: Open MPI, Intel MPI, UCX, libfabric; and Gloo's. Pure.

``nccl`` has NCCL's. Each rule returns what to set for one library, and what not, with reasons.
"""

from __future__ import annotations

from ringleader.fabric.facts import MpiFacts
from ringleader.fabric.port_selection import CAP_SYS_PTRACE
from ringleader.fabric.settings.interfaces import misleading_interfaces, only_interface
from ringleader.fabric.settings.setting import (
    LOSSLESS_CLASS,
    SettingInputs,
    Settings,
    chosen,
    left_to_the_user,
    unset,
)
from ringleader.fabric.topology.nic_assignment import gpu_distance
from ringleader.fabric.topology.pci_distance import PciDistance
from ringleader.fabric.versions import Version, first_mpi, has_ucx, kernel_is_older, version_of
from ringleader.fabric.wires import Wire

KNOWN_TO_OPEN_MPI = ("mlx", "hns")
"""Prefixes of devices on which Open MPI takes UCX by itself (``opal_common_ucx_devices``)."""
COPY_ALLOWED_KERNEL = (4, 8)
"""From here on a container's seccomp filter lets processes of one user copy from each other."""
SECCOMP_FILTER = 2
DEFAULT_EXCLUDE = ("127.0.0.1/8", "sppp")
"""What ``btl_tcp_if_exclude`` is by default: a value of ours replaces it."""
FORK_SAFE_KERNEL = (5, 15)
"""From here on the kernel copies registered pages for a forked child by itself."""
OVER_LIBFABRIC = ("MPICH", "Intel MPI")
"""MPIs that speak TCP through libfabric; MPICH has no other variables of interest."""


def mpi_settings(inputs: SettingInputs) -> Settings:
    """Return what to set for the MPI that ``ringleader run`` would take."""
    mpi = first_mpi(inputs.facts)
    if mpi is not None and mpi.family == "Open MPI":
        return _open_mpi(inputs, mpi, version_of(mpi.version) or ())
    if mpi is not None and mpi.family == "Intel MPI" and inputs.ports.has(Wire.EFA):
        why = "Intel MPI chooses the provider by itself, and TCP where EFA does not open"
        return chosen(
            *("I_MPI_OFI_PROVIDER", "efa", why, "Intel MPI"),
            rdma=True,
            job_wide=True,
            rivals=("FI_PROVIDER",),
        )
    return Settings()


def _open_mpi(inputs: SettingInputs, mpi: MpiFacts, version: Version) -> Settings:
    facts, ports = inputs.facts, inputs.ports
    found, has_ucx = Settings(), mpi.built_with.get("ucx")
    if version[:1] == (4,) and has_ucx and ports.has(Wire.INFINIBAND, Wire.ROCE):
        why = "UCX serves these devices; openib of Open MPI 4 only warns about them"
        found += chosen("OMPI_MCA_btl", "^openib", why, "Open MPI")
    # Open MPI takes UCX by itself for devices it knows, and falls back to TCP for others.
    names = [one.device.name for one in ports.ports if one.wire in (Wire.INFINIBAND, Wire.ROCE)]
    is_known = any(name.startswith(KNOWN_TO_OPEN_MPI) for name in names)
    is_hardware = any(one.device.pci_address for one in ports.ports)
    if names and not is_known and is_hardware and version >= (4, 1) and has_ucx:
        why = f"Open MPI takes UCX for mlx and hns devices alone, and TCP for {names[0]}"
        found += chosen(
            *("OMPI_MCA_opal_common_ucx_devices", "any", why, "Open MPI"),
            rdma=True,
            job_wide=True,
            rivals=("OMPI_MCA_pml",),
        )
    # Open MPI 4 copies from one process to another, which old kernels refuse in a container.
    may_copy = facts.process.capabilities >> CAP_SYS_PTRACE & 1
    is_filtered = bool(facts.container) and facts.process.seccomp == SECCOMP_FILTER
    if version[:1] == (4,) and is_filtered and not may_copy and kernel_is_older(facts, COPY_ALLOWED_KERNEL):
        why = (
            f"Linux {facts.kernel} refuses copies between processes of a container without "
            "CAP_SYS_PTRACE; ranks then copy through shared memory"
        )
        found += chosen("OMPI_MCA_btl_vader_single_copy_mechanism", "none", why, "Open MPI")
    if misleading := [one.name for one in misleading_interfaces(facts)]:
        value = ",".join((*DEFAULT_EXCLUDE, *misleading))
        why = f"{', '.join(misleading)} leads to no other host, and Open MPI would try it"
        rivals = ("OMPI_MCA_btl_tcp_if_include",)
        found += chosen("OMPI_MCA_btl_tcp_if_exclude", value, why, "Open MPI", rivals=rivals)
    if has_ucx is False and ports.has(Wire.INFINIBAND) and version[:1] == (4,):
        why = "this Open MPI has no UCX: 1 lets it use InfiniBand through openib, which is no longer kept up"
        found += left_to_the_user("OMPI_MCA_btl_openib_allow_ib", why)
    return found


def ucx_settings(inputs: SettingInputs) -> Settings:
    """Return what to set for UCX; nothing where nobody here uses it, or it has no InfiniBand or RoCE port.

    UCX finds GIDs, transports and, for memory of the CPU, the nearest device by itself. What it does not know
    is which of its devices reach the other hosts, and the GPU that a rank is going to use.
    """
    ports = [one for one in inputs.ports.ports if one.wire in (Wire.INFINIBAND, Wire.ROCE)]
    if not ports or not has_ucx(inputs.facts):
        return Settings()
    found, variable = Settings(), "UCX_NET_DEVICES"
    if ports[0].wire is Wire.ROCE:
        found += left_to_the_user("UCX_IB_TRAFFIC_CLASS", LOSSLESS_CLASS)
        found += unset("UCX_IB_GID_INDEX", "UCX finds the GID of RoCE v2 by itself")
    if nearest := _nearest(inputs):
        return found + chosen(variable, *nearest, "UCX", rdma=True)
    if names := inputs.misleading_ports:
        why = f"UCX would use {', '.join(names)} too, which may not reach the other hosts"
        return found + chosen(variable, ",".join(one.name for one in ports), why, "UCX", rdma=True)
    return found + unset(variable, "UCX takes the right ports by itself")


def _nearest(inputs: SettingInputs) -> tuple[str, str] | None:
    """Return the NIC at the rank's GPU and why, where others are farther from it; ``None``: all alike."""
    nic = inputs.nic
    if nic is None or nic.gpu is None or nic.distance is None or nic.distance > PciDistance.PXB:
        return None
    distances = {gpu_distance(inputs.facts, nic.gpu, one) for one in inputs.ports.ports}
    if distances == {nic.distance}:
        return None
    why = f"it is the NIC nearest to GPU{nic.gpu.index} ({nic.distance}); UCX goes by the CPU's place"
    return nic.nic.name, why


def libfabric_settings(inputs: SettingInputs) -> Settings:
    """Return what to set for libfabric: EFA by name, and the interface of TCP where it is certain."""
    mpi = first_mpi(inputs.facts)
    if not inputs.ports.has(Wire.EFA):
        over_tcp = mpi is not None and mpi.family in OVER_LIBFABRIC
        return _certain_interface(inputs, "FI_TCP_IFACE", "libfabric") if over_tcp else Settings()
    if mpi is not None and mpi.embedded and mpi.family == "MPICH":
        why = "MPICH's wheel has its own libfabric; without EFA's provider in it no rank would start"
        found = unset("FI_PROVIDER", why)
    else:
        why = "without it libfabric falls back to TCP without a word where EFA does not open"
        found = chosen("FI_PROVIDER", "efa", why, "libfabric", rdma=True, job_wide=True)
    if kernel_is_older(inputs.facts, FORK_SAFE_KERNEL):
        why = f"loaders of data fork, and Linux {inputs.facts.kernel} does not copy locked pages"
        found += chosen("FI_EFA_FORK_SAFE", "1", why, "libfabric", rdma=True)
    why = "0 helps where fork() fails for want of memory; it costs some speed"
    return found + left_to_the_user("FI_EFA_USE_HUGE_PAGE", why)


def gloo_settings(inputs: SettingInputs) -> Settings:
    """Return Gloo's interface: it always speaks TCP, and finds its interface by the host's own name."""
    return _certain_interface(inputs, "GLOO_SOCKET_IFNAME", "Gloo")


def _certain_interface(inputs: SettingInputs, variable: str, library: str) -> Settings:
    """Return the interface where one alone leads to other hosts and others only look so."""
    interface, misleading = only_interface(inputs.facts), misleading_interfaces(inputs.facts)
    if interface is None or not misleading:
        return Settings()
    why = f"{', '.join(one.name for one in misleading)} leads to no other host"
    return chosen(variable, interface.name, why, library)

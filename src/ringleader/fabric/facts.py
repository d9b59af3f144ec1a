"""What one host can do, as the processes on it see it. Values only; ``readers`` fill them in.

A value that could not be read is ``None``, or empty text where the docstring says so; why it could not be
read is in ``HostFacts.unreadable``. Sizes are bytes, rates bits per second, times seconds.

Longer than others: a host is one value, and each of its fields has a docstring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ringleader.agents.usable_cores import granted
from ringleader.value_class import dataclass

UNLIMITED = -1
"""A limit that is none."""


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A file, a directory or a program that did not tell what it was asked for."""

    path: str
    reason: str
    """In the system's words: ``Permission denied``."""


TOO_LATE = "it took too long"
"""Reason why an area of facts (``network interfaces``) is incomplete; its name stands for the path."""


# --- RDMA -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Gid:
    """One entry of a port's GID table that is not empty."""

    index: int
    address: str
    """As the kernel writes it: ``0000:0000:0000:0000:0000:ffff:0a00:0001``."""
    kind: str = ""
    """``RoCE v2``, ``IB/RoCE v1``; empty: not readable from this network namespace."""
    netdev: str = ""
    """Its network interface; empty: none in this network namespace."""


@dataclass(frozen=True, kw_only=True)
class RdmaPort:
    """One port of an RDMA device."""

    number: int
    state: str
    """``ACTIVE``, ``INIT``, ``DOWN``, ``ARMED``; empty: not readable."""
    physical_state: str
    """``LinkUp``, ``Polling``, ``Disabled``."""
    rate: float | None
    """Bits per second."""
    rate_text: str = ""
    """As the kernel writes it: ``400 Gb/sec (4X NDR)``."""
    link_layer: str
    """``InfiniBand`` or ``Ethernet``; empty: neither (EFA)."""
    lid: int | None = None
    sm_lid: int | None = None
    """LID of the subnet manager; 0: there is none."""
    pkeys: tuple[int, ...] = ()
    """Partition keys that are not 0, by index; the highest bit says full member."""
    gids: tuple[Gid, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    """``counters/`` and ``hw_counters/`` by file name, as written there (``port_xmit_data`` is in 4 bytes).
    Those of which the kernel has no number (``N/A (no PMA)``, on virtual functions) are left out."""


@dataclass(frozen=True, kw_only=True)
class RdmaDevice:
    """An RDMA device (HCA) of ``/sys/class/infiniband``."""

    name: str
    node_type: int | None
    """1: channel adapter; 4: RNIC (iWARP); 7: unspecified (EFA)."""
    driver: str = ""
    """Kernel driver of its PCI device: ``mlx5_core``, ``efa``, ``erdma``; empty: none (a soft device)."""
    hca_type: str = ""
    """``MT4129``."""
    board_id: str = ""
    firmware: str = ""
    node_guid: str = ""
    pci_address: str = ""
    """Empty: no PCI device (a soft device)."""
    parent: str = ""
    """Network interface under a soft device (rxe, siw)."""
    netdevs: tuple[str, ...] = ()
    """Network interfaces of the same PCI device in this network namespace."""
    traffic_class: int | None = None
    """What the driver sets for all RoCE traffic, whatever programs ask for; ``None``: nothing."""
    ports: tuple[RdmaPort, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DeviceFile:
    """A character device that RDMA needs."""

    path: str
    """``/dev/infiniband/uverbs0``."""
    rdma_device: str = ""
    """The RDMA device that it belongs to by sysfs; empty: none known."""
    error: str = ""
    """Why it cannot be opened; empty where it can."""


# --- network interfaces and PCI ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NetDevice:
    """A network interface in this network namespace."""

    name: str
    up: bool
    """Its operational state is ``up``, or unknown with a carrier (virtual interfaces)."""
    mtu: int | None
    speed: float | None = None
    """Bits per second; ``None``: unknown, as of most virtual interfaces."""
    driver: str = ""
    pci_address: str = ""
    kind: str = ""
    """``ethernet``, ``infiniband`` (IPoIB), ``loopback``, ``other``."""
    is_virtual: bool = False
    """No hardware of its own here: bridge, veth, bond, tunnel."""
    addresses: tuple[str, ...] = ()
    """IPv4 before IPv6."""
    statistics: Mapping[str, int] = field(default_factory=dict)
    """``rx_bytes``, ``tx_bytes``, ``rx_errors``, ``tx_dropped`` …, by file name; of interfaces with an RDMA
    device also some of the driver's own: ``rx_vport_rdma_unicast_bytes``, ``rx_prio3_pause`` …"""
    pfc: tuple[int, ...] | None = None
    """Priorities that priority flow control makes lossless; ``None``: not known."""
    dscp: Mapping[int, int] = field(default_factory=dict)
    """DSCP → priority; empty: not known, or the port does not trust DSCP."""
    ecn: tuple[int, ...] | None = None
    """Priorities on which RoCE marks and obeys congestion (ECN); ``None``: not known."""


@dataclass(frozen=True, kw_only=True)
class PciDevice:
    """A GPU, a NIC or a bridge above one of them."""

    address: str
    """``0000:18:00.0``."""
    ancestors: tuple[str, ...]
    """From the root complex (``pci0000:15``) down to the bridge right above it."""
    vendor: int | None
    device: int | None
    device_class: int | None
    """24 bits: ``0x020000`` Ethernet, ``0x020700`` InfiniBand, ``0x0302xx`` and ``0x0300xx`` GPUs,
    ``0x0604xx`` bridges."""
    driver: str = ""
    numa_node: int | None = None
    """``None``: the machine does not say."""
    link_speed: float | None = None
    """GT/s now."""
    link_speed_max: float | None = None
    link_width: int | None = None
    """Lanes now."""
    link_width_max: int | None = None
    is_virtual_function: bool = False
    iommu_group: int | None = None
    acs_redirects: bool | None = None
    """Whether access control sends peer-to-peer traffic up to the root; ``None``: its configuration is
    not readable
    (only root may) or it has none."""
    bar_sizes: tuple[int, ...] = ()
    """Sizes of its memory regions in bytes."""
    iommu_type: str = ""
    """How the IOMMU treats it: ``identity`` (passing through), ``DMA``, ``DMA-FQ``; empty: not known."""
    relaxed_ordering: bool | None = None
    """Whether the device may use relaxed ordering; ``None``: not readable (only root may)."""
    max_read_request: int | None = None
    """Bytes that it may ask for in one read."""
    irq_cpus: tuple[str, ...] = ()
    """Of a NIC with an RDMA device: for each interrupt the processors that take it, as the kernel's list."""


@dataclass(frozen=True, kw_only=True)
class NumaNode:
    """One NUMA node."""

    number: int
    cpus: str
    """The kernel's list: ``0-31,64-95``."""
    memory: int | None
    distances: tuple[int, ...] = ()


# --- GPUs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU. What NVML alone knows is ``None`` or empty without it."""

    index: int
    """In the order of PCI addresses, or NVML's where it is there."""
    pci_address: str
    name: str = ""
    vendor: int | None = None
    driver: str = ""
    """Kernel driver: ``nvidia``, ``amdgpu``, ``vfio-pci``; empty: none."""
    uuid: str = ""
    device_file: str = ""
    """``/dev/nvidia0``; empty: it does not exist, as in a container that was not given this GPU. Such GPUs
    come last."""
    memory: int | None = None
    bar1_memory: int | None = None
    throttle_reasons: int | None = None
    """NVML's bits of clocks event reasons."""
    uncorrected_errors: int | None = None
    """Volatile uncorrected ECC errors."""
    remap_pending: bool | None = None
    """A row remapping waits for a reset."""
    remap_failed: bool | None = None
    """A row could not be remapped: the memory stays broken."""
    power_limit: float | None = None
    """Watts that it may draw."""
    power_limit_default: float | None = None
    clock_limit: float | None = None
    """MHz that its processors may reach with applications."""
    clock_limit_default: float | None = None
    mig: bool | None = None
    """It is divided into instances (MIG)."""
    persistence: bool | None = None
    nvlinks_active: int | None = None
    nvlinks: int | None = None
    p2p: Mapping[int, str] = field(default_factory=dict)
    """Index of another GPU → NVML's P2P state for reads: ``ok``, or its name for why not."""


@dataclass(frozen=True, kw_only=True)
class NvidiaDriver:
    """The NVIDIA driver; all empty where there is none."""

    version: str = ""
    open_modules: bool | None = None
    """Built from the open kernel modules (DMA-BUF needs them); ``None``: unknown."""
    nvml: str = ""
    """``loaded``, or why it is not."""
    fabric_manager: str = ""
    """``running``, ``not running``, ``unknown`` (a container does not see it), or empty where there is no
    NVSwitch."""
    fabric_manager_version: str = ""
    """By its package; empty: unknown."""


# --- the host and this process ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A resource limit of this process; ``UNLIMITED`` is none."""

    soft: int
    hard: int


@dataclass(frozen=True, kw_only=True)
class Process:
    """What this process, and so a rank started like it, may do."""

    uid: int
    capabilities: int
    """Effective capabilities, as bits: bit 14 is CAP_IPC_LOCK, bit 23 CAP_SYS_NICE."""
    bounding_capabilities: int
    limits: Mapping[str, Limit]
    """``memlock``, ``nofile``, ``nproc``, ``stack``, ``core``, ``as`` (address space)."""
    seccomp: int | None = None
    """0: none, 2: filter."""
    security_label: str = ""
    """AppArmor's or SELinux's label; empty: none, or unconfined."""
    cpus: int = 1
    """Processors it may run on."""


@dataclass(frozen=True, kw_only=True)
class HugePages:
    """One size of huge pages."""

    size: int
    total: int
    free: int


@dataclass(frozen=True, kw_only=True)
class RdmaLimit:
    """What the control group grants of one RDMA device; ``UNLIMITED`` is all."""

    device: str
    handles: int
    objects: int


@dataclass(frozen=True, kw_only=True)
class ControlGroup:
    """Limits of the control groups above this process, the tightest of each."""

    version: int
    """1 or 2; 0: none."""
    cpus: float | None = None
    """CPUs that the quota grants; ``None``: no quota."""
    memory: int | None = None
    processes: int | None = None
    rdma: tuple[RdmaLimit, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Library:
    """A shared library that a process here would load."""

    name: str
    """``libibverbs.so.1``."""
    path: str = ""
    """Empty: it is not found."""
    version: str = ""
    """From its file name, its package's record or its text; empty: unknown."""
    source: str = ""
    """``system``, ``wheel``, ``LD_LIBRARY_PATH``, ``LD_PRELOAD``."""


@dataclass(frozen=True, kw_only=True)
class MpiFacts:
    """An MPI that is installed here."""

    family: str
    """``Open MPI``, ``MPICH``, ``Intel MPI``, ``MVAPICH``."""
    version: str
    mpirun: str
    library: str = ""
    embedded: bool = False
    built_with: Mapping[str, bool | None] = field(default_factory=dict)
    """``ucx``, ``ofi``, ``cuda``: whether it has them; ``None``: unknown."""


@dataclass(frozen=True, kw_only=True)
class Software:
    """Versions, by records of packages: nothing is imported."""

    python: str
    executable: str
    ringleader: str
    packages: Mapping[str, str] = field(default_factory=dict)
    """``torch``, ``tensorflow``, ``keras``, ``jax``, ``mxnet``, ``horovod``, ``mpi4py``, ``numpy``,
    NCCL's wheels …:
    name → version, for those that are installed."""
    mpis: tuple[MpiFacts, ...] = ()
    """The one that ``ringleader run`` would take first."""
    nccl: tuple[Library, ...] = ()
    """Each NCCL here, the one that PyTorch would load first."""
    ssh: str = ""
    """Path of the client; empty: none."""
    sshd: str = ""
    ssh_config: str = ""
    """Path of the user's ssh configuration; empty: none."""
    known_hosts: int | None = None
    """Host keys that the user's and the system's files know; ``None``: there is no such file."""
    torch_nccl: str = ""
    """Version of NCCL's wheel that the installed PyTorch requires, by its record; empty: none or unknown."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """``nvidia-smi``, ``ib_write_bw``, ``ucx_perftest``, ``ucx_info``, ``ethtool`` … → path, for those
    that are there."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The host's clock when the facts were read."""

    read_at: float
    """Unix time."""
    synchronized: bool | None = None
    """What the kernel says of it (adjtimex); ``None``: not readable."""
    offset: float | None = None
    """Seconds by which it is ahead of the first host's of the same job; ``None``: not compared."""
    offset_uncertainty: float | None = None
    """Seconds that ``offset`` may be wrong by: half the shortest round trip of a message."""


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What ports and interfaces had counted when the host was read before."""

    read_at: float
    """Unix time."""
    ports: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """``mlx5_0 port 1`` → its counters."""
    interfaces: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class KernelEvent:
    """What the kernel said of a device, once or several times alike (``agents.kernel_log``)."""

    kind: str
    """``xid`` and ``sxid`` (NVIDIA's GPUs and NVSwitches), ``nic``, ``link``, ``pcie``, ``oom``."""
    text: str
    """Its words, the first time."""
    number: int = 0
    """Of an Xid; the process that was killed for lack of memory."""
    device: str = ""
    """PCI address; empty: none is named."""
    count: int = 1
    at: float | None = None
    """Seconds from the host's start to the last time; ``None``: unknown."""
    gpu: int | None = None
    """Index of the GPU, as nvidia-smi has it."""
    names: tuple[str, ...] = ()
    """Of a NIC: its RDMA devices and network interfaces."""


@dataclass(frozen=True, kw_only=True)
class KernelLog:
    """What the kernel said in the last 24 hours."""

    source: str = ""
    """File or program; empty: nothing was read."""
    why: str = ""
    """Why nothing could be read."""
    events: tuple[KernelEvent, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """Everything that is known of one host."""

    hostname: str
    clock: Clock
    kernel: str = ""
    """Its release: ``6.8.0-45-generic``."""
    architecture: str = ""
    """``x86_64``."""
    system: str = ""
    """``Ubuntu 24.04.1 LTS``."""
    container: str = ""
    """``docker``, ``podman``, ``kubernetes``, ``apptainer``, ``container``; empty: none."""
    hypervisor: str = ""
    """Empty: bare metal, as far as can be seen."""
    kernel_command_line: str = ""
    modules: tuple[str, ...] = ()
    """Loaded kernel modules."""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    """Name → value of those that matter: ``net.core.rmem_max``, ``vm.overcommit_memory``,
    ``kernel.yama.ptrace_scope`` …"""
    process: Process
    control_group: ControlGroup = ControlGroup(version=0)
    memory: int | None = None
    memory_available: int | None = None
    huge_pages: tuple[HugePages, ...] = ()
    shm_size: int | None = None
    """Bytes of /dev/shm; ``None``: there is none."""
    shm_free: int | None = None
    numa_nodes: tuple[NumaNode, ...] = ()
    rdma_devices: tuple[RdmaDevice, ...] = ()
    rdma_files: tuple[DeviceFile, ...] = ()
    """``/dev/infiniband/uverbs*`` and ``rdma_cm``, those that are there."""
    verbs_devices: Mapping[str, str] = field(default_factory=dict)
    """``uverbs0`` → RDMA device, by /sys/class/infiniband_verbs, whether the file is there or not."""
    rdma_netns_exclusive: bool | None = None
    """Whether RDMA devices belong to network namespaces; ``None``: unknown."""
    net_devices: tuple[NetDevice, ...] = ()
    pci_devices: tuple[PciDevice, ...] = ()
    iommus: tuple[str, ...] = ()
    """Names in /sys/class/iommu."""
    cpu_governors: tuple[str, ...] = ()
    """How the kernel scales clocks, driver and governor, each once: ``intel_pstate powersave``."""
    uptime: float | None = None
    """Seconds since the host was started."""
    gpus: tuple[Gpu, ...] = ()
    nvidia: NvidiaDriver = NvidiaDriver()
    libraries: tuple[Library, ...] = ()
    """libibverbs, librdmacm, libucp, libfabric, libcuda, libnvidia-ml, libnccl of the system; also
    those not found."""
    verbs_providers: tuple[str, ...] = ()
    """Names of the providers that libibverbs would load: ``mlx5``, ``efa``."""
    software: Software
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that steer transports (NCCL, UCX, libfabric, MPI, Gloo, CUDA, device plugins'); never a
    secret."""
    nccl_files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Path of nccl.conf → its variables."""
    kernel_log: KernelLog = KernelLog()
    earlier: Counters | None = None
    """What had been counted at an earlier reading of the same host; ``None``: there was none."""
    unreadable: tuple[Unreadable, ...] = ()
    seconds: float = 0.0
    """What reading took."""

    @property
    def usable_cpus(self) -> int:
        """Processors that a process may keep busy there: no more than its control groups grant."""
        return granted(self.process.cpus, self.control_group.cpus)

    @property
    def late_areas(self) -> frozenset[str]:
        """Names of the areas that were not, or not wholly, read in time: ``network interfaces``."""
        return frozenset(one.path for one in self.unreadable if one.reason == TOO_LATE)

    def pci_device(self, address: str) -> PciDevice | None:
        """Return the PCI device of an address; ``None`` where it is not known."""
        return next((one for one in self.pci_devices if one.address == address), None)

    def library(self, name: str) -> Library | None:
        """Return the library of a name (``libibverbs.so.1``); ``None`` where nobody looked for it."""
        return next((one for one in self.libraries if one.name == name), None)

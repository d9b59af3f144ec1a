"""Profiles: the ways in which clusters give NICs to Pods, as data. A new cluster is a new row. Pure.

Names of resources, networks and variables are in public manifests or documentation: ``source`` says in
which. None of this was run on hardware.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

Pairs = tuple[tuple[str, str], ...]
"""Names with their values, in order."""


class Way(StrEnum):
    """By what a container comes to its NICs."""

    NOTHING = "nothing"
    """It gets none."""
    PLUGIN = "plugin"
    """A device plugin: an extended resource in the container's limits."""
    CLAIM = "claim"
    """Dynamic resource allocation: a claim of the Pod."""
    HOST = "host"
    """The host's own network and device files."""


class Counts(StrEnum):
    """What the number of a profile's resource means."""

    NICS = "nics"
    """NICs or virtual functions, each taken from the node."""
    SLOT = "slot"
    """A place at every NIC of the node: one is enough, more give nothing."""
    CONFIGURED = "configured"
    """One or the other, as the cluster's plugin is configured."""
    PAIRS = "pairs"
    """Pairs of a GPU and a NIC; NICs alone where no GPU is asked for."""
    NOTHING = "nothing"
    """There is nothing to count."""


class Multus(StrEnum):
    """Whether Pods need networks besides the cluster's own."""

    NEVER = "never"
    MAY = "may"
    MUST = "must"


class Spread(StrEnum):
    """Where the workers of one job may stand."""

    EVEN = "even"
    """As evenly over the nodes as the scheduler can: topology spread, never a reason to wait."""
    APART = "apart"
    """Never two on a node: anti-affinity."""
    NONE = "none"
    """Wherever the scheduler puts them."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One way in which a cluster gives NICs to Pods."""

    name: str
    summary: str
    """In one line, for whom it is."""
    way: Way
    counts: Counts
    resource: str = ""
    """Extended resource; empty where each cluster has its own name for it, or none is needed."""
    seen: tuple[str, ...] = ()
    """Names of the resource in public manifests: what to look for in a node's ``allocatable``."""
    multus: Multus = Multus.NEVER
    network: str = ""
    """The network's name where it is always the same one."""
    more: Pairs = ()
    """Further resources that a worker needs with it."""
    env: Pairs = ()
    """Variables that belong to this way, and to no other."""
    multus_env: Pairs = ()
    """Variables that belong to it once a network of Multus is attached."""
    ipc_lock: bool = True
    """Verbs lock the memory that NICs write to, and Kubernetes has no field for ``ulimit -l``."""
    privileged: bool = False
    """Without a device plugin nothing else opens the host's device files."""
    host_paths: tuple[str, ...] = ()
    """Directories of the host that the container sees at the same path."""
    host_network: bool = False
    ssh_port: int | None = None
    """The workers' sshd, where the host's own holds port 22."""
    shm_size: str = "64Gi"
    """Limit of /dev/shm: nothing is taken until it is used, and it counts against the memory limit."""
    spread: Spread = Spread.EVEN
    is_mellanox: bool = True
    """Whether node-feature-discovery's own rules know such nodes: they look for the PCI vendor 15b3."""
    advice: str = ""
    """What is printed once for whoever takes this profile."""
    source: str
    """The fact that it rests on."""
    unverified: str = ""
    """What of it was not checked on hardware or in a source; empty: nothing."""


NONE = "none"

_BOOTSTRAP = (("NCCL_SOCKET_IFNAME", "eth0"),)
"""With more networks eth0 stays the cluster's: NCCL's ranks meet there; verbs find the NICs by themselves."""

_ROWS = (
    Profile(
        name=NONE,
        summary="no NIC: TCP over the cluster's network",
        way=Way.NOTHING,
        counts=Counts.NOTHING,
        ipc_lock=False,
        shm_size="",
        spread=Spread.NONE,
        is_mellanox=False,
        source="a Pod without an RDMA resource has no /dev/infiniband: NCCL and UCX take sockets",
    ),
    Profile(
        name="shared",
        summary="RDMA shared device plugin: every Pod uses all NICs of its node",
        way=Way.PLUGIN,
        counts=Counts.SLOT,
        resource="rdma/hca_shared_devices_a",
        seen=("rdma/hca_shared_devices_a", "rdma/rdma_shared_device_a", "rdma/hca"),
        multus=Multus.MAY,
        multus_env=_BOOTSTRAP,
        advice="RoCE needs an address on the NIC in the Pod: --rdma-network, or the profile host-network; "
        "InfiniBand does without",
        source="Mellanox/k8s-rdma-shared-dev-plugin, default ConfigMap: prefix rdma, resource "
        "hca_shared_devices_a; 1 is a slot, the device files of all matched HCAs are mounted. "
        "Mellanox/network-operator's samples call it rdma_shared_device_a",
        unverified="which secondary networks give a RoCE GID (macvlan does, ipvlan L3 does not), and that "
        "InfiniBand verbs do not care for the network namespace",
    ),
    Profile(
        name="sriov",
        summary="SR-IOV device plugin with Multus: each worker gets its own virtual functions",
        way=Way.PLUGIN,
        counts=Counts.NICS,
        seen=(
            "nvidia.com/mlnxnics",
            "nvidia.com/sriovlegacy",
            "mellanox.com/mlnx_rdma",
            "openshift.io/NAME",
            "intel.com/intel_rdma",
        ),
        multus=Multus.MUST,
        multus_env=_BOOTSTRAP,
        source="k8snetworkplumbingwg/sriov-network-device-plugin: the resource counts VFs, isRdma mounts "
        "/dev/infiniband; k8s.v1.cni.cncf.io/networks names a network once for each VF; Mellanox/"
        "network-operator's SriovNetworkNodePolicy samples",
    ),
    Profile(
        name="host-device",
        summary="HostDeviceNetwork of NVIDIA's network operator: whole NICs move into the Pod",
        way=Way.PLUGIN,
        counts=Counts.NICS,
        resource="nvidia.com/hostdev",
        seen=("nvidia.com/hostdev",),
        multus=Multus.MUST,
        multus_env=_BOOTSTRAP,
        source="Mellanox/network-operator: sriovDevicePlugin with resourceName hostdev and isRdma, and a "
        "HostDeviceNetwork; exclusive",
    ),
    Profile(
        name="efa",
        summary="AWS Elastic Fabric Adapter",
        way=Way.PLUGIN,
        counts=Counts.NICS,
        resource="vpc.amazonaws.com/efa",
        seen=("vpc.amazonaws.com/efa",),
        more=(("hugepages-2Mi", "5120Mi"),),
        env=(("FI_PROVIDER", "efa"),),
        is_mellanox=False,
        advice="count the node's adapters: a p5 has 32, a p4d 4",
        source="AWS EFA device plugin and EKS documentation: vpc.amazonaws.com/efa 1 to 32, exclusive; "
        "hugepages-2Mi 5120Mi requested and limited; FI_PROVIDER=efa in AWS's examples",
    ),
    Profile(
        name="erdma",
        summary="Alibaba Cloud eRDMA (ACK)",
        way=Way.PLUGIN,
        counts=Counts.CONFIGURED,
        resource="aliyun/erdma",
        seen=("aliyun/erdma",),
        is_mellanox=False,
        source="ACK documentation, eRDMA controller: aliyun/erdma 1 gives all eRDMA devices, or one of the "
        "same NUMA node, as the controller is configured",
        unverified="how the NIC calls itself in each driver mode (ofed is recommended for GPUs and NCCL)",
    ),
    Profile(
        name="aks-ib",
        summary="Azure AKS, SR-IOV: rdma/ib counts InfiniBand NICs",
        way=Way.PLUGIN,
        counts=Counts.NICS,
        resource="rdma/ib",
        seen=("rdma/ib",),
        source="Azure/aks-rdma-infiniband: rdma/ib by the SR-IOV plugin, the count is that of NICs; its "
        "namespaces are labeled pod-security.kubernetes.io/enforce=privileged",
    ),
    Profile(
        name="aks-shared",
        summary="Azure AKS, shared: every Pod uses all InfiniBand NICs of its node",
        way=Way.PLUGIN,
        counts=Counts.SLOT,
        resource="rdma/shared_ib",
        seen=("rdma/shared_ib",),
        source="Azure/aks-rdma-infiniband: rdma/shared_ib by the shared plugin, 63 slots",
    ),
    Profile(
        name="coreweave-ib",
        summary="CoreWeave: rdma/ib 1 means all NICs of the node",
        way=Way.PLUGIN,
        counts=Counts.SLOT,
        resource="rdma/ib",
        seen=("rdma/ib",),
        env=(
            ("NCCL_SOCKET_IFNAME", "eth0"),
            ("NCCL_IB_HCA", "ibp"),
            ("UCX_TLS", "tcp"),
            ("UCX_NET_DEVICES", "eth0"),
        ),
        advice="on RoCE nodes the NICs are not called ibp…: give -x NCCL_IB_HCA=NAMES there",
        source="CoreWeave documentation, HPC interconnect: rdma/ib is 1 or absent, also on RoCE nodes; "
        "NCCL_SOCKET_IFNAME=eth0 NCCL_IB_HCA=ibp UCX_TLS=tcp UCX_NET_DEVICES=eth0",
        unverified="names of the NICs on RoCE nodes",
    ),
    Profile(
        name="oke-vf",
        summary="Oracle OKE: one virtual function for each NIC of the node",
        way=Way.PLUGIN,
        counts=Counts.NICS,
        resource="nvidia.com/rdma-vf",
        seen=("nvidia.com/rdma-vf",),
        multus=Multus.MUST,
        network="rdma-vf",
        multus_env=_BOOTSTRAP,
        shm_size="32Gi",
        advice="a whole node has 8 or 16 of them",
        source="oracle-quickstart/oci-hpc-oke: nvidia.com/rdma-vf 8 or 16, and rdma-vf as often in "
        "k8s.v1.cni.cncf.io/networks; /dev/shm 32Gi",
    ),
    Profile(
        name="dra",
        summary="claims (DRANET): a GPU and a NIC below the same PCIe root; Kubernetes 1.34 or newer",
        way=Way.CLAIM,
        counts=Counts.PAIRS,
        env=_BOOTSTRAP,
        source="kubernetes-sigs/dranet: driver dra.net, attribute rdma, class dranet.net in its examples; "
        "matchAttribute resource.kubernetes.io/pcieRoot with class gpu.nvidia.com; resource.k8s.io/v1",
    ),
    Profile(
        name="host-network",
        summary="the host's own network and devices, where there is no device plugin",
        way=Way.HOST,
        counts=Counts.CONFIGURED,
        privileged=True,
        host_paths=("/dev/infiniband",),
        host_network=True,
        ssh_port=2222,
        spread=Spread.APART,
        advice="with a device plugin give --rdma-resource: the container is not privileged then",
        source="oracle-quickstart/oci-hpc-oke: hostNetwork, dnsPolicy ClusterFirstWithHostNet, hostPath "
        "/dev/infiniband in a privileged container, sshd on port 2222 as the host's holds 22; a hostPath "
        "without privileged is stopped by the device cgroup",
    ),
)

PROFILES: Mapping[str, Profile] = {row.name: row for row in _ROWS}
"""Name → profile, in the order of the guide."""

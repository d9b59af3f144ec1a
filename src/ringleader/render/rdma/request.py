"""What a user asks of a profile: nothing is looked up yet. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.render.rdma.profiles import Pairs, Spread

NIC_CLASS = "dranet.net"
"""DeviceClass of NICs in DRANET's examples."""
GPU_CLASS = "gpu.nvidia.com"
"""DeviceClass of NVIDIA's driver."""


@dataclass(frozen=True, kw_only=True)
class RdmaRequest:
    """What was asked for, as it was said; nothing is looked up yet."""

    profile: str
    resource: str = ""
    """Empty: the profile's."""
    count: int | None = None
    """NICs of each worker; ``None``: as many as networks, as GPUs for claims, or one."""
    networks: tuple[str, ...] = ()
    """Multus' networks, ``NAME`` or ``NAMESPACE/NAME``; one alone is taken for every NIC."""
    node_labels: Pairs = ()
    """Labels that a worker's node must have."""
    shm_size: str | None = ""
    """Limit of /dev/shm; empty: the profile's. ``None``: /dev/shm is left as it is."""
    gpus: int = 0
    """GPUs of each worker: a claim pairs each with a NIC."""
    claim_template: str = ""
    """A ResourceClaimTemplate that is there already."""
    nic_class: str = NIC_CLASS
    gpu_class: str = GPU_CLASS
    ssh_port: int | None = None
    """The workers' sshd; ``None``: the profile's."""
    spread: Spread | None = None
    """``None``: the profile's."""
    has_cpu_or_memory: bool = True
    """Whether the worker asks for CPUs or memory, which huge pages need beside them."""

"""What a user wants of a profile, before and after it is settled. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.render.rdma.profile import Pairs, Profile, Spread, Way

NIC_CLASS = "dranet.net"
"""DeviceClass of NICs in DRANET's examples."""
GPU_CLASS = "gpu.nvidia.com"
"""DeviceClass of NVIDIA's driver."""


@dataclass(frozen=True, kw_only=True)
class Wish:
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


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What each worker gets: everything is decided."""

    profile: Profile
    resource: str = ""
    """Extended resource; empty: none."""
    count: int = 0
    is_counted: bool = True
    """Whether the number was asked for; else it is the least one."""
    networks: tuple[str, ...] = ()
    """One for each NIC, in order."""
    node_labels: Pairs = ()
    shm_size: str = ""
    """Empty: /dev/shm is left as it is."""
    env: Pairs = ()
    """Variables of the ranks; a user's own of the same name win."""
    privileged: bool = False
    host_paths: tuple[str, ...] = ()
    ssh_port: int | None = None
    """Port of the workers' sshd where it is not for the image to say."""
    spread: Spread = Spread.NONE
    gpus: int = 0
    """GPUs that come with the claim."""
    claim_template: str = ""
    """A template that is there already; empty with a profile of claims: one of the job's own."""
    nic_class: str = NIC_CLASS
    gpu_class: str = GPU_CLASS

    @property
    def makes_template(self) -> bool:
        """Whether the job needs a ResourceClaimTemplate of its own."""
        return self.profile.way is Way.CLAIM and not self.claim_template

"""What each worker gets by a request for NICs: everything is decided. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.errors import RequestError
from ringleader.kubernetes.rdma.request import GPU_CLASS, NIC_CLASS, Locate, RdmaRequest, faults
from ringleader.render.rdma_profiles import PROFILES, Counts, Pairs, Profile, Spread, Way


@dataclass(frozen=True, kw_only=True)
class NicAllocation:
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


def allocate(request: RdmaRequest, locate: Locate) -> NicAllocation:
    """Return what a worker gets. Raises RequestError with every fault of the request."""
    found = tuple(faults(request, locate))
    if found:
        raise RequestError(found)
    profile = PROFILES[request.profile]
    resource = request.resource or profile.resource
    is_alone = profile.way is Way.HOST and not resource
    networks = _networks(request, profile)
    count = _count(request, profile)
    return NicAllocation(
        profile=profile,
        resource=resource,
        count=count,
        is_counted=request.count is not None or bool(request.networks[1:]),
        networks=networks * count if len(networks) == 1 and profile.counts is Counts.NICS else networks,
        node_labels=request.node_labels,
        shm_size="" if request.shm_size is None else request.shm_size or profile.shm_size,
        env=profile.env + (profile.multus_env if networks else ()),
        privileged=profile.privileged and is_alone,
        host_paths=profile.host_paths if is_alone else (),
        ssh_port=request.ssh_port or profile.ssh_port,
        spread=profile.spread if request.spread is None else request.spread,
        gpus=request.gpus if profile.way is Way.CLAIM else 0,
        claim_template=request.claim_template,
        nic_class=request.nic_class,
        gpu_class=request.gpu_class,
    )


def _networks(request: RdmaRequest, profile: Profile) -> tuple[str, ...]:
    return request.networks or ((profile.network,) if profile.network else ())


def _count(request: RdmaRequest, profile: Profile) -> int:
    if profile.counts is Counts.NOTHING or request.claim_template:
        return 0
    if request.count is not None:
        return request.count
    if profile.counts is Counts.PAIRS:
        return request.gpus or 1
    return max(1, len(request.networks)) if profile.counts is Counts.NICS else 1

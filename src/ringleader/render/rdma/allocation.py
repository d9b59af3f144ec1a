"""A wish becomes what each worker gets. Pure."""

from __future__ import annotations

from ringleader.errors import RequestError
from ringleader.render.rdma.profile import Counts, Profile, Way
from ringleader.render.rdma.profiles import PROFILES
from ringleader.render.rdma.request import Grant, Wish
from ringleader.render.rdma.request_faults import Place, faults


def settle(wish: Wish, place: Place) -> Grant:
    """Return what a worker gets. Raises RequestError with every fault of the wish."""
    found = tuple(faults(wish, place))
    if found:
        raise RequestError(found)
    profile = PROFILES[wish.profile]
    resource = wish.resource or profile.resource
    is_alone = profile.way is Way.HOST and not resource
    networks = _networks(wish, profile)
    count = _count(wish, profile)
    return Grant(
        profile=profile,
        resource=resource,
        count=count,
        is_counted=wish.count is not None or bool(wish.networks[1:]),
        networks=networks * count if len(networks) == 1 and profile.counts is Counts.NICS else networks,
        node_labels=wish.node_labels,
        shm_size="" if wish.shm_size is None else wish.shm_size or profile.shm_size,
        env=profile.env + (profile.multus_env if networks else ()),
        privileged=profile.privileged and is_alone,
        host_paths=profile.host_paths if is_alone else (),
        ssh_port=wish.ssh_port or profile.ssh_port,
        spread=profile.spread if wish.spread is None else wish.spread,
        gpus=wish.gpus if profile.way is Way.CLAIM else 0,
        claim_template=wish.claim_template,
        nic_class=wish.nic_class,
        gpu_class=wish.gpu_class,
    )


def _networks(wish: Wish, profile: Profile) -> tuple[str, ...]:
    return wish.networks or ((profile.network,) if profile.network else ())


def _count(wish: Wish, profile: Profile) -> int:
    if profile.counts is Counts.NOTHING or wish.claim_template:
        return 0
    if wish.count is not None:
        return wish.count
    if profile.counts is Counts.PAIRS:
        return wish.gpus or 1
    return max(1, len(wish.networks)) if profile.counts is Counts.NICS else 1

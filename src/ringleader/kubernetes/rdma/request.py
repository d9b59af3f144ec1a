"""What a user asks of a profile, and everything that is wrong with it. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ringleader.errors import Fault
from ringleader.kubernetes.mpijob import quantities
from ringleader.kubernetes.rdma import node_labels
from ringleader.render.rdma_profiles import PROFILES, Counts, Multus, Pairs, Profile, Spread, Way

Locate = Callable[[str], str]
"""Takes a field of ``RdmaRequest``, returns where the user wrote it: an option, an annotation."""

MOST_PAIRS = 16
"""Of one claim: it has at most 32 requests, and each pair takes two."""

_DNS = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = rf"{_DNS}(\.{_DNS})*"
_RESOURCE = re.compile(rf"{_DOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
_NETWORK = re.compile(rf"({_DNS}/)?{_DOMAIN}(@[a-z0-9]{{1,15}})?")
_NAME = re.compile(_DOMAIN)
_LABEL = re.compile(rf"({_DOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


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


def faults(request: RdmaRequest, locate: Locate) -> Iterator[Fault]:
    """Yield everything that is wrong with a request."""
    profile = PROFILES.get(request.profile)
    if profile is None:
        yield _unknown(request.profile, locate)
    yield from _forms(request, locate)
    if profile is None:
        return
    yield from _misplaced(request, profile, locate)
    yield from _missing(request, profile, locate)
    yield from _counts(request, profile, locate)
    yield from _surroundings(request, profile, locate)


def _unknown(name: str, locate: Locate) -> Fault:
    known = f"one of: {', '.join(PROFILES)}"
    if not name:
        return Fault(where=locate("profile"), what="missing: how does the cluster give NICs?", hint=known)
    close = difflib.get_close_matches(name.lower(), list(PROFILES), n=1)
    hint = f"did you mean {close[0]}? {known}" if close else known
    return Fault(where=locate("profile"), what=f"there is no RDMA profile {name!r}", hint=hint)


def _forms(request: RdmaRequest, locate: Locate) -> Iterator[Fault]:
    """Yield faults in the form of single words."""
    forms = [
        ("resource", request.resource, _RESOURCE, "such as rdma/hca_shared_devices_a"),
        ("claim_template", request.claim_template, _NAME, "use a-z, 0-9 and -"),
        ("nic_class", request.nic_class, _NAME, "use a-z, 0-9, - and ."),
        ("gpu_class", request.gpu_class, _NAME, "use a-z, 0-9, - and ."),
        *(("networks", one, _NETWORK, "write NAME or NAMESPACE/NAME") for one in request.networks),
    ]
    for field, text, form, hint in forms:
        if text and not form.fullmatch(text):
            yield Fault(where=locate(field), what=f"{text!r} cannot be read", hint=hint)
    for key, value in request.node_labels:
        if not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
            hint = (
                "letters, digits, - _ and ., at most 63 each; a prefix such as example.org/ may stand first"
            )
            yield Fault(where=locate("node_labels"), what=f"{key}={value} is no label", hint=hint)
    what = quantities.fault(request.shm_size) if request.shm_size else ""
    if what:
        yield Fault(where=locate("shm_size"), what=what, hint="such as 16Gi")
    if request.count is not None and not 1 <= request.count <= quantities.LARGEST:
        yield Fault(where=locate("count"), what=f"{request.count:.9g}, must be at least 1 and at most 2^63-1")
    if request.ssh_port is not None and not 1 <= request.ssh_port <= 65535:
        yield Fault(
            where=locate("ssh_port"), what=f"{request.ssh_port} is no port number", hint="use 1 to 65535"
        )


def _misplaced(request: RdmaRequest, profile: Profile, locate: Locate) -> Iterator[Fault]:
    """Yield what was said and means nothing with this profile."""
    has_resource = profile.way in (Way.PLUGIN, Way.HOST)
    is_counted = has_resource and (profile.way is Way.PLUGIN or bool(request.resource))
    is_counted |= profile.way is Way.CLAIM and not request.claim_template
    said = {
        "resource": bool(request.resource) and not has_resource,
        "count": request.count is not None and not is_counted,
        "networks": bool(request.networks) and profile.multus is Multus.NEVER,
        "claim_template": bool(request.claim_template) and profile.way is not Way.CLAIM,
        "ssh_port": request.ssh_port is not None and not profile.host_network,
        "node_labels": bool(request.node_labels) and profile.way is Way.NOTHING,
        "spread": request.spread is not None and profile.way is Way.NOTHING,
    }
    for field, is_said in said.items():
        if is_said:
            what = f"means nothing with the profile {profile.name}"
            if field == "count" and profile.way is Way.CLAIM:
                what = "means nothing with a template of claims that is there already"
            yield Fault(where=locate(field), what=what, hint="leave it out")


def _missing(request: RdmaRequest, profile: Profile, locate: Locate) -> Iterator[Fault]:
    if profile.way is Way.PLUGIN and not (request.resource or profile.resource):
        seen = f"the name under allocatable of a node with NICs; seen: {', '.join(profile.seen)}"
        what = f"missing: the profile {profile.name} has no resource of its own"
        yield Fault(where=locate("resource"), what=what, hint=seen)
    if profile.multus is Multus.MUST and not (request.networks or profile.network):
        what = f"missing: with the profile {profile.name} a NIC comes into the Pod with a network of Multus"
        hint = "NAME or NAMESPACE/NAME: kubectl get network-attachment-definitions -A"
        yield Fault(where=locate("networks"), what=what, hint=hint)


def _counts(request: RdmaRequest, profile: Profile, locate: Locate) -> Iterator[Fault]:
    count = request.count
    if profile.counts is Counts.SLOT and count is not None and count > 1:
        what = f"{count}, but with the profile {profile.name} 1 gives every NIC of the node"
        yield Fault(where=locate("count"), what=what, hint="leave it out")
    if (
        profile.counts is Counts.NICS
        and len(request.networks) > 1
        and count not in (None, len(request.networks))
    ):
        what = f"{len(request.networks)} networks for {count} NICs"
        yield Fault(where=locate("networks"), what=what, hint="one for all, or one for each")
    if profile.counts is not Counts.PAIRS or request.claim_template:
        return
    if count is not None and request.gpus and count != request.gpus:
        what = f"{count} NICs for {request.gpus} GPUs: a claim pairs each GPU with a NIC"
        hint = "make them equal, or leave this out"
        yield Fault(where=locate("count"), what=what, hint=hint)
    elif (count or request.gpus) > MOST_PAIRS:
        yield Fault(where=locate("count"), what=f"{count or request.gpus}, a claim has room for {MOST_PAIRS}")


def _surroundings(request: RdmaRequest, profile: Profile, locate: Locate) -> Iterator[Fault]:
    """Yield what does not go together with the rest of the Pod and its nodes."""
    if profile.more and not request.has_cpu_or_memory:
        names = ", ".join(name for name, _ in profile.more)
        what = f"missing: Kubernetes takes {names} only beside a request for memory or CPUs"
        yield Fault(where=locate("has_cpu_or_memory"), what=what, hint="such as 512Gi")
    if profile.host_network and request.ssh_port == 22:
        what = "port 22 is that of the node's own sshd: on the host's network both would want it"
        yield Fault(where=locate("ssh_port"), what=what, hint=f"such as {profile.ssh_port}")
    if profile.host_network and request.spread not in (None, Spread.APART):
        what = "on the host's network two workers of a node would want the same port"
        yield Fault(where=locate("spread"), what=what, hint="leave it out")
    if not profile.is_mellanox and profile.way is not Way.NOTHING:
        for name in sorted({name for name, _ in request.node_labels} & node_labels.NAMES):
            what = f"{name} means the PCI vendor 15b3: nodes of the profile {profile.name} do not carry it"
            yield Fault(where=locate("node_labels"), what=what, hint="take a label of your own, or none")

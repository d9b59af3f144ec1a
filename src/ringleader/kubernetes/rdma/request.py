"""What a user asks of a profile, everything that is wrong with it, and what each worker gets by it. Pure.

``pod_nics`` applies it to Pods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ringleader.errors import Fault, did_you_mean, refuse
from ringleader.kubernetes.mpijob import quantities
from ringleader.render.rdma_profiles import PROFILES, Counts, Multus, Pairs, Profile, Spread, Way

Locate = Callable[[str], str]
"""Takes a field of ``RdmaRequest``, returns where the user wrote it: an option, an annotation."""

NIC_CLASS = "dranet.net"
"""DeviceClass of NICs in DRANET's examples."""
GPU_CLASS = "gpu.nvidia.com"
"""DeviceClass of NVIDIA's driver."""


@dataclass(frozen=True, kw_only=True)
class RdmaRequest:
    """What was asked for, as it was said; nothing is looked up yet. Its fields are called as the options."""

    rdma: str = ""
    """Name of the profile."""
    rdma_resource: str = ""
    """Empty: the profile's."""
    rdma_count: int | None = None
    """NICs of each worker; ``None``: as many as networks, as GPUs for claims, or one."""
    rdma_network: tuple[str, ...] = ()
    """Multus' networks, ``NAME`` or ``NAMESPACE/NAME``; one alone is taken for every NIC."""
    node_label: Pairs = ()
    """Labels that a worker's node must have."""
    rdma_claim_template: str = ""
    """A ResourceClaimTemplate that is there already."""
    rdma_device_class: str = NIC_CLASS
    rdma_ssh_port: int | None = None
    """The workers' sshd; ``None``: the profile's."""
    rdma_spread: Spread | None = None
    """``None``: the profile's."""
    shm_size: str | None = ""
    """Limit of /dev/shm; empty: the profile's. ``None``: /dev/shm is left as it is."""
    gpus: int = 0
    """GPUs of each worker: a claim pairs each with a NIC."""
    gpu_class: str = GPU_CLASS
    has_cpu_or_memory: bool = True
    """Whether the worker asks for CPUs or memory, which huge pages need beside them."""


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
        """Whether the job needs its own ResourceClaimTemplate."""
        return self.profile.way is Way.CLAIM and not self.claim_template


def allocate(request: RdmaRequest, locate: Locate) -> NicAllocation:
    """Return what a worker gets. Raises RequestError with every fault of the request."""
    refuse(faults(request, locate))
    profile = PROFILES[request.rdma]
    resource = request.rdma_resource or profile.resource
    is_alone = profile.way is Way.HOST and not resource
    networks = request.rdma_network or ((profile.network,) if profile.network else ())
    count = _count(request, profile)
    return NicAllocation(
        profile=profile,
        resource=resource,
        count=count,
        is_counted=request.rdma_count is not None or bool(request.rdma_network[1:]),
        networks=networks * count if len(networks) == 1 and profile.counts is Counts.NICS else networks,
        node_labels=request.node_label,
        shm_size="" if request.shm_size is None else request.shm_size or profile.shm_size,
        env=profile.env + (profile.multus_env if networks else ()),
        privileged=profile.privileged and is_alone,
        host_paths=profile.host_paths if is_alone else (),
        ssh_port=request.rdma_ssh_port or profile.ssh_port,
        spread=profile.spread if request.rdma_spread is None else request.rdma_spread,
        gpus=request.gpus if profile.way is Way.CLAIM else 0,
        claim_template=request.rdma_claim_template,
        nic_class=request.rdma_device_class,
        gpu_class=request.gpu_class,
    )


def _count(request: RdmaRequest, profile: Profile) -> int:
    if profile.counts is Counts.NOTHING or request.rdma_claim_template:
        return 0
    least = {Counts.PAIRS: request.gpus, Counts.NICS: len(request.rdma_network)}.get(profile.counts, 1)
    return max(1, least) if request.rdma_count is None else request.rdma_count


_FEATURE = "feature.node.kubernetes.io"

OFFERED: Mapping[str, Pairs] = {
    "nfd": ((f"{_FEATURE}/rdma.capable", "true"), (f"{_FEATURE}/rdma.available", "true")),
    "nfd-0.12": (
        (f"{_FEATURE}/custom-rdma.capable", "true"),
        (f"{_FEATURE}/custom-rdma.available", "true"),
    ),
}
"""Word → labels as node-feature-discovery writes them: of 0.13 and newer, and of 0.6 to 0.12.

Its rules know one vendor, 15b3 (NVIDIA, Mellanox): ``capable`` is the PCI device, ``available`` the loaded
kernel modules. They are offered and never taken by themselves: nodes with EFA or eRDMA carry none."""

_OFFERED_NAMES = frozenset(name for pairs in OFFERED.values() for name, _ in pairs)


def pairs_of(words: Iterable[str]) -> tuple[Pairs, tuple[str, ...]]:
    """Return the labels that words stand for, and the words that cannot be read.

    A word is ``NAME=VALUE`` or one of ``OFFERED``.
    """
    found: list[tuple[str, str]] = []
    unread = []
    for word in words:
        name, equals, value = word.partition("=")
        if word in OFFERED:
            found += OFFERED[word]
        elif equals and name:
            found.append((name, value))
        else:
            unread.append(word)
    return tuple(dict.fromkeys(found)), tuple(unread)


# --- what is wrong ----------------------------------------------------------------------------------------

MOST_PAIRS = 16
"""Of one claim: it has at most 32 requests, and each pair takes two."""

_DNS = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = rf"{_DNS}(\.{_DNS})*"
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_RESOURCE = re.compile(rf"{_DOMAIN}/{_WORD}")
_NETWORK = re.compile(rf"({_DNS}/)?{_DOMAIN}(@[a-z0-9]{{1,15}})?")
_NAME = re.compile(_DOMAIN)
_LABEL = re.compile(rf"({_DOMAIN}/)?{_WORD}")
_VALUE = re.compile(f"({_WORD})?")


def _listed(word: str) -> str:
    """Return the pattern of words with commas between them."""
    return rf"\s*({word})?\s*(,\s*({word})?\s*)*"


FORMS: Mapping[str, str] = {
    "rdma_resource": f"({_RESOURCE.pattern})?",
    "rdma_claim_template": f"({_NAME.pattern})?",
    "rdma_network": _listed(_NETWORK.pattern),
    "node_label": _listed(rf"nfd|nfd-0\.12|{_LABEL.pattern}={_VALUE.pattern}"),
    "rdma_count": "0*[1-9][0-9]{0,8}",
    "rdma_ssh_port": "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])",
    "rdma_spread": "|".join(Spread),
    "rdma": "|".join(PROFILES),
}
"""Field → pattern of the text by which an annotation gives it: for whoever sees nothing else of the job."""

Found = Iterator[tuple[str, str, str]]
"""Faults: field of the request, what is wrong, what to write instead."""


def faults(request: RdmaRequest, locate: Locate) -> Iterator[Fault]:
    """Yield everything that is wrong with a request."""
    profile = PROFILES.get(request.rdma)
    found = [*_forms(request), *(() if profile is None else _of_profile(request, profile))]
    for field, what, hint in [*_unknown(request.rdma), *found]:
        yield Fault(where=locate(field), what=what, hint=hint)


def _unknown(name: str) -> Found:
    known = f"one of: {', '.join(PROFILES)}"
    if not name:
        yield "rdma", "missing: how does the cluster give NICs?", known
    elif name not in PROFILES:
        hint = f"{did_you_mean(name.lower(), PROFILES)} {known}".strip()
        yield "rdma", f"there is no RDMA profile {name!r}", hint


def _forms(request: RdmaRequest) -> Found:
    """Yield faults in the form of single words."""
    forms = [
        ("rdma_resource", request.rdma_resource, _RESOURCE, "such as rdma/hca_shared_devices_a"),
        ("rdma_claim_template", request.rdma_claim_template, _NAME, "use a-z, 0-9 and -"),
        ("rdma_device_class", request.rdma_device_class, _NAME, "use a-z, 0-9, - and ."),
        ("gpu_class", request.gpu_class, _NAME, "use a-z, 0-9, - and ."),
        *(("rdma_network", one, _NETWORK, "write NAME or NAMESPACE/NAME") for one in request.rdma_network),
    ]
    for field, text, form, hint in forms:
        if text and not form.fullmatch(text):
            yield field, f"{text!r} cannot be read", hint
    for key, value in request.node_label:
        if not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
            hint = (
                "letters, digits, - _ and ., at most 63 each; a prefix such as example.org/ may stand first"
            )
            yield "node_label", f"{key}={value} is not a label", hint
    what = quantities.fault(request.shm_size) if request.shm_size else ""
    if what:
        yield "shm_size", what, "such as 16Gi"
    if request.rdma_count is not None and not 1 <= request.rdma_count <= quantities.LARGEST:
        yield "rdma_count", f"{request.rdma_count:.9g}, must be at least 1 and at most 2^63-1", ""
    if request.rdma_ssh_port is not None and not 1 <= request.rdma_ssh_port <= 65535:
        yield "rdma_ssh_port", f"{request.rdma_ssh_port} is not a port number", "use 1 to 65535"


def _of_profile(request: RdmaRequest, profile: Profile) -> Found:
    """Yield what means nothing with this profile, what it needs besides, and what does not fit it."""
    count, networks, name, way = request.rdma_count, request.rdma_network, profile.name, profile.way
    is_counted = way is Way.PLUGIN or (way is Way.HOST and bool(request.rdma_resource))
    is_counted |= way is Way.CLAIM and not request.rdma_claim_template
    misplaced = {
        "rdma_resource": bool(request.rdma_resource) and way not in (Way.PLUGIN, Way.HOST),
        "rdma_count": count is not None and not is_counted,
        "rdma_network": bool(networks) and profile.multus is Multus.NEVER,
        "rdma_claim_template": bool(request.rdma_claim_template) and way is not Way.CLAIM,
        "rdma_ssh_port": request.rdma_ssh_port is not None and not profile.host_network,
        "node_label": bool(request.node_label) and way is Way.NOTHING,
        "rdma_spread": request.rdma_spread is not None and way is Way.NOTHING,
    }
    for field in (field for field, is_said in misplaced.items() if is_said):
        what = f"means nothing with the profile {name}"
        if field == "rdma_count" and way is Way.CLAIM:
            what = "means nothing with a template of claims that is there already"
        yield field, what, "leave it out"
    if way is Way.PLUGIN and not (request.rdma_resource or profile.resource):
        seen = f"the name under allocatable of a node with NICs; seen: {', '.join(profile.seen)}"
        yield "rdma_resource", f"missing: the profile {name} has no resource of its own", seen
    if profile.multus is Multus.MUST and not (networks or profile.network):
        what = f"missing: with the profile {name} a NIC comes into the Pod with a network of Multus"
        hint = "NAME or NAMESPACE/NAME: kubectl get network-attachment-definitions -A"
        yield "rdma_network", what, hint
    yield from _counts(request, profile)
    if profile.more and not request.has_cpu_or_memory:
        names = ", ".join(more for more, _ in profile.more)
        what = f"missing: Kubernetes takes {names} only beside a request for memory or CPUs"
        yield "has_cpu_or_memory", what, "such as 512Gi"
    if profile.host_network and request.rdma_ssh_port == 22:
        what = "port 22 is that of the node's own sshd: on the host's network both would want it"
        yield "rdma_ssh_port", what, f"such as {profile.ssh_port}"
    if profile.host_network and request.rdma_spread not in (None, Spread.APART):
        what = "on the host's network two workers of a node would want the same port"
        yield "rdma_spread", what, "leave it out"
    if not profile.is_mellanox and way is not Way.NOTHING:
        for label in sorted({label for label, _ in request.node_label} & _OFFERED_NAMES):
            what = f"{label} means the PCI vendor 15b3: nodes of the profile {name} do not carry it"
            yield "node_label", what, "take your own label, or none"


def _counts(request: RdmaRequest, profile: Profile) -> Found:
    count, networks, gpus = request.rdma_count, len(request.rdma_network), request.gpus
    if profile.counts is Counts.SLOT and count is not None and count > 1:
        what = f"{count}, but with the profile {profile.name} 1 gives every NIC of the node"
        yield "rdma_count", what, "leave it out"
    if profile.counts is Counts.NICS and networks > 1 and count not in (None, networks):
        yield "rdma_network", f"{networks} networks for {count} NICs", "one for all, or one for each"
    if profile.counts is not Counts.PAIRS or request.rdma_claim_template:
        return
    if count is not None and gpus and count != gpus:
        what = f"{count} NICs for {gpus} GPUs: a claim pairs each GPU with a NIC"
        yield "rdma_count", what, "make them equal, or leave this out"
    elif (count or gpus) > MOST_PAIRS:
        yield "rdma_count", f"{count or gpus}, a claim has room for {MOST_PAIRS}", ""

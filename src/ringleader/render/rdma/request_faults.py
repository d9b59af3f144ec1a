"""Everything that is wrong with a wish for NICs. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator

from ringleader.errors import Fault
from ringleader.mpijob.pod_template_checks import QUANTITY
from ringleader.render.rdma import node_labels
from ringleader.render.rdma.profile import Counts, Multus, Profile, Spread, Way
from ringleader.render.rdma.profiles import PROFILES
from ringleader.render.rdma.request import Wish

Place = Callable[[str], str]
"""Takes a field of ``Wish``, returns where the user wrote it: an option, an annotation."""

MOST_PAIRS = 16
"""Of one claim: it has at most 32 requests, and each pair takes two."""

_DNS = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = rf"{_DNS}(\.{_DNS})*"
_RESOURCE = re.compile(rf"{_DOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
_NETWORK = re.compile(rf"({_DNS}/)?{_DOMAIN}(@[a-z0-9]{{1,15}})?")
_NAME = re.compile(_DOMAIN)
_LABEL = re.compile(rf"({_DOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def faults(wish: Wish, place: Place) -> Iterator[Fault]:
    """Yield everything that is wrong with a wish."""
    profile = PROFILES.get(wish.profile)
    if profile is None:
        yield _unknown(wish.profile, place)
    yield from _forms(wish, place)
    if profile is None:
        return
    yield from _misplaced(wish, profile, place)
    yield from _missing(wish, profile, place)
    yield from _counts(wish, profile, place)
    yield from _surroundings(wish, profile, place)


def _unknown(name: str, place: Place) -> Fault:
    known = f"one of: {', '.join(PROFILES)}"
    if not name:
        return Fault(where=place("profile"), what="missing: how does the cluster give NICs?", hint=known)
    close = difflib.get_close_matches(name.lower(), list(PROFILES), n=1)
    hint = f"did you mean {close[0]}? {known}" if close else known
    return Fault(where=place("profile"), what=f"there is no RDMA profile {name!r}", hint=hint)


def _forms(wish: Wish, place: Place) -> Iterator[Fault]:
    """Yield faults in the form of single words."""
    forms = [
        ("resource", wish.resource, _RESOURCE, "such as rdma/hca_shared_devices_a"),
        ("claim_template", wish.claim_template, _NAME, "use a-z, 0-9 and -"),
        ("nic_class", wish.nic_class, _NAME, "use a-z, 0-9, - and ."),
        ("gpu_class", wish.gpu_class, _NAME, "use a-z, 0-9, - and ."),
        ("shm_size", wish.shm_size or "", re.compile(QUANTITY), "such as 16Gi"),
        *(("networks", one, _NETWORK, "write NAME or NAMESPACE/NAME") for one in wish.networks),
    ]
    for field, text, form, hint in forms:
        if text and not form.fullmatch(text):
            yield Fault(where=place(field), what=f"{text!r} cannot be read", hint=hint)
    for key, value in wish.node_labels:
        if not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
            hint = (
                "letters, digits, - _ and ., at most 63 each; a prefix such as example.org/ may stand first"
            )
            yield Fault(where=place("node_labels"), what=f"{key}={value} is no label", hint=hint)
    if wish.count is not None and wish.count < 1:
        yield Fault(where=place("count"), what=f"{wish.count}, must be at least 1")
    if wish.ssh_port is not None and not 1 <= wish.ssh_port <= 65535:
        yield Fault(where=place("ssh_port"), what=f"{wish.ssh_port} is no port number", hint="use 1 to 65535")


def _misplaced(wish: Wish, profile: Profile, place: Place) -> Iterator[Fault]:
    """Yield what was said and means nothing with this profile."""
    has_resource = profile.way in (Way.PLUGIN, Way.HOST)
    is_counted = has_resource and (profile.way is Way.PLUGIN or bool(wish.resource))
    is_counted |= profile.way is Way.CLAIM and not wish.claim_template
    said = {
        "resource": bool(wish.resource) and not has_resource,
        "count": wish.count is not None and not is_counted,
        "networks": bool(wish.networks) and profile.multus is Multus.NEVER,
        "claim_template": bool(wish.claim_template) and profile.way is not Way.CLAIM,
        "ssh_port": wish.ssh_port is not None and not profile.host_network,
        "node_labels": bool(wish.node_labels) and profile.way is Way.NOTHING,
        "spread": wish.spread is not None and profile.way is Way.NOTHING,
    }
    for field, is_said in said.items():
        if is_said:
            what = f"means nothing with the profile {profile.name}"
            if field == "count" and profile.way is Way.CLAIM:
                what = "means nothing with a template of claims that is there already"
            yield Fault(where=place(field), what=what, hint="leave it out")


def _missing(wish: Wish, profile: Profile, place: Place) -> Iterator[Fault]:
    if profile.way is Way.PLUGIN and not (wish.resource or profile.resource):
        seen = f"the name under allocatable of a node with NICs; seen: {', '.join(profile.seen)}"
        what = f"missing: the profile {profile.name} has no resource of its own"
        yield Fault(where=place("resource"), what=what, hint=seen)
    if profile.multus is Multus.MUST and not (wish.networks or profile.network):
        what = f"missing: with the profile {profile.name} a NIC comes into the Pod with a network of Multus"
        hint = "NAME or NAMESPACE/NAME: kubectl get network-attachment-definitions -A"
        yield Fault(where=place("networks"), what=what, hint=hint)


def _counts(wish: Wish, profile: Profile, place: Place) -> Iterator[Fault]:
    count = wish.count
    if profile.counts is Counts.SLOT and count is not None and count > 1:
        what = f"{count}, but with the profile {profile.name} 1 gives every NIC of the node"
        yield Fault(where=place("count"), what=what, hint="leave it out")
    if profile.counts is Counts.NICS and len(wish.networks) > 1 and count not in (None, len(wish.networks)):
        what = f"{len(wish.networks)} networks for {count} NICs"
        yield Fault(where=place("networks"), what=what, hint="one for all, or one for each")
    if profile.counts is not Counts.PAIRS or wish.claim_template:
        return
    if count is not None and wish.gpus and count != wish.gpus:
        what = f"{count} NICs for {wish.gpus} GPUs: a claim pairs each GPU with a NIC"
        hint = "make them equal, or leave this out"
        yield Fault(where=place("count"), what=what, hint=hint)
    elif (count or wish.gpus) > MOST_PAIRS:
        yield Fault(where=place("count"), what=f"{count or wish.gpus}, a claim has room for {MOST_PAIRS}")


def _surroundings(wish: Wish, profile: Profile, place: Place) -> Iterator[Fault]:
    """Yield what does not go together with the rest of the Pod and its nodes."""
    if profile.more and not wish.has_cpu_or_memory:
        names = ", ".join(name for name, _ in profile.more)
        what = f"missing: Kubernetes takes {names} only beside a request for memory or CPUs"
        yield Fault(where=place("has_cpu_or_memory"), what=what, hint="such as 512Gi")
    if profile.host_network and wish.ssh_port == 22:
        what = "port 22 is that of the node's own sshd: on the host's network both would want it"
        yield Fault(where=place("ssh_port"), what=what, hint=f"such as {profile.ssh_port}")
    if profile.host_network and wish.spread not in (None, Spread.APART):
        what = "on the host's network two workers of a node would want the same port"
        yield Fault(where=place("spread"), what=what, hint="leave it out")
    if not profile.is_mellanox and profile.way is not Way.NOTHING:
        for name in sorted({name for name, _ in wish.node_labels} & node_labels.NAMES):
            what = f"{name} means the PCI vendor 15b3: nodes of the profile {profile.name} do not carry it"
            yield Fault(where=place("node_labels"), what=what, hint="take a label of your own, or none")

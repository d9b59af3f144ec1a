"""Network interfaces that carry traffic between hosts, and those that only look as if they did. Pure."""

from __future__ import annotations

from ringleader.agents.host_facts_script import BRIDGES
from ringleader.fabric.facts import HostFacts, NetDevice

_WIRELESS = "wl"


def routable_interfaces(facts: HostFacts) -> tuple[NetDevice, ...]:
    """Return wired interfaces with an address that other hosts may reach; bridges of containers are not."""
    return tuple(
        one
        for one in facts.net_devices
        if one.up
        and one.kind != "loopback"
        and not one.name.startswith(_WIRELESS)
        and not BRIDGES.match(one.name)
        and any(not is_link_local(address) for address in one.addresses)
    )


def misleading_interfaces(facts: HostFacts) -> tuple[NetDevice, ...]:
    """Return interfaces that have an IPv4 address and lead to no other host.

    Those are bridges of containers and virtual machines, which have the same address on every host, and
    those with a link-local IPv4 address alone, such as the management controller's. Empty where nothing
    else is there: then nothing is certain.
    """
    if not routable_interfaces(facts):
        return ()
    found = []
    for one in facts.net_devices:
        v4 = [address for address in one.addresses if ":" not in address]
        if one.up and v4 and one.kind != "loopback":
            only_link_local = all(is_link_local(address) for address in v4)
            if BRIDGES.match(one.name) or only_link_local:
                found.append(one)
    return tuple(found)


def only_interface(facts: HostFacts) -> NetDevice | None:
    """Return the one interface that leads to other hosts; ``None``: none or several, so it is not certain."""
    found = routable_interfaces(facts)
    return found[0] if len(found) == 1 else None


def ipoib_interfaces(facts: HostFacts) -> tuple[NetDevice, ...]:
    """Return the InfiniBand interfaces that are up and have an address: TCP over them is IPoIB."""
    return tuple(one for one in facts.net_devices if one.up and one.kind == "infiniband" and one.addresses)


def is_link_local(address: str) -> bool:
    """Tell whether an address is valid on its own link alone, or on its own host."""
    return address.startswith(("169.254.", "fe80:", "127.")) or address == "::1"

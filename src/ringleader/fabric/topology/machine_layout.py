"""GPUs and NICs of a host in the order in which they hang on it: NUMA node, root complex, switch. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ringleader.fabric.facts import HostFacts, PciDevice

NOT_KNOWN = "not on PCI"


@dataclass(frozen=True, kw_only=True)
class Card:
    """A GPU or a NIC."""

    label: str
    """``GPU0``, ``mlx5_0``."""
    detail: str
    """Product, or what the port says."""
    is_gpu: bool
    address: str


@dataclass(frozen=True, kw_only=True)
class CardGroup:
    """Cards behind one switch, or those that hang on a root complex themselves."""

    switch: str
    """Address of the switch's upper port; empty: there is none."""
    cards: tuple[Card, ...]


@dataclass(frozen=True, kw_only=True)
class RootComplex:
    """A host bridge with cards below it."""

    name: str
    """``pci0000:15``; ``not on PCI``: soft devices, and what no PCI device is known of."""
    groups: tuple[CardGroup, ...]


@dataclass(frozen=True, kw_only=True)
class NodeLayout:
    """A NUMA node."""

    number: int | None
    """``None``: the machine does not say where these are."""
    cpus: str
    roots: tuple[RootComplex, ...]


def machine_layout(facts: HostFacts) -> tuple[NodeLayout, ...]:
    """Return the NUMA nodes by number, also those without a card; cards of no known node come last."""
    cards = [*_gpus(facts), *_nics(facts)]
    only = facts.numa_nodes[0].number if len(facts.numa_nodes) == 1 else None

    def node_of(card: Card) -> int | None:
        device = facts.pci_device(card.address)
        return only if device is None or device.numa_node is None else device.numa_node

    numbers: list[int | None] = [*sorted({one.number for one in facts.numa_nodes})]
    numbers += sorted(
        {node_of(one) for one in cards} - set(numbers), key=lambda node: (node is None, node or 0)
    )
    cpus = {one.number: one.cpus for one in facts.numa_nodes}
    return tuple(
        NodeLayout(
            number=number,
            cpus=cpus.get(number, "") if number is not None else "",
            roots=_roots(facts, [one for one in cards if node_of(one) == number]),
        )
        for number in numbers
    )


def _gpus(facts: HostFacts) -> Iterable[Card]:
    for one in facts.gpus:
        yield Card(label=f"GPU{one.index}", detail=one.name, is_gpu=True, address=one.pci_address)


def _nics(facts: HostFacts) -> Iterable[Card]:
    for one in facts.rdma_devices:
        ports = ", ".join(f"{port.state} {port.rate_text or port.link_layer}".strip() for port in one.ports)
        yield Card(label=one.name, detail=ports, is_gpu=False, address=one.pci_address)


def _roots(facts: HostFacts, cards: list[Card]) -> tuple[RootComplex, ...]:
    def root_of(card: Card) -> str:
        device = facts.pci_device(card.address)
        return device.ancestors[0] if device and device.ancestors else NOT_KNOWN

    def switch_of(card: Card) -> str:
        device = facts.pci_device(card.address)
        return _switch(device) if device else ""

    return tuple(
        RootComplex(
            name=name,
            groups=tuple(
                CardGroup(switch=switch, cards=tuple(inside))
                for switch, inside in _parted(below, switch_of).items()
            ),
        )
        for name, below in _parted(cards, root_of).items()
    )


def _switch(device: PciDevice) -> str:
    """Return the upper port of the first switch below the root port; empty: there is none."""
    return device.ancestors[2] if len(device.ancestors) > 3 else ""


def _parted(cards: Iterable[Card], key: Callable[[Card], str]) -> dict[str, list[Card]]:
    found: dict[str, list[Card]] = {}
    for card in cards:
        found.setdefault(key(card), []).append(card)
    return dict(sorted(found.items()))

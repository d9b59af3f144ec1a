"""A machine as an SVG: NUMA nodes, root complexes, switches, GPUs, NICs, and the NIC of each GPU. Pure.

It needs nothing beside itself, and follows the reader's choice of light or dark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from ringleader.fabric.facts import HostFacts, PciDevice
from ringleader.fabric.topology.nic_assignment import NicAssignment, assign_nics

CARD_WIDTH, CARD_HEIGHT, GAP, PAD, TITLE = 150, 46, 10, 10, 24
ROOTS_PER_ROW = 4
LETTERS = 24
"""Letters that fit into a card."""
NOT_KNOWN = "not on PCI"

STYLE = """\
svg { color-scheme: light dark; font: 12px system-ui, sans-serif; }
rect { fill: #ffffff; stroke: #6f7071; } .page { stroke: none; }
text { fill: #101011; }
.node { fill: #f1f2f3; } .root { fill: #ffffff; } .switch { fill: #f7f7f8; stroke-dasharray: 4 3; }
.gpu { fill: #e3f1da; stroke: #3f7d20; stroke-width: 2; }
.nic { fill: #dcebf7; stroke: #0072b2; } .unused { stroke-dasharray: 2 3; }
.small { font-size: 10px; } .pair { fill: none; stroke: #b3470c; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #ececed; } .page { fill: #18191a; } .node { fill: #232425; } .root { fill: #1b1c1d; }
  .switch { fill: #262728; } .gpu { fill: #23391a; stroke: #7cc254; } .nic { fill: #16344a; stroke: #56b4e9; }
  .pair { stroke: #f0a060; }
}
"""


# --- what hangs on what: NUMA node, root complex, switch ---------------------------------------------------


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


# --- as an SVG -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Box:
    """A place in the drawing, in pixels."""

    x: int
    y: int
    width: int
    height: int


def machine_drawing(facts: HostFacts) -> str:
    """Return the SVG, with the NICs that ``assign_nics`` gives the GPUs."""
    pairs = assign_nics(facts)
    drawing = _Drawing(pairs)
    y = 2 * PAD + TITLE
    for node in machine_layout(facts):
        y = drawing.node(node, y) + GAP
    drawing.pairs()
    width = max((box.x + box.width for box in drawing.boxes), default=400) + PAD
    counts = [_count(len(facts.gpus), "GPU"), _count(len(facts.rdma_devices), "RDMA device")]
    what = f"{facts.hostname}: {', '.join(counts)}"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" '
        f'viewBox="0 0 {width} {y}" role="img">',
        f"<title>{_text(what)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{y}"/>',
        f'<text x="{PAD}" y="{PAD + 14}" font-weight="bold">{_text(what)}</text>',
    ]
    return "\n".join([*head, *drawing.elements, "</svg>", ""])


class _Drawing:
    """Elements so far, and where each card is."""

    def __init__(self, assigned: Sequence[NicAssignment]) -> None:
        self.elements: list[str] = []
        self.boxes: list[Box] = []
        self._cards: dict[str, Box] = {}
        self._assigned = assigned
        self._uses = _uses(assigned)

    def node(self, node: NodeLayout, y: int) -> int:
        """Draw a NUMA node; return its lower edge."""
        rows = [node.roots[at : at + ROOTS_PER_ROW] for at in range(0, len(node.roots), ROOTS_PER_ROW)]
        heights = [max(_root_height(one) for one in row) for row in rows]
        height = TITLE + PAD + sum(heights) + GAP * len(rows)
        columns = max(1, max((len(row) for row in rows), default=1))
        width = 2 * PAD + columns * (_root_width() + GAP) - GAP
        name = "no NUMA node known" if node.number is None else f"NUMA node {node.number}"
        self._box(Box(PAD, y, width, height), "node", f"{name} · CPUs {node.cpus}" if node.cpus else name)
        top = y + TITLE
        for row, row_height in zip(rows, heights, strict=True):
            for column, root in enumerate(row):
                self._root(root, 2 * PAD + column * (_root_width() + GAP), top)
            top += row_height + GAP
        return y + height

    def pairs(self) -> None:
        """Draw a line from each GPU to its NIC."""
        for one in self._assigned:
            start = self._cards.get(f"GPU{one.gpu.index}") if one.gpu else None
            end = self._cards.get(one.nic.device.name)
            if start is None or end is None or one.gpu is None:
                continue
            right = start.x + start.width
            y1, y2 = start.y + start.height // 2, end.y + end.height // 2
            far = max(right, end.x + end.width) + 8
            path = f"M{right} {y1} C{far} {y1} {far} {y2} {end.x + end.width} {y2}"
            what = f"GPU{one.gpu.index} – {one.nic.name}: {_distance(one)}"
            self.elements.append(f'<path class="pair" d="{path}"><title>{_text(what)}</title></path>')

    def _root(self, root: RootComplex, x: int, y: int) -> None:
        self._box(Box(x, y, _root_width(), _root_height(root)), "root", root.name)
        top = y + TITLE
        for group in root.groups:
            self._group(group, x + PAD, top)
            top += _group_height(group) + GAP

    def _group(self, group: CardGroup, x: int, y: int) -> None:
        if group.switch:
            place = Box(x, y, CARD_WIDTH + 2 * PAD, _group_height(group))
            self._box(place, "switch", f"switch {group.switch}")
            y += TITLE
        for card in group.cards:
            self._card(card, x + PAD, y)
            y += CARD_HEIGHT + GAP

    def _card(self, card: Card, x: int, y: int) -> None:
        box = Box(x, y, CARD_WIDTH, CARD_HEIGHT)
        self._cards[card.label] = box
        uses = self._uses.get(card.label, "")
        kind = "gpu" if card.is_gpu else "nic" if uses else "nic unused"
        self._box(box, kind, f"{card.label} {uses}".strip())
        detail = card.detail or card.address
        self.elements.append(f'<text class="small" x="{x + 6}" y="{y + 32}">{_text(_fitted(detail))}</text>')

    def _box(self, box: Box, kind: str, title: str) -> None:
        self.boxes.append(box)
        self.elements.append(
            f'<rect class="{kind}" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="4"/>'
        )
        self.elements.append(f'<text x="{box.x + 6}" y="{box.y + 16}">{_text(title)}</text>')


def _uses(assigned: Sequence[NicAssignment]) -> Mapping[str, str]:
    """Return what stands behind a NIC's name: whose it is and how far from it."""
    found: dict[str, list[str]] = {}
    for one in assigned:
        whose = f"GPU{one.gpu.index}" if one.gpu else f"rank {one.local_rank}"
        found.setdefault(one.nic.device.name, []).append(whose)
    return {
        name: f"← {users[0]}" if len(users) == 1 else f"← {users[0]} and {len(users) - 1} more"
        for name, users in found.items()
    }


def _distance(one: NicAssignment) -> str:
    return "distance not known" if one.distance is None else one.distance.name


def _root_width() -> int:
    return CARD_WIDTH + 4 * PAD


def _root_height(root: RootComplex) -> int:
    return TITLE + sum(_group_height(one) + GAP for one in root.groups)


def _group_height(group: CardGroup) -> int:
    cards = len(group.cards) * (CARD_HEIGHT + GAP)
    return cards + TITLE if group.switch else cards - GAP


def _fitted(text: str) -> str:
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


def _text(text: str) -> str:
    """Return text for XML; characters that XML forbids are shown as a question mark."""
    return escape("".join(one if one.isprintable() else "?" for one in text))


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"

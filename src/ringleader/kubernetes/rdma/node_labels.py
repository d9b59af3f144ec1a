"""Labels by which nodes with NICs can be told, as node-feature-discovery writes them. Pure.

Its rules know one vendor, 15b3 (NVIDIA, Mellanox): ``capable`` is the PCI device, ``available`` the loaded
kernel modules. The names changed with its version 0.13, tag by tag in its repository. They are offered and
never taken by themselves: nodes with EFA or eRDMA carry none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringleader.render.rdma_profiles import Pairs

_FEATURE = "feature.node.kubernetes.io"

OFFERED: Mapping[str, Pairs] = {
    "nfd": ((f"{_FEATURE}/rdma.capable", "true"), (f"{_FEATURE}/rdma.available", "true")),
    "nfd-0.12": (
        (f"{_FEATURE}/custom-rdma.capable", "true"),
        (f"{_FEATURE}/custom-rdma.available", "true"),
    ),
}
"""Word → labels: of 0.13 and newer, and of 0.6 to 0.12."""

NAMES = frozenset(name for pairs in OFFERED.values() for name, _ in pairs)
"""Every label of node-feature-discovery's own rules for RDMA."""


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

"""Ranks of this machine that are told to be on several hosts, and the transport that they get."""

from __future__ import annotations

from typing import Any

import pytest

LAYOUTS = {
    "2x2": (4, 2, "hosts"),
    "2x1": (2, 1, "mpi"),
    "unequal 2+1": (3, 2, "hosts"),
    "unequal 3+1": (4, 3, "hosts"),
}
"""Name → ranks, ranks on each host but the last, transport."""


def several_hosts(*names: str, long: tuple[str, ...]) -> Any:
    """Return the parameters ``size, per_host, transport`` of tests; those that are ``long`` are marked so."""
    marks = {name: pytest.mark.long if name in long else () for name in names}
    return pytest.mark.parametrize(
        ("size", "per_host", "transport"),
        [pytest.param(*LAYOUTS[name], marks=marks[name], id=name) for name in names],
    )

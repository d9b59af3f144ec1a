"""Ranks of this machine that are told to be on several hosts, and the transport that they get."""

from typing import Any

import pytest

LAYOUTS = {
    "2x2": (4, 2, "hosts"),
    "2x1": (2, 1, "mpi"),
    "unequal 2+1": (3, 2, "hosts"),
    "unequal 3+1": (4, 3, "hosts"),
}
"""Name → ranks, ranks on each host but the last, transport."""


def several_hosts(*names: str, long: tuple[str, ...], smoke: str = "") -> Any:
    """Return the parameters ``size, per_host, transport`` of tests; each with its mark."""
    marks: dict[str, Any] = dict.fromkeys(names, ()) | dict.fromkeys(long, pytest.mark.long)
    if smoke:
        marks[smoke] = pytest.mark.smoke
    return pytest.mark.parametrize(
        ("size", "per_host", "transport"),
        [pytest.param(*LAYOUTS[name], marks=marks[name], id=name) for name in names],
    )

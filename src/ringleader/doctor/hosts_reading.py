"""Facts of the hosts that are to be judged, wherever they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringleader.errors import Fault
from ringleader.fabric.facts import HostFacts


@dataclass(frozen=True, kw_only=True)
class HostsReading:
    """What came of reading hosts."""

    facts: Mapping[str, HostFacts]
    """By the host's name as the user wrote it, in the user's order."""
    faults: tuple[Fault, ...] = ()
    """Hosts that could not be read, in the launcher's words."""
    warnings: tuple[str, ...] = ()

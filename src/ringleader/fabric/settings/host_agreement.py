"""Settings of several hosts of one job: what chooses a protocol has to be alike everywhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ringleader.fabric.settings.setting import Settings, UnsetVariable


def agreed(hosts: Mapping[str, Settings]) -> dict[str, Settings]:
    """Return the settings by host without those job-wide ones that any host has otherwise, or not at all."""
    wide = {one.variable for found in hosts.values() for one in found.settings if one.job_wide}
    odd = {
        name: [host for host, found in hosts.items() if name not in found.variables]
        for name in sorted(wide)
        if len({found.variables.get(name) for found in hosts.values()}) > 1
    }
    return {host: _without(found, odd) for host, found in hosts.items()}


def _without(found: Settings, odd: Mapping[str, list[str]]) -> Settings:
    dropped = tuple(
        UnsetVariable(
            variable=one.variable,
            reason="every host has to have it alike, and it does not fit "
            + (", ".join(odd[one.variable][:3]) or "all"),
        )
        for one in found.settings
        if one.variable in odd
    )
    if not dropped:
        return found
    kept = tuple(one for one in found.settings if one.variable not in odd)
    return replace(found, settings=kept, not_set=found.not_set + dropped)

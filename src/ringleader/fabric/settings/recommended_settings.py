"""The settings of one host: every library's, less what the user has set and what cannot work here. Pure.

``agreed`` compares those of several hosts: what chooses a protocol has to be alike everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ringleader.errors import RequestError
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.port_selection import PortSelection, locked_memory_obstacle, select_ports
from ringleader.fabric.settings.mpi import gloo_settings, libfabric_settings, mpi_settings, ucx_settings
from ringleader.fabric.settings.nccl import nccl_settings
from ringleader.fabric.settings.setting import Setting, SettingInputs, Settings, UnsetVariable, unset
from ringleader.fabric.topology.nic_assignment import NicAssignment, assign_nics

RULES = (nccl_settings, ucx_settings, libfabric_settings, mpi_settings, gloo_settings)
"""One for each library, in the order in which settings are shown."""


def recommend(
    facts: HostFacts, *, local_rank: int | None = None, user: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings that fit a host.

    ``local_rank``: also what fits this rank alone, the NIC at its GPU; ``None``: what all ranks of the host
    have alike. ``user``: variables that the user has set besides those in the facts (environment, nccl.conf);
    none of them is ever set. Raises RequestError for a local rank that the host has no place for.
    """
    places = _user_places(facts, user or {})
    inputs = SettingInputs(
        facts=facts,
        ports=select_ports(facts),
        user={name: value for name, (value, _) in places.items()},
        nic=_nic(facts, local_rank),
    )
    found = Settings()
    for rule in RULES:
        found += rule(inputs)
    return _without_rdma(_without_users(found, places), inputs)


def _nic(facts: HostFacts, local_rank: int | None) -> NicAssignment | None:
    if local_rank is None:
        return None
    assigned = assign_nics(facts)
    places, what = len(facts.gpus), "GPUs"
    if not facts.gpus:
        places, what = max(len(assigned), facts.usable_cpus), "places for ranks (processors)"
    if not 0 <= local_rank < places:
        raise RequestError(
            f"{facts.hostname} has no local rank {local_rank}: it has {places} {what}",
            where="--local-rank",
            hint=f"local ranks count from 0 to {places - 1}",
        )
    return assigned[local_rank % len(assigned)] if assigned else None


def _user_places(facts: HostFacts, user: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return what the user has set → value and where, the strongest place last."""
    found: dict[str, tuple[str, str]] = {}
    for path, values in facts.nccl_files.items():
        found |= {name: (value, path) for name, value in values.items()}
    found |= {name: (value, "the host's environment") for name, value in facts.environment.items()}
    return found | {name: (value, "the user's environment") for name, value in user.items()}


def _without_users(found: Settings, places: Mapping[str, tuple[str, str]]) -> Settings:
    """Leave out what the user has set, or set something else for."""
    kept: list[Setting] = []
    dropped: list[UnsetVariable] = []
    for setting in found.settings:
        taken = next((name for name in (setting.variable, *setting.rivals) if name in places), None)
        if taken is None:
            kept.append(setting)
            continue
        value, place = places[taken]
        what = f"{place} sets {taken}={value}"
        if taken == setting.variable and value != setting.value:
            what += f"; {setting.value} would fit: {setting.reason}"
        dropped.append(UnsetVariable(variable=setting.variable, reason=what))
    left = tuple(one for one in found.left_to_the_user if one.variable not in places)
    silent = tuple(one for one in found.not_set if one.variable not in places)
    return Settings(settings=tuple(kept), left_to_the_user=left, not_set=(*silent, *dropped))


def _no_port(ports: PortSelection) -> Settings:
    """Say why none of the RDMA ports that are there can be used."""
    if not ports.left_out:
        return Settings()
    first_of = {one.reason: one.name for one in reversed(ports.left_out)}
    reasons = "; ".join(f"{name}: {reason}" for reason, name in reversed(first_of.items()))
    others = len(ports.left_out) - len(first_of)
    why = f"no port can be used: {reasons}" + (f"; and {others} more" if others else "")
    return unset("", why, rdma=False)


def _without_rdma(found: Settings, inputs: SettingInputs) -> Settings:
    """Leave out what is about RDMA where a process may not lock enough memory; say where no port can."""
    if not inputs.ports.ports:
        return found + _no_port(inputs.ports)
    why = locked_memory_obstacle(inputs.facts)
    if not why:
        return found
    names = [one.variable for one in found.settings if one.steers_to_rdma] or [""]
    return Settings(
        settings=tuple(one for one in found.settings if not one.steers_to_rdma),
        left_to_the_user=tuple(one for one in found.left_to_the_user if not one.steers_to_rdma),
        not_set=(
            *(one for one in found.not_set if not one.steers_to_rdma),
            *(UnsetVariable(variable=name, reason=why) for name in names),
        ),
    )


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

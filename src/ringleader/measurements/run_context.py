"""What a job showed of its hosts, its MPI and its ranks, as the context of what it measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from ringleader.fabric.facts import HostFacts
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.plan.job import Mpi
from ringleader.plan.rank_placement import Plan
from ringleader.scaling import Context, HostContext


class Outcome(Protocol):
    """What a run of a job left: the part of the launcher's Outcome that measurements need."""

    @property
    def exit_code(self) -> int: ...
    @property
    def whose(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def proof(self) -> TransportProof | None: ...
    @property
    def plan(self) -> Plan | None: ...
    @property
    def mpi(self) -> Mpi | None: ...
    @property
    def devices(self) -> Mapping[str, HostFacts]: ...


def with_facts(
    context: Context, outcome: Outcome, told: Mapping[int, Mapping[str, Any]], *, cpu: str = ""
) -> Context:
    """Return the context with what this run showed of its hosts, its MPI and its ranks' versions."""

    def first(name: str) -> str:
        return next((str(said[name]) for _, said in sorted(told.items()) if said.get(name)), "")

    hosts = {host.name: host for host in context.hosts}
    if outcome.plan is not None:
        for index, facts in enumerate(outcome.plan.hosts):
            ranks = [place.rank for place in outcome.plan.on_host(index)]
            said = next((told[rank] for rank in ranks if told.get(rank, {}).get("hostname")), {})
            ours = cpu if facts.is_local or context.lab else ""
            known = hosts.get(facts.host.name) or HostContext(name=facts.host.name)
            hosts[facts.host.name] = HostContext(
                name=facts.host.name,
                hostname=facts.hostname,
                cpu=str(said.get("cpu", "")) or known.cpu or ours,
                cores=len(facts.cpus) or None,
                machine=str(said.get("machine", "")) or known.machine,
                devices=outcome.devices.get(facts.host.name, known.devices),
            )
    mpi = f"{outcome.mpi.family.value} {outcome.mpi.version}" if outcome.mpi else ""
    return replace(
        context,
        hosts=tuple(hosts.values()),
        mpi=mpi or context.mpi,
        python=first("python") or context.python,
        torch=first("torch") or context.torch,
        transport=_joined(context.transport, first("transport")),
    )


def _joined(known: str, said: str) -> str:
    """Return the ways in which bytes went so far: sizes differ in them."""
    return "; ".join(dict.fromkeys(part for text in (known, said) for part in text.split("; ") if part))


def software_changes(before: Context, after: Context) -> list[str]:
    """Return what a resumed run found to be different: ``PyTorch 2.12.0 then, 2.13.0 now``."""
    pairs = (
        ("Python", before.python, after.python),
        ("PyTorch", before.torch, after.torch),
        ("MPI", before.mpi, after.mpi),
    )
    return [f"{name} {old} then, {new} now" for name, old, new in pairs if old and new and old != new]

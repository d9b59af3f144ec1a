"""What a user demands of the wire (``--require rdma,gdr``), known at the start and judged at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ringleader.errors import Fault, RequestError
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.port_selection import select_ports
from ringleader.fabric.transport_proof.proof import HostProof, TransportProof, WireShares
from ringleader.fabric.wires import RDMA, WIRE_WORDS, Wire, part_words, wire_of_port

OPTION = "--require"
LEAST = 0.99
"""The part of the bytes that has to have gone by the wire."""
TCP = frozenset({Wire.TCP, Wire.IPOIB})
BETWEEN: Mapping[str, frozenset[Wire]] = {
    "rdma": RDMA,
    "infiniband": frozenset({Wire.INFINIBAND}),
    "roce": frozenset({Wire.ROCE}),
    "iwarp": frozenset({Wire.IWARP}),
    "efa": frozenset({Wire.EFA}),
    "tcp": TCP,
}
"""Words about the bytes between hosts."""
WITHIN: Mapping[str, frozenset[Wire]] = {"shm": frozenset({Wire.SHM}), "p2p": frozenset({Wire.P2P})}
"""Words about the bytes within each host."""
GPUDIRECT = "gdr"
WORDS = (*BETWEEN, *WITHIN, GPUDIRECT)


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """What must have carried the bytes."""

    words: tuple[str, ...]
    """As they were given: ``rdma``, ``gdr``."""
    between: frozenset[Wire] = frozenset()
    """Wires that are allowed between hosts; empty: any."""
    within: frozenset[Wire] = frozenset()
    """Wires that are allowed within a host; empty: any."""
    gpudirect: bool = False
    """NICs must have read and written the memory of GPUs."""

    def __str__(self) -> str:
        return ",".join(self.words)


def parse_requirement(values: Sequence[str]) -> Requirement:
    """Return the requirement of ``--require`` values, each a word or several with commas.

    All must hold together. Raises RequestError with every word that is not known, and for words of which only
    one can hold.
    """
    every = ",".join(values).replace(" ", "").lower().split(",")
    words = tuple(dict.fromkeys(filter(None, every)))
    faults = [
        Fault(where=OPTION, what=f"{word} is not a wire", hint=f"one or more of {', '.join(WORDS)}")
        for word in words
        if word not in WORDS
    ]
    if not words:
        faults.append(Fault(where=OPTION, what="it is empty", hint=f"one or more of {', '.join(WORDS)}"))
    between = _all_of([BETWEEN[word] for word in words if word in BETWEEN])
    within = _all_of([WITHIN[word] for word in words if word in WITHIN])
    if GPUDIRECT in words and between is None:
        between = RDMA
    elif GPUDIRECT in words and between is not None and not between & RDMA:
        faults.append(_exclusive([word for word in words if word in (*BETWEEN, GPUDIRECT)], "between hosts"))
    for found, table, where in ((between, BETWEEN, "between hosts"), (within, WITHIN, "within a host")):
        if found is not None and not found:
            faults.append(_exclusive([word for word in words if word in table], where))
    if faults:
        raise RequestError(faults)
    return Requirement(
        words=words,
        between=between or frozenset(),
        within=within or frozenset(),
        gpudirect=GPUDIRECT in words,
    )


def known_at_start(
    requirement: Requirement, hosts: Mapping[str, HostFacts], ranks: Mapping[str, int]
) -> tuple[Fault, ...]:
    """Return why a requirement cannot be met, before any rank is started.

    ``hosts``: by name, the facts of those that told them. ``ranks``: how many each host of the job gets.
    """
    return tuple(_start_faults(requirement, hosts, ranks))


def judge_requirement(requirement: Requirement, proof: TransportProof) -> tuple[Fault, ...]:
    """Return where a job did not meet a requirement, or did not show that it did, when it has ended."""
    faults: list[Fault] = []
    for host in proof.hosts:
        if requirement.between:
            faults += _judge(host, host.between, requirement.between, requirement, "to other hosts")
        if requirement.within and len(host.ranks) > 1:
            faults += _judge(host, host.within, requirement.within, requirement, "within the host")
        if requirement.gpudirect and host.gpudirect.used is not True:
            what = "was not used" if host.gpudirect.used is False else "is not shown"
            evidence = "; ".join(host.gpudirect.evidence) or "no evidence was gathered"
            faults.append(_fault(host, f"GPUDirect RDMA {what}: {evidence}"))
    if requirement.within and not any(len(host.ranks) > 1 for host in proof.hosts):
        faults.append(Fault(where=OPTION, what=f"{requirement}: no host has more than one rank"))
    if not proof.hosts:
        faults.append(Fault(where=OPTION, what=f"{requirement} is not shown: no host gathered any evidence"))
    return tuple(faults)


def _all_of(sets: list[frozenset[Wire]]) -> frozenset[Wire] | None:
    """Return what all words allow; ``None``: there is no word."""
    return frozenset.intersection(*sets) if sets else None


def _exclusive(words: Sequence[str], where: str) -> Fault:
    return Fault(
        where=OPTION,
        what=f"{' and '.join(words)} cannot both hold {where}",
        hint=f"name one: it has to carry {part_words(LEAST)} of the bytes",
    )


def _start_faults(
    requirement: Requirement, hosts: Mapping[str, HostFacts], ranks: Mapping[str, int]
) -> Iterator[Fault]:
    if requirement.between and len(ranks) == 1:
        hint = "name more hosts (-H), or leave the word out"
        what = f"{requirement} is about several hosts, and this job has one"
        yield Fault(where=OPTION, what=what, hint=hint)
    elif requirement.between & RDMA and not requirement.between & TCP:
        for name, facts in hosts.items():
            yield from _rdma_faults(requirement, name, facts)
    if requirement.within and not any(count > 1 for count in ranks.values()):
        what = f"{requirement} is about ranks of one host, and each host has one rank"
        yield Fault(where=OPTION, what=what)
    for name, facts in hosts.items():
        if requirement.gpudirect and not facts.gpus:
            yield Fault(where=name, what="it has no GPU, and gdr is required")
        if requirement.within == WITHIN["p2p"] and ranks.get(name, 0) > 1 and len(facts.gpus) < 2:
            yield Fault(where=name, what=f"it has {len(facts.gpus) or 'no'} GPU, and p2p is required")


def _rdma_faults(requirement: Requirement, name: str, facts: HostFacts) -> Iterator[Fault]:
    if select_ports(_with_ports_of(facts, requirement.between)).ports:
        return
    selection = select_ports(facts)
    words = ", ".join(word for word in requirement.words if word in BETWEEN) or GPUDIRECT
    if not facts.rdma_devices:
        yield Fault(where=name, what=f"{words} is required, and it has no RDMA device", hint=_HINT)
        return
    others = [f"{one.name} is {WIRE_WORDS[one.wire]}" for one in selection.ports]
    left_out = [f"{one.name}: {one.reason}" for one in selection.left_out]
    reasons = "; ".join([*others, *left_out]) or "its RDMA devices have no port"
    yield Fault(where=name, what=f"{words} is required, and no port can be used: {reasons}", hint=_HINT)


def _with_ports_of(facts: HostFacts, wires: frozenset[Wire]) -> HostFacts:
    """Return the facts without ports of other wires: of two that are usable the faster would be taken."""
    devices = [
        replace(device, ports=tuple(port for port in device.ports if wire_of_port(device, port) in wires))
        for device in facts.rdma_devices
    ]
    return replace(facts, rdma_devices=tuple(devices))


_HINT = "`ringleader doctor` says what the host lacks"


def _judge(
    host: HostProof, wires: WireShares, allowed: frozenset[Wire], requirement: Requirement, where: str
) -> list[Fault]:
    if not wires.shares:
        return [_fault(host, f"{requirement} {where} is not shown: {wires.unjudged}")]
    part = sum(share for wire, share in wires.shares.items() if wire in allowed)
    if part >= LEAST:
        return []
    unknown = wires.shares.get(Wire.UNKNOWN, 0.0)
    evidence = "; ".join(wires.evidence)
    if part + unknown >= LEAST:
        how = f"{part_words(unknown)} went by an unknown wire ({evidence})"
        return [_fault(host, f"{requirement} {where} is not shown: {how}")]
    others = ", ".join(
        f"{WIRE_WORDS[wire]} {part_words(share)}"
        for wire, share in wires.shares.items()
        if wire not in allowed
    )
    return [_fault(host, f"{where} {others} instead of {requirement}: {evidence}")]


def _fault(host: HostProof, what: str) -> Fault:
    return Fault(where=host.host, what=what)

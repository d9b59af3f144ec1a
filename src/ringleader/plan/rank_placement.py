"""Which rank sits on which slot of which host, with which cores and which GPU. Pure.

Ranks are numbered so that those of one host are consecutive under ``Placement.SLOT`` and so that
``cross_rank`` of a rank is the index of its host among the hosts that have its ``local_rank``
(Horovod's definition).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ringleader.errors import Fault, RequestError
from ringleader.plan.host_list import add_slots, is_loopback
from ringleader.plan.job import Host, Job, Placement
from ringleader.value_class import dataclass


@dataclass(frozen=True, kw_only=True)
class RdmaPort:
    """One port of an RDMA device, as far as a launch asks about it."""

    device: str
    port: int
    state: str = ""
    """``ACTIVE``, ``DOWN`` …; empty: not readable."""
    link_layer: str = ""
    """``InfiniBand``, ``Ethernet``, or what else the kernel says."""
    node_type: int | None = None
    """1: channel adapter; 4: RNIC (iWARP); 7: unspecified (EFA)."""
    driver: str = ""
    netdev: str = ""
    """A network interface of its addresses that the ranks' network namespace has; RoCE needs one."""
    file: str = ""
    """``/dev/infiniband/uverbs0``; empty: its device file does not exist."""
    unusable: str = ""
    """Why that file cannot be opened; empty: it can."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """What the probe learned about a host. Lists are in the host's own order."""

    host: Host
    hostname: str
    """What the host calls itself; two entries with one ``identity`` are the same machine."""
    identity: str
    """Equal for two names of one machine, different for two machines: boot id, hostname, namespaces."""
    is_local: bool
    """True where the host is the machine that launches."""
    cpus: tuple[int, ...]
    """One CPU number for each core we may use there, NUMA node by NUMA node."""
    cpusets: tuple[tuple[int, ...], ...] = ()
    """What a rank that is given ``cpus[i]`` is bound to: all usable hardware threads of that core; every
    usable CPU where a control group's quota, not a CPU set, limits us. Empty: ``cpus[i]`` alone."""
    gpus: tuple[str, ...] = ()
    """CUDA device ids for CUDA_VISIBLE_DEVICES (indices, GPU- or MIG- ids)."""
    addresses: tuple[str, ...] = ()
    """Addresses other hosts may reach it by, best first."""
    python: str = ""
    """Interpreter that runs the rank agent there; empty: the launcher's own path."""
    agent: str = ""
    """Path of ``agents/rank_agent.py`` there; empty: the launcher's own path."""
    processes: int = -1
    """Processes that the user may have there; -1: unknown."""
    rdma: tuple[RdmaPort, ...] = ()
    """Ports of its RDMA devices."""
    port_taken: str = ""
    """Why nobody can listen at the job's ``master_port`` there; empty: somebody can, or none is set."""
    directory: str = ""
    """Where its ranks run, in the copy of the code that it was sent; empty: the job's working directory."""
    code_by: str = ""
    """How that copy came there: ``rsync``, ``tar``; empty: it was there."""


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """One rank and everything that follows from its place."""

    rank: int
    host_index: int
    """Index into ``Plan.hosts``."""
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    cpus: tuple[int, ...]
    """CPUs this rank is bound to (all hardware threads of its cores); empty: not bound."""
    threads: int
    """OMP_NUM_THREADS for this rank unless the user set one."""
    gpu: str | None
    """Id of this rank's GPU; ``None``: its host has none."""
    visible_gpus: str | None = None
    """CUDA_VISIBLE_DEVICES for this rank; ``None``: leave the variable alone."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where every rank goes."""

    hosts: tuple[HostFacts, ...]
    """Hosts that take at least one rank, in the user's order."""
    ranks: tuple[RankPlace, ...]
    """By rank, 0 first."""

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    def counts(self) -> tuple[int, ...]:
        """Ranks of each host, in the order of ``hosts``."""
        counted = Counter(place.host_index for place in self.ranks)
        return tuple(counted[index] for index in range(len(self.hosts)))

    def on_host(self, host_index: int) -> tuple[RankPlace, ...]:
        """Ranks of one host, by local rank."""
        return tuple(place for place in self.ranks if place.host_index == host_index)


def slots_of(facts: HostFacts, *, share_gpus: bool = False) -> int:
    """Slots of a host: what the user gave, else one for each GPU, else one for each core we may use."""
    if facts.host.slots is not None:
        return facts.host.slots
    if facts.gpus and not share_gpus:
        return len(facts.gpus)
    return max(1, len(facts.cpus))


def same_machines_joined(facts: tuple[HostFacts, ...]) -> tuple[HostFacts, ...]:
    """Join entries that are one machine under two names: its slots add up, as for a name given twice.

    Left apart, both would count local ranks from 0, share cores and GPUs, and be two nodes to the user only.
    """
    joined: dict[str, HostFacts] = {}
    for fact in facts:
        known = joined.get(fact.identity)
        joined[fact.identity] = (
            fact if known is None else replace(known, host=add_slots(known.host, fact.host))
        )
    return tuple(joined.values())


def duplicate_names(facts: tuple[HostFacts, ...]) -> tuple[tuple[str, str], ...]:
    """Return (name, name given before it) of entries that are one machine."""
    first: dict[str, str] = {}
    return tuple(
        (fact.host.name, known)
        for fact in facts
        if (known := first.setdefault(fact.identity, fact.host.name)) != fact.host.name
    )


def _check_several(facts: tuple[HostFacts, ...]) -> None:
    """Refuse a job for several hosts that would run on one, unless that is what its names say."""
    names = [fact.host.name for fact in facts]
    if len({fact.identity for fact in facts}) > 1 or all(is_own_name(fact) for fact in facts):
        return
    raise RequestError(
        f"{', '.join(names)} are {len(names)} names of one machine, {facts[0].hostname}",
        where="hosts",
        hint="correct the names (ssh configuration, /etc/hosts, DNS), or name that machine once "
        f"with all its slots: -H {names[0]}:N",
    )


def is_own_name(fact: HostFacts) -> bool:
    """Return whether the name can mean nothing but the machine it was found on."""
    name = fact.host.name.lower()
    return is_loopback(name) or name.split(".")[0] == fact.hostname.lower().split(".")[0]


def share(items: tuple[int, ...], part: int, parts: int) -> tuple[int, ...]:
    """Return the part-th of ``parts`` consecutive, nearly equal runs; with too few items, one in turn."""
    if len(items) < parts:
        return (items[part % len(items)],) if items else ()
    low, high = part * len(items) // parts, (part + 1) * len(items) // parts
    return items[low:high]


def bound_to(facts: HostFacts, cpus: tuple[int, ...]) -> tuple[int, ...]:
    """Return the CPUs that a rank with these cores is bound to."""
    sets = dict(zip(facts.cpus, facts.cpusets, strict=True)) if facts.cpusets else {}
    return tuple(sorted({thread for cpu in cpus for thread in sets.get(cpu, (cpu,))}))


def _counts(slots: list[int], limits: list[int], np: int, placement: Placement) -> list[int]:
    """Return ranks per host: within slots first, what is left over one by one round the hosts."""
    counts = [0] * len(slots)
    left = np
    if placement is Placement.SLOT:
        for index, capacity in enumerate(slots):
            counts[index] = min(capacity, left)
            left -= counts[index]
    else:
        left = _deal(counts, slots, left)
    _deal(counts, limits, left)
    return counts


def _deal(counts: list[int], capacities: list[int], left: int) -> int:
    """Give one rank to each host that has a slot free in turn, in place; return how many found none."""
    while left:
        before = left
        for index, capacity in enumerate(capacities):
            if left and counts[index] < capacity:
                counts[index] += 1
                left -= 1
        if left == before:
            break
    return left


def _order(counts: list[int], placement: Placement) -> list[tuple[int, int]]:
    """Return (host_index, local_rank) by rank."""
    if placement is Placement.SLOT:
        return [(host, local) for host, count in enumerate(counts) for local in range(count)]
    deepest = max(counts)
    return [(host, local) for local in range(deepest) for host, count in enumerate(counts) if local < count]


def place(job: Job, facts: tuple[HostFacts, ...]) -> Plan:
    """Place the job's ranks on the probed hosts.

    ``facts`` are in the user's order, at least one; two of one machine count as one host. Raises
    RequestError with every fault: several names that are all one machine; too few slots without
    ``oversubscribe``, more than ``max_slots`` with it; more ranks than GPUs on a host without
    ``share_gpus``; a port for rank 0 that is taken.
    """
    if len(facts) > 1:
        _check_several(facts)
    facts = same_machines_joined(facts)
    slots = [slots_of(fact, share_gpus=job.share_gpus) for fact in facts]
    np = job.np if job.np is not None else (sum(slots) if job.hosts else 1)
    limits = [max(count, fact.host.max_slots or np) for fact, count in zip(facts, slots, strict=True)]
    capacity = sum(limits) if job.oversubscribe else sum(slots)
    if np > capacity:
        raise RequestError(_too_many(job, facts, slots, np, capacity))
    counts = _counts(slots, limits, np, job.placement)
    if found := [*_gpu_faults(job, facts, counts), *_process_faults(facts, counts)]:
        raise RequestError(found)
    plan = _numbered(job, facts, counts)
    _check_master_port(job, plan)
    return plan


PROCESSES_OF_A_RANK = 2
"""The script and its agent; most scripts start more."""


def _gpu_faults(job: Job, facts: tuple[HostFacts, ...], counts: list[int]) -> Iterator[Fault]:
    hint = "give it at most one rank for each GPU, or add --share-gpus"
    for fact, count in zip(facts, counts, strict=True):
        if fact.gpus and count > len(fact.gpus) and not job.share_gpus:
            what = f"{count} ranks for {len(fact.gpus)} GPU{'s' if len(fact.gpus) > 1 else ''}"
            yield Fault(where=f"host {fact.host.name}", what=what, hint=hint)


def _process_faults(facts: tuple[HostFacts, ...], counts: list[int]) -> Iterator[Fault]:
    """Yield where more ranks are than a host can have processes for: its MPI would try for minutes."""
    hint = "ask for fewer ranks; the limits are ulimit -u, the container's pids limit, kernel.pid_max"
    for fact, count in zip(facts, counts, strict=True):
        needed = PROCESSES_OF_A_RANK * count
        if 0 <= fact.processes < needed:
            what = f"{count} ranks need {needed} processes; it allows {fact.processes}"
            yield Fault(where=f"host {fact.host.name}", what=what, hint=hint)


def _check_master_port(job: Job, plan: Plan) -> None:
    """Refuse a port that is taken on rank 0's host."""
    first = plan.hosts[plan.ranks[0].host_index]
    if job.master_port is not None and first.port_taken:
        where = "this machine" if first.is_local else first.host.name
        raise RequestError(
            f"port {job.master_port} cannot be used on {where}: {first.port_taken}",
            where="--master-port",
            hint="choose another, or leave the option out: a free one is found",
        )


def _too_many(job: Job, facts: tuple[HostFacts, ...], slots: list[int], np: int, capacity: int) -> Fault:
    """Say which slots there are and where their number comes from."""
    by_host = ", ".join(f"{fact.host.name}:{count}" for fact, count in zip(facts, slots, strict=True))
    counted = [fact for fact in facts if fact.host.slots is None]
    if job.oversubscribe:
        what, hint = f"at most {capacity} with max_slots ({by_host})", "raise max_slots in the hostfile"
    else:
        by_gpu = any(fact.gpus for fact in counted) and not job.share_gpus
        origin = f", one for each {'GPU' if by_gpu else 'core'}" if counted else ""
        what = f"{capacity} slots there{origin} ({by_host})"
        hint = f"ask for fewer ranks, or add {'--share-gpus' if by_gpu else '--oversubscribe'}"
    return Fault(where="-n", what=f"{np} ranks asked for, {what}", hint=hint)


def _numbered(job: Job, facts: tuple[HostFacts, ...], counts: list[int]) -> Plan:
    """Number the ranks and give each its cores and its GPU."""
    used = [index for index, count in enumerate(counts) if count]
    renumber = {old: new for new, old in enumerate(used)}
    order = _order(counts, job.placement)
    cross_sizes = Counter(local for _, local in order)
    seen: Counter[int] = Counter()
    cross_ranks = {}
    for host, local in sorted(order):
        cross_ranks[host, local] = seen[local]
        seen[local] += 1
    ranks = []
    for rank, (host, local) in enumerate(order):
        fact = facts[host]
        cpus = share(fact.cpus, local, counts[host])
        bound = job.bind == "auto" and counts[host] <= len(fact.cpus)
        ranks.append(
            RankPlace(
                rank=rank,
                host_index=renumber[host],
                local_rank=local,
                local_size=counts[host],
                cross_rank=cross_ranks[host, local],
                cross_size=cross_sizes[local],
                cpus=bound_to(fact, cpus) if bound else (),
                threads=job.threads or max(1, len(cpus)),
                gpu=(own := fact.gpus[local % len(fact.gpus)] if fact.gpus else None),
                visible_gpus=_visible_gpus(job, fact, own),
            )
        )
    return Plan(hosts=tuple(facts[index] for index in used), ranks=tuple(ranks))


def _visible_gpus(job: Job, fact: HostFacts, own: str | None) -> str | None:
    """Return CUDA_VISIBLE_DEVICES for a rank: all GPUs of its host, in their order.

    Its own alone where the job asks for that, where the rank is its own world (local rank 0), and of
    MIG instances, of which CUDA takes one in a process.
    """
    if own is None or not job.all_gpus or job.uncoupled or own.startswith("MIG-"):
        return own
    return ",".join(fact.gpus)


def listed(words: Iterable[object], most: int = 8) -> str:
    """Return words with commas between them, with dots where there are too many."""
    texts = [str(word) for word in words]
    return ", ".join(texts[:most]) + (", …" if len(texts) > most else "")


def ranks_named(ranks: Iterable[int]) -> str:
    """Return ``rank 3`` or ``ranks 0, 1, 2``."""
    found = list(ranks)
    return f"rank{'s' if len(found) > 1 else ''} {listed(found)}"

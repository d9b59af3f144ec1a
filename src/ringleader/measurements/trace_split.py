"""Where the steps of a job went, by the traces of its ranks: intervals divided and added up. Pure; seconds.

`trace_events` reads a trace. The time of a rank is divided without remainder. On a GPU what comes first in

    compute, communication, copies, input, idle

counts where several run at once; on CPUs input comes before compute, as a data loader computes as well.
Communication is *exposed* while nothing computes, *overlapped* while something does. Part of what is exposed
is waiting: a collective cannot end before the rank that comes last has come, so each other rank waits from
its own begin until then. Hosts' clocks differ; as a collective ends on all its ranks at about the same time,
the ends say by how much (`_clocks`). Where they contradict each other, waiting is unknown.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ringleader.measurements.trace_events import (
    SYNCHRONIZING,
    Collective,
    Intervals,
    Trace,
    clipped,
    common,
    merged,
    total,
    without,
)

PARTS = ("compute", "exposed", "waiting", "copies", "input", "idle")
"""Fields of `RankSplit` that add up to its seconds."""
LOOSE = 0.25
"""Part of a usual collective by which its ends may differ between ranks, once clocks are corrected."""
LEAST_ERROR = 100e-6
"""Seconds that are never too much for that."""
CLOCK = 1e-3
"""Seconds from which a difference of clocks is reported."""
LEAST_CAUSE = 0.1
"""Part of the others' usual wait that a rank's own work must explain."""
NOTABLE = 0.02
"""Part of all ranks' time from which waiting for one rank is worth a sentence."""

Key = tuple[str, str, int]
"""Group, kind and number of a collective: the same on all its ranks."""


@dataclass(frozen=True, kw_only=True)
class CollectiveSplit:
    """All collectives of one kind and group."""

    kind: str
    group: str
    count: int
    """Of all ranks together."""
    seconds: float
    """From begin to end, added up, so more than passed where several ran at once."""
    exposed: float
    """Nothing computed, waiting left out; where several ran at once, it is that of the first."""
    waiting: float | None
    overlapped: float


@dataclass(frozen=True, kw_only=True)
class RankSplit:
    """Where the time of one rank went."""

    rank: int
    file: str
    seconds: float
    compute: float
    exposed: float
    """Communication while nothing computed, without waiting where that is known."""
    waiting: float | None
    """For ranks that came later to a collective; ``None``: unknown."""
    copies: float
    input: float
    idle: float
    overlapped: float
    """Communication while something computed; part of ``compute``."""
    clock: float | None
    """Seconds that its clock is ahead of the first rank's; ``None``: unknown."""
    was_last: int
    """Collectives to which it came last."""
    caused: float
    """Seconds that other ranks waited for it, added up."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Where the time of all ranks went."""

    on_gpu: bool
    steps: tuple[int, ...]
    """Numbers of the steps that all ranks recorded; empty: traces do not say."""
    ranks: tuple[RankSplit, ...]
    collectives: tuple[CollectiveSplit, ...]
    matched: int
    """Collectives that were found on several ranks, so that it is known who came last."""
    notes: tuple[str, ...] = ()
    """What a reader should know of these numbers."""

    def sum_of(self, part: str) -> float | None:
        """Return a part of all ranks together; ``None``: unknown."""
        values = [getattr(rank, part) for rank in self.ranks]
        return None if None in values else sum(values)

    @property
    def straggler(self) -> RankSplit | None:
        """The rank for which the others waited longest, where that is worth a sentence."""
        worst = max(self.ranks, key=lambda rank: rank.caused)
        return worst if worst.caused > NOTABLE * sum(rank.seconds for rank in self.ranks) else None

    def why(self, straggler: RankSplit) -> tuple[str, float]:
        """Return the part in which a rank exceeds the median of the others most, and by how many seconds.

        0.0: by too little to explain how long they waited, so the rank waited itself.
        """
        others = [rank for rank in self.ranks if rank is not straggler]

        def excess(part: str) -> float:
            usual = statistics.median(getattr(rank, part) for rank in others)
            return float(getattr(straggler, part) - usual)

        own = ("compute", "copies", "input", "idle")
        part, more = max(((part, excess(part)) for part in own), key=lambda one: one[1])
        return part, more if more > LEAST_CAUSE * straggler.caused / len(others) else 0.0


def split(traces: Sequence[Trace]) -> Split:
    """Return where the time of at least one trace went."""
    traces, notes = _by_rank(traces)
    traces, steps = _of_common_steps(traces, notes)
    keyed = [_keys(trace) for trace in traces]
    clocks, waits, last = _arrivals(traces, keyed, notes)
    found = [
        _divided(trace, keyed[place], {key: when for (of, key), when in waits.items() if of == place})
        for place, trace in enumerate(traces)
    ]
    caused = defaultdict[int, float](float)
    kinds = defaultdict[tuple[str, str], list[_Exchange]](list)
    for place, (_rank, exchanges) in enumerate(found):
        for one in exchanges:
            caused[last.get(one.key, place)] += one.waited
            kinds[one.kind].append(one)
    ranks = (
        replace(
            rank,
            waiting=rank.waiting if last or not exchanges else None,
            clock=clocks.get(place),
            was_last=sum(one == place for one in last.values()),
            caused=caused[place],
        )
        for place, (rank, exchanges) in enumerate(found)
    )
    collectives = (_together(kind, some, knows_last=bool(last)) for kind, some in kinds.items())
    return Split(
        on_gpu=any(trace.on_gpu for trace in traces),
        steps=steps,
        ranks=tuple(ranks),
        collectives=tuple(sorted(collectives, key=lambda one: -one.exposed - (one.waiting or 0.0))),
        matched=len(last),
        notes=tuple(notes),
    )


class _Exchange(NamedTuple):
    """One collective of a rank."""

    key: Key
    kind: tuple[str, str]
    seconds: float
    alone: Intervals
    """Nothing computed, and none that began earlier ran."""
    waited: float
    """Part of that."""
    hidden: float


def _divided(
    trace: Trace, keyed: Mapping[Key, Collective], waits: Mapping[Key, tuple[float, float]]
) -> tuple[RankSplit, list[_Exchange]]:
    """Return where a rank's time went, as far as its own trace says that, and its collectives."""
    window: Intervals = ((trace.begin, trace.end),)
    computed, entered, copied = (common(one, window) for one in (trace.compute, trace.input, trace.copies))
    rest = without(window, computed if trace.on_gpu else merged((*computed, *entered)))
    exchanges, until = list[_Exchange](), trace.begin
    for key, one in keyed.items():
        begin, end = max(one.begin, trace.begin), min(one.end, trace.end)
        # One that began before it counts first, so only what is behind that is left.
        alone = clipped(rest, max(begin, until), end)
        until = max(until, end)
        waited, hidden = total(clipped(alone, *waits.get(key, (0.0, 0.0)))), clipped(computed, begin, end)
        kind = one.kind, one.label
        exchanges.append(_Exchange(key, kind, max(0.0, end - begin), alone, waited, total(hidden)))
    exposed, waiting = (
        merged(part for one in exchanges for part in one.alone),
        sum(e.waited for e in exchanges),
    )
    rest = without(rest, exposed)
    copying = common(rest, copied)
    rest = without(rest, copying)
    entering = common(rest, entered) if trace.on_gpu else entered
    whole = merged((one.begin, one.end) for one in trace.collectives)
    rank = RankSplit(
        rank=trace.rank or 0,
        file=trace.name,
        seconds=trace.end - trace.begin,
        compute=total(computed if trace.on_gpu else without(computed, entered)),
        exposed=total(exposed) - waiting,
        waiting=waiting,
        copies=total(copying),
        input=total(entering),
        idle=total(without(rest, entering) if trace.on_gpu else rest),
        overlapped=total(common(computed, whole)),
        clock=None,
        was_last=0,
        caused=0.0,
    )
    return rank, exchanges


def _together(kind: tuple[str, str], some: Sequence[_Exchange], *, knows_last: bool) -> CollectiveSplit:
    """Return all collectives of one kind and group. ``knows_last``: it is known who waited."""
    waited = sum(one.waited for one in some)
    return CollectiveSplit(
        kind=kind[0],
        group=kind[1],
        count=len(some),
        seconds=sum(one.seconds for one in some),
        exposed=sum(total(one.alone) for one in some) - waited,
        waiting=waited if knows_last else None,
        overlapped=sum(one.hidden for one in some),
    )


def _by_rank(traces: Sequence[Trace]) -> tuple[list[Trace], list[str]]:
    """Return one trace for each rank, and what a reader should know of them."""
    notes = []
    if any(trace.rank is None for trace in traces):
        named = sorted(traces, key=lambda one: one.name)
        traces = [replace(trace, rank=number) for number, trace in enumerate(named)]
        notes.append("not every trace says which rank it is of: ranks are numbered by the names of the files")
    latest = {trace.rank: trace for trace in sorted(traces, key=lambda one: one.begin)}
    if len(latest) < len(traces):
        notes.append("several traces are of one rank: the latest of each rank counts")
    found = sorted(latest.values(), key=lambda one: one.rank or 0)
    world = max(trace.world for trace in found)
    missing = [str(rank) for rank in range(world) if rank not in latest]
    if missing:
        shown = ", ".join(missing[:8]) + (", …" if len(missing) > 8 else "")
        what = f"{len(missing)} of {world} ranks {'have' if len(missing) > 1 else 'has'} no trace ({shown})"
        notes.append(f"{what}: time in which others waited for them counts as exposed")
    if len({trace.on_gpu for trace in found}) > 1:
        notes.append("only some of the traces have kernels of a GPU: their parts do not compare")
    return found, notes


def _of_common_steps(traces: list[Trace], notes: list[str]) -> tuple[list[Trace], tuple[int, ...]]:
    """Return traces cut to the steps that all ranks recorded, and these; none where that is impossible."""
    steps = tuple(sorted(set.intersection(*(set(trace.steps) for trace in traces))))
    if len({trace.steps for trace in traces}) == 1:
        return traces, steps
    if not steps or not all(trace.spans for trace in traces):
        notes.append("the ranks recorded different steps: times are those of whole traces")
        return traces, ()
    notes.append("the ranks recorded different steps: only steps that all ranks recorded are counted")
    found = []
    for trace in traces:
        spans = [span for number, span in zip(trace.steps, trace.spans, strict=True) if number in steps]
        begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
        own = tuple(one for one in trace.collectives if begin <= one.begin < end)
        found.append(replace(trace, steps=steps, begin=begin, end=end, collectives=own))
    return found, steps


def _keys(trace: Trace) -> dict[Key, Collective]:
    """Return a trace's collectives by what they share with those of other ranks.

    The number is below zero where it is only their order in the trace.
    """
    found: dict[Key, Collective] = {}
    counts = Counter[tuple[str, str]]()
    for one in trace.collectives:
        counts[one.group, one.kind] += 1
        number = -counts[one.group, one.kind] if one.sequence is None else one.sequence
        key = one.group, one.kind, number
        before = found.get(key)  # several kernels may carry out one collective
        found[key] = one if before is None else replace(before, end=max(before.end, one.end))
    return found


def _arrivals(
    traces: Sequence[Trace], keyed: Sequence[Mapping[Key, Collective]], notes: list[str]
) -> tuple[dict[int, float], dict[tuple[int, Key], tuple[float, float]], dict[Key, int]]:
    """Return clocks, who waited from when to when by its own clock, and who came last to which collective.

    Ranks are meant by the places of their traces. What is unknown is left out, and said in ``notes``.
    """
    shared = _shared(keyed)
    if len(traces) < 2 or not any(keyed):
        return {}, {}, {}
    unknown = "it is unknown who waited for whom: "
    if not shared:
        notes.append(f"{unknown}the traces have no collective in common; are they of the same steps?")
        return {}, {}, {}
    clocks, error = _clocks(shared, [trace.host or f" {place}" for place, trace in enumerate(traces)])
    usual = statistics.median(one.end - one.begin for ranks in shared.values() for one in ranks.values())
    if error > max(LOOSE * usual, LEAST_ERROR):
        notes.append(
            f"{unknown}clocks disagree; corrected, the same collectives still end {1e3 * error:.3g} ms apart "
            f"and a usual one takes {1e3 * usual:.3g} ms"
        )
        return {}, {}, {}
    for place, ahead in clocks.items():
        if abs(ahead) >= CLOCK:
            how = f"{abs(ahead):.4g} s {'ahead of' if ahead > 0 else 'behind'} that of rank {traces[0].rank}"
            notes.append(f"the clock of rank {traces[place].rank} is {how}, which is corrected")
    waits, last, apart = {}, {}, 0
    for key, ranks in shared.items():
        known = {place: one for place, one in ranks.items() if place in clocks}
        if len(known) < 2:
            continue
        ends = [one.end - clocks[place] for place, one in known.items()]
        own_usual = statistics.median(one.end - one.begin for one in known.values())
        if max(ends) - min(ends) > max(LOOSE * own_usual, LEAST_ERROR):
            apart += 1
            continue
        begins = {place: one.begin - clocks[place] for place, one in known.items()}
        last[key] = latest = max(begins, key=lambda place: begins[place])
        for place, begin in begins.items():
            own = known[place]
            waits[place, key] = own.begin, min(own.end, own.begin + begins[latest] - begin)
    if apart:
        notes.append(
            f"{apart} of {len(shared)} collectives end at different times on their ranks, so they may be "
            "different ones (of groups without a name): time in them counts as exposed"
        )
    return clocks, waits, last


def _shared(keyed: Sequence[Mapping[Key, Collective]]) -> dict[Key, dict[int, Collective]]:
    """Return the collectives that several ranks have recorded and that end at the same time on all.

    Those known by their order alone count where all ranks recorded as many of that group and kind.
    """
    at: dict[Key, dict[int, Collective]] = defaultdict(dict)
    counts: dict[tuple[str, str], set[int]] = defaultdict(set)
    for place, collectives in enumerate(keyed):
        for kind, count in Counter(key[:2] for key in collectives).items():
            counts[kind].add(count)
        for key, one in collectives.items():
            if one.kind in SYNCHRONIZING:
                at[key][place] = one
    return {
        key: ranks
        for key, ranks in at.items()
        if len(ranks) > 1 and (key[2] >= 0 or len(counts[key[:2]]) == 1)
    }


def _clocks(
    shared: Mapping[Key, Mapping[int, Collective]], hosts: Sequence[str]
) -> tuple[dict[int, float], float]:
    """Return by how much each clock is ahead of the first one's, and how far ends differ after that.

    Ranks of a host have one clock. For another host it is the median difference of the ends of collectives
    that its ranks share with those whose clock is known.
    """
    known = {hosts[min(place for ranks in shared.values() for place in ranks)]: 0.0}
    fresh = set(known)
    while fresh:
        ends: dict[str, list[float]] = defaultdict(list)
        for ranks in shared.values():
            first = next((place for place in ranks if hosts[place] in fresh), None)
            for place, one in ranks.items() if first is not None else ():
                if hosts[place] not in known and first is not None:
                    ends[hosts[place]].append(one.end - ranks[first].end + known[hosts[first]])
        known |= {host: statistics.median(found) for host, found in ends.items()}
        fresh = set(ends)
    clocks = {place: known[host] for place, host in enumerate(hosts) if host in known}
    spans = []
    for ranks in shared.values():
        if corrected := [one.end - clocks[place] for place, one in ranks.items() if place in clocks]:
            spans.append(max(corrected) - min(corrected))
    return clocks, statistics.median(spans)

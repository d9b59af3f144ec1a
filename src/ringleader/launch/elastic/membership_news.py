"""What each fact changes in the state of an elastic job, before anything follows from it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ringleader.launch.elastic import facts as f
from ringleader.launch.elastic import orders as o
from ringleader.launch.elastic.membership_draft import Draft, failure_text
from ringleader.launch.elastic.membership_state import (
    HostRecord,
    HostStatus,
    RankStatus,
    Result,
    Trouble,
    WorldStatus,
)

GONE_SECONDS = 2.0
"""From the end of a rank's socket until its end is told: a rank that is killed is reaped at once, one that
ends by itself may have closed the socket before its interpreter is done."""
SAME_SECONDS = 1.0
"""Within which ranks that end alike do so for one reason: the script's."""
REMOVED = "it was removed"
HOSTS_CHANGED = "the hosts changed"
_TAKES_PART = (RankStatus.ORDERED, RankStatus.ATTACHED, RankStatus.DETACHED)


def note(draft: Draft, fact: f.Fact) -> None:
    """Change the draft by a fact."""
    act: Callable[[Draft, Any], None] | None = NEWS.get(type(fact))
    if act is not None:
        act(draft, fact)


# --- hosts ------------------------------------------------------------------------------------------------


def _hosts_seen(draft: Draft, fact: f.HostsSeen) -> None:
    if fact.hosts != draft.wanted:
        draft.wanted, draft.world_failures = fact.hosts, 0
    now_wanted = dict(fact.hosts)
    draft.failed_hosts = draft.failed_hosts.difference(now_wanted)
    for name, slots in fact.hosts:
        host = draft.hosts.get(name)
        if host is None:
            draft.hosts[name] = HostRecord(
                name=name,
                slots=slots,
                status=HostStatus.STARTING,
                deadline=draft.now + draft.limits.start_timeout,
            )
            draft.orders.append(o.StartHost(host=name, slots=slots))
            if draft.last_generation:
                draft.tell("host_added", name, "it is on offer")
        elif host.status is HostStatus.LEAVING and host.why == REMOVED:
            draft.hosts[name] = replace(host, status=HostStatus.READY, why="", slots=slots or host.slots)
        elif slots:
            draft.hosts[name] = replace(host, slots=slots)
    for name, host in list(draft.hosts.items()):
        if name in now_wanted:
            continue
        if host.status is HostStatus.STARTING:
            del draft.hosts[name]
            draft.orders.append(o.EndHost(host=name))
        elif host.status is HostStatus.REFUSED:
            del draft.hosts[name]
        elif host.status is HostStatus.READY:
            draft.hosts[name] = replace(host, status=HostStatus.LEAVING, why=REMOVED)
            draft.tell("host_leaving", name, REMOVED)


def _host_ready(draft: Draft, fact: f.HostReady) -> None:
    host = draft.hosts.get(fact.host)
    if host is not None and host.status is HostStatus.STARTING:
        draft.hosts[fact.host] = replace(
            host, status=HostStatus.READY, slots=fact.slots, deadline=None, machine=fact.machine
        )


def _host_advances(draft: Draft, fact: f.HostAdvances) -> None:
    host = draft.hosts.get(fact.host)
    if host is not None and host.status is HostStatus.STARTING:
        draft.hosts[fact.host] = replace(host, deadline=draft.now + draft.limits.start_timeout)


def _host_refused(draft: Draft, fact: f.HostRefused) -> None:
    host = draft.hosts.get(fact.host)
    if host is not None and host.status is HostStatus.STARTING:
        refuse(draft, host, fact.why)


def refuse(draft: Draft, host: HostRecord, why: str) -> None:
    """Leave out a host that cannot take part, until it is offered anew."""
    draft.hosts[host.name] = replace(host, status=HostStatus.REFUSED, deadline=None, why=why)
    draft.tell("host_refused", host.name, why)
    draft.exclude_host(host.name, why)
    draft.orders.append(o.EndHost(host=host.name))


def _host_lost(draft: Draft, fact: f.HostLost) -> None:
    host = draft.hosts.get(fact.host)
    if host is not None and host.status is HostStatus.STARTING:
        refuse(draft, host, fact.why)
    elif host is not None and host.status is not HostStatus.REFUSED:
        draft.lose_host(fact.host, fact.why)


def _host_leaving(draft: Draft, fact: f.HostLeaving) -> None:
    host = draft.hosts.get(fact.host)
    if host is not None and host.status in (HostStatus.READY, HostStatus.LEAVING) and host.why != fact.why:
        draft.hosts[fact.host] = replace(host, status=HostStatus.LEAVING, why=fact.why)
        draft.tell("host_leaving", fact.host, fact.why)


def _committed(draft: Draft, fact: f.Committed) -> None:
    host = draft.hosts.get(fact.host)
    if host is not None:
        draft.hosts[fact.host] = replace(host, commits=_newest({*host.commits, fact.number}))


def _newest(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return the newest two: a host has room for no more."""
    return tuple(sorted(numbers)[-2:])


# --- ranks ------------------------------------------------------------------------------------------------


def _rank_waiting(draft: Draft, fact: f.RankWaiting) -> None:
    rank = draft.ranks.get(fact.incarnation)
    if rank is None or rank.status is RankStatus.LEAVING:
        return
    generation = draft.generation
    if generation is None or fact.after == generation.number:
        # All that its host holds now. While a generation trains a new rank may have looked before that began,
        # from when on the host has dropped commits and says of each new one that it is complete.
        host = draft.hosts[rank.host]
        draft.hosts[rank.host] = replace(host, commits=_newest(fact.commits))
    if generation is not None and rank.status in _TAKES_PART:
        if fact.after < generation.number and rank.status is not RankStatus.DETACHED:
            return  # it was on its way when the rank was told of this generation
        if fact.after == generation.number and not _switches(draft):
            why = f"{draft.name(rank)} left the generation"
            why += f": {fact.reason}" if fact.reason else ""
            draft.break_generation(why, supposed=True)
    draft.change_rank(
        draft.ranks[fact.incarnation], status=RankStatus.WAITING, deadline=None, arrival=fact.arrival
    )


def _switches(draft: Draft) -> bool:
    """Say whether a rank leaves its generation for the next world; then the others follow soon."""
    if not draft.next_world or draft.notified != draft.next_world:
        return False
    if not draft.switching:
        draft.switching = True
        draft.trouble = Trouble(at=draft.now, why=HOSTS_CHANGED)
        for other in draft.members():
            draft.change_rank(other, deadline=draft.patience())
    return True


def _rank_attached(draft: Draft, fact: f.RankAttached) -> None:
    rank, generation = draft.ranks.get(fact.incarnation), draft.generation
    if rank is None or generation is None or fact.generation != generation.number:
        return
    if rank.status is RankStatus.ORDERED:
        draft.change_rank(rank, status=RankStatus.ATTACHED)


def _rank_detached(draft: Draft, fact: f.RankDetached) -> None:
    rank, generation = draft.ranks.get(fact.incarnation), draft.generation
    if rank is None or generation is None or fact.generation != generation.number:
        return
    if rank.status in (RankStatus.ORDERED, RankStatus.ATTACHED):
        _switches(draft)
        draft.change_rank(draft.ranks[fact.incarnation], status=RankStatus.DETACHED, deadline=None)


def _rank_gone(draft: Draft, fact: f.RankGone) -> None:
    rank = draft.ranks.get(fact.incarnation)
    if rank is not None and rank.gone is None:
        draft.change_rank(rank, gone=draft.now + GONE_SECONDS)


def _rank_ended(draft: Draft, fact: f.RankEnded) -> None:
    rank = draft.ranks.get(fact.incarnation)
    if rank is None:
        return
    if rank.status is RankStatus.LEAVING or draft.result is not None:
        del draft.ranks[fact.incarnation]
    elif fact.exit_code == 0:
        del draft.ranks[fact.incarnation]
        draft.returned += (fact.incarnation,)
    else:
        untold = fact.exit_code is None and fact.signal is None
        draft.fail(rank, code=fact.exit_code, number=fact.signal, words=fact.words, supposed=untold)
        _judge_script(draft)


def _judge_script(draft: Draft) -> None:
    """End the job where all ranks of a generation, or all that were started first, failed alike."""
    first = draft.last_generation == 0
    group = set(range(len(draft.spawned))) if first else set(draft.order)
    found = [failure for failure in draft.failures if failure.incarnation in group]
    kinds = {(failure.exit_code, failure.words.partition(":")[0]) for failure in found}
    times = [failure.at for failure in found]
    alike = len(kinds) == 1 and found[0].exit_code is not None
    if not group or {failure.incarnation for failure in found} != group or not alike:
        return
    if first or max(times) - min(times) <= SAME_SECONDS:
        failure = found[0]
        code = failure.exit_code or PLAIN_FAILURE
        who = f"rank {failure.rank}" if failure.rank is not None else f"a rank on {failure.host}"
        every = f"; so did all {len(group)} ranks: it is the script's" if len(group) > 1 else ""
        reason = failure_text(failure) + every
        draft.result = Result(exit_code=code, whose=who, reason=reason, failure=failure)


PLAIN_FAILURE = 1
"""Exit code where a failure has none of its own."""


# --- worlds -----------------------------------------------------------------------------------------------


def _proxy_ready(draft: Draft, fact: f.ProxyReady) -> None:
    world = draft.worlds.get(fact.world)
    if world is not None and world.status is WorldStatus.STARTING:
        ready = world.ready | {fact.world_rank}
        everyone = len(ready) == sum(len(slots) for _, slots in world.layout)
        status = WorldStatus.READY if everyone else WorldStatus.STARTING
        draft.worlds[fact.world] = replace(world, ready=ready, status=status)
        if everyone:
            draft.world_failures = 0


def _world_ended(draft: Draft, fact: f.WorldEnded) -> None:
    world = draft.worlds.get(fact.world)
    if world is None:
        return
    if world.status is not WorldStatus.ENDING:
        starting = world.status is WorldStatus.STARTING
        draft.break_world(world, fact.why)
        for host in fact.hosts if starting else ():
            draft.drop_host(host, fact.why)
    del draft.worlds[fact.world]


def _stop_requested(draft: Draft, fact: f.StopRequested) -> None:
    if draft.result is None:
        draft.result = Result(exit_code=fact.exit_code, whose=fact.whose, reason=fact.reason)


NEWS: dict[type, Callable[[Draft, Any], None]] = {
    f.HostsSeen: _hosts_seen,
    f.HostReady: _host_ready,
    f.HostRefused: _host_refused,
    f.HostAdvances: _host_advances,
    f.HostLost: _host_lost,
    f.HostLeaving: _host_leaving,
    f.Committed: _committed,
    f.RankWaiting: _rank_waiting,
    f.RankAttached: _rank_attached,
    f.RankDetached: _rank_detached,
    f.RankGone: _rank_gone,
    f.RankEnded: _rank_ended,
    f.ProxyReady: _proxy_ready,
    f.WorldEnded: _world_ended,
    f.StopRequested: _stop_requested,
}
"""Kind of fact → what it changes; time that passes changes nothing by itself."""

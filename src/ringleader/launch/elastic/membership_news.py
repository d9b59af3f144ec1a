"""What each fact changes in the state of an elastic job, before anything follows from it (``membership``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ringleader.launch.elastic import facts as f
from ringleader.launch.elastic import orders as o
from ringleader.launch.elastic.layout import size_of
from ringleader.launch.elastic.membership_state import (
    HostRecord,
    HostStatus,
    RankStatus,
    Result,
    State,
    Trouble,
    WorldStatus,
    failure_text,
)

GONE_SECONDS = 2.0
"""From the end of a rank's socket until its end is told: a rank that is killed is reaped at once, one that
ends by itself may have closed the socket before its interpreter is done."""
SAME_SECONDS = 1.0
"""Within which ranks that end alike do so for one reason: the script's."""
REMOVED = "it was removed"
HOSTS_CHANGED = "the hosts changed"
_TAKES_PART = (RankStatus.ORDERED, RankStatus.ATTACHED, RankStatus.DETACHED)


def note(state: State, fact: f.Fact) -> None:
    """Change the state by a fact."""
    act: Callable[[State, Any], None] | None = NEWS.get(type(fact))
    if act is not None:
        act(state, fact)


# --- hosts ------------------------------------------------------------------------------------------------


def _hosts_seen(state: State, fact: f.HostsSeen) -> None:
    if fact.hosts != state.wanted:
        state.wanted, state.world_failures = fact.hosts, 0
    now_wanted = dict(fact.hosts)
    state.failed_hosts -= set(now_wanted)
    for name, slots in fact.hosts:
        host = state.hosts.get(name)
        if host is None:
            state.hosts[name] = HostRecord(
                name=name,
                slots=slots,
                status=HostStatus.STARTING,
                deadline=state.now + state.limits.start_timeout,
            )
            state.orders.append(o.StartHost(host=name, slots=slots))
            if state.last_generation:
                state.tell("host_added", name, "it is on offer")
        elif host.status is HostStatus.LEAVING and host.why == REMOVED:
            host.status, host.why, host.slots = HostStatus.READY, "", slots or host.slots
        elif slots:
            host.slots = slots
    for name, host in list(state.hosts.items()):
        if name in now_wanted:
            continue
        if host.status is HostStatus.STARTING:
            del state.hosts[name]
            state.orders.append(o.EndHost(host=name))
        elif host.status is HostStatus.REFUSED:
            del state.hosts[name]
        elif host.status is HostStatus.READY:
            host.status, host.why = HostStatus.LEAVING, REMOVED
            state.tell("host_leaving", name, REMOVED)


def _host_ready(state: State, fact: f.HostReady) -> None:
    host = state.hosts.get(fact.host)
    if host is not None and host.status is HostStatus.STARTING:
        host.status, host.slots, host.machine, host.deadline = (
            HostStatus.READY,
            fact.slots,
            fact.machine,
            None,
        )


def _host_advances(state: State, fact: f.HostAdvances) -> None:
    host = state.hosts.get(fact.host)
    if host is not None and host.status is HostStatus.STARTING:
        host.deadline = state.now + state.limits.start_timeout


def _host_refused(state: State, fact: f.HostRefused) -> None:
    host = state.hosts.get(fact.host)
    if host is not None and host.status is HostStatus.STARTING:
        refuse(state, host, fact.why)


def refuse(state: State, host: HostRecord, why: str) -> None:
    """Leave out a host that cannot take part, until it is offered anew."""
    host.status, host.deadline, host.why = HostStatus.REFUSED, None, why
    state.tell("host_refused", host.name, why)
    state.exclude_host(host.name, why)
    state.orders.append(o.EndHost(host=host.name))


def _host_lost(state: State, fact: f.HostLost) -> None:
    host = state.hosts.get(fact.host)
    if host is not None and host.status is HostStatus.STARTING:
        refuse(state, host, fact.why)
    elif host is not None and host.status is not HostStatus.REFUSED:
        state.lose_host(fact.host, fact.why)


def _host_leaving(state: State, fact: f.HostLeaving) -> None:
    host = state.hosts.get(fact.host)
    if host is not None and host.status in (HostStatus.READY, HostStatus.LEAVING) and host.why != fact.why:
        host.status, host.why = HostStatus.LEAVING, fact.why
        state.tell("host_leaving", fact.host, fact.why)


def _committed(state: State, fact: f.Committed) -> None:
    host = state.hosts.get(fact.host)
    if host is not None:
        host.commits = _newest({*host.commits, fact.number})


def _newest(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return the newest two: a host has room for no more."""
    return tuple(sorted(numbers)[-2:])


# --- ranks ------------------------------------------------------------------------------------------------


def _rank_waiting(state: State, fact: f.RankWaiting) -> None:
    rank = state.ranks.get(fact.incarnation)
    if rank is None or rank.status is RankStatus.LEAVING:
        return
    generation = state.generation
    if generation is None or fact.after == generation.number:
        # All that its host holds now. While a generation trains a new rank may have looked before that began,
        # from when on the host has dropped commits and says of each new one that it is complete.
        state.hosts[rank.host].commits = _newest(fact.commits)
    if generation is not None and rank.status in _TAKES_PART:
        if fact.after < generation.number and rank.status is not RankStatus.DETACHED:
            return  # it was on its way when the rank was told of this generation
        if fact.after == generation.number and not _switches(state):
            why = f"{state.name(rank)} left the generation"
            why += f": {fact.reason}" if fact.reason else ""
            state.break_generation(why, supposed=True)
    rank.status, rank.deadline, rank.arrival = RankStatus.WAITING, None, fact.arrival


def _switches(state: State) -> bool:
    """Say whether a rank leaves its generation for the next world; then the others follow soon."""
    if not state.next_world or state.notified != state.next_world:
        return False
    if not state.switching:
        state.switching = True
        state.trouble = Trouble(at=state.now, why=HOSTS_CHANGED)
        for other in state.members():
            other.deadline = state.patience()
    return True


def _rank_attached(state: State, fact: f.RankAttached) -> None:
    rank, generation = state.ranks.get(fact.incarnation), state.generation
    if rank is None or generation is None or fact.generation != generation.number:
        return
    if rank.status is RankStatus.ORDERED:
        rank.status = RankStatus.ATTACHED


def _rank_detached(state: State, fact: f.RankDetached) -> None:
    rank, generation = state.ranks.get(fact.incarnation), state.generation
    if rank is None or generation is None or fact.generation != generation.number:
        return
    if rank.status in (RankStatus.ORDERED, RankStatus.ATTACHED):
        _switches(state)
        rank.status, rank.deadline = RankStatus.DETACHED, None


def _rank_gone(state: State, fact: f.RankGone) -> None:
    rank = state.ranks.get(fact.incarnation)
    if rank is not None and rank.gone is None:
        rank.gone = state.now + GONE_SECONDS


def _rank_ended(state: State, fact: f.RankEnded) -> None:
    rank = state.ranks.get(fact.incarnation)
    if rank is None:
        return
    if rank.status is RankStatus.LEAVING or state.result is not None:
        del state.ranks[fact.incarnation]
    elif fact.exit_code == 0:
        del state.ranks[fact.incarnation]
        state.returned += (fact.incarnation,)
    else:
        untold = fact.exit_code is None and fact.signal is None
        state.fail(rank, code=fact.exit_code, number=fact.signal, words=fact.words, supposed=untold)
        _judge_script(state)


def _judge_script(state: State) -> None:
    """End the job where all ranks of a generation, or all that were started first, failed alike."""
    first = state.last_generation == 0
    group = set(range(len(state.spawned))) if first else set(state.order)
    found = [failure for failure in state.failures if failure.incarnation in group]
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
        state.result = Result(exit_code=code, whose=who, reason=reason, failure=failure)


PLAIN_FAILURE = 1
"""Exit code where a failure has none of its own."""


# --- worlds -----------------------------------------------------------------------------------------------


def _proxy_ready(state: State, fact: f.ProxyReady) -> None:
    world = state.worlds.get(fact.world)
    if world is not None and world.status is WorldStatus.STARTING:
        world.ready.add(fact.world_rank)
        if len(world.ready) == size_of(world.layout):
            world.status, state.world_failures = WorldStatus.READY, 0


def _world_ended(state: State, fact: f.WorldEnded) -> None:
    world = state.worlds.get(fact.world)
    if world is None:
        return
    if world.status is not WorldStatus.ENDING:
        starting = world.status is WorldStatus.STARTING
        state.break_world(world, fact.why)
        for host in fact.hosts if starting else ():
            state.drop_host(host, fact.why)
    del state.worlds[fact.world]


def _stop_requested(state: State, fact: f.StopRequested) -> None:
    if state.result is None:
        state.result = Result(exit_code=fact.exit_code, whose=fact.whose, reason=fact.reason)


NEWS: dict[type, Callable[[State, Any], None]] = {
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

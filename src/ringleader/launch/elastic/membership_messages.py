"""What each message changes in the state of an elastic job, before anything follows from it (``membership``).

A function is called as its message is, and takes the words of the message that it needs: those of a host
agent's as it sends them (``protocol.HOST_MESSAGES``), with the name of its ``host``, and the launcher's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ringleader.launch.elastic.membership_state import (
    AT_ONCE,
    HOSTS_CHANGED,
    HostRecord,
    HostStatus,
    Message,
    RankRecord,
    RankStatus,
    Result,
    State,
    Trouble,
    WorldStatus,
)
from ringleader.launch.elastic.next_world import REMOVED

GONE_SECONDS = 2.0
"""From the end of a rank's socket until its end is reported: a rank that is killed is reaped at once, one
that ends by itself may have closed the socket before its interpreter is done."""
SAME_SECONDS = 1.0
"""Within which ranks that end alike do so for one reason: the script's."""
_TAKES_PART = (RankStatus.ORDERED, RankStatus.ATTACHED, RankStatus.DETACHED)


def note(state: State, message: Message) -> None:
    """Change the state by a message; time that passes (``tick``) changes nothing by itself."""
    if (act := NEWS.get(message["do"])) is not None:
        act(state, **message)


# --- hosts ------------------------------------------------------------------------------------------------


def hosts_seen(state: State, *, hosts: Sequence[tuple[str, int]], **_: Any) -> None:
    """The source of hosts says which the job may use now: name and slots, in order of preference."""
    offered = dict(hosts)
    if list(offered.items()) != list(state.wanted.items()):
        state.wanted, state.world_failures = offered, 0
    state.failed_hosts -= offered.keys()
    starting = sum(host.status is HostStatus.STARTING for host in state.hosts.values())
    for name, slots in offered.items():
        host = state.hosts.get(name)
        if host is None:
            state.hosts[name] = HostRecord(
                name=name,
                slots=slots,
                status=HostStatus.STARTING,
                deadline=state.now + state.limits.start_timeout * (1 + starting // AT_ONCE),
            )
            starting += 1
            state.give("start_host", host=name, slots=slots)
            if state.last_generation:
                state.tell("host_added", name, "it was discovered")
            continue
        if host.status is HostStatus.LEAVING and host.why == REMOVED:
            host.status, host.why = HostStatus.READY, ""
        host.slots = slots or host.slots
    for name, host in list(state.hosts.items()):
        if name in offered:
            continue
        if host.status is HostStatus.STARTING:
            state.end_host(name)
        elif host.status is HostStatus.REFUSED:
            del state.hosts[name]
        elif host.status is HostStatus.READY:
            host.status, host.why = HostStatus.LEAVING, REMOVED
            state.tell("host_leaving", name, REMOVED)


def host_ready(state: State, *, host: str, slots: int, machine: str = "", **_: Any) -> None:
    """A host was probed, its agent runs and can start ranks; ``slots``: those offered, or all it has."""
    if (starting := _starting(state, host)) is not None:
        starting.status, starting.deadline = HostStatus.READY, None
        starting.slots, starting.machine = slots, machine


def host_refused(state: State, *, host: str, why: str, **_: Any) -> None:
    """A host cannot take part."""
    if (starting := _starting(state, host)) is not None:
        state.refuse_host(starting, why)


def checkpoint_loading(state: State, *, host: str, **_: Any) -> None:
    """A host reads the file of a commit, and advances: until it is ready it has its whole time again."""
    if (starting := _starting(state, host)) is not None:
        starting.deadline = state.now + state.limits.start_timeout


def _starting(state: State, name: str) -> HostRecord | None:
    """Return a host that is being started, None where it is not."""
    host = state.hosts.get(name)
    return host if host is not None and host.status is HostStatus.STARTING else None


def host_lost(state: State, *, host: str, why: str, **_: Any) -> None:
    """A host's agent is gone, or nothing comes from there any more."""
    record = state.hosts.get(host)
    if record is not None and record.status is HostStatus.STARTING:
        state.refuse_host(record, why)
    elif record is not None and record.status is not HostStatus.REFUSED:
        state.lose_host(host, why)


def notice(state: State, *, host: str, why: str, **_: Any) -> None:
    """A host is about to go away; ``why``: the signal that said so."""
    record, why = state.hosts.get(host), f"{why} came: it is about to go away"
    if record is not None and record.status in (HostStatus.READY, HostStatus.LEAVING) and record.why != why:
        record.status, record.why = HostStatus.LEAVING, why
        state.tell("host_leaving", host, why)


def committed(state: State, *, host: str, number: int, **_: Any) -> None:
    """A host holds a commit completely."""
    if (record := state.hosts.get(host)) is not None:
        record.commits = _newest({*record.commits, number})


def checkpoint_loaded(state: State, *, host: str, number: int, **_: Any) -> None:
    """A host has read a commit from a file; 0: there was none."""
    if number:
        committed(state, host=host, number=number)


def _newest(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return the newest two: a host has room for no more."""
    return tuple(sorted(numbers)[-2:])


# --- ranks ------------------------------------------------------------------------------------------------


def rank_waiting(
    state: State,
    *,
    incarnation: int,
    after: int = 0,
    commits: Iterable[int] = (),
    reason: str = "",
    arrival: str = "",
    **_: Any,
) -> None:
    """A rank takes part in no generation and wants the next one; ``after``: the one that it left, 0: none.

    ``commits``: those that its host holds completely. ``arrival``: for the others, nobody else reads it.
    """
    rank = state.ranks.get(incarnation)
    if rank is None or rank.status is RankStatus.LEAVING:
        return
    generation = state.generation
    if generation is None or after == generation.number:
        # All that its host holds now. While a generation trains a new rank may have looked before that began,
        # from when on the host has dropped commits and says of each new one that it is complete.
        state.hosts[rank.host].commits = _newest(commits)
    if generation is not None and rank.status in _TAKES_PART:
        if after < generation.number and rank.status is not RankStatus.DETACHED:
            return  # it was on its way when the rank was notified of this generation
        if after == generation.number and not _switches(state):
            why = f"{state.name(rank)} left the generation" + (f": {reason}" if reason else "")
            state.break_generation(why, supposed=True)
    rank.status, rank.deadline, rank.arrival = RankStatus.WAITING, None, arrival


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


def rank_attached(state: State, *, incarnation: int, generation: int, **_: Any) -> None:
    """A rank takes part in a generation."""
    rank = _member(state, incarnation, generation)
    if rank is not None and rank.status is RankStatus.ORDERED:
        rank.status = RankStatus.ATTACHED


def rank_detached(state: State, *, incarnation: int, generation: int, **_: Any) -> None:
    """A rank has left a generation by itself; it may continue without one, or wait for the next."""
    rank = _member(state, incarnation, generation)
    if rank is not None:
        _switches(state)
        rank.status, rank.deadline = RankStatus.DETACHED, None


def _member(state: State, incarnation: int, generation: int) -> RankRecord | None:
    """Return a rank that is a member of a generation, where that is the present one; else None."""
    rank, present = state.ranks.get(incarnation), state.generation
    if rank is None or present is None or generation != present.number:
        return None
    return rank if rank.status in (RankStatus.ORDERED, RankStatus.ATTACHED) else None


def rank_gone(state: State, *, incarnation: int, **_: Any) -> None:
    """A rank's socket ended; how the rank itself ended is reported soon."""
    rank = state.ranks.get(incarnation)
    if rank is not None and rank.gone is None:
        rank.gone = state.now + GONE_SECONDS


def rank_ended(
    state: State,
    *,
    incarnation: int,
    exit_code: int | None = None,
    signal: int | None = None,
    words: str = "",
    **_: Any,
) -> None:
    """A rank's process has ended, or could not be started; neither code nor signal: nobody knows how.

    ``words``: why it could not be started, or the last line that it wrote to its standard error.
    """
    if (rank := state.ranks.get(incarnation)) is None:
        return
    if rank.status is RankStatus.LEAVING or state.result is not None:
        del state.ranks[incarnation]
    elif exit_code == 0:
        del state.ranks[incarnation]
        state.returned.add(incarnation)
    else:
        untold = exit_code is None and signal is None
        state.fail(rank, code=exit_code, signal=signal, words=words, supposed=untold)
        _judge_script(state)


def _judge_script(state: State) -> None:
    """End the job where all ranks of a generation, or all that were started first, failed alike."""
    first = state.last_generation == 0
    if len(state.failures) < len(state.spawned if first else state.order):
        return
    group = set(range(len(state.spawned))) if first else set(state.order)
    found = [failure for failure in state.failures if failure.incarnation in group]
    if not group or {failure.incarnation for failure in found} != group or found[0].exit_code is None:
        return
    alike = len({(failure.exit_code, failure.words.partition(":")[0]) for failure in found}) == 1
    times = [failure.at for failure in found]
    if alike and (first or max(times) - min(times) <= SAME_SECONDS):
        every = f"; so did all {len(group)} ranks: it is the script's" if len(group) > 1 else ""
        state.result = found[0].result(f"{found[0]}{every}")


# --- worlds -----------------------------------------------------------------------------------------------


def proxy_ready(state: State, *, world: int, world_rank: int, **_: Any) -> None:
    """A proxy of a world has initialized its MPI."""
    record = state.worlds.get(world)
    if record is not None and record.status is WorldStatus.STARTING:
        record.ready.add(world_rank)
        if len(record.ready) == record.size:
            record.status, state.world_failures = WorldStatus.READY, 0


def proxy_gone(state: State, *, host: str, world: int, world_rank: int, **_: Any) -> None:
    """A proxy has ended, and its world with it."""
    world_ended(state, world=world, why=f"the MPI proxy of slot {world_rank} on {host} ended")


def world_ended(state: State, *, world: int, why: str, hosts: Iterable[str] = (), **_: Any) -> None:
    """A world's mpirun has ended; ``hosts``: those that the MPI named as the reason."""
    if (record := state.worlds.get(world)) is None:
        return
    if record.status is not WorldStatus.ENDING:
        starting = record.status is WorldStatus.STARTING
        state.break_world(record, why)
        for host in hosts if starting else ():
            state.drop_host(host, why)
    del state.worlds[world]


def stop_requested(state: State, *, exit_code: int, whose: str, reason: str, **_: Any) -> None:
    """The job shall end: a signal, a time-out, or something that cannot be repaired."""
    if state.result is None:
        state.result = Result(exit_code=exit_code, whose=whose, reason=reason)


NEWS: dict[str, Callable[..., None]] = {
    act.__name__: act
    for act in (
        hosts_seen,
        host_ready,
        host_refused,
        host_lost,
        notice,
        committed,
        checkpoint_loading,
        checkpoint_loaded,
        rank_waiting,
        rank_attached,
        rank_detached,
        rank_gone,
        rank_ended,
        proxy_ready,
        proxy_gone,
        world_ended,
        stop_requested,
    )
}
"""A message's name → what it changes."""

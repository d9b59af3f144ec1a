"""The decider of an elastic job: what is known and what happened → what is known then, and what to do.

No clock (whoever calls says when), no input or output: ``decide`` changes the state (``membership_state``)
and returns orders. What each fact changes is in ``membership_news``; the rules here hold after every fact.
More than 500 lines, because `decide` runs the rules in one fixed order and they are read together:

* Whoever is waited for has a deadline. A rank that misses its own is ended and counts as failed, a host is
  refused, a world is ended.
* Without a generation: take the present world if it is of use, else start one of the hosts that are left;
  start a rank on each slot that has none; when the world's proxies are ready and all its ranks wait, begin
  the next generation.
* While a generation trains: where the best layout of the hosts is another than the present one, start the
  next world beside it with its new ranks. When both are ready tell the ranks: they leave at a commit.
* A rank that returned 0 has finished the job: nothing is started any more, the others run to their ends.
* Some time after all ranks of a generation have attached, what is not needed any more ends: until then they
  are to have the processors to themselves.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringleader.launch.elastic import facts as f
from ringleader.launch.elastic import orders as o
from ringleader.launch.elastic.layout import Layout, common_commit, generation_order, size_of, slots_of
from ringleader.launch.elastic.membership_news import HOSTS_CHANGED, PLAIN_FAILURE, REMOVED, note, refuse
from ringleader.launch.elastic.membership_state import (
    PART_LOST,
    Generation,
    HostStatus,
    RankRecord,
    RankStatus,
    Result,
    State,
    WorldRecord,
    WorldStatus,
    failure_text,
)
from ringleader.launch.elastic_history import Event
from ringleader.plan.elastic_options import RESET_LIMIT

MOST_REPAIRS = 50
"""Generations that a world has seen broken before it is renewed in the background."""
MOST_WORLD_FAILURES = 3
"""Worlds in a row that may fail to start for no reason that anybody names."""
LAST_WORD_SECONDS = 10.0
"""From the end of a rank's socket until its end must have been told."""
TIDY_SECONDS = 1.0
"""From the beginning of a generation until what it does not need is ended: a world's end, and that of ranks,
keeps processors busy that the generation's first steps want."""
_ADDED, _REMOVED = 1, 2


def decide(state: State, facts: Iterable[f.Fact], now: float) -> tuple[o.Order, ...]:
    """Change the state by facts and return the orders that follow. ``now``: seconds from the start.

    Of several facts none is an answer to an order that another one would cause. What follows is found by
    going through all ranks, which is done once for thousands that report at once.
    """
    if state.over:
        return ()
    state.now, state.orders = now, []
    for fact in facts:
        note(state, fact)
    _overdue(state)
    if state.settle_until is not None and now > state.settle_until:
        state.settle_until = None
    if state.result is None:
        _returned(state)
    if state.result is None:
        _attached(state)
        if state.generation is None and not state.returned:
            _form(state)
        if state.generation is not None and state.result is None:
            _plan_ahead(state)
        if state.generation is not None:
            _tell_preparing(state)
        if state.tidy_at is not None and now > state.tidy_at:
            state.tidy_at = None
        if state.generation is not None and state.generation.deadline is None and state.tidy_at is None:
            _end_other_worlds(state)
            _dismiss(state)
        _let_hosts_go(state)
    if state.result is not None:
        _end(state)
    return tuple(state.orders)


def deadlines_of(state: State) -> list[float]:
    """Return the times at which something will be decided even if nothing is heard."""
    found = [state.gather_until, state.settle_until, state.tidy_at, state.stop_until]
    found += [host.deadline for host in state.hosts.values()]
    for rank in state.ranks.values():
        found += _deadlines(rank)
    found += [world.deadline for world in state.worlds.values() if world.status is WorldStatus.STARTING]
    found += [state.generation.deadline if state.generation is not None else None]
    return [when for when in found if when is not None]


def _deadlines(rank: RankRecord) -> list[float]:
    return [when for when in (rank.deadline, rank.gone) if when is not None]


# --- deadlines --------------------------------------------------------------------------------------------


def _overdue(state: State) -> None:
    """Give up whoever was waited for long enough."""
    now = state.now
    for host in list(state.hosts.values()):
        if host.deadline is not None and now > host.deadline:
            refuse(state, host, f"it was not ready within {state.limits.start_timeout:g} s")
    for rank in [one for one in state.ranks.values() if any(when < now for when in _deadlines(one))]:
        if rank.incarnation not in state.ranks:
            continue  # it went with its host, just now
        if rank.gone is not None and now > rank.gone:
            rank.gone = None
            _gone(state, rank)
        else:
            _late(state, rank)
    for world in list(state.worlds.values()):
        if world.status is WorldStatus.STARTING and now > world.deadline:
            _world_late(state, world)
    generation = state.generation
    if generation is not None and generation.deadline is not None and now > generation.deadline:
        why = f"it did not take part in generation {generation.number} in time"
        for rank in [rank for rank in state.members() if rank.status is RankStatus.ORDERED]:
            if rank.incarnation in state.ranks:
                state.kill(rank, why)


def _gone(state: State, rank: RankRecord) -> None:
    """A rank's socket has ended, and nobody has said yet how the rank did."""
    if rank in state.members():
        state.break_generation(f"{state.name(rank)} is gone", rank=rank)
    if rank.status is not RankStatus.LEAVING:
        rank.status, rank.deadline = RankStatus.DETACHING, state.now + LAST_WORD_SECONDS


def _late(state: State, rank: RankRecord) -> None:
    if rank.status is RankStatus.LEAVING:
        state.orders.append(o.Kill(incarnation=rank.incarnation, why="it did not leave in time"))
        del state.ranks[rank.incarnation]
        return
    starts = rank.status is RankStatus.STARTED
    state.kill(rank, "it did not call init in time" if starts else "it did not answer in time: it hangs")


def _world_late(state: State, world: WorldRecord) -> None:
    """A world was not ready in time: its silent hosts are left out, where others are not silent."""
    hosts = [host for host, _ in slots_of(world.layout)]
    heard = {hosts[rank] for rank in world.ready if rank < len(hosts)}
    silent = [host for host in dict.fromkeys(hosts) if host not in heard]
    late = f"{size_of(world.layout) - len(world.ready)} of {size_of(world.layout)} proxies were not ready"
    why = f"{late} within {state.limits.start_timeout:g} s"
    state.break_world(world, why)
    for host in silent if heard else ():
        state.drop_host(host, why)


# --- the end ----------------------------------------------------------------------------------------------


def _returned(state: State) -> None:
    """A rank that returned 0 has finished: nothing is started any more, the others run to their ends.

    As in Horovod (``WorkerStateRegistry``), the job is done when all of them have returned. One that fails or
    is lost ends it, and so does one that waits for another generation. Hosts that change do not.
    """
    if not state.returned:
        return
    if _without_generations(state):
        _returned_at_first(state)
        return
    if state.next_world:
        state.end_world(state.next_world, hard=False)
    if state.switching:  # for the next world, which the others need not leave for any more
        state.switching, state.trouble = False, None
        for rank in state.members():
            rank.deadline = None
    order = set(state.order)
    working = [rank for rank in state.ranks.values() if rank.incarnation in order]
    lost = order - set(state.returned) - set(state.ranks)
    waiting = [state.name(rank) for rank in working if rank.status is RankStatus.WAITING]
    if lost:
        what = HOSTS_CHANGED if state.trouble is None else state.trouble.why
        what = "a rank was lost" if what == HOSTS_CHANGED else what
        state.result = _failed(state, f"{what}, after a rank of the job had returned")
    elif waiting:
        why = f"{waiting[0]} waits for the others, after a rank of the job had returned"
        state.result = _failed(state, why)
    elif not working:
        state.result = Result(exit_code=0, whose="", reason="")


def _without_generations(state: State) -> bool:
    """Say whether a rank has returned before there was a generation: its script calls no init."""
    return bool(state.returned) and not state.last_generation


def _returned_at_first(state: State) -> None:
    """Ranks that call no init run to their ends; one that is lost, or waits for the others, ends the job."""
    world = state.worlds.get(state.world)
    there = len(state.ranks) + len(state.returned)
    if world is None or _lacks_host(state, world) or there < len(state.usable(world)):
        state.result = _failed(state, "a rank was lost after another one had returned")
    elif all(rank.status is RankStatus.WAITING for rank in state.ranks.values()):
        why = "a rank returned without calling init, for which others wait"
        state.result = _failed(state, why) if state.ranks else Result(exit_code=0, whose="", reason="")


def _failed(state: State, why: str) -> Result:
    """Return the result of a job that cannot go on: the code of the rank that failed first, where one did.

    Named are that rank, the one that failed last, and what broke the generation, if it was none of them.
    """
    said = [failure_text(failure) for failure in (*state.failures[:1], *state.failures[1:][-1:])]
    if state.trouble is not None and state.trouble.why != HOSTS_CHANGED:
        said.append(state.trouble.why)
    reason = "; ".join([*(text for text in dict.fromkeys(said) if text not in why), why])
    if not state.failures:
        return Result(exit_code=PART_LOST, whose="ringleader", reason=reason)
    failure = state.failures[0]
    code = 128 + failure.signal if failure.signal is not None else failure.exit_code or PLAIN_FAILURE
    who = f"rank {failure.rank}" if failure.rank is not None else f"a rank on {failure.host}"
    return Result(exit_code=code, whose=who, reason=reason, failure=failure)


def _end(state: State) -> None:
    """Have all ranks end, then everything else."""
    if state.stop_until is None:
        state.stop_until = state.now + state.limits.stop_seconds
        if state.ranks:
            state.orders.append(o.StopRanks())
    if state.ranks and state.now <= state.stop_until:
        return
    for rank in state.ranks.values():
        state.orders.append(o.Kill(incarnation=rank.incarnation, why="it did not end in time"))
    state.ranks = {}
    for number in list(state.worlds):
        state.end_world(number, hard=bool(state.result and state.result.exit_code))
    for name in state.hosts:
        state.orders.append(o.EndHost(host=name))
    state.hosts = {}
    state.generation, state.over = None, True
    state.orders.append(o.Finish())


# --- without a generation ---------------------------------------------------------------------------------


def _form(state: State) -> None:
    """Bring about the next generation."""
    numbers = [number for number in (state.world, state.next_world) if number]
    worlds = [state.worlds[number] for number in numbers]
    of_use = [
        world for world in worlds if state.suffices(state.usable(world)) and not _lacks_host(state, world)
    ]
    for world in worlds:
        if world not in of_use:
            state.end_world(world.number, hard=False)
    if of_use:
        if not state.world:
            state.world, state.next_world, state.notified = of_use[0].number, 0, 0
        state.gather_until = None
        _hurry(state)
        for world in of_use:
            _fill(state, world)
        for world in reversed(of_use):
            if _complete(state, world):
                _begin(state, world)
                return
        return
    if state.settle_until is not None:
        return
    if state.world_failures >= MOST_WORLD_FAILURES:
        state.result = _failed(state, f"no MPI could be started {state.world_failures} times in a row")
        return
    if (layout := state.layout()) is not None and not _waits_for_more(state, size_of(layout)):
        state.gather_until = None
        state.world = state.start_world(layout)
        _fill(state, state.worlds[state.world])
    else:
        _gather(state)


def _lacks_host(state: State, world: WorldRecord) -> bool:
    return any(host not in state.hosts for host, _ in world.layout)


def _hosts_start(state: State) -> bool:
    return any(host.status is HostStatus.STARTING for host in state.hosts.values())


def _waits_for_more(state: State, size: int) -> bool:
    """Say whether a job that has not begun should wait for more hosts than it needs."""
    if state.last_generation or (state.gather_until is not None and state.now > state.gather_until):
        return False
    most, start = state.limits.max_np, state.limits.start_np
    if _hosts_start(state) and (most is None or size < most):
        return True
    return start is not None and size < start and (not state.limits.fixed_hosts or _some_return(state))


def _some_return(state: State) -> bool:
    """Say whether a host that failed comes back after a while."""
    return state.limits.cooldown is not None and bool(state.failed_hosts)


def _gather(state: State) -> None:
    """Wait for hosts, as long as any can come."""
    limits = state.limits
    asked = _hosts_start(state)
    if state.gather_until is None:
        state.gather_until = state.now + limits.timeout
        if not asked:
            most = f"at least {limits.min_np} ranks on {limits.min_hosts} or more hosts"
            state.tell("waiting", "hosts", f"{most} are needed; waiting at most {limits.timeout:g} s")
    late = state.now > state.gather_until and not asked  # a host that is being started has its own deadline
    useless = limits.fixed_hosts or (not state.ranks and bool(state.failures))
    hopeless = not asked and useless and not _some_return(state)
    if late or hopeless:
        slots = sum(host.slots for host in state.hosts.values() if host.status is HostStatus.READY)
        found = f"{slots - len(state.excluded)} slots that can take ranks, {limits.min_np} needed"
        found += f" ({len(state.excluded)} more are left out)" if state.excluded else ""
        found += f"; none came within {limits.timeout:g} s" if late else ""
        refused = [f"{host.name}: {host.why}" for host in state.hosts.values() if host.why]
        state.result = _failed(state, "; ".join([found, *refused]))


def _hurry(state: State) -> None:
    """Somebody waits for the next generation: ranks that left the last one by themselves are not for ever."""
    ranks, order = list(state.ranks.values()), set(state.order)
    if any(rank.status is RankStatus.WAITING and rank.incarnation in order for rank in ranks):
        for rank in ranks:
            if rank.status is RankStatus.DETACHED and rank.deadline is None:
                rank.deadline = state.patience()


def _fill(state: State, world: WorldRecord) -> None:
    """Start a rank on each slot that has none."""
    there = state.ranks_at()
    for slot in state.usable(world):
        if slot in there:
            continue
        state.last_incarnation += 1
        incarnation = state.last_incarnation
        restarts = state.spawned.get(slot, 0)
        state.spawned[slot] = restarts + 1
        state.ranks[incarnation] = RankRecord(
            incarnation=incarnation,
            host=slot[0],
            slot=slot[1],
            status=RankStatus.STARTED,
            deadline=state.now + state.limits.rank_timeout,
        )
        state.orders.append(
            o.Spawn(
                incarnation=incarnation,
                host=slot[0],
                slot=slot[1],
                world=world.number,
                restarts=restarts,
            )
        )


def _complete(state: State, world: WorldRecord) -> bool:
    """Say whether a world's proxies are ready and all its ranks wait."""
    if world.status is not WorldStatus.READY:
        return False
    there = state.ranks_at()
    ranks = [there.get(slot) for slot in state.usable(world)]
    return all(rank is not None and rank.status is RankStatus.WAITING for rank in ranks)


def _begin(state: State, world: WorldRecord) -> None:
    """Begin a generation on a world that is complete."""
    limits = state.limits
    if limits.reset_limit is not None and state.last_generation > limits.reset_limit:
        why = state.trouble.why if state.trouble is not None else "the hosts changed"
        state.result = _failed(state, f"{why}; {limits.reset_limit} resets are allowed {RESET_LIMIT}")
        return
    at = {slot: number for number, slot in enumerate(slots_of(world.layout))}
    there = state.ranks_at()
    present = {slot: there[slot].incarnation for slot in state.usable(world) if slot in there}
    hosts = {host for host, _ in present}
    held = {host: state.hosts[host].commits for host in hosts}
    restore = common_commit(held)
    holders = {host for host in hosts if restore in held[host]}
    order = generation_order(present, before=state.order, restore_hosts=holders)
    names = tuple(dict.fromkeys(host for (host, _), _ in order))
    members = tuple(
        o.Member(
            incarnation=incarnation,
            world_rank=at[slot],
            host_index=names.index(slot[0]),
            arrival=state.ranks[incarnation].arrival,
        )
        for slot, incarnation in order
    )
    state.last_generation += 1
    state.generation = Generation(
        number=state.last_generation,
        world=world.number,
        restore=restore,
        members=members,
        deadline=state.now + limits.attach_timeout,
    )
    state.orders.append(
        o.BeginGeneration(
            number=state.last_generation, world=world.number, restore=restore, members=members, hosts=names
        )
    )
    for host in state.hosts.values():  # agents forget newer ones when they are told
        host.commits = tuple(number for number in host.commits if number <= restore)
    state.order = tuple(member.incarnation for member in members)
    state.failures = ()
    for member in members:
        rank = state.ranks[member.incarnation]
        rank.status, rank.deadline = RankStatus.ORDERED, None
    if state.next_world == world.number:
        state.world, state.next_world, state.notified = world.number, 0, 0


def _end_other_worlds(state: State) -> None:
    for number in [number for number in state.worlds if number not in (state.world, state.next_world)]:
        state.end_world(number, hard=False)


def _dismiss(state: State) -> None:
    """Let ranks go that are members of nothing: those of slots that no world has any more."""
    wanted = {slot for number in (state.world, state.next_world) if number for slot in _slots(state, number)}
    if not state.returned and state.world_failures < MOST_WORLD_FAILURES:
        wanted |= set(slots_of(state.layout() or ()))  # the change after the next one may be for these
    for rank in list(state.ranks.values()):
        if rank.status in (RankStatus.WAITING, RankStatus.STARTED) and (rank.host, rank.slot) not in wanted:
            order = o.Leave if rank.status is RankStatus.WAITING else o.Kill
            state.orders.append(order(incarnation=rank.incarnation, why="its slot is not used any more"))
            rank.status, rank.deadline = RankStatus.LEAVING, state.now + state.limits.stop_seconds


def _slots(state: State, number: int) -> tuple[tuple[str, int], ...]:
    return state.usable(state.worlds[number])


# --- with a generation ------------------------------------------------------------------------------------


def _attached(state: State) -> None:
    """Note that all ranks take part, or that all have left for the next world."""
    generation = state.generation
    if generation is None:
        return
    members = state.members()
    if (
        generation.deadline is not None
        and members
        and all(rank.status is RankStatus.ATTACHED for rank in members)
    ):
        generation.deadline = None
        trouble, state.trouble = state.trouble, None
        state.orders.append(
            o.Tell(
                event=Event(
                    at=state.now,
                    kind="generation",
                    who=f"{len(members)} ranks on {', '.join(dict.fromkeys(rank.host for rank in members))}",
                    why=trouble.why if trouble is not None else "",
                    seconds=state.now - trouble.at if trouble is not None else 0.0,
                    commit=generation.restore,
                    generation=generation.number,
                    size=len(members),
                )
            )
        )
        state.tidy_at = state.now + TIDY_SECONDS
    elif not members and not state.returned:
        state.leave_generation()


def _plan_ahead(state: State) -> None:
    """Prepare another world where the hosts allow a better layout than the present one."""
    generation, world = state.generation, state.worlds.get(state.world)
    if generation is None or generation.deadline is not None or world is None or state.returned:
        return
    layout = _layout_ahead(state, world)
    present = {(rank.host, rank.slot) for rank in state.members()}
    ends = any(rank.status is RankStatus.DETACHED for rank in state.ranks.values())
    if layout is not None and not state.switching and not ends:
        changed = set(slots_of(layout)) != present or _leaves_host(state, world)
        wanted = changed or world.repairs >= MOST_REPAIRS
        following = state.worlds.get(state.next_world)
        other = following is not None and set(slots_of(following.layout)) != set(slots_of(layout))
        # Ranks that were told of a world leave for it at a commit; what has changed since comes after that.
        told = state.notified != 0 and state.notified == state.next_world
        if (
            following is not None
            and (not wanted or other)
            and not (told and not _lacks_host(state, following))
        ):
            state.end_world(following.number, hard=False)
        if (
            wanted
            and not state.next_world
            and state.settle_until is None
            and state.world_failures < MOST_WORLD_FAILURES
        ):
            state.next_world = state.start_world(layout)
    following = state.worlds.get(state.next_world)
    if following is None:
        return
    _fill(state, following)
    if state.notified != following.number and _ready_for_all(state, following):
        state.notified = following.number
        state.counter += 1
        added = set(slots_of(following.layout)) - present
        removed = present - set(slots_of(following.layout))
        result = (_ADDED if added else 0) | (_REMOVED if removed else 0)
        state.orders.append(o.Notify(counter=state.counter, result=result or _ADDED))
        names = ", ".join(dict.fromkeys(host for host, _ in (*sorted(added), *sorted(removed))))
        state.orders.append(o.Tell(event=Event(at=state.now, kind="notified", who=names or "the same hosts")))


def _layout_ahead(state: State, world: WorldRecord) -> Layout | None:
    """Return the layout of the next world; ``None``: there is none yet, hosts are being started.

    A host that is to be left does not wait for them. One that said that it goes may be gone any moment: new
    ranks, which import for long, are not waited for either, and come with the next change.
    """
    layout = state.layout()
    leaving = [host for host in state.hosts.values() if host.status is HostStatus.LEAVING]
    if layout is None or not _leaves_host(state, world):
        return None if _hosts_start(state) else layout
    if all(host.why == REMOVED for host in leaving if host.name in dict(world.layout)):
        return layout
    choices = [_with_ranks(state, layout), layout]
    following = state.worlds.get(state.next_world)
    if following is not None and following.layout == _with_ranks(state, following.layout):
        choices.insert(0, following.layout)
    return next(one for one in choices if one == layout or _is_enough(state, one))


def _is_enough(state: State, layout: Layout) -> bool:
    return state.suffices(slots_of(layout)) and state.keeps_state(dict(layout))


def _with_ranks(state: State, layout: Layout) -> Layout:
    """Return what has ranks already that take part, or wait, on hosts that stay."""
    found, there = [], state.ranks_at()
    for host, slots in layout:
        ranks = {slot: there.get((host, slot)) for slot in slots if (host, slot) not in state.excluded}
        here = tuple(
            slot for slot, rank in ranks.items() if rank is not None and rank.status is not RankStatus.STARTED
        )
        if here and host in state.hosts and state.hosts[host].status is HostStatus.READY:
            found.append((host, here))
    return tuple(found)


def _tell_preparing(state: State) -> None:
    """Tell the ranks where it has changed whether there will be another world."""
    preparing = _hosts_start(state) or state.next_world != 0
    if preparing != state.preparing:
        state.preparing = preparing
        state.orders.append(o.TellPreparing(preparing=preparing))


def _leaves_host(state: State, world: WorldRecord) -> bool:
    """Say whether a world needs a host that is about to go, and that the job can do without."""
    usable = {host for host, _ in state.usable(world)}
    return any(
        host not in usable and state.hosts[host].status is HostStatus.LEAVING
        for host, _ in world.layout
        if host in state.hosts
    )


def _ready_for_all(state: State, world: WorldRecord) -> bool:
    """Say whether only members of the present generation are missing for a generation on a world."""
    if world.status is not WorldStatus.READY:
        return False
    there = state.ranks_at()
    ranks = [there.get(slot) for slot in state.usable(world)]
    well = (RankStatus.WAITING, RankStatus.ATTACHED)
    return all(rank is not None and rank.status in well for rank in ranks)


def _let_hosts_go(state: State) -> None:
    """Let go of hosts that are left and have neither ranks nor proxies.

    One that said that it goes may be on offer still, or be on offer again by now: as another Pod of its name,
    which no offer may ever have been without. So it is as one that failed: it may come back after a while.
    """
    needed = {rank.host for rank in state.ranks.values()}
    for world in state.worlds.values():
        needed |= {host for host, _ in world.layout}
    for name, host in list(state.hosts.items()):
        if host.status is HostStatus.LEAVING and name not in needed and state.last_generation:
            del state.hosts[name]
            state.orders.append(o.EndHost(host=name))
            if name in dict(state.wanted):
                state.exclude_host(name, host.why)

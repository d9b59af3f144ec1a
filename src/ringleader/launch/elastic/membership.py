"""The decider of an elastic job: what was known and what happened → what is known then, and what to do.

Pure: no clock (whoever tells says when), no input or output. The rules, after every fact:

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
from dataclasses import replace

from ringleader.elastic_options import RESET_LIMIT
from ringleader.launch.elastic import facts as f
from ringleader.launch.elastic import orders as o
from ringleader.launch.elastic.layout import Layout, common_commit, generation_order, size_of, slots_of
from ringleader.launch.elastic.membership_draft import PART_LOST, Draft, failure_text
from ringleader.launch.elastic.membership_news import HOSTS_CHANGED, PLAIN_FAILURE, REMOVED, note, refuse
from ringleader.launch.elastic.membership_state import (
    Generation,
    HostStatus,
    Phase,
    RankRecord,
    RankStatus,
    Result,
    State,
    WorldRecord,
    WorldStatus,
)
from ringleader.launch.elastic_history import Event

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


def decide(state: State, fact: f.Fact, now: float) -> tuple[State, tuple[o.Order, ...]]:
    """Return what is known after a fact, and the orders that follow. ``now``: seconds from the start."""
    return decide_all(state, (fact,), now)


def decide_all(state: State, facts: Iterable[f.Fact], now: float) -> tuple[State, tuple[o.Order, ...]]:
    """The same after several facts, of which none is an answer to an order that another one would cause.

    What follows is found by looking at all ranks, which is to be done once for thousands that report at once.
    """
    if state.over:
        return state, ()
    draft = Draft(state, now)
    for fact in facts:
        note(draft, fact)
    _overdue(draft)
    if draft.settle_until is not None and now > draft.settle_until:
        draft.settle_until = None
    if draft.result is None:
        _returned(draft)
    if draft.result is None:
        _attached(draft)
        if draft.generation is None and not draft.returned:
            _form(draft)
        if draft.generation is not None and draft.result is None:
            _plan_ahead(draft)
        if draft.generation is not None:
            _tell_preparing(draft)
        if draft.tidy_at is not None and now > draft.tidy_at:
            draft.tidy_at = None
        if draft.generation is not None and draft.generation.deadline is None and draft.tidy_at is None:
            _end_other_worlds(draft)
            _dismiss(draft)
        _let_hosts_go(draft)
    if draft.result is not None:
        _end(draft)
    return draft.state(), tuple(draft.orders)


def phase_of(state: State) -> Phase:
    """Return where a job stands."""
    if state.over:
        return Phase.OVER
    if state.result is not None:
        return Phase.STOPPING
    generation = state.generation
    if generation is not None:
        if generation.deadline is not None:
            return Phase.ATTACHING
        return Phase.PREPARING if state.next_world else Phase.RUNNING
    if not state.world:
        return Phase.GATHERING if state.gather_until is not None else Phase.STARTING
    ready = state.worlds[state.world].status is WorldStatus.READY
    return Phase.REPAIRING if ready else Phase.STARTING


def deadlines_of(state: State) -> list[float]:
    """Return the times at which something will be decided even if nothing is heard."""
    found = [state.gather_until, state.settle_until, state.tidy_at, state.stop_until]
    found += [host.deadline for host in state.hosts.values()]
    for rank in state.ranks.values():
        found += [rank.deadline, rank.gone]
    found += [world.deadline for world in state.worlds.values() if world.status is WorldStatus.STARTING]
    found += [state.generation.deadline if state.generation is not None else None]
    return [when for when in found if when is not None]


# --- deadlines --------------------------------------------------------------------------------------------


def _overdue(draft: Draft) -> None:
    """Give up whoever was waited for long enough."""
    now = draft.now
    for host in list(draft.hosts.values()):
        if host.deadline is not None and now > host.deadline:
            refuse(draft, host, f"it was not ready within {draft.limits.start_timeout:g} s")
    for rank in list(draft.ranks.values()):
        if rank.incarnation not in draft.ranks:
            continue  # it went with its host, just now
        if rank.gone is not None and now > rank.gone:
            draft.change_rank(rank, gone=None)
            _gone(draft, draft.ranks[rank.incarnation])
        elif rank.deadline is not None and now > rank.deadline:
            _late(draft, rank)
    for world in list(draft.worlds.values()):
        if world.status is WorldStatus.STARTING and now > world.deadline:
            _world_late(draft, world)
    generation = draft.generation
    if generation is not None and generation.deadline is not None and now > generation.deadline:
        why = f"it did not take part in generation {generation.number} in time"
        for rank in [rank for rank in draft.members() if rank.status is RankStatus.ORDERED]:
            if rank.incarnation in draft.ranks:
                draft.kill(rank, why)


def _gone(draft: Draft, rank: RankRecord) -> None:
    """A rank's socket has ended, and nobody has said yet how the rank did."""
    if rank in draft.members():
        draft.break_generation(f"{draft.name(rank)} is gone", rank=rank)
        rank = draft.ranks[rank.incarnation]
    if rank.status is not RankStatus.LEAVING:
        draft.change_rank(rank, status=RankStatus.DETACHING, deadline=draft.now + LAST_WORD_SECONDS)


def _late(draft: Draft, rank: RankRecord) -> None:
    if rank.status is RankStatus.LEAVING:
        draft.orders.append(o.Kill(incarnation=rank.incarnation, why="it did not leave in time"))
        del draft.ranks[rank.incarnation]
        return
    starts = rank.status is RankStatus.STARTED
    draft.kill(rank, "it did not call init in time" if starts else "it did not answer in time: it hangs")


def _world_late(draft: Draft, world: WorldRecord) -> None:
    """A world was not ready in time: its silent hosts are left out, where others are not silent."""
    hosts = [host for host, _ in slots_of(world.layout)]
    heard = {hosts[rank] for rank in world.ready if rank < len(hosts)}
    silent = [host for host in dict.fromkeys(hosts) if host not in heard]
    late = f"{size_of(world.layout) - len(world.ready)} of {size_of(world.layout)} proxies were not ready"
    why = f"{late} within {draft.limits.start_timeout:g} s"
    draft.break_world(world, why)
    for host in silent if heard else ():
        draft.drop_host(host, why)


# --- the end ----------------------------------------------------------------------------------------------


def _returned(draft: Draft) -> None:
    """A rank that returned 0 has finished: nothing is started any more, the others run to their ends.

    As in Horovod (``WorkerStateRegistry``), the job is done when all of them have returned. One that fails or
    is lost ends it, and so does one that waits for another generation. Hosts that change do not.
    """
    if not draft.returned:
        return
    if _without_generations(draft):
        _returned_at_first(draft)
        return
    if draft.next_world:
        draft.end_world(draft.next_world, hard=False)
    if draft.switching:  # for the next world, which the others need not leave for any more
        draft.switching, draft.trouble = False, None
        for rank in draft.members():
            draft.change_rank(rank, deadline=None)
    order = set(draft.order)
    working = [rank for rank in draft.ranks.values() if rank.incarnation in order]
    lost = order - set(draft.returned) - set(draft.ranks)
    waiting = [draft.name(rank) for rank in working if rank.status is RankStatus.WAITING]
    if lost:
        what = HOSTS_CHANGED if draft.trouble is None else draft.trouble.why
        what = "a rank was lost" if what == HOSTS_CHANGED else what
        draft.result = _failed(draft, f"{what}, after a rank of the job had returned")
    elif waiting:
        why = f"{waiting[0]} waits for the others, after a rank of the job had returned"
        draft.result = _failed(draft, why)
    elif not working:
        draft.result = Result(exit_code=0, whose="", reason="")


def _without_generations(draft: Draft) -> bool:
    """Say whether a rank has returned before there was a generation: its script calls no init."""
    return bool(draft.returned) and not draft.last_generation


def _returned_at_first(draft: Draft) -> None:
    """Ranks that call no init run to their ends; one that is lost, or waits for the others, ends the job."""
    world = draft.worlds.get(draft.world)
    there = len(draft.ranks) + len(draft.returned)
    if world is None or _lacks_host(draft, world) or there < len(draft.usable(world)):
        draft.result = _failed(draft, "a rank was lost after another one had returned")
    elif all(rank.status is RankStatus.WAITING for rank in draft.ranks.values()):
        why = "a rank returned without calling init, for which others wait"
        draft.result = _failed(draft, why) if draft.ranks else Result(exit_code=0, whose="", reason="")


def _failed(draft: Draft, why: str) -> Result:
    """Return the result of a job that cannot go on: the code of the rank that failed first, where one did.

    Named are that rank, the one that failed last, and what broke the generation, if it was none of them.
    """
    said = [failure_text(failure) for failure in (*draft.failures[:1], *draft.failures[1:][-1:])]
    if draft.trouble is not None and draft.trouble.why != HOSTS_CHANGED:
        said.append(draft.trouble.why)
    reason = "; ".join([*(text for text in dict.fromkeys(said) if text not in why), why])
    if not draft.failures:
        return Result(exit_code=PART_LOST, whose="ringleader", reason=reason)
    failure = draft.failures[0]
    code = 128 + failure.signal if failure.signal is not None else failure.exit_code or PLAIN_FAILURE
    who = f"rank {failure.rank}" if failure.rank is not None else f"a rank on {failure.host}"
    return Result(exit_code=code, whose=who, reason=reason, failure=failure)


def _end(draft: Draft) -> None:
    """Have all ranks end, then everything else."""
    if draft.stop_until is None:
        draft.stop_until = draft.now + draft.limits.stop_seconds
        if draft.ranks:
            draft.orders.append(o.StopRanks())
    if draft.ranks and draft.now <= draft.stop_until:
        return
    for rank in draft.ranks.values():
        draft.orders.append(o.Kill(incarnation=rank.incarnation, why="it did not end in time"))
    draft.ranks = {}
    for number in list(draft.worlds):
        draft.end_world(number, hard=bool(draft.result and draft.result.exit_code))
    for name in draft.hosts:
        draft.orders.append(o.EndHost(host=name))
    draft.hosts = {}
    draft.generation, draft.over = None, True
    draft.orders.append(o.Finish())


# --- without a generation ---------------------------------------------------------------------------------


def _form(draft: Draft) -> None:
    """Bring about the next generation."""
    numbers = [number for number in (draft.world, draft.next_world) if number]
    worlds = [draft.worlds[number] for number in numbers]
    of_use = [
        world for world in worlds if draft.suffices(draft.usable(world)) and not _lacks_host(draft, world)
    ]
    for world in worlds:
        if world not in of_use:
            draft.end_world(world.number, hard=False)
    if of_use:
        if not draft.world:
            draft.world, draft.next_world, draft.notified = of_use[0].number, 0, 0
        draft.gather_until = None
        _hurry(draft)
        for world in of_use:
            _fill(draft, world)
        for world in reversed(of_use):
            if _complete(draft, world):
                _begin(draft, world)
                return
        return
    if draft.settle_until is not None:
        return
    if draft.world_failures >= MOST_WORLD_FAILURES:
        draft.result = _failed(draft, f"no MPI could be started {draft.world_failures} times in a row")
        return
    if (layout := draft.layout()) is not None and not _waits_for_more(draft, size_of(layout)):
        draft.gather_until = None
        draft.world = draft.start_world(layout)
        _fill(draft, draft.worlds[draft.world])
    else:
        _gather(draft)


def _lacks_host(draft: Draft, world: WorldRecord) -> bool:
    return any(host not in draft.hosts for host, _ in world.layout)


def _hosts_start(draft: Draft) -> bool:
    return any(host.status is HostStatus.STARTING for host in draft.hosts.values())


def _waits_for_more(draft: Draft, size: int) -> bool:
    """Say whether a job that has not begun should wait for more hosts than it needs."""
    if draft.last_generation or (draft.gather_until is not None and draft.now > draft.gather_until):
        return False
    most, start = draft.limits.max_np, draft.limits.start_np
    if _hosts_start(draft) and (most is None or size < most):
        return True
    return start is not None and size < start and (not draft.limits.fixed_hosts or _some_return(draft))


def _some_return(draft: Draft) -> bool:
    """Say whether a host that failed comes back after a while."""
    return draft.limits.hosts_return and bool(draft.failed_hosts)


def _gather(draft: Draft) -> None:
    """Wait for hosts, as long as any can come."""
    limits = draft.limits
    asked = _hosts_start(draft)
    if draft.gather_until is None:
        draft.gather_until = draft.now + limits.timeout
        if not asked:
            most = f"at least {limits.min_np} ranks on {limits.min_hosts} or more hosts"
            draft.tell("waiting", "hosts", f"{most} are needed; waiting at most {limits.timeout:g} s")
    late = draft.now > draft.gather_until and not asked  # a host that is being started has its own deadline
    useless = limits.fixed_hosts or (not draft.ranks and bool(draft.failures))
    hopeless = not asked and useless and not _some_return(draft)
    if late or hopeless:
        slots = sum(host.slots for host in draft.hosts.values() if host.status is HostStatus.READY)
        found = f"{slots - len(draft.excluded)} slots that can take ranks, {limits.min_np} needed"
        found += f" ({len(draft.excluded)} more are left out)" if draft.excluded else ""
        found += f"; none came within {limits.timeout:g} s" if late else ""
        refused = [f"{host.name}: {host.why}" for host in draft.hosts.values() if host.why]
        draft.result = _failed(draft, "; ".join([found, *refused]))


def _hurry(draft: Draft) -> None:
    """Somebody waits for the next generation: ranks that left the last one by themselves are not for ever."""
    ranks, order = list(draft.ranks.values()), set(draft.order)
    if any(rank.status is RankStatus.WAITING and rank.incarnation in order for rank in ranks):
        for rank in ranks:
            if rank.status is RankStatus.DETACHED and rank.deadline is None:
                draft.change_rank(rank, deadline=draft.patience())


def _fill(draft: Draft, world: WorldRecord) -> None:
    """Start a rank on each slot that has none."""
    there = draft.ranks_at()
    for slot in draft.usable(world):
        if slot in there:
            continue
        draft.last_incarnation += 1
        incarnation = draft.last_incarnation
        restarts = draft.spawned.get(slot, 0)
        draft.spawned[slot] = restarts + 1
        draft.ranks[incarnation] = RankRecord(
            incarnation=incarnation,
            host=slot[0],
            slot=slot[1],
            status=RankStatus.STARTED,
            deadline=draft.now + draft.limits.rank_timeout,
        )
        draft.orders.append(
            o.Spawn(
                incarnation=incarnation,
                host=slot[0],
                slot=slot[1],
                world=world.number,
                restarts=restarts,
            )
        )


def _complete(draft: Draft, world: WorldRecord) -> bool:
    """Say whether a world's proxies are ready and all its ranks wait."""
    if world.status is not WorldStatus.READY:
        return False
    there = draft.ranks_at()
    ranks = [there.get(slot) for slot in draft.usable(world)]
    return all(rank is not None and rank.status is RankStatus.WAITING for rank in ranks)


def _begin(draft: Draft, world: WorldRecord) -> None:
    """Begin a generation on a world that is complete."""
    limits = draft.limits
    if limits.reset_limit is not None and draft.last_generation > limits.reset_limit:
        why = draft.trouble.why if draft.trouble is not None else "the hosts changed"
        draft.result = _failed(draft, f"{why}; {limits.reset_limit} resets are allowed {RESET_LIMIT}")
        return
    at = {slot: number for number, slot in enumerate(slots_of(world.layout))}
    there = draft.ranks_at()
    present = {slot: there[slot].incarnation for slot in draft.usable(world) if slot in there}
    hosts = {host for host, _ in present}
    held = {host: draft.hosts[host].commits for host in hosts}
    restore = common_commit(held)
    holders = {host for host in hosts if restore in held[host]}
    order = generation_order(present, before=draft.order, restore_hosts=holders)
    names = tuple(dict.fromkeys(host for (host, _), _ in order))
    members = tuple(
        o.Member(
            incarnation=incarnation,
            world_rank=at[slot],
            host_index=names.index(slot[0]),
            arrival=draft.ranks[incarnation].arrival,
        )
        for slot, incarnation in order
    )
    draft.last_generation += 1
    draft.generation = Generation(
        number=draft.last_generation,
        world=world.number,
        restore=restore,
        members=members,
        deadline=draft.now + limits.attach_timeout,
    )
    draft.orders.append(
        o.BeginGeneration(
            number=draft.last_generation, world=world.number, restore=restore, members=members, hosts=names
        )
    )
    for host in draft.hosts.values():  # agents forget newer ones when they are told
        kept = tuple(number for number in host.commits if number <= restore)
        draft.hosts[host.name] = replace(host, commits=kept)
    draft.order = tuple(member.incarnation for member in members)
    draft.failures = ()
    for member in members:
        draft.change_rank(draft.ranks[member.incarnation], status=RankStatus.ORDERED, deadline=None)
    if draft.next_world == world.number:
        draft.world, draft.next_world, draft.notified = world.number, 0, 0


def _end_other_worlds(draft: Draft) -> None:
    for number in [number for number in draft.worlds if number not in (draft.world, draft.next_world)]:
        draft.end_world(number, hard=False)


def _dismiss(draft: Draft) -> None:
    """Let ranks go that are members of nothing: those of slots that no world has any more."""
    wanted = {slot for number in (draft.world, draft.next_world) if number for slot in _slots(draft, number)}
    if not draft.returned and draft.world_failures < MOST_WORLD_FAILURES:
        wanted |= set(slots_of(draft.layout() or ()))  # the change after the next one may be for these
    for rank in list(draft.ranks.values()):
        if rank.status in (RankStatus.WAITING, RankStatus.STARTED) and (rank.host, rank.slot) not in wanted:
            until = draft.now + draft.limits.stop_seconds
            draft.change_rank(rank, status=RankStatus.LEAVING, deadline=until)
            if rank.status is RankStatus.WAITING:
                draft.orders.append(
                    o.Leave(incarnation=rank.incarnation, why="its slot is not used any more")
                )
            else:
                draft.orders.append(o.Kill(incarnation=rank.incarnation, why="its slot is not used any more"))


def _slots(draft: Draft, number: int) -> tuple[tuple[str, int], ...]:
    return draft.usable(draft.worlds[number])


# --- with a generation ------------------------------------------------------------------------------------


def _attached(draft: Draft) -> None:
    """Note that all ranks take part, or that all have left for the next world."""
    generation = draft.generation
    if generation is None:
        return
    members = draft.members()
    if (
        generation.deadline is not None
        and members
        and all(rank.status is RankStatus.ATTACHED for rank in members)
    ):
        draft.generation = replace(generation, deadline=None)
        trouble, draft.trouble = draft.trouble, None
        draft.orders.append(
            o.Tell(
                event=Event(
                    at=draft.now,
                    kind="generation",
                    who=f"{len(members)} ranks on {', '.join(dict.fromkeys(rank.host for rank in members))}",
                    why=trouble.why if trouble is not None else "",
                    seconds=draft.now - trouble.at if trouble is not None else 0.0,
                    commit=generation.restore,
                    generation=generation.number,
                    size=len(members),
                )
            )
        )
        draft.tidy_at = draft.now + TIDY_SECONDS
    elif not members and not draft.returned:
        draft.leave_generation()


def _plan_ahead(draft: Draft) -> None:
    """Prepare another world where the hosts allow a better layout than the present one."""
    generation, world = draft.generation, draft.worlds.get(draft.world)
    if generation is None or generation.deadline is not None or world is None or draft.returned:
        return
    layout = _layout_ahead(draft, world)
    present = {(rank.host, rank.slot) for rank in draft.members()}
    ends = any(rank.status is RankStatus.DETACHED for rank in draft.ranks.values())
    if layout is not None and not draft.switching and not ends:
        changed = set(slots_of(layout)) != present or _leaves_host(draft, world)
        wanted = changed or world.repairs >= MOST_REPAIRS
        following = draft.worlds.get(draft.next_world)
        other = following is not None and set(slots_of(following.layout)) != set(slots_of(layout))
        # Ranks that were told of a world leave for it at a commit; what has changed since comes after that.
        told = draft.notified != 0 and draft.notified == draft.next_world
        if (
            following is not None
            and (not wanted or other)
            and not (told and not _lacks_host(draft, following))
        ):
            draft.end_world(following.number, hard=False)
        if (
            wanted
            and not draft.next_world
            and draft.settle_until is None
            and draft.world_failures < MOST_WORLD_FAILURES
        ):
            draft.next_world = draft.start_world(layout)
    following = draft.worlds.get(draft.next_world)
    if following is None:
        return
    _fill(draft, following)
    if draft.notified != following.number and _ready_for_all(draft, following):
        draft.notified = following.number
        draft.counter += 1
        added = set(slots_of(following.layout)) - present
        removed = present - set(slots_of(following.layout))
        result = (_ADDED if added else 0) | (_REMOVED if removed else 0)
        draft.orders.append(o.Notify(counter=draft.counter, result=result or _ADDED))
        names = ", ".join(dict.fromkeys(host for host, _ in (*sorted(added), *sorted(removed))))
        draft.orders.append(o.Tell(event=Event(at=draft.now, kind="notified", who=names or "the same hosts")))


def _layout_ahead(draft: Draft, world: WorldRecord) -> Layout | None:
    """Return the layout of the next world; ``None``: there is none yet, hosts are being started.

    A host that is to be left does not wait for them. One that said that it goes may be gone any moment: new
    ranks, which import for long, are not waited for either, and come with the next change.
    """
    layout = draft.layout()
    leaving = [host for host in draft.hosts.values() if host.status is HostStatus.LEAVING]
    if layout is None or not _leaves_host(draft, world):
        return None if _hosts_start(draft) else layout
    if all(host.why == REMOVED for host in leaving if host.name in dict(world.layout)):
        return layout
    choices = [_with_ranks(draft, layout), layout]
    following = draft.worlds.get(draft.next_world)
    if following is not None and following.layout == _with_ranks(draft, following.layout):
        choices.insert(0, following.layout)
    return next(one for one in choices if one == layout or _is_enough(draft, one))


def _is_enough(draft: Draft, layout: Layout) -> bool:
    return draft.suffices(slots_of(layout)) and draft.keeps_state(dict(layout))


def _with_ranks(draft: Draft, layout: Layout) -> Layout:
    """Return what has ranks already that take part, or wait, on hosts that stay."""
    found, there = [], draft.ranks_at()
    for host, slots in layout:
        ranks = {slot: there.get((host, slot)) for slot in slots if (host, slot) not in draft.excluded}
        here = tuple(
            slot for slot, rank in ranks.items() if rank is not None and rank.status is not RankStatus.STARTED
        )
        if here and host in draft.hosts and draft.hosts[host].status is HostStatus.READY:
            found.append((host, here))
    return tuple(found)


def _tell_preparing(draft: Draft) -> None:
    """Tell the ranks where it has changed whether there will be another world."""
    preparing = _hosts_start(draft) or draft.next_world != 0
    if preparing != draft.preparing:
        draft.preparing = preparing
        draft.orders.append(o.TellPreparing(preparing=preparing))


def _leaves_host(draft: Draft, world: WorldRecord) -> bool:
    """Say whether a world needs a host that is about to go, and that the job can do without."""
    usable = {host for host, _ in draft.usable(world)}
    return any(
        host not in usable and draft.hosts[host].status is HostStatus.LEAVING
        for host, _ in world.layout
        if host in draft.hosts
    )


def _ready_for_all(draft: Draft, world: WorldRecord) -> bool:
    """Say whether only members of the present generation are missing for a generation on a world."""
    if world.status is not WorldStatus.READY:
        return False
    there = draft.ranks_at()
    ranks = [there.get(slot) for slot in draft.usable(world)]
    well = (RankStatus.WAITING, RankStatus.ATTACHED)
    return all(rank is not None and rank.status in well for rank in ranks)


def _let_hosts_go(draft: Draft) -> None:
    """Let go of hosts that are left and have neither ranks nor proxies.

    One that said that it goes may be on offer still, or be on offer again by now: as another Pod of its name,
    which no offer may ever have been without. So it is as one that failed: it may come back after a while.
    """
    needed = {rank.host for rank in draft.ranks.values()}
    for world in draft.worlds.values():
        needed |= {host for host, _ in world.layout}
    for name, host in list(draft.hosts.items()):
        if host.status is HostStatus.LEAVING and name not in needed and draft.last_generation:
            del draft.hosts[name]
            draft.orders.append(o.EndHost(host=name))
            if name in dict(draft.wanted):
                draft.exclude_host(name, host.why)

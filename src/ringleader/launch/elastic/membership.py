"""The decider of an elastic job: what is known and what happened → what is known then, and what to do.

No clock (whoever calls says when), no input or output: ``decide`` changes the state (``membership_state``)
and returns orders. What each message changes is in ``membership_messages``, which hosts the next world has in
``next_world``; the rules here hold after every message:

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

from ringleader.launch.elastic.layout import common_commit, generation_order, size_of, slots_of
from ringleader.launch.elastic.membership_messages import note
from ringleader.launch.elastic.membership_state import (
    HOSTS_CHANGED,
    IN_GENERATION,
    Generation,
    HostStatus,
    Message,
    Order,
    RankRecord,
    RankStatus,
    Result,
    State,
    WorldRecord,
    WorldStatus,
)
from ringleader.launch.elastic.next_world import (
    MOST_WORLD_FAILURES,
    all_are,
    best_layout,
    fill,
    lacks_host,
    plan_ahead,
    suffices,
    usable,
)
from ringleader.plan.elastic_options import RESET_LIMIT

LAST_WORD_SECONDS = 10.0
"""From the end of a rank's socket until its end must have been reported."""
TIDY_SECONDS = 1.0
"""From the beginning of a generation until what it does not need is ended: a world's end, and that of ranks,
keeps processors busy that the generation's first steps want."""
PART_LOST = 3
"""Exit code of a job that lost what it needs: no rank's, no signal's."""


def decide(state: State, messages: Iterable[Message], now: float) -> list[Order]:
    """Change the state by messages and return the orders that follow. ``now``: seconds from the start.

    Of several messages none answers an order that another one would cause. What follows is found by going
    through all ranks, which is done once for thousands that report at once.
    """
    if state.over:
        return []
    state.now, state.orders = now, []
    for message in messages:
        note(state, message)
    _overdue(state)
    if state.settle_until is not None and now > state.settle_until:
        state.settle_until = None
    if state.result is None:
        _returned(state)
    if state.result is None:
        _attached(state)
        if state.generation is None and not state.returned:
            _form(state)
        if state.result is None:
            plan_ahead(state)
        if state.generation is not None:
            _tell_preparing(state)
        if state.tidy_at is not None and now > state.tidy_at:
            state.tidy_at = None
        if state.generation is not None and state.generation.deadline is None and state.tidy_at is None:
            _tidy(state)
        _let_hosts_go(state)
    if state.result is not None:
        _end(state)
    return state.orders


def deadlines_of(state: State) -> list[float]:
    """Return the times at which something will be decided even if nothing is heard."""
    found = [state.gather_until, state.settle_until, state.tidy_at, state.stop_until]
    found += [host.deadline for host in state.hosts.values()]
    for rank in state.ranks.values():
        found += (rank.deadline, rank.gone)
    found += [world.deadline for world in state.worlds.values() if world.status is WorldStatus.STARTING]
    found += [state.generation.deadline if state.generation is not None else None]
    return [when for when in found if when is not None]


# --- deadlines --------------------------------------------------------------------------------------------


def _overdue(state: State) -> None:
    """Give up whoever was waited for long enough."""
    now, timeout = state.now, state.limits.start_timeout

    def over(deadline: float | None) -> bool:
        return deadline is not None and now > deadline

    for host in list(state.hosts.values()):
        if over(host.deadline):
            state.refuse_host(host, f"it was not ready within {timeout:g} s")
    for rank in [one for one in state.ranks.values() if over(one.deadline) or over(one.gone)]:
        if rank.incarnation not in state.ranks:
            continue  # it went with its host, just now
        if over(rank.gone):
            _gone(state, rank)
        else:
            _late(state, rank)
    for world in list(state.worlds.values()):
        if world.status is WorldStatus.STARTING and over(world.deadline):
            _world_late(state, world)
    generation = state.generation
    if generation is not None and over(generation.deadline):
        why = f"it did not take part in generation {generation.number} in time"
        for rank in [rank for rank in state.members() if rank.status is RankStatus.ORDERED]:
            if rank.incarnation in state.ranks:
                state.kill(rank, why)


def _gone(state: State, rank: RankRecord) -> None:
    """A rank's socket has ended, and nobody has said yet how the rank did."""
    rank.gone = None
    if rank.status in IN_GENERATION:
        state.break_generation(f"{state.name(rank)} is gone", rank=rank)
    if rank.status is not RankStatus.LEAVING:
        rank.status, rank.deadline = RankStatus.DETACHING, state.now + LAST_WORD_SECONDS


def _late(state: State, rank: RankRecord) -> None:
    if rank.status is RankStatus.LEAVING:
        state.end_rank(rank, "it did not leave in time")
        del state.ranks[rank.incarnation]
        return
    starts = rank.status is RankStatus.STARTED
    state.kill(rank, "it did not call init in time" if starts else "it did not answer in time: it hangs")


def _world_late(state: State, world: WorldRecord) -> None:
    """A world was not ready in time: its silent hosts are left out, where others are not silent."""
    hosts = [host for host, _ in slots_of(world.layout)]
    heard = {hosts[rank] for rank in world.ready if rank < len(hosts)}
    late = f"{len(hosts) - len(world.ready)} of {len(hosts)} proxies were not ready"
    why = f"{late} within {state.limits.start_timeout:g} s"
    state.break_world(world, why)
    for host in dict.fromkeys(hosts) if heard else ():
        if host not in heard:
            state.drop_host(host, why)


# --- without a generation ---------------------------------------------------------------------------------


def _form(state: State) -> None:
    """Bring about the next generation."""
    of_use = []
    for world in [state.worlds[number] for number in (state.world, state.next_world) if number]:
        if suffices(state, usable(state, world)) and not lacks_host(state, world):
            of_use.append(world)
        else:
            state.end_world(world)
    if of_use:
        if not state.world:
            state.world, state.next_world, state.notified = of_use[0].number, 0, 0
        state.gather_until = None
        _hurry(state)
        for world in of_use:
            fill(state, world)
        for world in reversed(of_use):
            if all_are(state, world, RankStatus.WAITING):
                _begin(state, world)
                return
    elif state.settle_until is None:
        if state.world_failures >= MOST_WORLD_FAILURES:
            fail_job(state, f"no MPI could be started {state.world_failures} times in a row")
        elif (layout := best_layout(state)) is not None and not _waits_for_more(state, size_of(layout)):
            state.gather_until = None
            world = state.start_world(layout)
            state.world = world.number
            fill(state, world)
        else:
            _gather(state)


def _waits_for_more(state: State, size: int) -> bool:
    """Say whether a job that has not begun should wait for more hosts than it needs."""
    if state.last_generation or (state.gather_until is not None and state.now > state.gather_until):
        return False
    most, start = state.limits.max_np, state.limits.start_np
    if state.starting_hosts() and (most is None or size < most):
        return True
    return start is not None and size < start and (not state.limits.fixed_hosts or _some_return(state))


def _some_return(state: State) -> bool:
    """Say whether a host that failed returns after a while."""
    return state.limits.cooldown is not None and bool(state.failed_hosts)


def _gather(state: State) -> None:
    """Wait for hosts, as long as any can come."""
    limits = state.limits
    asked = state.starting_hosts()
    if state.gather_until is None:
        state.gather_until = state.now + limits.timeout
        if not asked:
            most = f"at least {limits.min_np} ranks on {limits.min_hosts} or more hosts"
            state.tell("waiting", "hosts", f"{most} are needed; waiting at most {limits.timeout:g} s")
    late = state.now > state.gather_until and not asked  # a host that is being started has its own deadline
    useless = limits.fixed_hosts or (not state.ranks and bool(state.failures))
    if late or (useless and not asked and not _some_return(state)):
        slots = sum(host.slots for host in state.hosts.values() if host.status is HostStatus.READY)
        found = f"{slots - len(state.excluded)} slots that can take ranks, {limits.min_np} needed"
        found += f" ({len(state.excluded)} more are left out)" if state.excluded else ""
        found += f"; none came within {limits.timeout:g} s" if late else ""
        refused = [f"{host.name}: {host.why}" for host in state.hosts.values() if host.why]
        fail_job(state, "; ".join([found, *refused]))


def _hurry(state: State) -> None:
    """Somebody waits for the next generation: ranks that left the last one by themselves are not for ever."""
    ranks = list(state.ranks.values())
    if any(rank.status is RankStatus.WAITING and rank.incarnation in state.order for rank in ranks):
        for rank in ranks:
            if rank.status is RankStatus.DETACHED and rank.deadline is None:
                rank.deadline = state.patience()


def _begin(state: State, world: WorldRecord) -> None:
    """Begin a generation on a world that is complete."""
    limits = state.limits
    if limits.reset_limit is not None and state.last_generation > limits.reset_limit:
        why = state.trouble.why if state.trouble is not None else HOSTS_CHANGED
        fail_job(state, f"{why}; {limits.reset_limit} resets are allowed {RESET_LIMIT}")
        return
    there = state.ranks_at()
    present = {slot: there[slot].incarnation for slot in usable(state, world) if slot in there}
    held = {host: state.hosts[host].commits for host, _ in present}
    restore = common_commit(held)
    holders = {host for host, commits in held.items() if restore in commits}
    order = generation_order(present, before=tuple(state.order), restore_hosts=holders)
    names = list(dict.fromkeys(host for (host, _), _ in order))
    at = {slot: number for number, slot in enumerate(slots_of(world.layout))}
    # Most ranks arrive alike, and what is alike is sent once: a member has its place in ``arrivals``.
    arrivals: dict[str, int] = {}
    members = []
    for slot, incarnation in order:
        rank = state.ranks[incarnation]
        arrival = arrivals.setdefault(rank.arrival, len(arrivals))
        members.append([incarnation, at[slot], names.index(slot[0]), arrival])
        rank.status, rank.deadline = RankStatus.ORDERED, None
    state.last_generation += 1
    state.generation = Generation(
        number=state.last_generation,
        world=world.number,
        restore=restore,
        deadline=state.now + limits.attach_timeout,
    )
    state.give(
        "generation",
        number=state.last_generation,
        world=world.number,
        restore=restore,
        members=members,
        hosts=names,
        arrivals=list(arrivals),
    )
    for host in state.hosts.values():  # agents forget newer ones when they are notified
        host.commits = tuple(number for number in host.commits if number <= restore)
    state.order = {incarnation: rank for rank, (_, incarnation) in enumerate(order)}
    state.failures = []
    if state.next_world == world.number:
        state.world, state.next_world, state.notified = world.number, 0, 0


# --- with a generation ------------------------------------------------------------------------------------


def _attached(state: State) -> None:
    """Note that all ranks take part, or that all have left for the next world."""
    if (generation := state.generation) is None:
        return
    members = state.members()
    if not members:
        if not state.returned:
            state.leave_generation()
    elif generation.deadline is not None and all(one.status is RankStatus.ATTACHED for one in members):
        generation.deadline = None
        trouble, state.trouble = state.trouble, None
        state.tell(
            "generation",
            f"{len(members)} ranks on {', '.join(dict.fromkeys(rank.host for rank in members))}",
            trouble.why if trouble is not None else "",
            seconds=state.now - trouble.at if trouble is not None else 0.0,
            commit=generation.restore,
            generation=generation.number,
            size=len(members),
        )
        state.tidy_at = state.now + TIDY_SECONDS


def _tell_preparing(state: State) -> None:
    """Tell the ranks where it has changed whether there will be another world."""
    preparing = state.starting_hosts() or state.next_world != 0
    if preparing != state.preparing:
        state.preparing = preparing
        state.give("preparing", preparing=preparing)


def _tidy(state: State) -> None:
    """End worlds that are not used, and let ranks go of slots that no world has any more."""
    wanted = set()
    for world in list(state.worlds.values()):
        if world.number in (state.world, state.next_world):
            wanted |= set(usable(state, world))
        else:
            state.end_world(world)
    if not state.returned and state.world_failures < MOST_WORLD_FAILURES:
        wanted |= set(slots_of(best_layout(state) or ()))  # the change after the next one may be for these
    for rank in state.ranks.values():
        if rank.status in (RankStatus.WAITING, RankStatus.STARTED) and (rank.host, rank.slot) not in wanted:
            do = "leave" if rank.status is RankStatus.WAITING else "kill"
            why = "its slot is not used any more"
            state.give(do, incarnation=rank.incarnation, host=rank.host, why=why)
            rank.status, rank.deadline = RankStatus.LEAVING, state.now + state.limits.stop_seconds


def _let_hosts_go(state: State) -> None:
    """Let go of hosts that are left and have neither ranks nor proxies.

    One that said that it goes may be on offer still, or be on offer again by now: as another Pod of its name,
    which no offer may ever have been without. So it is as one that failed: it may return after a while.
    """
    needed = {rank.host for rank in state.ranks.values()}
    needed.update(host for world in state.worlds.values() for host, _ in world.layout)
    for name, host in list(state.hosts.items()):
        if host.status is HostStatus.LEAVING and name not in needed and state.last_generation:
            state.end_host(name)
            if name in state.wanted:
                state.exclude_host(name)


# --- the end ----------------------------------------------------------------------------------------------


def _returned(state: State) -> None:
    """A rank that returned 0 has finished: nothing is started any more, the others run to their ends.

    As in Horovod (``WorkerStateRegistry``), the job is done when all of them have returned. One that fails or
    is lost ends it, and so does one that waits for another generation. Hosts that change do not.
    """
    if not state.returned:
        return
    if not state.last_generation:
        _returned_at_first(state)
        return
    if state.next_world:
        state.end_world(state.worlds[state.next_world])
    if state.switching:  # for the next world, which the others need not leave for any more
        state.switching, state.trouble = False, None
        for rank in state.members():
            rank.deadline = None
    working = [rank for rank in state.ranks.values() if rank.incarnation in state.order]
    waiting = [state.name(rank) for rank in working if rank.status is RankStatus.WAITING]
    if state.order.keys() - state.returned - state.ranks.keys():
        trouble = None if state.trouble is None or state.trouble.why == HOSTS_CHANGED else state.trouble
        what = "a rank was lost" if trouble is None else trouble.why
        fail_job(state, f"{what}, after a rank of the job had returned")
    elif waiting:
        fail_job(state, f"{waiting[0]} waits for the others, after a rank of the job had returned")
    elif not working:
        state.result = Result(exit_code=0, whose="", reason="")


def _returned_at_first(state: State) -> None:
    """A rank has returned before there was a generation: its script calls no init.

    Ranks that call none run to their ends; one that is lost, or waits for the others, ends the job.
    """
    world = state.worlds.get(state.world)
    there = len(state.ranks) + len(state.returned)
    if world is None or lacks_host(state, world) or there < len(usable(state, world)):
        fail_job(state, "a rank was lost after another one had returned")
    elif not state.ranks:
        state.result = Result(exit_code=0, whose="", reason="")
    elif all(rank.status is RankStatus.WAITING for rank in state.ranks.values()):
        fail_job(state, "a rank returned without calling init, for which others wait")


def fail_job(state: State, why: str) -> None:
    """The job cannot continue: its code is that of the rank that failed first, where one did.

    Named are that rank, the one that failed last, and what broke the generation, if it was none of them.
    """
    said = [str(failure) for failure in (*state.failures[:1], *state.failures[1:][-1:])]
    if state.trouble is not None and state.trouble.why != HOSTS_CHANGED:
        said.append(state.trouble.why)
    reason = "; ".join([*(text for text in dict.fromkeys(said) if text not in why), why])
    if state.failures:
        state.result = state.failures[0].result(reason)
    else:
        state.result = Result(exit_code=PART_LOST, whose="ringleader", reason=reason)


def _end(state: State) -> None:
    """Have all ranks end, then everything else."""
    if state.stop_until is None:
        state.stop_until = state.now + state.limits.stop_seconds
        if state.ranks:
            state.give("stop_ranks")
    if state.ranks and state.now <= state.stop_until:
        return
    for rank in state.ranks.values():
        state.end_rank(rank, "it did not end in time")
    state.ranks = {}
    for world in list(state.worlds.values()):
        state.end_world(world, hard=bool(state.result and state.result.exit_code))
    for name in list(state.hosts):
        state.end_host(name)
    state.generation, state.over = None, True
    state.give("finish")

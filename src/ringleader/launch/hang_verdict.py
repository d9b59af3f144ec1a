"""Which rank the others wait for, by what each rank knows of its collectives and where its script is. Pure.

A rank's record (`agents/script_watch`) has its latest collectives by process group and number. All ranks of a
group must call the same operations in the same order. So, of the collectives that have not ended:

1. Ranks whose operation, or whose shape, under the same number is not that of the others disagree with them.
2. Ranks that have not reached the number are missing. One that waits in another group is missing only because
   of whom it waits for; so the one that waits for nobody is named.
3. Where all have arrived, no rank is missing.

Without records the stacks have to do: the rank that is elsewhere than most is named as that, and not accused.
`python_stacks` reads stacks.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

from ringleader.launch.python_stacks import Line, Stack, line_of, outlier
from ringleader.plan.rank_placement import listed, ranks_named
from ringleader.value_class import dataclass

LEAST_SECONDS = 3.0
"""A rank that waits for less is not said to hang."""
USUAL = 10.0
"""Nor one that waits for less than this many times what lies between two collectives of its group."""
_NAMES = "reduce broadcast all_reduce all_gather all_gather_base reduce_scatter reduce_scatter_base"
SAME_SHAPE = frozenset(_NAMES.split())
"""Operations whose inputs have as many elements on every rank."""
UNKNOWN = "no collective is unfinished: see the stacks"
NOTHING = "no rank has waited unusually long for another: nothing shows that the job hangs"
ABORTED = "; Gloo aborts a rank that receives more than it expects, so see whether the ranks' shapes differ"
ROOTED = frozenset(("broadcast", "reduce", "gather", "scatter"))
"""Operations that end on some ranks although others have not called them."""
LONGEST_AGE = 1e12
"""Seconds; anything older is not an age."""
FURTHER = 20
"""How many numbers further the operation of the others is looked for, to see that only the order differs."""


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One operation of a process group, as a rank knows it."""

    group: str
    number: int
    op: str
    shape: str = ""
    """``5 Float``: elements and type of each input."""
    sizes: str = ""
    """``[5]``, for messages."""
    done: bool = False
    age: float = 0.0
    """Seconds since its call."""

    @property
    def what(self) -> tuple[str, str]:
        """What must be the same on all ranks."""
        return self.op, self.shape if self.op.lstrip("_") in SAME_SHAPE else ""

    def __str__(self) -> str:
        return f"{self.op}{f' of {self.sizes}' if self.sizes else ''}"


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one rank knows."""

    rank: int
    size: int
    groups: Mapping[str, tuple[int, ...]]
    """Name of a process group → its ranks."""
    collectives: tuple[Collective, ...]
    elsewhere: tuple[Collective, ...] = ()
    """Sends and receives that have not ended."""
    lives: Mapping[str, int] = field(default_factory=dict)
    """How often a group was made anew, as far as its entries show."""
    unsure: frozenset[str] = frozenset()
    """Groups whose numbers cannot be compared."""
    at: Line | None = None
    """Where an exception left its script."""
    ras: str = ""
    """What NCCL's RAS service reported."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What follows."""

    kind: str
    """``missing``, ``shape``, ``operation``, ``order``, ``all arrived``, ``elsewhere``, ``none``."""
    text: str
    """In a sentence."""
    ranks: tuple[int, ...] = ()
    """Those to look at first."""
    waiting: tuple[int, ...] = ()
    """Those that wait for them."""
    operation: str = ""
    """``all_reduce``; empty: none is known."""
    number: int | None = None
    """Which operation of its group, from 1."""
    group: str = ""
    seconds: float = 0.0
    """How long the others have waited."""
    places: tuple[str, ...] = ()
    """``rank 1 is at train.py:33 in load``."""
    notes: tuple[str, ...] = ()
    """Ranks that did not report, and what NCCL's RAS service found."""

    @property
    def accuses(self) -> bool:
        """Whether a rank is named as the cause."""
        return self.kind in ("missing", "shape", "operation", "order")

    def __str__(self) -> str:
        return "\n    ".join((self.text, *self.places, *self.notes))


# --- what ranks report ------------------------------------------------------------------------------------


def read_record(message: Mapping[str, Any]) -> Record:
    """Return a rank's record, without entries that cannot be read; ValueError where it is none."""
    if why := message.get("why"):
        raise ValueError(str(why))
    rank, size, groups = message.get("rank"), message.get("size"), message.get("groups")
    entries = message.get("entries")
    are_numbers = type(rank) is int and type(size) is int
    if not are_numbers or not isinstance(entries, list) or not isinstance(groups, dict):
        raise ValueError("it has no rank, size, groups or entries")
    calls, alone = list[Collective](), list[Collective]()
    numbers, backends, unsure = dict[str, int](), dict[str, str](), set[str]()
    lives = Counter[str]()
    for entry in entries:
        if not isinstance(entry, dict) or (found := _collective(entry)) is None:
            continue
        group, backend = found.group, str(entry.get("backend", ""))
        if entry.get("p2p"):
            # Numbers of sends and receives are those of a pair, and say nothing of others; but PyTorch before
            # 2.6 counts a batch of them among the collectives of those ranks alone that call it.
            alone += [] if found.done else [found]
            unsure |= {group} if found.op == "coalesced" else set()
            continue
        if backends.setdefault(group, backend) != backend:
            unsure.add(group)  # each backend counts for itself
        if found.number < numbers.get(group, 0):
            # The group has been made anew, and counts from 1 again.
            lives[group] += 1
            calls = [one for one in calls if one.group != group]
        numbers[group] = found.number
        calls.append(found)
    known = {
        str(name): tuple(one for one in ranks if type(one) is int)
        for name, ranks in groups.items()
        if isinstance(ranks, list)
    }
    ras = str(message.get("ras", ""))[:4000]
    return Record(
        rank=int(str(rank)),
        size=int(str(size)),
        groups=known,
        collectives=tuple(calls),
        elsewhere=tuple(alone),
        lives=lives,
        unsure=frozenset(unsure),
        at=line_of(message.get("at")),
        ras=ras,
    )


def _collective(entry: Mapping[str, Any]) -> Collective | None:
    number, age = entry.get("seq"), entry.get("age")
    sizes, dtypes = entry.get("sizes") or [], entry.get("dtypes") or []
    is_number = type(number) is int and isinstance(age, int | float) and abs(age) < LONGEST_AGE
    if not is_number or not isinstance(entry.get("op"), str) or not isinstance(sizes, list):
        return None
    try:
        shape = ", ".join(map(str, (*(math.prod(size) for size in sizes), *dtypes)))
    except (TypeError, ValueError, OverflowError):
        return None
    return Collective(
        group=str(entry.get("group", "")),
        number=int(str(number)),
        op=entry["op"][:60],
        shape=shape,
        sizes=listed((str(size).replace(" ", "") for size in sizes), 3),
        done=bool(entry.get("done")),
        age=max(0.0, float(str(age))),
    )


# --- the verdict ------------------------------------------------------------------------------------------


def judge(
    messages: Mapping[int, Mapping[str, Any] | None],
    *,
    stacks: Mapping[int, Stack] | None = None,
    ended: Mapping[int, str] | None = None,
    failed: Collection[int] = (),
    least: float | None = None,
) -> Verdict:
    """Return what follows from what ranks know.

    ``messages``: their records; ``None``: one that has process groups did not answer. ``stacks``: the first
    process of each rank. ``ended``: how ranks ended, ``ended by SIGKILL``; ``failed``: those of them that
    failed, perhaps in their last collective. ``least``: seconds from which a wait counts, where somebody has
    waited for that already; ``None``: by what is usual in this job.
    """
    stacks, ended, records, unread = stacks or {}, ended or {}, dict[int, Record](), dict[int, str]()
    for rank, message in messages.items():
        try:
            records[rank] = read_record(message or {"why": "it did not answer in time"})
        except ValueError as error:
            unread[rank] = str(error)
    silent = sorted(unread.keys() - ended.keys())
    notes = [f"rank {rank} did not report its collectives: {unread[rank]}" for rank in silent]
    # Where the script counts its ranks otherwise than the launcher, or is a world of one, nothing compares.
    worlds = {rank: record for rank, record in records.items() if record.size > 1}
    is_alike = all(rank == record.rank for rank, record in worlds.items())
    view = _View(worlds if is_alike else {}, stacks, ended, frozenset(failed), unread.keys(), least)
    found = view.verdict()
    if found is None and (not view.calls or least is not None):
        found = _by_stacks(stacks)
    if found is None or (found.kind == "none" and view.calls):
        is_unknown = least is not None and not view.waits
        found = Verdict(kind="none", text=UNKNOWN if is_unknown else NOTHING)
    if ras := next((record.ras for record in records.values() if record.ras), ""):
        notes += ["NCCL's RAS service reports:", *ras.splitlines()]
    return replace(found, notes=tuple(notes))


def _by_stacks(stacks: Mapping[int, Stack]) -> Verdict:
    first, others = outlier(stacks)
    if not first:
        text = "the ranks are at different places, and none of them is the odd one out: see the stacks"
        if len({stack.main for stack in stacks.values()}) == 1:
            at = next(iter(stacks.values())).at
            text = "all ranks are at the same place" + (f": {at}" if at else "")
        return Verdict(kind="none", text=text if stacks else "no rank has reported a stack or a collective")
    at = stacks[first[0]].at
    text = f"{ranks_named(first)} {_is(first)} elsewhere than the others" + (f": {at}" if at else "")
    return Verdict(kind="elsewhere", text=text, ranks=tuple(first), waiting=tuple(others))


def _is(ranks: Collection[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


class _View:
    """All that is known, by process group and number."""

    def __init__(
        self,
        records: Mapping[int, Record],
        stacks: Mapping[int, Stack],
        ended: Mapping[int, str],
        failed: Collection[int],
        unread: Collection[int],
        least: float | None,
    ) -> None:
        self._records, self._stacks, self._least = records, stacks, least
        self._ended, self._failed, self._unread = ended, failed, unread
        self.calls: dict[str, dict[int, dict[int, Collective]]] = {}
        """Group → rank → number → the operation; of several under one number the first that lasts."""
        self._pending: dict[int, list[Collective]] = {}
        """Rank → what it waits in."""
        self._last: dict[int, Collective] = {}
        """The last call of ranks that failed, perhaps in it: Gloo's are over when they have failed, too."""
        self._members: dict[str, set[int]] = {}
        unsure = {group for record in records.values() for group in record.unsure}
        for group in {group for record in records.values() for group in record.lives}:
            # Old calls of one rank say nothing of the new ones of another.
            if len({record.lives.get(group, 0) for record in records.values() if group in record.groups}) > 1:
                unsure.add(group)
        for rank, record in records.items():
            for group, ranks in record.groups.items():
                self._members.setdefault(group, set()).update(ranks)
            calls = [call for call in record.collectives if call.group not in unsure]
            for call in calls:
                known = self.calls.setdefault(call.group, {}).setdefault(rank, {})
                if call.number not in known or known[call.number].done:
                    known[call.number] = call
            waits = [call for call in calls if not call.done]
            if rank in failed and record.collectives:
                self._last[rank] = last = record.collectives[-1]
                # It cannot have ended well where a rank is missing, unless it has a root.
                waits = waits or [call for call in calls[-1:] if call == last and call.op not in ROOTED]
            self._pending[rank] = waits

    @property
    def waits(self) -> bool:
        """Whether any rank is in a collective."""
        return any(self._pending.values())

    def _waits_elsewhere(self, rank: int) -> Sequence[Collective]:
        """Return what a rank waits in: collectives, else sends and receives."""
        record = self._records.get(rank)
        return self._pending.get(rank) or (record.elsewhere if record is not None else ())

    def verdict(self) -> Verdict | None:
        """Return the cause, the likeliest first."""
        waits = {(call.group, call.number) for calls in self._pending.values() for call in calls}
        waits |= {(call.group, call.number) for call in self._last.values() if call.group in self.calls}
        places = sorted(waits, key=lambda place: (place[1], place[0]))
        for group in dict.fromkeys(group for group, _number in places):
            numbers = sorted({number for calls in self.calls[group].values() for number in calls})
            for number in numbers:
                if (found := self._disagreement(group, number)) is not None:
                    return found
        # Operations of a group run in order: what follows one that has not ended says nothing.
        firsts: dict[str, tuple[str, int]] = {}
        for group, number in places:
            if any(not call.done for call in self._at(group, number).values()) or self._absent(group, number):
                firsts.setdefault(group, (group, number))
        missing = [found for place in firsts.values() if (found := self._missing(*place)) is not None]
        free = [one for one in missing if not any(self._waits_elsewhere(rank) for rank in one.ranks)]
        if missing:
            return max(free or missing, key=lambda one: one.seconds)
        arrived = (self._all_arrived(*place) for place in firsts.values())
        return next((found for found in arrived if found is not None), None)

    def _at(self, group: str, number: int) -> dict[int, Collective]:
        known = sorted(self.calls.get(group, {}).items())
        return {rank: calls[number] for rank, calls in known if number in calls}

    def _waited(self, group: str, waiting: Mapping[int, Collective]) -> float:
        """Return how long ranks have waited in an operation; 0 where that is not long."""
        seconds = max((call.age for call in waiting.values()), default=0.0)
        if self._least is not None:
            return seconds if seconds >= self._least else 0.0
        gaps: list[float] = []
        for calls in self.calls[group].values():
            ages = sorted(call.age for call in calls.values() if call.done)
            gaps += [after - before for before, after in pairwise(ages)]
        usual = statistics.median(gaps) if gaps else 0.0
        return seconds if seconds >= max(LEAST_SECONDS, USUAL * usual) else 0.0

    def _disagreement(self, group: str, number: int) -> Verdict | None:
        calls = self._at(group, number)
        kinds = Counter(call.what for call in calls.values())
        # What has ended on all ranks has done no harm that is known.
        waiting = {rank: call for rank, call in calls.items() if not call.done}
        has_failed = any(self._last.get(rank) == call for rank, call in calls.items())
        if len(kinds) < 2 or not (has_failed or self._waited(group, waiting)):
            return None
        (most, count), (_, second) = kinds.most_common(2)
        odd = [rank for rank, call in calls.items() if call.what != most] if count > second else list(calls)
        others = [rank for rank in calls if rank not in odd]
        # What each has called from here on: where all have called the same, only the order differs.
        further = [
            {call.what for at, call in self.calls[group][rank].items() if number <= at <= number + FURTHER}
            for rank in calls
        ]
        ops = {op for op, _shape in kinds}
        is_order = all(kinds.keys() <= known for known in further)
        kind = "shape" if len(ops) == 1 else "order" if is_order else "operation"
        where = f"number {number} of {self._group(group)}"
        who = f"{ranks_named(odd)} {'has' if len(odd) == 1 else 'have'} called"
        than = "than the others" if others else "than each other"
        text = {
            "shape": f"{who} {next(iter(ops))} {where} with another shape {than}",
            "order": f"{who} operations in another order {than}, from {where} on",
            "operation": f"{who} another operation {than} as {where}: one is missing, or one too many",
        }[kind]
        return self._verdict(kind, text, (group, number), odd, others, max(c.age for c in calls.values()))

    def _absent(self, group: str, number: int) -> list[int]:
        """Return the ranks that have not called it; one whose oldest entries are gone has been there."""
        calls, known = self._at(group, number), {*self._records, *self._ended, *self._unread}
        return [
            rank
            for rank in self._ranks_of(group)
            if rank in known and rank not in calls and max(self.calls[group].get(rank, (0,))) < number
        ]

    def _missing(self, group: str, number: int) -> Verdict | None:
        calls, absent = self._at(group, number), self._absent(group, number)
        waiting = {rank: call for rank, call in calls.items() if call in self._pending.get(rank, ())}
        failed = [rank for rank in absent if rank in self._failed]
        seconds = self._waited(group, waiting)
        if not absent or not waiting or not (seconds or failed):
            return None
        first = failed or [rank for rank in absent if not self._waits_elsewhere(rank)] or absent
        how = f" ({self._ended[first[0]]})" if first[0] in self._ended else ""
        text = f"{ranks_named(first)}{how} {_is(first)} missing: {ranks_named(waiting)} "
        text += f"{'waits' if len(waiting) == 1 else 'wait'} in {next(iter(waiting.values())).op} "
        text += f"number {number} of {self._group(group)}" + (f", for {seconds:.0f} s now" if seconds else "")
        text += ABORTED if "SIGABRT" in how else ""
        return self._verdict("missing", text, (group, number), first, list(waiting), seconds)

    def _all_arrived(self, group: str, number: int) -> Verdict | None:
        calls = self._at(group, number)
        waiting = {rank: call for rank, call in calls.items() if not call.done}
        seconds = self._waited(group, waiting)
        if not seconds or set(self._ranks_of(group)) - calls.keys():
            return None
        text = f"{ranks_named(calls)} are all in {next(iter(calls.values())).op} number {number} of "
        text += f"{self._group(group)}, for {seconds:.0f} s now: none is missing, so look at the network"
        return self._verdict("all arrived", text, (group, number), [], list(calls), seconds)

    def _verdict(
        self,
        kind: str,
        text: str,
        place: tuple[str, int],
        ranks: list[int],
        waiting: list[int],
        seconds: float,
    ) -> Verdict:
        calls = self._at(*place)
        return Verdict(
            kind=kind,
            text=text,
            ranks=tuple(ranks),
            waiting=tuple(waiting),
            operation=next(calls[rank].op for rank in (*waiting, *ranks) if rank in calls),
            number=place[1],
            group=self._group(place[0]),
            seconds=seconds,
            places=tuple(self._places((*ranks, *waiting), calls)),
        )

    def _ranks_of(self, group: str) -> list[int]:
        """Return the ranks of a group; where none says, those that have called something in it."""
        return sorted(self._members.get(group) or self.calls.get(group, {}))

    def _group(self, name: str) -> str:
        """Return ``the default group``, or ``group 3 (ranks 0, 1)``."""
        ranks = self._ranks_of(name)
        size = max((record.size for record in self._records.values()), default=0)
        return "the default group" if len(ranks) == size else f"group {name} ({ranks_named(ranks)})"

    def _places(self, ranks: Sequence[int], calls: Mapping[int, Collective]) -> Iterator[str]:
        """Yield where ranks are, those at one place together."""
        found: dict[str, list[int]] = {}
        for rank in ranks:
            stack, last = self._stacks.get(rank), self._records.get(rank)
            call = calls.get(rank) or next(iter(self._waits_elsewhere(rank)), None)
            at = (last and last.at) or (stack and stack.at) or "a line that is not known"
            if call is not None:
                number = "" if rank in calls else f", number {call.number} of {self._group(call.group)},"
                number = "" if last is not None and call in last.elsewhere else number
                text = f"in {call}{number} at {at}"
                if call.done and self._last.get(rank) != call:
                    text = f"at {at}; it has left {call}, called {call.age:.0f} s ago"
            elif rank in self._ended:
                text = self._ended[rank]
            else:
                text = f"at {at}; it has called no collective yet"
                if last is not None and last.collectives:
                    call = last.collectives[-1]
                    text = f"at {at}; its last collective was {call}, number {call.number} of "
                    text += f"{self._group(call.group)}, {call.age:.0f} s ago"
            found.setdefault(text, []).append(rank)
        for text, there in found.items():
            verb = "" if text in self._ended.values() else f"{_is(there)} "
            yield f"{ranks_named(there)} {verb}{text}"

"""Which rank the others wait for, by what each rank knows of its collectives and where its script is. Pure.

A rank's record (`agents/script_watch`) has its latest collectives by process group and number. All ranks of a
group must call the same operations in the same order. So, of the collectives that have not ended:

1. Ranks whose operation, or whose shape, under the same number is not that of the others disagree with them.
2. Ranks that have not reached the number are missing. One that waits in another group is missing only because
   of whom it waits for; so the one that waits for nobody is named.
3. Where all have arrived, it is no rank that is missing.

Without records the stacks have to do: the rank that is elsewhere than most is named as that, and not accused.
`python_stacks` reads stacks.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ringleader.launch.exit_reason import listed, ranks_named
from ringleader.launch.python_stacks import Line, Stack, line_of, outlier
from ringleader.value_class import dataclass

LEAST_SECONDS = 3.0
"""A rank that waits for less is not said to hang."""
USUAL = 10.0
"""Nor one that waits for less than this many times what lies between two collectives of its group."""
_NAMES = "reduce broadcast all_reduce all_gather all_gather_base reduce_scatter reduce_scatter_base"
SAME_SHAPE = frozenset(_NAMES.split())
"""Operations whose inputs have as many elements on every rank."""
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
    at: Line | None = None

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
    """What is missing or odd in what ranks told."""

    @property
    def accuses(self) -> bool:
        """Whether a rank is named as the cause."""
        return self.kind in ("missing", "shape", "operation", "order")

    def __str__(self) -> str:
        return "\n    ".join((self.text, *self.places, *self.notes))


# --- what ranks told --------------------------------------------------------------------------------------


def read_record(message: Mapping[str, Any]) -> Record:
    """Return a rank's record, without entries that cannot be read; ValueError where it is none."""
    if why := message.get("why"):
        raise ValueError(str(why))
    rank, size, groups = message.get("rank"), message.get("size"), message.get("groups")
    entries = message.get("entries")
    are_numbers = type(rank) is int and type(size) is int
    if not are_numbers or not isinstance(entries, list) or not isinstance(groups, dict):
        raise ValueError("it has no rank, size, groups or entries")
    # Numbers of sends and receives are those of a pair, and say nothing of others.
    calls = [
        found
        for entry in entries
        if isinstance(entry, dict) and not entry.get("p2p") and (found := _collective(entry)) is not None
    ]
    known = {
        str(name): tuple(one for one in ranks if type(one) is int)
        for name, ranks in groups.items()
        if isinstance(ranks, list)
    }
    ras = str(message.get("ras", ""))[:4000]
    return Record(rank=int(str(rank)), size=int(str(size)), groups=known, collectives=tuple(calls), ras=ras)


def _collective(entry: Mapping[str, Any]) -> Collective | None:
    number, age = entry.get("seq"), entry.get("age")
    sizes, dtypes = entry.get("sizes") or [], entry.get("dtypes") or []
    is_number = type(number) is int and isinstance(age, int | float) and math.isfinite(age)
    if not is_number or not isinstance(entry.get("op"), str) or not isinstance(sizes, list):
        return None
    try:
        counts = [math.prod(size) for size in sizes]
    except TypeError:
        return None
    return Collective(
        group=str(entry.get("group", "")),
        number=int(str(number)),
        op=entry["op"][:60],
        shape=", ".join(map(str, (*counts, *dtypes))),
        sizes=listed((str(size).replace(" ", "") for size in sizes), 3),
        done=bool(entry.get("done")),
        age=max(0.0, float(str(age))),
        at=line_of(entry.get("at")),
    )


# --- the verdict ------------------------------------------------------------------------------------------


def judge(
    records: Mapping[int, Record],
    *,
    stacks: Mapping[int, Stack] | None = None,
    ended: Mapping[int, str] | None = None,
    failed: Collection[int] = (),
    unread: Mapping[int, str] | None = None,
    least: float | None = None,
) -> Verdict:
    """Return what follows from what ranks know.

    ``stacks``: the first process of each rank. ``ended``: how ranks ended, ``killed by signal 9``;
    ``failed``: those of them that failed, perhaps in their last collective. ``unread``: ranks that told
    nothing that can be read, and why. ``least``: seconds from which a wait counts, where somebody has waited
    for that already; ``None``: by what is usual in this job.
    """
    stacks, ended, unread = stacks or {}, ended or {}, unread or {}
    notes = tuple(
        f"rank {rank} told nothing of its collectives: {why}" for rank, why in sorted(unread.items())
    )
    view = _View(_by_launcher(records), stacks, ended, frozenset(failed), frozenset(unread), least)
    found = view.verdict()
    if found is None and not view.calls:
        found = _by_stacks(stacks)
    ras = next((record.ras for record in records.values() if record.ras), "")
    lines = (*notes, *(["NCCL's RAS service reports:", *ras.splitlines()] if ras else []))
    fields = {**vars(found or Verdict(kind="none", text=view.why_none())), "notes": lines}
    return Verdict(**fields)


def _by_launcher(records: Mapping[int, Record]) -> dict[int, Record]:
    """Return records by rank where the script's ranks are the launcher's; else none can be compared."""
    alike = {rank: record for rank, record in records.items() if record.rank == rank and record.size > 1}
    return alike if len(alike) == sum(record.size > 1 for record in records.values()) else {}


def _by_stacks(stacks: Mapping[int, Stack]) -> Verdict | None:
    first, others = outlier(stacks)
    if not first:
        return None
    verb = "is" if len(first) == 1 else "are"
    at = stacks[first[0]].at
    return Verdict(
        kind="elsewhere",
        text=f"{ranks_named(first)} {verb} elsewhere than the others" + (f": {at}" if at else ""),
        ranks=tuple(first),
        waiting=tuple(others),
    )


class _View:
    """All that is known, by process group and number."""

    def __init__(
        self,
        records: Mapping[int, Record],
        stacks: Mapping[int, Stack],
        ended: Mapping[int, str],
        failed: frozenset[int],
        unread: frozenset[int],
        least: float | None,
    ) -> None:
        self._records, self._stacks, self._least = records, stacks, least
        self._ended, self._failed, self._unread = ended, failed, unread
        self.calls: dict[str, dict[int, dict[int, Collective]]] = {}
        """Group → rank → number → the operation; of several under one number (a batch) the first."""
        self.pending: dict[int, list[Collective]] = {}
        """Rank → what it waits in."""
        self._members: dict[str, set[int]] = {}
        for rank, record in records.items():
            for group, ranks in record.groups.items():
                self._members.setdefault(group, set()).update(ranks)
            for call in record.collectives:
                self.calls.setdefault(call.group, {}).setdefault(rank, {}).setdefault(call.number, call)
            waits = [call for call in record.collectives if not call.done]
            if rank in failed and not waits:
                waits = list(record.collectives[-1:])
            self.pending[rank] = waits

    def members(self, group: str) -> list[int]:
        """Return the ranks of a group; where no rank says, those that have called something in it."""
        return sorted(self._members.get(group) or self.calls.get(group, {}))

    def verdict(self) -> Verdict | None:
        """Return the cause, the likeliest first."""
        waits = sorted(
            ((call.group, call.number) for calls in self.pending.values() for call in calls),
            key=lambda place: place[1],
        )
        places = list(dict.fromkeys(waits))
        for group, number in places:
            if (found := self._disagreement(group, number)) is not None:
                return found
        missing = [found for group, number in places if (found := self._missing(group, number)) is not None]
        free = [one for one in missing if not any(self.pending.get(rank) for rank in one.ranks)]
        if missing:
            return max(free or missing, key=lambda one: one.seconds)
        arrived = (self._all_arrived(group, number) for group, number in places)
        return next((one for one in arrived if one is not None), None)

    def why_none(self) -> str:
        """Return what is said where nobody hangs."""
        if not self._records:
            return "no rank is elsewhere than the others"
        return "no rank has waited unusually long for another: nothing shows that the job hangs"

    def _at(self, group: str, number: int) -> dict[int, Collective]:
        return {
            rank: calls[number]
            for rank, calls in sorted(self.calls.get(group, {}).items())
            if number in calls
        }

    def _waited(self, group: str, calls: Mapping[int, Collective]) -> float:
        """Return how long ranks have waited in an operation; 0 where that is not long."""
        waiting = [call for rank, call in calls.items() if call in self.pending.get(rank, ())]
        seconds = max((call.age for call in waiting), default=0.0)
        least = self._least if self._least is not None else max(LEAST_SECONDS, USUAL * self._usual(group))
        return seconds if seconds >= least else 0.0

    def _usual(self, group: str) -> float:
        """Return the median time between two operations of a group that have ended."""
        gaps: list[float] = []
        for calls in self.calls.get(group, {}).values():
            ages = sorted(call.age for call in calls.values() if call.done)
            gaps += [after - before for before, after in pairwise(ages)]
        return statistics.median(gaps) if gaps else 0.0

    def _disagreement(self, group: str, number: int) -> Verdict | None:
        calls = self._at(group, number)
        kinds = Counter(call.what for call in calls.values())
        if len(kinds) < 2:
            return None
        (most, count), (_, second) = kinds.most_common(2)
        odd = [rank for rank, call in calls.items() if call.what != most] if count > second else list(calls)
        others = [rank for rank in calls if rank not in odd]
        ops = {op for op, _shape in kinds}
        kind = "shape" if len(ops) == 1 else "order" if self._is_order(group, number, calls) else "operation"
        where = f"number {number} of {self._group(group)}"
        who, have = ranks_named(odd), "has" if len(odd) == 1 else "have"
        than = "than the others" if others else "than each other"
        text = {
            "shape": f"{who} {have} called {next(iter(ops))} {where} with another shape {than}",
            "order": f"{who} {have} called operations in another order {than}, from {where} on",
            "operation": f"{who} {have} called another operation {than} as {where}: one is missing, or extra",
        }[kind]
        return Verdict(
            kind=kind,
            text=text,
            ranks=tuple(odd),
            waiting=tuple(others),
            operation=calls[(others or odd)[0]].op,
            number=number,
            group=self._group(group),
            seconds=max(call.age for call in calls.values()),
            places=tuple(self._places((*odd, *others), calls)),
        )

    def _is_order(self, group: str, number: int, calls: Mapping[int, Collective]) -> bool:
        """Say whether ranks that disagree call each other's operation later: only the order differs."""
        kinds = {call.what for call in calls.values()}
        later = [
            {call.what for at, call in self.calls[group][rank].items() if number < at <= number + FURTHER}
            | {mine.what}
            for rank, mine in calls.items()
        ]
        return all(kinds <= known for known in later)

    def _missing(self, group: str, number: int) -> Verdict | None:
        calls = self._at(group, number)
        # A rank whose oldest entries are gone has been there.
        absent = [
            rank
            for rank in self.members(group)
            if rank not in calls and max(self.calls[group].get(rank, {0: None})) < number
        ]
        known = [
            rank for rank in absent if rank in self._records or rank in self._ended or rank in self._unread
        ]
        failed = [rank for rank in known if rank in self._failed]
        seconds = self._waited(group, calls)
        if not known or not (seconds or failed):
            return None
        waiting = [rank for rank, call in calls.items() if call in self.pending.get(rank, ())]
        first, op = failed or known, calls[waiting[0]].op
        how = f" ({self._ended[first[0]]})" if first[0] in self._ended else ""
        text = (
            f"{ranks_named(first)}{how} {'is' if len(first) == 1 else 'are'} missing: {ranks_named(waiting)} "
        )
        text += f"{'waits' if len(waiting) == 1 else 'wait'} in {op} number {number} of {self._group(group)}"
        return Verdict(
            kind="missing",
            text=text + (f", for {seconds:.0f} s now" if seconds else ""),
            ranks=tuple(first),
            waiting=tuple(waiting),
            operation=op,
            number=number,
            group=self._group(group),
            seconds=seconds,
            places=tuple(self._places((*first, *waiting), calls)),
        )

    def _all_arrived(self, group: str, number: int) -> Verdict | None:
        calls = self._at(group, number)
        seconds = self._waited(group, calls)
        if not seconds or set(self.members(group)) - set(calls) or all(call.done for call in calls.values()):
            return None
        op = next(iter(calls.values())).op
        return Verdict(
            kind="all arrived",
            text=f"all of {ranks_named(calls)} are in {op} number {number} of {self._group(group)} for "
            f"{seconds:.0f} s: none is missing, so look at the network between them",
            waiting=tuple(calls),
            operation=op,
            number=number,
            group=self._group(group),
            seconds=seconds,
            places=tuple(self._places(list(calls), calls)),
        )

    def _group(self, name: str) -> str:
        """Return ``the default group``, or ``group 3 (ranks 0, 1)``."""
        ranks = self.members(name)
        size = max((record.size for record in self._records.values()), default=0)
        return "the default group" if len(ranks) == size else f"group {name} ({ranks_named(ranks)})"

    def _places(self, ranks: Sequence[int], calls: Mapping[int, Collective]) -> Iterator[str]:
        """Yield where ranks are, those at one place together."""
        found: dict[str, list[int]] = {}
        for rank in ranks:
            call, stack = calls.get(rank), self._stacks.get(rank)
            at = (call.at if call is not None else None) or (stack.at if stack is not None else None)
            if call is not None:
                text = f"in {call} at {at or 'a line that is not known'}"
            elif rank in self._ended:
                text = self._ended[rank]
            elif other := self.pending.get(rank):
                text = f"in {self._named(other[0])}, at {other[0].at or at}"
            else:
                text = f"at {at or 'a line that is not known'}{self._last(rank)}"
            found.setdefault(text, []).append(rank)
        for text, at_it in found.items():
            verb = "" if at_it[0] in self._ended else "is " if len(at_it) == 1 else "are "
            yield f"{ranks_named(at_it)} {verb}{text}"

    def _last(self, rank: int) -> str:
        record = self._records.get(rank)
        if record is None or not record.collectives:
            return "; it has called no collective yet"
        last = record.collectives[-1]
        return f"; its last collective was {self._named(last)}, {last.age:.0f} s ago"

    def _named(self, call: Collective) -> str:
        return f"{call}, number {call.number} of {self._group(call.group)}"

"""Operations that wait long for some ranks, and ranks that wait for each other for ever. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringleader.collectives.operations import JOIN, Signature
from ringleader.collectives.pending_operations import Pending, numbered, quoted


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long things may take, in seconds."""

    mismatch: float
    """All ranks may stand still so long with nothing in common. Then it counts as a mistake of the script
    (until then another thread of it could ask for the missing operation)."""
    warn: float = float("inf")
    """A wait this long is told to the user, and an operation that only some ranks asked for so long ago."""
    shutdown: float = float("inf")
    """After this time such an operation is an error, and the engine ends on all ranks."""


def deadlock(ranks: Sequence[Pending], asked: Sequence[Mapping[str, Signature]], limits: Limits) -> str:
    """Return who waits for what where every rank stands still and nothing is common; empty: not so."""
    if not all(pending.blocked for pending in ranks):
        return ""
    if min(pending.stuck_seconds for pending in ranks) < limits.mismatch:
        return ""
    return "Mismatched operations, and every rank waits: " + "; ".join(
        f"rank {rank} for {', '.join(quoted(one))}{_change(one)}" for rank, one in enumerate(asked)
    )


@dataclass(frozen=True, kw_only=True)
class GroupWait:
    """Where a rank stands still, and what it has asked for elsewhere."""

    group: int
    """Number of the process set, 0 for all ranks."""
    since: float
    """Since when, by the rank's own clock: tells one wait from another."""
    words: str
    """The operation."""
    groups: Mapping[int, tuple[int, bool]]
    """By number, of each group that the rank is in: how many of its meetings the rank has come to, and
    whether it has anything pending there, so that it may come to another one."""

    def as_list(self) -> list[Any]:
        """Return it as JSON's values."""
        return [self.group, self.since, self.words, [[number, *came] for number, came in self.groups.items()]]

    @classmethod
    def from_list(cls, fields: Sequence[Any]) -> GroupWait:
        """Return what `as_list` told."""
        group, since, words, groups = fields
        return cls(
            group=group,
            since=since,
            words=words,
            groups={number: (met, busy) for number, met, busy in groups},
        )


def deadlock_across_groups(waits: Sequence[GroupWait], sets: Mapping[int, Sequence[int]]) -> str:
    """Return who waits for whom where no rank can go on; empty where one can, or it cannot be told.

    ``waits`` are those of all ranks at one moment, in rank order; ``sets`` the ranks of each group. A rank
    waits in vain if a member of its group has not come to this meeting and has nothing pending there: that
    member stands still in another group, so it is not going to.
    """
    said: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for rank, wait in enumerate(waits):
        meeting = wait.groups[wait.group][0]
        absent = []
        for member in sets.get(wait.group, ()):
            met, busy = waits[member].groups.get(wait.group, (meeting, True))
            if met < meeting and not busy:
                absent.append(member)
        if not absent:
            return ""
        said.setdefault((wait.words, tuple(absent)), []).append(rank)
    return "Mismatched operations across process sets, and every rank waits: " + "; ".join(
        f"{numbered(ranks)} in {words} for {numbered(absent)}" for (words, absent), ranks in said.items()
    )


def _change(asked: Mapping[str, Signature]) -> str:
    """Return the change of process sets that a rank asked for, as words in brackets."""
    notes = [f" ({signature.note})" for signature in asked.values() if signature.kind == "process_set"]
    return "".join(notes)


def stalls(
    ranks: Sequence[Pending],
    asked: Sequence[Mapping[str, Signature]],
    joined: Sequence[bool],
    limits: Limits,
) -> tuple[dict[str, str], str]:
    """Return words about operations that have waited long, and why that is an error, if it is."""
    waited: dict[str, float] = {}
    for pending in ranks:
        for (name, _), age in zip(pending.entries, pending.ages, strict=False):
            waited[name] = max(age, waited.get(name, 0.0))
    told: dict[str, str] = {}
    late: list[str] = []
    for name, seconds in waited.items():
        missing = [rank for rank, one in enumerate(asked) if name not in one and not joined[rank]]
        if name == JOIN or not missing or seconds <= min(limits.warn, limits.shutdown):
            continue
        words = f"'{name}' has waited {seconds:.0f} s for {numbered(missing)} to ask for it too"
        if seconds > limits.warn:
            told[name] = words
        if seconds > limits.shutdown:
            late.append(words)
    return told, f"Horovod has been shut down: {late[0]}." if late else ""

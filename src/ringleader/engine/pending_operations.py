"""What one rank has pending, as the other ranks are told where they do not all ask for the same. Pure.

Also which operations wait long for some ranks, and whether all ranks wait for each other in one group. Waits
in different groups are in `deadlock_check`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ringleader.engine.operations import JOIN, Signature


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


@dataclass(frozen=True, kw_only=True)
class Pending:
    """What one rank has asked for and not got yet."""

    entries: tuple[tuple[str, Signature], ...]
    """Name and signature of each operation, in the order in which they were submitted."""
    ages: tuple[float, ...] = ()
    """How long ago each of them was asked for, in seconds. Empty: just now."""
    blocked: bool
    """Whether the script on that rank stands still until one of them is done."""
    stuck_seconds: float
    """How long no operation of that rank could be done although all ranks looked."""
    offers: tuple[tuple[str, Signature], ...] = ()
    """Exchanges of gradients that the rank has memory for; told only by a rank that has joined."""
    counted: int = 0
    """Operations that the rank has asked for so far; told only by a rank that has joined."""
    joined_for: int = 0
    """In how many exchanges of lists, with this one, the rank has joined."""
    unused: tuple[int, ...] = ()
    """Numbers of the segments of shared memory that the rank needs no more."""


def encode(pending: Pending) -> bytes:
    """Return the list as bytes for the other ranks."""
    entries = [[name, signature.as_list()] for name, signature in pending.entries]
    offers = [[name, signature.as_list()] for name, signature in pending.offers]
    rest = [pending.ages, pending.blocked, pending.stuck_seconds, offers, pending.counted]
    return json.dumps([entries, *rest, pending.joined_for, pending.unused]).encode()


def decode(message: bytes) -> Pending:
    """Return the list that another rank encoded."""
    entries, ages, blocked, stuck, offers, counted, joined_for, unused = json.loads(message)
    return Pending(
        entries=tuple((name, Signature.from_list(fields)) for name, fields in entries),
        ages=tuple(ages),
        blocked=blocked,
        stuck_seconds=stuck,
        offers=tuple((name, Signature.from_list(fields)) for name, fields in offers),
        counted=counted,
        joined_for=joined_for,
        unused=tuple(unused),
    )


def numbered(ranks: Sequence[int], most: int = 8) -> str:
    shown = ", ".join(map(str, ranks[:most])) + " …" * (len(ranks) > most)
    return f"rank{'s' * (len(ranks) > 1)} {shown}"


def quoted(names: Iterable[str], most: int = 4) -> list[str]:
    every = [f"'{name}'" for name in names]
    return [*every[:most], f"{len(every) - most} more"] if len(every) > most else every


def deadlock(ranks: Sequence[Pending], asked: Sequence[Mapping[str, Signature]], limits: Limits) -> str:
    """Return who waits for what where every rank stands still and nothing is common; empty: not so."""
    if not all(pending.blocked for pending in ranks):
        return ""
    if min(pending.stuck_seconds for pending in ranks) < limits.mismatch:
        return ""
    return "Mismatched operations, and every rank waits: " + "; ".join(
        f"rank {rank} for {', '.join(quoted(one))}{_change(one)}" for rank, one in enumerate(asked)
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

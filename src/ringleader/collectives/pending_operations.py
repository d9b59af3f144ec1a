"""What one rank has pending, as the other ranks are told where they do not all ask for the same. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringleader.collectives.operations import Signature


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

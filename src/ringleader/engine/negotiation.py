"""Which of the operations that the ranks asked for can be done now. Pure: every rank gets the same answer.

The engine compares one integer per rank first (see `operations`). Only where these differ do the ranks
exchange lists of what each has pending, and each of them calls `decide` on the same lists. Then it is also
known which operations wait long for some ranks, and whether all ranks wait for each other in this group
(`deadlock_check`: in different groups).

A rank that has asked for ``join`` takes part in every reduction as if it had asked for it, with zeros;
joining is done when all ranks have joined.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ringleader.engine.engine_settings import Limits
from ringleader.engine.operations import ANYBODY, JOIN, Signature, unnamed_serial


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
    """Exchanges of gradients that the rank has memory for; reported only by a rank that has joined."""
    counted: int = 0
    """Operations that the rank has asked for so far; reported only by a rank that has joined."""
    joined_for: int = 0
    """In how many exchanges of lists, with this one, the rank has joined."""
    unused: tuple[int, ...] = ()
    """Numbers of the segments of shared memory that the rank needs no more."""


def encode(pending: Pending) -> bytes:
    """Return the list as bytes for the other ranks."""
    return json.dumps(list(vars(pending).values()), default=Signature.as_list).encode()


def decode(message: bytes) -> Pending:
    """Return the list that another rank encoded."""
    values = zip(Pending.__dataclass_fields__, json.loads(message), strict=True)
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values
    }
    for name in ("entries", "offers"):
        fields[name] = tuple((operation, Signature.from_list(one)) for operation, one in fields[name])
    return Pending(**fields)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do next, equal on all ranks."""

    ready: tuple[str, ...]
    """Names to carry out, in this order."""
    mismatched: dict[str, str]
    """Name → what differs. These end with an error on all ranks that asked for them."""
    deadlocked: str
    """Not empty: every rank stands still and nothing is common; the text says who waits for what."""
    absent: dict[str, Signature] = field(default_factory=dict)
    """Ready operations that ranks which have joined take part in without having asked for them."""
    copied: frozenset[str] = frozenset()
    """Those of them that reduce gradients for which such a rank has no memory: they go as ordinary arrays."""
    last_joined: int | None = None
    """Not None: all ranks have joined, this one last."""
    counted: int = 0
    """Most operations that any rank had asked for when all have joined: they count alike from there."""
    unused: tuple[int, ...] = ()
    """Segments that no rank needs any more, ascending: they are freed first."""
    stalled: dict[str, str] = field(default_factory=dict)
    """Name → words about it, for operations that have waited long for some ranks."""
    only_notes_differ: frozenset[str] = frozenset()
    """Those of the mismatched names in which nothing but the note differs."""
    shutdown: str = ""
    """Not empty: the engine ends on all ranks, for this reason."""


def decide(ranks: Sequence[Pending], *, limits: Limits) -> Decision:
    """Choose what all ranks can do now from the lists of all ranks, in rank order."""
    asked = [dict(pending.entries) for pending in ranks]
    joined = [JOIN in one for one in asked]
    ready: list[str] = []
    mismatched: dict[str, str] = {}
    absent: dict[str, Signature] = {}
    copied: set[str] = set()
    only_notes_differ: set[str] = set()
    for name in _common(asked, joined):
        calls = [one.get(name) for one in asked]
        found = [signature for signature in calls if signature is not None]
        away, first = [rank for rank, own in enumerate(calls) if own is None], found[0]
        if away and first.kind not in ANYBODY:
            kind = first.kind.capitalize()
            mismatched[name] = f"{kind} '{name}' is not supported while {numbered(away)} joined (hvd.join)."
        elif all(signature == first for signature in found):
            ready.append(name)
            if away:
                absent[name] = first
            # A rank that has joined may have no memory for gradients: its optimizer may be gone, or the
            # others may have cut their buckets anew since.
            if first.kind == "gradients" and any(dict(ranks[one].offers).get(name) != first for one in away):
                copied.add(name)
        else:
            mismatched[name] = _differences(name, calls)
            if _subject(found) == NOTES:
                only_notes_differ.add(name)
    mismatched |= _different_kinds(asked, joined)
    progress = bool(ready or mismatched)
    stalled, shutdown = stalls(ranks, asked, joined, limits)
    return Decision(
        ready=tuple(ready),
        mismatched=mismatched,
        deadlocked="" if progress else deadlock(ranks, asked, limits),
        absent=absent,
        copied=frozenset(copied),
        only_notes_differ=frozenset(only_notes_differ),
        last_joined=_last_joined(ranks) if all(joined) else None,
        counted=max(pending.counted for pending in ranks),
        unused=tuple(sorted(set.intersection(*(set(pending.unused) for pending in ranks)))),
        stalled=stalled,
        shutdown=shutdown,
    )


def _common(asked: Sequence[Mapping[str, Signature]], joined: Sequence[bool]) -> list[str]:
    """Return the names that every rank asked for, ranks that have joined apart, in one order."""
    active = [one for one, away in zip(asked, joined, strict=True) if not away]
    if not active:
        return [name for name in asked[0] if all(name in one for one in asked)]
    return [name for name in active[0] if all(name in one for one in active)]


def _different_kinds(asked: Sequence[Mapping[str, Signature]], joined: Sequence[bool]) -> dict[str, str]:
    """Return what differs where every rank asked for the same unnamed operation, but of different kinds.

    Their names begin with their kinds, so the ranks would wait for each other for ever.
    """
    if any(joined):
        return {}  # ranks that have joined count alike again only after it
    counted: list[dict[int, str]] = []
    for one in asked:
        serials = {name: unnamed_serial(name, signature) for name, signature in one.items()}
        counted.append({serial: name for name, serial in serials.items() if serial is not None})
    found: dict[str, str] = {}
    for serial in counted[0]:
        names = [own.get(serial, "") for own in counted]
        if all(names) and len(set(names)) > 1:
            calls = [one[name] for one, name in zip(asked, names, strict=True)]
            text = _differences(f"noname.{serial}", calls)
            found |= dict.fromkeys(names, text)
    return found


def _last_joined(ranks: Sequence[Pending]) -> int:
    """Return who joined last; of several in one exchange, who did so least long ago, and the highest.

    How long ago is what each rank's clock said when it wrote its list: on a busy machine, some time before.
    """
    ages = [
        dict(zip((name for name, _ in pending.entries), pending.ages, strict=False)).get(JOIN, 0.0)
        for pending in ranks
    ]
    return max(range(len(ages)), key=lambda rank: (-ranks[rank].joined_for, -ages[rank], rank))


def _differences(name: str, calls: Sequence[Signature | None]) -> str:
    said: dict[str, list[int]] = {}
    for rank, signature in enumerate(calls):
        if signature is not None:
            said.setdefault(signature.describe(), []).append(rank)
    parts = [f"{numbered(ranks)}: {text}" for text, ranks in said.items()]
    found = [signature for signature in calls if signature is not None]
    return f"Mismatched {_subject(found)} for '{name}': " + "; ".join(parts)


NOTES = "requests"
"""What differs where nothing but the note does."""
_SUBJECTS = {
    "kind": "operations",
    "device": "devices",
    "dtype": "data types",
    "shape": "tensor shapes",
    "op": "reduce operations",
    "root": "root ranks",
    "prescale": "scale factors",
    "postscale": "scale factors",
}


def _subject(calls: Sequence[Signature]) -> str:
    """Name the first field that differs, in the words that scripts look for."""
    different = (word for name, word in _SUBJECTS.items() if len({getattr(one, name) for one in calls}) > 1)
    return next(different, NOTES)


# waits


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
    waits = []
    for rank, one in enumerate(asked):
        changes = [f" ({call.note})" for call in one.values() if call.kind == "process_set"]
        waits.append(f"rank {rank} for {', '.join(quoted(one))}{''.join(changes)}")
    return "Mismatched operations, and every rank waits: " + "; ".join(waits)


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

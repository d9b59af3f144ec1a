"""Which of the operations that the ranks asked for can be done now. Pure: every rank gets the same answer.

The engine compares one integer per rank first (see `operations`). Only where these differ do the ranks
exchange their lists, and each of them calls `decide` on the same lists.

A rank that has asked for ``join`` takes part in every reduction as if it had asked for it, with zeros;
joining is done when all ranks have joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ringleader.engine.operations import ANYBODY, JOIN, Signature, unnamed_serial
from ringleader.engine.pending_operations import Limits, Pending, deadlock, numbered, stalls


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
        refused = ""
        if len(found) < len(calls):
            refused = _refused_with_join(name, found[0], calls)
        if refused:
            mismatched[name] = refused
        elif all(signature == found[0] for signature in found):
            ready.append(name)
            if len(found) < len(calls):
                absent[name] = found[0]
                if _without_memory(name, found[0], ranks, calls):
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


def _refused_with_join(name: str, signature: Signature, calls: Sequence[Signature | None]) -> str:
    """Return why the operation cannot be done without the ranks that did not ask for it; empty if it can."""
    if signature.kind in ANYBODY:
        return ""
    away = [rank for rank, own in enumerate(calls) if own is None]
    return (
        f"{signature.kind.capitalize()} '{name}' is not supported while {numbered(away)} joined (hvd.join)."
    )


def _without_memory(
    name: str, signature: Signature, ranks: Sequence[Pending], calls: Sequence[Signature | None]
) -> bool:
    """Return whether a rank that has joined has no memory for these gradients.

    Its optimizer may be gone, or the others may have cut their buckets anew since.
    """
    away = [rank for rank, own in enumerate(calls) if own is None]
    return signature.kind == "gradients" and any(
        dict(ranks[rank].offers).get(name) != signature for rank in away
    )


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


def _subject(calls: Sequence[Signature]) -> str:
    """Name the first field that differs, in the words that scripts look for."""
    fields = (
        ("operations", lambda signature: signature.kind),
        ("devices", lambda signature: signature.device),
        ("data types", lambda signature: signature.dtype),
        ("tensor shapes", lambda signature: signature.shape),
        ("reduce operations", lambda signature: signature.op),
        ("root ranks", lambda signature: signature.root),
        ("scale factors", lambda signature: (signature.prescale, signature.postscale)),
    )
    for word, value in fields:
        if len({value(signature) for signature in calls}) > 1:
            return word
    return NOTES

"""What a page or a text says of one run, whatever its kind: sentences, tables, facts. Pure.

`kinds` has the module of each kind of run, which makes its summary of the helpers here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.transport_proof.judged_transport import summary as shares_text
from ringleader.fabric.transport_proof.proof import TransportProof, WireShares
from ringleader.number_format import NONE, plural
from ringleader.scaling import Context, HostContext, StoredRun

T = TypeVar("T")
ONE_MACHINE = (
    "All hosts share one machine: its cores and memory, not only the link between them, make these numbers."
)
"""A caution."""
AGAIN = "Measure it again"
"""Name of the fact that has the command of ours."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells as they are shown."""

    key: str
    """Names it in a page's addresses: ``numbers``."""
    title: str
    names: tuple[str, ...]
    """Of the columns."""
    rows: tuple[tuple[str, ...], ...]
    """The first cell of each names the row."""
    note: str = ""
    """How to read it."""
    is_prose: bool = False
    """Cells are words, not numbers: they stand at the left and may break."""


def table_of(
    key: str,
    title: str,
    items: Iterable[T],
    columns: Sequence[tuple[str, Callable[[T], str]]],
    *,
    note: str = "",
    keep: int = 1,
    is_prose: bool = False,
) -> Table:
    """Return a table with a row for each item; columns that have no number are left out.

    ``columns``: name, and the cell of an item. The first ``keep`` stay in any case.
    """
    rows = [tuple(cell(item) for _name, cell in columns) for item in items]
    shown = [i for i in range(len(columns)) if i < keep or any(row[i] not in ("", NONE) for row in rows)]
    return Table(
        key=key,
        title=title,
        names=tuple(columns[i][0] for i in shown),
        rows=tuple(tuple(row[i] for i in shown) for row in rows),
        note=note,
        is_prose=is_prose,
    )


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One run."""

    name: str
    kind: str
    """What it is, for a heading: ``Scaling report``."""
    headline: str
    """One sentence."""
    date: str = ""
    tiles: tuple[tuple[str, str], ...] = ()
    """The numbers to be seen first: (number, what it is)."""
    cautions: tuple[str, ...] = ()
    """Why a number might deserve less trust."""
    tables: tuple[Table, ...] = ()
    """What was measured. Tables without rows are not shown."""
    findings: tuple[str, ...] = ()
    """What it means, a sentence or two each."""
    findings_title: str = "What limits it"
    evidence: tuple[Table, ...] = ()
    """What carried the bytes, and the like."""
    lines: tuple[str, ...] = ()
    """What a terminal shows below the sentences in place of ``evidence``; its tables need no title then."""
    facts: tuple[tuple[str, str], ...] = ()
    """What a reader needs to measure it again: (name, text), only what is known."""
    details: tuple[Table, ...] = ()
    """For those who want all of it."""


def run_document(run: Any, said: Summary, results: Sequence[object]) -> dict[str, Any]:
    """Return a run and its results as plain JSON values: rates per second, times in seconds."""
    words = {"headline": said.headline, "findings": list(said.findings), "cautions": list(said.cautions)}
    return {**asdict(run), **words, "results": list(results)}


def ended_early(run: StoredRun) -> list[str]:
    """Return the caution about a run that failed."""
    text = f"The run ended early ({run.failure}); what was measured before is shown."
    return [text] if run.failure else []


def day(date: str) -> str:
    """``2026-11-21T00:12:00+00:00`` → ``2026-11-21 00:12:00 UTC``."""
    return date.replace("T", " ").replace("+00:00", " UTC")


def facts(
    context: Context, *known: tuple[str, str], after: Iterable[tuple[str, str]] = ()
) -> tuple[tuple[str, str], ...]:
    """Return (name, text) of what is known of a run: its command, ``known``, what is around it, ``after``."""
    found = (
        ("Command", shlex.join(context.command)),
        *known,
        ("Hosts", hosts_text(context)),
        ("Image", context.image),
        ("MPI", context.mpi),
        ("Transport", context.transport),
        ("Binding", context.binding),
        ("Threads for each rank", "" if context.threads is None else str(context.threads)),
        ("Python", context.python),
        ("PyTorch", context.torch),
        ("Ringleader", context.ringleader),
        ("Started", day(context.date)),
        *after,
    )
    return tuple((name, text) for name, text in found if text)


def ranks_text(ranks: int, per_host: int) -> str:
    """``8, 2 on each host``."""
    return f"{ranks}" + (f", {per_host} on each host" if per_host else "")


def hosts_text(context: Context) -> str:
    """Return the hosts, those that differ in nothing but the name in one go."""
    groups: dict[str, list[str]] = {}
    for host in context.hosts:
        groups.setdefault(", ".join(host_details(host)), []).append(host.name)
    texts = [", ".join(names) + (f": {what}" if what else "") for what, names in groups.items()]
    return "; ".join(texts) + (" (all hosts share one machine)" if context.one_machine and texts else "")


def host_details(host: HostContext) -> list[str]:
    """Return a host's processor and cores, as far as they are known."""
    return [part for part in (host.cpu, plural(host.cores, "core") if host.cores else "") if part]


def transport_tables(proofs: Iterable[tuple[str, TransportProof | None]]) -> tuple[Table, ...]:
    """Return the table of what carried the bytes, if any were judged. ``proofs``: size (or ``""``), proof."""
    rows = tuple((size, *row) for size, proof in proofs if proof is not None for row in _judged(proof))
    table = Table(
        key="transport",
        title="Transport",
        names=("hosts×slots", "host", "to other hosts", "within the host", "warnings"),
        rows=rows,
        note="Which wire carried the bytes that the ranks exchanged, by the counters of each host's network "
        "devices and the logs of its libraries, compared with what was handed over.",
        is_prose=True,
    )
    if not any(size for size, *_ in rows):
        table = replace(table, names=table.names[1:], rows=tuple(row[1:] for row in rows))
    return (table,)


def _judged(proof: TransportProof) -> Iterator[tuple[str, ...]]:
    """Yield one row for each host whose bytes were judged."""
    for host in proof.hosts:
        if host.between.shares or host.within.shares or host.warnings:
            yield host.host, _wires(host.between), _wires(host.within), "; ".join(host.warnings) or NONE


def _wires(wires: WireShares) -> str:
    if not wires.shares:
        return wires.unjudged or NONE
    return shares_text(wires.shares) + (f" of {byte_size(wires.exchanged)}" if wires.exchanged else "")

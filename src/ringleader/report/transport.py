"""What carried the bytes of a scaling run, as rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.transport_proof.judged_transport import summary
from ringleader.fabric.transport_proof.proof import HostProof, TransportProof, WireShares
from ringleader.fabric.transport_proof.proof import lines as proof_lines
from ringleader.scaling import Run

HEADER = ("hosts×slots", "host", "to other hosts", "within the host", "warnings")


HOW_TO_READ = (
    "Which wire carried the bytes that the ranks exchanged, by the counters of each host's network devices "
    "and the logs of its libraries, compared with what was handed over."
)


def rows(run: Run) -> list[tuple[str, ...]]:
    """Return one row for each host of each size whose bytes were judged, in the order of ``HEADER``."""
    return [
        (f"{point.hosts}×{point.slots}", *row)
        for point in run.points
        if point.transport is not None
        for row in rows_of(point.transport)
    ]


def rows_of(proof: TransportProof) -> list[tuple[str, ...]]:
    """Return one row for each host whose bytes were judged, in the order of ``HEADER`` without the size."""
    return [
        (host.host, *_cells(host))
        for host in proof.hosts
        if host.between.shares or host.within.shares or host.warnings
    ]


def lines(run: Run) -> list[str]:
    """Return what is worth saying of the largest size, and what is wrong at the others, each once."""
    judged = [point for point in run.points if point.transport is not None]
    found: dict[str, str] = {}
    for point in sorted(judged, key=lambda one: -one.ranks):
        assert point.transport is not None
        warnings = [f"{host.host}: {text}" for host in point.transport.hosts for text in host.warnings]
        largest = point is max(judged, key=lambda one: one.ranks)
        for text in proof_lines(point.transport) if largest else warnings:
            found.setdefault(text, f"{'! ' * (text in warnings)}{point.hosts}×{point.slots}: {text}")
    return list(found.values())


def _cells(host: HostProof) -> Iterator[str]:
    for wires in (host.between, host.within):
        yield _text(wires)
    yield "; ".join(host.warnings) or "–"


def _text(wires: WireShares) -> str:
    if not wires.shares:
        return wires.unjudged or "–"
    return f"{summary(wires.shares)} of {byte_size(wires.exchanged)}"

"""What carried the bytes of a scaling run, as rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.transport_proof.judged_transport import summary
from ringleader.fabric.transport_proof.proof import HostProof, WireShares
from ringleader.scaling import Run

HEADER = ("hosts×slots", "host", "to other hosts", "within the host", "warnings")


def rows(run: Run) -> list[tuple[str, ...]]:
    """Return one row for each host of each size whose bytes were judged, in the order of ``HEADER``."""
    return [
        (f"{point.hosts}×{point.slots}", host.host, *_cells(host))
        for point in run.points
        if point.transport is not None
        for host in point.transport.hosts
        if host.between.shares or host.within.shares or host.warnings
    ]


def warnings(run: Run) -> list[str]:
    """Return what is wrong with what carried the bytes, each once, with the first size that shows it."""
    found: dict[str, str] = {}
    for point in run.points:
        for host in point.transport.hosts if point.transport is not None else ():
            for text in host.warnings:
                found.setdefault(f"{host.host}: {text}", f"{point.hosts}×{point.slots}")
    return [f"{text} (at {size})" for text, size in found.items()]


def _cells(host: HostProof) -> Iterator[str]:
    for wires in (host.between, host.within):
        yield _text(wires)
    yield "; ".join(host.warnings) or "–"


def _text(wires: WireShares) -> str:
    if not wires.shares:
        return wires.unjudged or "–"
    return f"{summary(wires.shares)} of {byte_size(wires.exchanged)}"

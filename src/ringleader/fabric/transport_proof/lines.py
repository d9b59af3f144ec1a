"""The proof in lines for people, one for each host and direction."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.transport_proof.proof import HostProof, TransportProof, WireShares
from ringleader.fabric.wires import WIRE_WORDS, names_words, part_words


def lines(proof: TransportProof, *, verbose: bool = False) -> tuple[str, ...]:
    """Return what is worth saying at a job's end.

    Of a job on several hosts what carried the bytes between them; of any job what is wrong. Of a healthy job
    on one host, and of what was not judged, nothing but with ``verbose``.
    """
    return tuple(line for host in proof.hosts for line in _host_lines(host, verbose))


def _host_lines(host: HostProof, verbose: bool) -> Iterator[str]:
    if host.between.shares or (verbose and host.between.unjudged != "the job has one host"):
        yield f"{host.host} to other hosts: {_text(host.between)}{_gpudirect(host)}"
    if verbose:
        yield f"{host.host} within: {_text(host.within)}"
    for warning in host.warnings:
        yield f"{host.host}: {warning}"


def _text(wires: WireShares) -> str:
    if not wires.shares:
        return f"not judged: {wires.unjudged}"
    parts = [
        " ".join(filter(None, [WIRE_WORDS[wire], _on(wires, wire), part_words(part)]))
        for wire, part in wires.shares.items()
    ]
    least = "at least " if wires.exchanged_most > wires.exchanged else ""
    carried = ", ".join(parts) + f" of {least}{byte_size(wires.exchanged)}"
    if wires.by_log_only:
        carried += " (by logs, not by counters)"
    return "; ".join([carried, *wires.evidence])


def _on(wires: WireShares, wire: object) -> str:
    names = next((names for one, names in wires.devices.items() if one is wire), ())
    return f"on {names_words(names)}" if names else ""


def _gpudirect(host: HostProof) -> str:
    if host.gpudirect.used is None:
        return ""
    return "; GPUDirect RDMA " + ("used" if host.gpudirect.used else "not used")

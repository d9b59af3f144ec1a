"""What the kernel's lines mean: checks of its log before a job, and the same sentences while one runs. Pure.

``agents/kernel_log.py`` finds the lines, ``xids.toml`` has NVIDIA's Xids; here too are errors that RDMA ports
count while a job runs, judged by the rows of ``checks.toml``.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringleader.agents.traffic_counters import PACKETS
from ringleader.fabric.check_result import CheckResult, failed, skipped, unless, warned
from ringleader.fabric.checks.check import Found, judge, rows
from ringleader.fabric.facts import HostFacts, KernelEvent

FLAPS = 5
"""Times that a link may go down in a day; see ``kernel.link``."""
CORRECTED = 100
"""Corrected errors of PCIe in a day from which they are worth a warning. Ours."""
HEALTHY = ("program", "note", "unknown")
"""Actions of Xids that leave the GPU usable."""
OWN_PORT = ("port.errors", "port.flaps", "port.icrc")
"""Checks of counters whose errors are the port's; it counts others also where its partner fails."""


@functools.cache
def table() -> Mapping[str, Any]:
    """Return ``xids``, rows of numbers, what they mean and an action, and ``actions``."""
    return tomllib.loads(Path(__file__).with_name("xids.toml").read_text("utf-8"))


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What an event is."""

    what: str
    """``Xid 79 on GPU 1 (0000:05:00.0): it has fallen off the bus``."""
    remedy: str
    is_fault: bool
    """Its device, and so its host, is not fit for a job until somebody has looked at it."""


def meaning(event: KernelEvent) -> Meaning:
    """Return what an event means."""
    device = ", ".join(event.names) or (f"GPU {event.gpu}" if event.gpu is not None else "")
    where = f"{device} ({event.device})" if device and event.device else device or event.device
    where = where or "an unknown device"
    words, low = event.text, event.text.lower()
    if event.kind == "xid":
        rows_of = (row[1:] for row in table()["xids"] if event.number in row[0])
        means, action = next(rows_of, ("not in our table", "unknown"))
        action = "note" if "nonfatal" in low or "to 0x0 (none)" in low else action
        what = f"Xid {event.number} on GPU {where.removeprefix('GPU ')}: {means}"
        return Meaning(what=what, remedy=table()["actions"][action], is_fault=action not in HEALTHY)
    if event.kind == "sxid":
        what = f"SXid {event.number} on NVSwitch {event.device}"
        is_fatal = "fatal" in low and "non-fatal" not in low
        return Meaning(what=what, remedy=table()["actions"]["nvlink"], is_fault=is_fatal)
    if event.kind == "pcie":
        is_gone = "slot(" in low
        level = "lost its PCIe link" if is_gone else "had an error on PCIe that was corrected"
        if "uncorrect" in low:
            level = f"had a {'fatal' if '(fatal)' in low else 'non-fatal'} error on PCIe"
        remedy = "reseat the card or riser; look at nvidia-smi or mlxlink for the link's width and speed"
        return Meaning(what=f"{where} {level}", remedy=remedy, is_fault=is_gone or "(fatal)" in low)
    if event.kind == "link":
        remedy = "replace the cable or transceiver; look at the switch's port"
        return Meaning(what=f"the link of {where} went down", remedy=remedy, is_fault=event.count >= FLAPS)
    if event.kind == "oom":
        process = words[words.find("(") + 1 :].partition(")")[0]
        what = f"memory ran out: the kernel killed process {event.number} ({process})"
        return Meaning(what=what, remedy="use less memory, or a larger host or limit", is_fault=False)
    is_command = "no done completion" in low or "will cause a leak" in low
    what = "its firmware did not answer a command" if is_command else "its driver reports a fault"
    remedy = "look at its temperature, power and firmware (mlxfwmanager), then restart the host"
    return Meaning(what=f"{where}: {what}", remedy=remedy, is_fault=not is_command)


def is_notable(event: KernelEvent) -> bool:
    """Return whether an event is worth a line: errors of PCIe that were corrected, only if there are many."""
    return event.kind != "pcie" or "severity=Correct" not in event.text or event.count >= CORRECTED


def sentence(event: KernelEvent) -> str:
    """Return what an event means, and the kernel's own words."""
    times = f", {event.count} times" if event.count > 1 else ""
    return f'{meaning(event).what}{times} ("{event.text}")'


# --- before a job -----------------------------------------------------------------------------------------


def _events(facts: HostFacts, *kinds: str) -> list[KernelEvent]:
    return [one for one in facts.kernel_log.events if one.kind in kinds]


def _judged(facts: HostFacts, bad: Iterable[CheckResult], well: str) -> Found:
    log = facts.kernel_log
    if not log.source:
        return skipped(f"the kernel's log is not readable: {log.why}" if log.why else "it was not read")
    return unless(bad, f"{well} ({log.source}, the last 24 hours)")


def _result(event: KernelEvent, *, fails: bool | None = None) -> CheckResult:
    meant = meaning(event)
    made = failed if (meant.is_fault if fails is None else fails) else warned
    subject = event.names[0] if event.names else event.device
    return made(sentence(event), subject=subject, remedy=meant.remedy)


@judge("kernel.xid")
def xid(facts: HostFacts) -> Found:
    found = _events(facts, "xid", "sxid")
    bad = (_result(one) for one in found if meaning(one).is_fault)
    others = sorted({str(one.number) for one in found})
    return _judged(facts, bad, f"only Xids of programs: {', '.join(others)}" if others else "no Xid")


@judge("kernel.nic")
def nic(facts: HostFacts) -> Found:
    return _judged(facts, map(_result, _events(facts, "nic")), "no fault of a NIC's driver")


@judge("kernel.link")
def link(facts: HostFacts) -> Found:
    """Judge links that flap; those of NICs without RDMA are of less weight where others have it."""
    fast = {one.pci_address for one in facts.rdma_devices}
    many = [one for one in _events(facts, "link") if one.count >= FLAPS]
    bad = (_result(one, fails=not fast or one.device in fast) for one in many)
    return _judged(facts, bad, f"no link went down {FLAPS} times")


@judge("kernel.pcie")
def pcie(facts: HostFacts) -> Found:
    """Judge PCI Express: a fatal error fails where it is that of a GPU, a NIC or a bridge above one."""
    found = _events(facts, "pcie")
    bad = (
        _result(one, fails=meaning(one).is_fault and facts.pci_device(one.device) is not None)
        for one in found
        if is_notable(one)
    )
    return _judged(facts, bad, "no error that was not corrected")


@judge("kernel.oom")
def memory(facts: HostFacts) -> Found:
    return _judged(facts, map(_result, _events(facts, "oom")), "memory did not run out")


# --- while a job runs -------------------------------------------------------------------------------------


def counted(errors: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, CheckResult]]:
    """Yield (port, warning) for each row of errors that grew too much: ``mlx5_0/1`` → counter → growth."""
    for port, grown in sorted(errors.items()):
        packets = sum(grown.get(name, 0) for name in PACKETS)
        for id, row in rows()["RDMA counters"].items():
            names = [name for name in row.get("counters", ()) if grown.get(name)]
            limit = max(row.get("new", 0), row.get("share", 0.0) * packets)
            if names and not row.get("second") and sum(grown[name] for name in names) > limit:
                values = ", ".join(f"{name} {grown[name]}" for name in names)
                seen = f"{port} has counted {values} since the job began"
                yield port, warned(seen, id=id, subject=port, remedy=row["remedy"])

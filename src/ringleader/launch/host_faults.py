"""What the kernels of a job's hosts said while it ran, and errors that their RDMA ports counted. Pure.

Agents report it (``agents/kernel_log``), ``fabric/checks/kernel_log`` knows what it means; here each thing is
told once, and quoted where a rank fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringleader.dataclass_json import decoded
from ringleader.fabric.checks.kernel_log import counted, meaning, sentence
from ringleader.fabric.facts import KernelEvent
from ringleader.launch.outcome import Exit, HostFault

MOST = 200
"""Faults of a job that are kept."""
MOST_QUOTED = 3


class HostFaults:
    """All of one start of a job."""

    def __init__(self) -> None:
        """Begin with none."""
        self.found: list[HostFault] = []

    def take(self, host: str, words: Mapping[str, Any], at: float) -> list[HostFault]:
        """Take what an agent says of its host; return what is new."""
        new: list[HostFault] = []
        for values in words.get("events") or ():
            event, wrong = decoded(KernelEvent, values)
            if event is None or wrong:
                continue
            meant = meaning(event)
            new.append(
                HostFault(
                    at=at,
                    host=host,
                    kind=f"kernel.{event.kind}",
                    number=event.number,
                    device=event.device,
                    gpu=event.gpu,
                    text=sentence(event),
                    remedy=meant.remedy,
                    is_fault=meant.is_fault or event.kind == "link",
                )
            )
        for port, one in counted(words.get("errors") or {}):
            new.append(
                HostFault(
                    at=at,
                    host=host,
                    kind=one.id,
                    device=port,
                    text=one.seen,
                    remedy=one.remedy,
                    is_fault=True,
                )
            )
        known = {(one.host, one.kind, one.number, one.device) for one in self.found}
        new = [one for one in new if (one.host, one.kind, one.number, one.device) not in known]
        self.found += (new := new[: MOST - len(self.found)])
        return new

    def latest(self, host: str) -> str:
        """Return what the kernel of a host said last of a device that is not well; empty: nothing."""
        found = [one.text for one in self.found if one.host == host and one.is_fault]
        return f"the kernel of {host}: {found[-1]}" if found else ""

    def quoted(self, ended: Exit, gpu: str | None) -> Exit:
        """Return how a job ended with what the kernel said, in its reason.

        Of the first failed rank's host and GPU (``gpu``: its id in the plan) before anything else; a process
        that was killed for lack of memory only where this rank was.
        """
        first = ended.first_failure
        if not ended.exit_code or not self.found:
            return ended
        killed = first is not None and first.signal == 9

        def rank(one: HostFault) -> int:
            here = first is not None and one.host == first.host
            others = one.gpu is not None and gpu is not None and gpu.isdigit() and int(gpu) != one.gpu
            if one.kind == "kernel.oom":
                return 0 if here and killed else 3
            return (0 if here and not others else 1) if one.is_fault or here else 3

        ordered = sorted((one for one in self.found if rank(one) < 3), key=lambda one: (rank(one), one.at))
        lines = [f"\n    {one}" for one in ordered[:MOST_QUOTED]]
        return replace(ended, reason=ended.reason + "".join(lines))

"""What the kernels of a job's hosts said while it ran, and errors that their RDMA ports counted. Pure.

Agents report it (``agents/kernel_log``), ``fabric/checks/kernel_log`` knows what it means; here each thing is
reported once, and quoted where a rank fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringleader.dataclass_json import decoded
from ringleader.fabric.checks.kernel_log import OWN_PORT, counted, is_notable, meaning, sentence
from ringleader.fabric.facts import KernelEvent
from ringleader.launch.outcome import Exit, HostFault

MOST = 200
"""Faults of a job that are kept; of what is none, half as many, the last."""
MOST_QUOTED = 3
NEAR = 30.0
"""Seconds between a rank's end and a process that was killed for lack of memory: it may be the rank's."""


class HostFaults:
    """All of one start of a job."""

    def __init__(self) -> None:
        """Begin with none."""
        self.found: list[HostFault] = []
        self._counts: dict[tuple[Any, ...], int] = {}

    def take(self, host: str, words: Mapping[str, Any], at: float) -> list[HostFault]:
        """Take what an agent says of its host; return what is new."""
        new: list[HostFault] = []
        for values in words.get("events") or ():
            event, wrong = decoded(KernelEvent, values)
            if event is None or wrong:
                continue
            if event.kind in ("link", "pcie"):  # of which the number decides
                key = host, event.kind, event.device, is_notable(replace(event, count=0))
                self._counts[key] = event.count + self._counts.get(key, 0)
                event = replace(event, count=self._counts[key])
            if not is_notable(event):
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
                    is_fault=meant.is_fault,
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
                    is_fault=one.id in OWN_PORT,
                )
            )
        known = {_key(one) for one in self.found}
        new = [one for one in new if _key(one) not in known]
        is_full = sum(one.is_fault for one in self.found) >= MOST
        self.found += (new := [one for one in new if not (one.is_fault and is_full)])
        for mild in [one for one in self.found if not one.is_fault][: -MOST // 2]:
            self.found.remove(mild)
        return new

    def latest(self, host: str) -> str:
        """Return what the kernel of a host said last of a device that is not well; empty: nothing."""
        found = [one.text for one in self.found if one.host == host and one.is_fault]
        return f"the kernel of {host}: {found[-1]}" if found else ""

    def quoted(self, ended: Exit, gpu: str | None) -> Exit:
        """Return how a job ended with what the kernel said, in its reason.

        Faults come first, and of these the one of the first failed rank's GPU (``gpu``: its id in the plan),
        then of its host's NICs, of the host, of others; of equal ones the one nearest to the failure. A
        process that was killed for lack of memory counts where and when this rank was killed.
        """
        first = ended.first_failure
        if not ended.exit_code or not self.found:
            return ended

        def rank(one: HostFault) -> tuple[bool, int, float] | None:
            here, away = False, 0.0
            if first is not None:
                here, away = one.host == first.host, abs(one.at - first.at)
            if one.kind == "kernel.oom":
                killed = first is not None and first.signal == 9
                return (False, 0, away) if here and killed and away <= NEAR else None
            if not here:
                return (False, 3, away) if one.is_fault else None
            others = one.gpu is not None and gpu is not None and gpu.isdigit() and int(gpu) != one.gpu
            is_gpu = one.gpu is not None or one.kind == "kernel.xid"
            return not one.is_fault, 2 if others else 0 if is_gpu else 1, away

        ranked = [(place, one) for one in self.found if (place := rank(one)) is not None]
        lines = [f"\n    {one}" for _, one in sorted(ranked, key=lambda pair: pair[0])[:MOST_QUOTED]]
        return replace(ended, reason=ended.reason + "".join(lines))


def _key(one: HostFault) -> tuple[Any, ...]:
    """Return what is reported once: a fault also after what was none of the same device."""
    return one.host, one.kind, one.number, one.device, one.is_fault

"""``lab status``: how each host is, asked of the kernel and of its sshd."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ringleader.lab import kernel_state
from ringleader.lab.saved_state import Lab, LabHost
from ringleader.lab.spec import format_rate
from ringleader.lab.sshd_check import answers


@dataclass(frozen=True, kw_only=True)
class HostStatus:
    """One line of ``lab status``."""

    host: LabHost
    state: str
    """``up``, ``cut`` (its link carries nothing), ``dead`` (nothing runs there) or ``missing``."""
    rate: str
    """Of its link, as the kernel shapes it now; ``in`` and ``out`` where they differ; ``-``: none."""
    sshd: bool
    """True where an sshd answers the head."""


def _rates(into: int, out_of: int) -> str:
    texts = [format_rate(rate) if rate else "-" for rate in (into, out_of)]
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} in, {texts[1]} out"


def status(lab: Lab) -> tuple[HostStatus, ...]:
    """Look at every host, side by side."""
    shapers = kernel_state.shapers()
    living = kernel_state.inside(tuple(host.namespace for host in lab.hosts))

    def look(host: LabHost) -> HostStatus:
        shaper = shapers.get(lab.spec.link(lab.number(host)))
        if shaper is None or not (kernel_state.NAMESPACES / host.namespace).exists():
            return HostStatus(host=host, state="missing", rate="-", sshd=False)
        alive = any(process.first for process in living[host.namespace])
        word = "dead" if not alive else "cut" if shaper.kind == "blackhole" else "up"
        rate = _rates(shaper.rate, kernel_state.sending_rate(host.namespace))
        return HostStatus(host=host, state=word, rate=rate, sshd=word == "up" and answers(lab, host))

    with ThreadPoolExecutor(max_workers=16) as pool:
        return tuple(pool.map(look, lab.hosts))

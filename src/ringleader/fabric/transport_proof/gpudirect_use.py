"""Whether the NICs read and wrote the memory of the GPUs (GPUDirect RDMA), by what NCCL wrote.

Counters cannot tell: the same bytes cross the port when they are copied through the host's memory first.
"""

from __future__ import annotations

from ringleader.fabric.transport_proof import nccl_log
from ringleader.fabric.transport_proof.evidence import HostEvidence
from ringleader.fabric.transport_proof.proof import GpuDirectUse


def gpudirect_use(host: HostEvidence) -> GpuDirectUse:
    """Return whether a host's NICs reached the memory of its GPUs."""
    if host.gpus == 0:
        return GpuDirectUse(evidence=("its ranks use no GPU",))
    logs = tuple(map(nccl_log.parsed, host.nccl))
    return _by_channels(logs) or _by_other_lines(logs) or GpuDirectUse(evidence=_nothing(host))


def _by_channels(logs: tuple[nccl_log.NcclLog, ...]) -> GpuDirectUse | None:
    network = [one for log in logs for one in log.channels if one.transport in ("NET", "COLLNET")]
    if not network:
        return None
    receiving = [one for one in network if one.direction == "receive"] or network
    direct = [one for one in receiving if one.gpudirect]
    counted = f"{len(direct)} of {len(receiving)} paths on which NCCL receives end in /GDRDMA"
    if not direct:
        devices = [one for log in logs for one in log.gpudirect_devices]
        reasons = [f"{name}: {why}" for name, enabled, why in devices if why and not enabled]
        return GpuDirectUse(used=False, evidence=(f"{counted}: {network[0].path}", *dict.fromkeys(reasons)))
    sending = [one for one in network if one.direction == "send"]
    words = [counted]
    if len(direct) < len(receiving):
        return GpuDirectUse(used=None, evidence=(*words, "some ranks use it and some do not"))
    if sending and not any(one.gpudirect for one in sending):
        words.append("what is sent is copied through the host, as NCCL does by default without NVLink")
    return GpuDirectUse(used=True, evidence=tuple(words))


def _by_other_lines(logs: tuple[nccl_log.NcclLog, ...]) -> GpuDirectUse | None:
    said = {log.gpudirect_everywhere for log in logs} - {None}
    if len(said) == 1:
        used = said.pop()
        return GpuDirectUse(used=used, evidence=(f"NCCL says: Connected all rings, GDR {int(bool(used))}",))
    return None


def _nothing(host: HostEvidence) -> tuple[str, ...]:
    if host.traffic is not None and not {"nccl"} & set(host.traffic.libraries):
        return ("no library that reads GPUs' memory moved bytes between hosts",)
    return ("no log says whether NICs reached the memory of GPUs",)

"""Whether the NICs read and wrote the memory of the GPUs (GPUDirect RDMA), by what NCCL and UCX wrote.

Counters cannot tell: the same bytes cross the port when they are copied through the host's memory first.
"""

from __future__ import annotations

from ringleader.fabric.transport_proof import nccl_log, ucx_log
from ringleader.fabric.transport_proof.evidence import HostEvidence
from ringleader.fabric.transport_proof.proof import GpuDirectUse


def gpudirect_use(host: HostEvidence) -> GpuDirectUse:
    """Return whether a host's NICs reached the memory of its GPUs."""
    if host.gpus == 0:
        return GpuDirectUse(evidence=("its ranks use no GPU",))
    logs = tuple(map(nccl_log.parsed, host.nccl))
    return (
        _by_channels(logs) or _by_other_lines(logs) or _by_ucx(host) or GpuDirectUse(evidence=_nothing(host))
    )


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


def _by_ucx(host: HostEvidence) -> GpuDirectUse | None:
    rows = [
        row
        for log in map(ucx_log.parsed, host.ucx)
        for row in log.rows
        if row.place in ("", "inter-node") and row.memory.startswith(("cuda", "rocm")) and row.last is None
    ]
    network = [row for row in rows if any(one in row.transports for one in ("rc_", "dc_", "ud_", "srd"))]
    if not network:
        return None
    direct = [row for row in network if "zero-copy" in row.protocol and "cuda_copy" not in row.protocol]
    row = (direct or network)[0]
    words = f"UCX moves large messages from {row.memory} by {row.protocol} on {row.transports}"
    return GpuDirectUse(used=len(direct) == len(network), evidence=(words,))


def _nothing(host: HostEvidence) -> tuple[str, ...]:
    if host.traffic is not None and not {"nccl"} & set(host.traffic.libraries):
        return ("no library that reads GPUs' memory moved bytes between hosts",)
    return ("no log says whether NICs reached the memory of GPUs",)

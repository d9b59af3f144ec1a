"""What only NVIDIA's management library knows of GPUs: memory, errors, throttling, NVLink, P2P.

libnvidia-ml.so.1 comes with the driver; it is loaded only where there is one. Each question may fail alone
(older drivers, virtual GPUs, missing rights): its answer is then ``None``. Of load: `agents.gpu_samples`.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ringleader.agents.gpu_samples import (
    LIBRARY,
    SM_CLOCK,
    SUCCESS,
    Memory,
    NvmlSession,
    nvml_error,
    thousandth,
)
from ringleader.fabric.facts import Gpu

MOST_NVLINKS = 18
P2P_READ = 0
P2P_STATES = (
    "ok",
    "chipset not supported",
    "GPU not supported",
    "IOH topology not supported",
    "disabled by regkey",
    "not supported",
    "unknown",
)
"""nvmlGpuP2PStatus_t."""
FABRIC_STATES = {1: "not running", 2: "starting", 3: "running"}
"""nvmlGpuFabricState: not started, in progress, completed."""
UNCORRECTED, VOLATILE = 1, 0


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


class FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_t."""

    _fields_ = (
        ("cluster_uuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("clique_id", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    )


@dataclass(frozen=True, kw_only=True)
class Nvml:
    """What NVML told."""

    state: str
    """``loaded``, or why not."""
    driver_version: str = ""
    fabric_manager: str = ""
    """``running`` where the GPUs are joined to their NVLink fabric; empty: they have none, or do not tell."""
    gpus: tuple[Gpu, ...] = ()


def read(gpus: Sequence[Gpu], library: Any = None) -> Nvml:
    """Ask NVML about the GPUs that it may open; ``gpus`` are those that sysfs knows.

    GPUs that NVML does not open follow those that it does, with what sysfs knows of them. ``library``: what
    answers, in place of the real one.
    """
    if library is None:
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            return Nvml(state=str(error), gpus=tuple(gpus))
    try:
        result: int = library.nvmlInit_v2()
    except AttributeError:
        return Nvml(state=f"{LIBRARY} has no nvmlInit_v2", gpus=tuple(gpus))
    if result != SUCCESS:
        return Nvml(state=nvml_error(library, result), gpus=tuple(gpus))
    try:
        return _read(NvmlSession(library), gpus)
    finally:
        library.nvmlShutdown()


def _read(session: NvmlSession, gpus: Sequence[Gpu]) -> Nvml:
    handles = []
    for index in range(session.number("nvmlDeviceGetCount_v2") or 0):
        handle = ctypes.c_void_p()
        if session.ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle)):
            handles.append((index, handle))
    known = {one.pci_address: one for one in gpus}
    found = [_gpu(session, index, handle, known) for index, handle in handles]
    for (index, handle), (position, one) in zip(handles, enumerate(found), strict=True):
        others = {number: other for number, other in handles if number != index}
        found[position] = dataclasses.replace(one, p2p=_p2p(session, handle, others))
    opened = {one.pci_address for one in found}
    rest = [one for one in gpus if one.pci_address not in opened]
    last = max((index for index, _ in handles), default=-1)
    found += [dataclasses.replace(one, index=last + 1 + more) for more, one in enumerate(rest)]
    return Nvml(
        state="loaded",
        driver_version=session.text("nvmlSystemGetDriverVersion"),
        fabric_manager=_fabric(session, [handle for _, handle in handles]),
        gpus=tuple(found),
    )


def _gpu(session: NvmlSession, index: int, handle: Any, known: dict[str, Gpu]) -> Gpu:
    pci = PciInfo()
    address = ""
    if session.ask("nvmlDeviceGetPciInfo_v3|nvmlDeviceGetPciInfo_v2", handle, ctypes.byref(pci)):
        # Eight digits of domain here, four in sysfs.
        domain, _, rest = pci.bus_id.decode("ascii", "replace").lower().partition(":")
        address = f"{domain[-4:]}:{rest}"
    memory, bar1 = Memory(), Memory()
    base = known.get(address) or Gpu(index=index, pci_address=address, vendor=0x10DE, driver="nvidia")
    has_memory = session.ask("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    has_bar1 = session.ask("nvmlDeviceGetBAR1MemoryInfo", handle, ctypes.byref(bar1))
    throttling = "nvmlDeviceGetCurrentClocksEventReasons|nvmlDeviceGetCurrentClocksThrottleReasons"
    links = _nvlinks(session, handle)
    persistence = session.number("nvmlDeviceGetPersistenceMode", handle)
    rows = _remapped_rows(session, handle)
    return dataclasses.replace(
        base,
        index=index,
        name=session.text("nvmlDeviceGetName", handle) or base.name,
        uuid=session.text("nvmlDeviceGetUUID", handle) or base.uuid,
        memory=int(memory.total) if has_memory else None,
        bar1_memory=int(bar1.total) if has_bar1 else None,
        throttle_reasons=session.number(throttling, handle, kind=ctypes.c_ulonglong),
        uncorrected_errors=session.number(
            "nvmlDeviceGetTotalEccErrors",
            handle,
            ctypes.c_int(UNCORRECTED),
            ctypes.c_int(VOLATILE),
            kind=ctypes.c_ulonglong,
        ),
        remap_pending=rows[2],
        remap_failed=rows[3],
        power_limit=thousandth(session.number("nvmlDeviceGetEnforcedPowerLimit", handle)),
        power_limit_default=thousandth(session.number("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        clock_limit=session.number("nvmlDeviceGetApplicationsClock", handle, ctypes.c_int(SM_CLOCK)),
        clock_limit_default=session.number(
            "nvmlDeviceGetDefaultApplicationsClock", handle, ctypes.c_int(SM_CLOCK)
        ),
        mig=_mig(session, handle),
        persistence=None if persistence is None else bool(persistence),
        nvlinks_active=sum(links) if links else None,
        nvlinks=len(links) or None,
    )


def _remapped_rows(session: NvmlSession, handle: Any) -> list[bool | None]:
    """Return whether rows are remapped for corrected or uncorrected errors, are pending, have failed."""
    answers = [ctypes.c_uint() for _ in range(4)]
    asked = session.ask("nvmlDeviceGetRemappedRows", handle, *(ctypes.byref(one) for one in answers))
    return [bool(one.value) if asked else None for one in answers]


def _mig(session: NvmlSession, handle: Any) -> bool | None:
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    asked = session.ask("nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending))
    return bool(current.value) if asked else None


def _nvlinks(session: NvmlSession, handle: Any) -> list[bool]:
    """Return for each link that the GPU has whether it is up."""
    states = (
        session.number("nvmlDeviceGetNvLinkState", handle, ctypes.c_uint(link))
        for link in range(MOST_NVLINKS)
    )
    return [bool(one) for one in states if one is not None]


def _p2p(session: NvmlSession, handle: Any, others: dict[int, Any]) -> dict[int, str]:
    found = {}
    for index, other in others.items():
        state = session.number("nvmlDeviceGetP2PStatus", handle, other, ctypes.c_int(P2P_READ))
        if state is not None:
            found[index] = P2P_STATES[state] if 0 <= state < len(P2P_STATES) else "unknown"
    return found


def _fabric(session: NvmlSession, handles: list[Any]) -> str:
    """Return the worst state of all GPUs."""
    states = []
    for handle in handles:
        info = FabricInfo()
        if session.ask("nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(info)) and info.state:
            states.append(int(info.state))
    return FABRIC_STATES.get(min(states), "unknown") if states else ""

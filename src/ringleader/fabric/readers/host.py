"""All facts of one host, each area in its own thread: one that hangs does not stop the others."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ringleader.agents import hardware, host_facts_script, kernel_log, rank_identity, traffic_counters
from ringleader.fabric.facts import (
    TOO_LATE,
    UNLIMITED,
    Clock,
    Gpu,
    HostFacts,
    KernelEvent,
    KernelLog,
    NvidiaDriver,
    Process,
    Software,
    Unreadable,
)
from ringleader.fabric.readers import (
    gpus,
    kernel,
    libraries,
    mpi_installations,
    net_devices,
    pci_devices,
    process_limits,
    rdma_devices,
    software,
)
from ringleader.fabric.readers.sysfs_files import Files

SECONDS = 5.0
"""What all reading may take; what does not exist by then is left out, and named."""
NVML_SILENT = "it did not answer in time"
AREA_FAULT = "a fault in the reader: "
"""How the reason starts where a reader itself failed."""

Fields = Mapping[str, Any]
Area = Callable[[Files], Fields]


def read_host(
    root: Path = Path("/"),
    environ: Mapping[str, str] = os.environ,
    *,
    ipv4: Callable[[], list[tuple[str, str]]] | None = None,
    areas: Collection[str] = (),
    seconds: float = SECONDS,
    log: str | None = None,
) -> HostFacts:
    """Return the facts of the host below ``root``, as a process with these variables sees it.

    ``areas``: those that are wanted (``RDMA devices``); none named: all of them. ``ipv4`` gives pairs of
    interface and address; by default the kernel is asked, and below another root there are none. ``seconds``
    bounds the whole. ``log``: file of the kernel's log; empty: where it usually is; ``None``: it is not read.
    Nothing raises: ``unreadable`` names what is missing, and why.
    """
    start = time.monotonic()
    deadline = start + seconds
    replaced = os.fspath(root) != "/"
    every = _areas(dict(environ), ipv4 or (list if replaced else rank_identity.ipv4), log)
    readings = [
        _Reading(name, area, Files(root, deadline=deadline))
        for name, area in every.items()
        if not areas or name in areas
    ]
    for reading in readings:
        reading.start()
    for reading in readings:
        # Half a second more: a reader notices the deadline itself, at its next file.
        reading.join(max(0.0, deadline + 0.5 - time.monotonic()))
    fields: dict[str, Any] = {
        "hostname": "",
        "clock": Clock(read_at=time.time()),
        "process": Process(uid=UNLIMITED, capabilities=0, bounding_capabilities=0, limits={}),
        "software": Software(python="", executable="", ringleader=""),
    }
    unreadable: list[Unreadable] = []
    for reading in readings:
        found, notes = reading.outcome()
        fields.update(found)
        unreadable.extend(notes)
    return HostFacts(
        **fields,
        unreadable=tuple(dict.fromkeys(unreadable)),
        seconds=round(time.monotonic() - start, 3),
    )


def _areas(
    environ: Mapping[str, str], ipv4: Callable[[], list[tuple[str, str]]], log: str | None = None
) -> dict[str, Area]:
    """Return what is read of each area, as fields of HostFacts."""
    return {
        "the clock": lambda files: {"clock": kernel.read_clock(files)},
        "the system": lambda files: kernel.read(files, environ),
        "the process": lambda files: {"process": process_limits.read(files)},
        "control groups": lambda files: {"control_group": process_limits.read_groups(files)},
        "memory": kernel.read_memory,
        "NUMA nodes": lambda files: {"numa_nodes": kernel.read_nodes(files)},
        "RDMA devices": rdma_devices.read,
        "network interfaces": lambda files: _net_devices(files, ipv4),
        "PCI devices": lambda files: {"pci_devices": pci_devices.read(files)},
        "GPUs": _gpus,
        "NVML": _nvml,  # after GPUs, whose fields it replaces
        "software": lambda files: {"software": _software(files, environ)},
        "libraries": lambda files: _libraries(files, environ),
        "variables": lambda files: {
            "environment": process_limits.variables(environ),
            "nccl_files": process_limits.nccl_files(files, environ),
        },
        "the kernel's log": lambda files: {} if log is None else {"kernel_log": read_kernel_log(files, log)},
    }


class _Reading:
    """One area, read in a thread."""

    def __init__(self, name: str, area: Area, files: Files) -> None:
        self._name = name
        self._area = area
        self._files = files
        self._fields: Fields | None = None
        self._fault = ""
        # A daemon: a file of a device that hangs must not keep the process alive.
        self._thread = threading.Thread(target=self._read, name=f"facts of {name}", daemon=True)
        self.start = self._thread.start
        self.join = self._thread.join

    def _read(self) -> None:
        try:
            self._fields = self._area(self._files)
        except Exception as error:  # other areas must be read, and this one be named
            self._fault = f"{AREA_FAULT}{type(error).__name__}: {error}"

    def outcome(self) -> tuple[Fields, tuple[Unreadable, ...]]:
        """Return what was found by now, and what was not readable."""
        fields, notes = self._fields, self._files.unreadable
        late = Unreadable(path=self._name, reason=TOO_LATE)
        if fields is not None:
            return fields, (late, *notes) if self._files.is_cut_short else notes
        fault = Unreadable(path=self._name, reason=self._fault)
        return {}, (*notes, fault) if self._fault else (late, *notes)


def _net_devices(files: Files, ipv4: Callable[[], list[tuple[str, str]]]) -> Fields:
    addresses = host_facts_script.interfaces(files.root, ipv4)
    if files.replaced:
        return {"net_devices": net_devices.read(files, addresses)}
    of_driver = traffic_counters.driver_statistics
    return {"net_devices": net_devices.read(files, addresses, of_driver, net_devices.bridging_of)}


def _software(files: Files, environ: Mapping[str, str]) -> Software:
    found = dataclasses.replace(
        software.read(files, environ),
        mpis=mpi_installations.read(files, environ),
        nccl=software.nccl_libraries(files, environ),
    )
    if files.is_cut_short:  # a part of the packages would look as if the others were not installed
        return dataclasses.replace(found, packages={}, mpis=(), nccl=())
    return found


def _libraries(files: Files, environ: Mapping[str, str]) -> Fields:
    found = libraries.read(files, environ)
    return {"libraries": found, "verbs_providers": libraries.verbs_providers(files, found)}


def read_kernel_log(files: Files, path: str) -> KernelLog:
    """Return what the kernel said lately; ``path``: the only file that is to be read, where one is named."""
    root = os.fspath(files.root).rstrip("/")
    log, source, why = kernel_log.opened(path, root)
    lines: list[str] = []
    if log is not None:
        lines = log.lines(at_end=True)
        log.close()
    elif not path and not files.replaced:
        for argv in kernel_log.PROGRAMS:
            if (text := hardware.output(list(argv))).startswith("["):  # and no message of its own
                lines, source, why = text.splitlines(), argv[0], ""
                break
    now = time.monotonic()
    events = kernel_log.events_in(lines, now, time.time(), since=now - kernel_log.DAY)
    found = kernel_log.name_devices(events, root)
    return KernelLog(source=source, why=why, events=tuple(KernelEvent(**one) for one in found))


def _gpus(files: Files) -> Fields:
    found, driver = gpus.read(files)
    if _is_nvml_here(files, found, driver):
        driver = dataclasses.replace(driver, nvml=NVML_SILENT)  # until it answers
    return {"gpus": found, "nvidia": driver}


def _nvml(files: Files) -> Fields:
    """Return GPUs and driver with what NVML adds; it can take longer than all others together."""
    found, driver = gpus.read(files)
    if not _is_nvml_here(files, found, driver):
        return {}
    from ringleader.fabric.readers import nvml  # ctypes takes a while

    told = nvml.read(found)
    driver = dataclasses.replace(
        driver,
        nvml=told.state,
        version=driver.version or told.driver_version,
        fabric_manager=told.fabric_manager or driver.fabric_manager,
    )
    return {"gpus": told.gpus, "nvidia": driver}


def _is_nvml_here(files: Files, found: tuple[Gpu, ...], driver: NvidiaDriver) -> bool:
    return not files.replaced and bool(driver.version or any(one.driver == "nvidia" for one in found))


# --- for the launcher -------------------------------------------------------------------------------------


def without_measurements(facts: HostFacts) -> HostFacts:
    """Return the facts without what no setting follows from: counters, packages, programs, most notes."""
    devices = tuple(
        dataclasses.replace(one, ports=tuple(dataclasses.replace(port, counters={}) for port in one.ports))
        for one in facts.rdma_devices
    )
    return dataclasses.replace(
        facts,
        rdma_devices=devices,
        net_devices=tuple(dataclasses.replace(one, statistics={}) for one in facts.net_devices),
        software=dataclasses.replace(facts.software, packages={}, programs={}),
        sysctls={},
        modules=(),
        unreadable=tuple(one for one in facts.unreadable if one.reason == TOO_LATE),
    )


def read_for_settings(root: str, patience: float) -> HostFacts:
    """Return what settings of transports follow from on the host below ``root``.

    ``agents/host_facts_script.py`` does this in another process, on hosts that have an RDMA device.
    ``patience``: see ``Job.patience``.
    """
    return without_measurements(read_host(Path(root), seconds=SECONDS * patience))

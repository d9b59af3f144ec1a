"""GPUs by /sys/bus/pci, and what the NVIDIA driver reports in /proc; NVML adds to it (``nvml.py``)."""

from __future__ import annotations

import dataclasses
import re

from ringleader.fabric.facts import Gpu, NvidiaDriver
from ringleader.fabric.readers.sysfs_files import PCI_ADDRESS, Files

DEVICES = "sys/bus/pci/devices"
DRIVER = "proc/driver/nvidia"
NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086
DISPLAYS = (0x0300, 0x0302, 0x0380)
ACCELERATORS = (0x1200,)
NVSWITCH = 0x0680
FABRIC_MANAGER = "run/nvidia-fabricmanager"


def read(files: Files) -> tuple[tuple[Gpu, ...], NvidiaDriver]:
    """Return the GPUs, those that this process may use first, in the order of PCI addresses."""
    classes = {
        name: files.number(f"{DEVICES}/{name}/class") or 0
        for name in files.names(DEVICES)
        if PCI_ADDRESS.fullmatch(name)
    }
    told = {name.lower() for name in files.names(f"{DRIVER}/gpus")}
    found = {name for name, code in classes.items() if _is_gpu(files, name, code)} | told
    every = [_gpu(files, name) for name in sorted(found)]
    # NVML numbers those only that it may open.
    every.sort(key=lambda one: not one.device_file)
    gpus = tuple(dataclasses.replace(one, index=index) for index, one in enumerate(every))
    has_switch = files.names("proc/driver/nvidia-nvswitch/devices") or any(
        code >> 8 == NVSWITCH and files.number(f"{DEVICES}/{name}/vendor") == NVIDIA
        for name, code in classes.items()
    )
    return gpus, _driver(files, has_switch=bool(has_switch))


def _is_gpu(files: Files, name: str, code: int) -> bool:
    if code >> 8 not in (*DISPLAYS, *ACCELERATORS):
        return False
    vendor = files.number(f"{DEVICES}/{name}/vendor")
    # What Intel has on the root bus is the processor's own display.
    return vendor in (NVIDIA, AMD) or (vendor == INTEL and not name.startswith("0000:00:"))


def _gpu(files: Files, name: str) -> Gpu:
    place = f"{DEVICES}/{name}"
    told = files.text(f"{DRIVER}/gpus/{name}/information")
    fields = dict(re.findall(r"^([\w ]+?):[ \t]+(\S.*)$", told, re.MULTILINE))
    minor = fields.get("Device Minor", "")
    return Gpu(
        index=0,
        pci_address=name,
        name=fields.get("Model", ""),
        vendor=files.number(f"{place}/vendor") or (NVIDIA if told else None),
        driver=files.link_name(f"{place}/driver") or ("nvidia" if told else ""),
        uuid=fields.get("GPU UUID", ""),
        device_file=_device_file(files, [f"nvidia{minor}"] if minor.isdecimal() else [], place),
    )


def _device_file(files: Files, names: list[str], place: str) -> str:
    renders = [f"dri/{one}" for one in files.names(f"{place}/drm") if one.startswith("renderD")]
    return next((f"/dev/{one}" for one in (*names, *renders) if files.exists(f"dev/{one}")), "")


def _driver(files: Files, *, has_switch: bool) -> NvidiaDriver:
    text = files.text(f"{DRIVER}/version")
    version = re.search(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", f"{text} ", re.MULTILINE)
    return NvidiaDriver(
        version=version[1] if version else files.text("sys/module/nvidia/version"),
        open_modules="Open Kernel Module" in text if version else None,
        fabric_manager=_fabric_manager(files) if has_switch else "",
        fabric_manager_version=_fabric_manager_version(files) if has_switch else "",
    )


def _fabric_manager_version(files: Files) -> str:
    """Return the version of the daemon's package, whose name may have the driver's first number."""
    packages = files.text("var/lib/dpkg/status", limit=32 << 20).split("\n\n")
    name = re.compile(r"^Package: nvidia-fabricmanager(?:-\d+)?$", re.MULTILINE)
    found = [one for one in packages if name.search(one) and "\nStatus: install ok installed" in f"\n{one}"]
    version = re.search(r"^Version: (?:\d+:)?([\d.]+)", found[0], re.MULTILINE) if found else None
    return version[1] if version else ""


def _fabric_manager(files: Files) -> str:
    """Return what is known of the daemon: its socket, or its process, which a container does not see."""
    if files.exists(f"{FABRIC_MANAGER}/socket"):
        return "running"
    pid = files.text(f"{FABRIC_MANAGER}/nv-fabricmanager.pid")
    if pid.isdecimal() and files.text(f"proc/{pid}/comm") == "nv-fabricmanager":
        return "running"
    return "not running" if files.text("proc/1/comm") in ("systemd", "init") else "unknown"

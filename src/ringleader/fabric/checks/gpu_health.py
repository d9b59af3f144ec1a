"""Checks of GPUs' health: clocks, memory errors, persistence, NVSwitch's manager. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import NVIDIA, gpu_name, nvidia_gpus
from ringleader.fabric.facts import HostFacts

_check = partial(check, group="GPUs")

SLOWED = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "thermal slowdown",
    0x80: "power brake",
}
"""NVML's reasons for lower clocks that are not normal work (nvmlClocksEventReasons)."""


@_check(
    "gpu.throttle",
    "The GPUs are not slowed down",
    reads="NVML: reasons of the clocks",
    why="one GPU that is too hot or lacks power slows every rank down",
    remedy="look at fans, temperature and power supply: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
    passes="no slowdown by temperature, hardware or power brake",
    warns="one of them",
    skips="NVML tells nothing of it",
    source="NVML, nvmlClocksEventReasons: bits 0x8, 0x20, 0x40, 0x80",
    needs=NVIDIA,
)
def throttle(facts: HostFacts) -> Iterator[CheckResult]:
    known = [one for one in nvidia_gpus(facts) if one.throttle_reasons is not None]
    bad = 0
    for one in known:
        reasons = [name for bit, name in SLOWED.items() if (one.throttle_reasons or 0) & bit]
        if reasons:
            bad += 1
            yield warned(", ".join(reasons), subject=gpu_name(one))
    if not known:
        yield skipped("NVML tells nothing of it")
    elif not bad:
        yield passed(f"{len(known)} are not")


@_check(
    "gpu.ecc",
    "The GPUs' memory made no error",
    reads="NVML: volatile uncorrected ECC errors",
    why="an uncorrected error ends the program that used the memory",
    remedy="reset the GPU (nvidia-smi --gpu-reset); if it comes again, replace it",
    passes="none since the driver was loaded",
    fails="some",
    skips="NVML tells nothing of it",
    needs=NVIDIA,
)
def ecc(facts: HostFacts) -> Iterator[CheckResult]:
    known = [one for one in nvidia_gpus(facts) if one.uncorrected_errors is not None]
    bad = [one for one in known if one.uncorrected_errors]
    for one in bad:
        yield failed(f"{one.uncorrected_errors} uncorrected", expected="0", subject=gpu_name(one))
    if not known:
        yield skipped("NVML tells nothing of it")
    elif not bad:
        yield passed(f"none on {len(known)}")


@_check(
    "gpu.remap",
    "No row of memory waits to be remapped",
    reads="NVML: remapped rows, pending",
    why="a row that is broken is replaced at the next reset; until then it may fail again",
    remedy="drain the host and reset the GPU: nvidia-smi --gpu-reset",
    passes="none is pending",
    fails="one is",
    skips="NVML tells nothing of it",
    source="NVIDIA, GPU memory error management: row remapping",
    needs=NVIDIA,
)
def remap(facts: HostFacts) -> Iterator[CheckResult]:
    known = [one for one in nvidia_gpus(facts) if one.remap_pending is not None]
    bad = [one for one in known if one.remap_pending]
    for one in bad:
        yield failed("a remapping is pending", subject=gpu_name(one))
    if not known:
        yield skipped("NVML tells nothing of it")
    elif not bad:
        yield passed(f"none on {len(known)}")


@_check(
    "gpu.persistence",
    "The driver stays loaded",
    reads="NVML: persistence mode",
    why="otherwise the driver sets each GPU up again for every job, seconds each, and errors' counts are"
    " lost",
    remedy="start nvidia-persistenced, or nvidia-smi -pm 1",
    passes="persistence mode is on",
    warns="it is off",
    skips="NVML tells nothing of it",
    source="NVIDIA, Driver Persistence",
    needs=NVIDIA,
)
def persistence(facts: HostFacts) -> Iterator[CheckResult]:
    known = [one for one in nvidia_gpus(facts) if one.persistence is not None]
    off = [one for one in known if not one.persistence]
    if not known:
        yield skipped("NVML tells nothing of it")
    elif off:
        yield warned(f"off on {len(off)} of {len(known)}", expected="on")
    else:
        yield passed(f"on, on {len(known)}")


@_check(
    "gpu.fabric-manager",
    "Fabric Manager runs where there are NVSwitches",
    reads="processes; NVSwitch devices",
    why="without it NVSwitch is not set up, and CUDA does not start: 'system not yet initialized'",
    remedy="systemctl start nvidia-fabricmanager, of the driver's very version",
    passes="it runs",
    fails="it does not",
    skips="no NVSwitch here, or it cannot be seen from a container",
    source="NVIDIA, Fabric Manager user guide",
    needs=NVIDIA,
)
def fabric_manager(facts: HostFacts) -> Iterator[CheckResult]:
    state = facts.nvidia.fabric_manager
    if state == "running":
        yield passed("running")
    elif state == "not running":
        yield failed("not running", expected="running")
    else:
        yield skipped("it cannot be seen from here" if state else "no NVSwitch here")


CHECKS: tuple[Check, ...] = (
    throttle,
    ecc,
    remap,
    persistence,
    fabric_manager,
)

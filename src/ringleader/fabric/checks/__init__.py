"""Checks of a host, all of them in the order in which they are shown; ``between_hosts`` compares hosts. Pure.

``checks.toml`` has each check's texts and limits, the modules below the functions that judge.
"""

from __future__ import annotations

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks import gpus, host, kernel_log, rdma, rules, variables
from ringleader.fabric.checks.check import Check, checks_of, judge_all
from ringleader.fabric.facts import HostFacts

JUDGING = (gpus, host, kernel_log, rdma, rules, variables)
"""Modules that define judges and rules: ``checks_of`` finds them once they are imported."""
HOST_CHECKS: tuple[Check, ...] = checks_of(
    "RDMA devices",
    "RDMA ports",
    "RDMA counters",
    "RoCE",
    "Limits",
    "Control groups",
    "GPUs",
    "PCI Express",
    "Libraries",
    "NCCL's variables",
    "Variables of UCX and MPI",
    "Environment",
    "Network interfaces",
    "Memory",
    "Host",
    "Kernel log",
)


def judge_host(facts: HostFacts) -> tuple[CheckResult, ...]:
    """Return the verdicts of all checks of a host.

    Checks that need what the host lacks (an RDMA device, a GPU) are one skip together, named by the condition
    (``rdma``, ``gpu``).
    """
    return tuple(judge_all(HOST_CHECKS, facts))

"""Variables by which NCCL and UCX write a log of what they use into the job's directory. Pure.

The agent sets those of a library only where the rank's environment has none (``agents/rank_evidence``).
"""

from __future__ import annotations

from collections.abc import Mapping

from ringleader.agents.rank_evidence import DIRECTORY
from ringleader.plan.job import Family, Mpi
from ringleader.plan.rank_placement import Plan, RankPlace


def library_log_variables(plan: Plan, place: RankPlace, mpi: Mpi) -> dict[str, Mapping[str, str]]:
    """Return library → its variables for a rank: NCCL's where it has GPUs, UCX's between hosts with RDMA."""
    found: dict[str, Mapping[str, str]] = {}
    host = plan.hosts[place.host_index]
    if host.gpus and place.gpu != "":
        found["nccl"] = {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,ENV",
            "NCCL_DEBUG_FILE": f"{DIRECTORY}/nccl.{place.rank}.%h.%p.log",
        }
    if len(plan.hosts) > 1 and host.rdma and mpi.family is not Family.INTEL:
        found["ucx"] = {
            "UCX_LOG_LEVEL": "info",
            "UCX_LOG_FILE": f"{DIRECTORY}/ucx.{place.rank}.%h.%p.log",
        }
    return found

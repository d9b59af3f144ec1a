"""Variables with which a library fails, instead of taking another wire than the one that is required.

They are no proof: what carried the bytes is judged at the end all the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from ringleader.fabric.facts import HostFacts
from ringleader.fabric.settings.setting import Settings, UnsetVariable, chosen, unset
from ringleader.fabric.transport_proof.requirement import TCP, Requirement
from ringleader.fabric.versions import first_mpi, nccl_version, shown
from ringleader.fabric.wires import Wire

NAMES_NETWORK = (2, 10)
"""From here on NCCL takes the name of a network in NCCL_NET, and ends where it does not work."""
VERBS = frozenset({Wire.INFINIBAND, Wire.ROCE, Wire.IWARP})


def enforcing_settings(requirement: Requirement, facts: HostFacts, user: Mapping[str, str]) -> Settings:
    """Return what makes libraries on a host keep to a requirement; ``user``: what the user has set."""
    if not requirement.between:
        return Settings()
    # GPUs exchange by NCCL: what the MPI carries for them is not payload.
    found = _nccl(requirement, facts) if facts.gpus else _mpi(requirement, facts)
    kept = tuple(one for one in found.settings if not {one.variable, *one.rivals} & set(user))
    taken = tuple(
        UnsetVariable(variable=one.variable, reason=f"the user has set {name}")
        for one in found.settings
        for name in (one.variable, *one.rivals)
        if name in user
    )
    return Settings(settings=kept, left_to_the_user=found.left_to_the_user, not_set=(*found.not_set, *taken))


def _nccl(requirement: Requirement, facts: HostFacts) -> Settings:
    version = nccl_version(facts)
    if version is None:
        return Settings()
    if version < NAMES_NETWORK:
        why = f"NCCL {shown(version)} falls back to TCP; from 2.10 on this can be switched off"
        return unset("NCCL_NET", why, rdma=False)
    if requirement.between == TCP:
        why, rivals = "tcp is required", ("NCCL_NET_PLUGIN",)
        return chosen("NCCL_NET", "Socket", why, "NCCL", job_wide=True, rivals=rivals)
    if requirement.between & VERBS:
        why = f"{requirement} is required: NCCL ends with an error instead of falling back to TCP"
        both = ("NCCL_NET_PLUGIN", "NCCL_IB_DISABLE")
        return chosen("NCCL_NET", "IB", why, "NCCL", rdma=True, job_wide=True, rivals=both)
    why = "the plugin for EFA names its network itself (AWS Libfabric or Libfabric)"
    return Settings(left_to_the_user=(UnsetVariable(variable="NCCL_NET", reason=why),))


def _mpi(requirement: Requirement, facts: HostFacts) -> Settings:
    mpi = first_mpi(facts)
    if mpi is None:
        return Settings()
    if mpi.family == "Open MPI":
        return _open_mpi(requirement, mpi.built_with.get("ucx"))
    if requirement.between == {Wire.EFA}:
        name = "I_MPI_OFI_PROVIDER" if mpi.family == "Intel MPI" else "FI_PROVIDER"
        why = "efa is required: libfabric fails instead of taking TCP"
        return chosen(name, "efa", why, mpi.family, rdma=True, job_wide=True, rivals=("FI_PROVIDER",))
    why = f"{mpi.family} has no variable that keeps it from falling back"
    return unset("FI_PROVIDER", why, rdma=False)


def _open_mpi(requirement: Requirement, has_ucx: bool | None) -> Settings:
    if requirement.between == TCP:
        why = "tcp is required, and UCX would take RDMA"
        return chosen("OMPI_MCA_pml", "ob1", why, "Open MPI", job_wide=True)
    if not requirement.between & VERBS:
        return Settings()
    if not has_ucx:
        why = "without UCX Open MPI does not speak RDMA, and this one "
        why += "has none" if has_ucx is False else "may have none"
        return unset("OMPI_MCA_pml", why, rdma=False)
    why = f"{requirement} is required: else Open MPI takes ob1, and so TCP, where UCX does not work"
    no_tcp = f"{requirement} is required: UCX may not take TCP"
    return chosen("OMPI_MCA_pml", "ucx", why, "Open MPI", rdma=True, job_wide=True) + chosen(
        "UCX_TLS", "ib,sm,self", no_tcp, "UCX", rdma=True, job_wide=True
    )

"""Variables with which a library fails, instead of taking another wire than the one that is required.

They are no proof: what carried the bytes is judged at the end all the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from ringleader.fabric.facts import HostFacts
from ringleader.fabric.settings.setting import Setting, Settings, UnsetVariable
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
    # GPUs exchange by NCCL: what the MPI carries for them is no payload.
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
        why = f"NCCL {shown(version)} falls back to TCP; from 2.10 on it can be told not to"
        return Settings(not_set=(UnsetVariable(variable="NCCL_NET", reason=why),))
    if requirement.between == TCP:
        return _one("NCCL_NET", "Socket", "tcp is required", "NCCL", rivals=("NCCL_NET_PLUGIN",))
    if requirement.between & VERBS:
        why = f"{requirement} is required: NCCL ends with an error instead of falling back to TCP"
        return _one("NCCL_NET", "IB", why, "NCCL", rivals=("NCCL_NET_PLUGIN", "NCCL_IB_DISABLE"), rdma=True)
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
        return _one(name, "efa", why, mpi.family, rivals=("FI_PROVIDER",), rdma=True)
    why = f"{mpi.family} has no variable that keeps it from falling back"
    return Settings(not_set=(UnsetVariable(variable="FI_PROVIDER", reason=why),))


def _open_mpi(requirement: Requirement, has_ucx: bool | None) -> Settings:
    if requirement.between == TCP:
        return _one("OMPI_MCA_pml", "ob1", "tcp is required, and UCX would take RDMA", "Open MPI")
    if not requirement.between & VERBS:
        return Settings()
    if not has_ucx:
        why = "without UCX Open MPI does not speak RDMA, and this one "
        why += "has none" if has_ucx is False else "may have none"
        return Settings(not_set=(UnsetVariable(variable="OMPI_MCA_pml", reason=why),))
    why = f"{requirement} is required: else Open MPI takes ob1, and so TCP, where UCX does not work"
    return _one("OMPI_MCA_pml", "ucx", why, "Open MPI", rdma=True) + _one(
        "UCX_TLS", "ib,sm,self", f"{requirement} is required: UCX may not take TCP", "UCX", rdma=True
    )


def _one(
    variable: str, value: str, reason: str, library: str, *, rivals: tuple[str, ...] = (), rdma: bool = False
) -> Settings:
    setting = Setting(
        variable=variable,
        value=value,
        reason=reason,
        library=library,
        steers_to_rdma=rdma,
        job_wide=True,
        rivals=rivals,
    )
    return Settings(settings=(setting,))

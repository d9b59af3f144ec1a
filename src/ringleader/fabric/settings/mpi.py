"""Variables of Open MPI and Intel MPI; MPICH's are libfabric's and UCX's. Pure."""

from __future__ import annotations

from ringleader.fabric.facts import MpiFacts
from ringleader.fabric.port_selection import CAP_SYS_PTRACE
from ringleader.fabric.settings.interfaces import misleading_interfaces
from ringleader.fabric.settings.setting import Setting, SettingInputs, Settings, UnsetVariable
from ringleader.fabric.versions import Version, first_mpi, kernel_is_older, version_of
from ringleader.fabric.wires import Wire

KNOWN_TO_OPEN_MPI = ("mlx", "hns")
"""Prefixes of devices on which Open MPI takes UCX by itself (``opal_common_ucx_devices``)."""
COPY_ALLOWED_KERNEL = (4, 8)
"""From here on a container's seccomp filter lets processes of one user copy from each other."""
SECCOMP_FILTER = 2
DEFAULT_EXCLUDE = ("127.0.0.1/8", "sppp")
"""What ``btl_tcp_if_exclude`` is by default: a value of ours replaces it."""


def mpi_settings(inputs: SettingInputs) -> Settings:
    """Return what to set for the MPI that ``ringleader run`` would take."""
    mpi = first_mpi(inputs.facts)
    if mpi is None:
        return Settings()
    if mpi.family == "Open MPI":
        return _open_mpi(inputs, mpi, version_of(mpi.version) or ())
    if mpi.family == "Intel MPI" and inputs.ports.has(Wire.EFA):
        setting = Setting(
            variable="I_MPI_OFI_PROVIDER",
            value="efa",
            reason="Intel MPI chooses the provider by itself, and TCP where EFA does not open",
            library="Intel MPI",
            steers_to_rdma=True,
            job_wide=True,
            rivals=("FI_PROVIDER",),
        )
        return Settings(settings=(setting,))
    return Settings()


def _open_mpi(inputs: SettingInputs, mpi: MpiFacts, version: Version) -> Settings:
    found = [
        *_openib(inputs, mpi, version),
        *_ucx_devices(inputs, mpi, version),
        *_single_copy(inputs, version),
    ]
    if misleading := [one.name for one in misleading_interfaces(inputs.facts)]:
        found.append(
            Setting(
                variable="OMPI_MCA_btl_tcp_if_exclude",
                value=",".join((*DEFAULT_EXCLUDE, *misleading)),
                reason=f"{', '.join(misleading)} leads to no other host, and Open MPI would try it",
                library="Open MPI",
                rivals=("OMPI_MCA_btl_tcp_if_include",),
            )
        )
    left: tuple[UnsetVariable, ...] = ()
    if mpi.built_with.get("ucx") is False and inputs.ports.has(Wire.INFINIBAND) and version[:1] == (4,):
        why = "this Open MPI has no UCX: 1 lets it use InfiniBand through openib, which is no longer kept up"
        left = (UnsetVariable(variable="OMPI_MCA_btl_openib_allow_ib", reason=why, steers_to_rdma=True),)
    return Settings(settings=tuple(found), left_to_the_user=left)


def _has_verbs(inputs: SettingInputs) -> bool:
    return inputs.ports.has(Wire.INFINIBAND, Wire.ROCE)


def _openib(inputs: SettingInputs, mpi: MpiFacts, version: Version) -> tuple[Setting, ...]:
    if version[:1] != (4,) or not mpi.built_with.get("ucx") or not _has_verbs(inputs):
        return ()
    return (
        Setting(
            variable="OMPI_MCA_btl",
            value="^openib",
            reason="UCX serves these devices; openib of Open MPI 4 only warns about them",
            library="Open MPI",
        ),
    )


def _single_copy(inputs: SettingInputs, version: Version) -> tuple[Setting, ...]:
    """Open MPI 4 copies from one process to another, which old kernels refuse in a container."""
    facts = inputs.facts
    may = facts.process.capabilities >> CAP_SYS_PTRACE & 1
    is_filtered = bool(facts.container) and facts.process.seccomp == SECCOMP_FILTER
    if version[:1] != (4,) or not is_filtered or may or not kernel_is_older(facts, COPY_ALLOWED_KERNEL):
        return ()
    return (
        Setting(
            variable="OMPI_MCA_btl_vader_single_copy_mechanism",
            value="none",
            reason=f"Linux {facts.kernel} refuses copies between processes of a container without "
            "CAP_SYS_PTRACE; ranks then copy through shared memory",
            library="Open MPI",
        ),
    )


def _ucx_devices(inputs: SettingInputs, mpi: MpiFacts, version: Version) -> tuple[Setting, ...]:
    """Open MPI takes UCX by itself for devices it knows, and falls back to TCP for others."""
    names = [one.device.name for one in inputs.ports.ports if one.wire in (Wire.INFINIBAND, Wire.ROCE)]
    is_hardware = any(one.device.pci_address for one in inputs.ports.ports)
    known = any(name.startswith(KNOWN_TO_OPEN_MPI) for name in names)
    if not names or known or not is_hardware or version < (4, 1) or not mpi.built_with.get("ucx"):
        return ()
    return (
        Setting(
            variable="OMPI_MCA_opal_common_ucx_devices",
            value="any",
            reason=f"Open MPI takes UCX for mlx and hns devices alone, and TCP for {names[0]}",
            library="Open MPI",
            steers_to_rdma=True,
            job_wide=True,
            rivals=("OMPI_MCA_pml",),
        ),
    )

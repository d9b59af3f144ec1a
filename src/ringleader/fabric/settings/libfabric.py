"""libfabric's variables. Pure."""

from __future__ import annotations

from ringleader.fabric.settings.interfaces import misleading_interfaces, only_interface
from ringleader.fabric.settings.setting import Setting, SettingInputs, Settings, UnsetVariable
from ringleader.fabric.versions import first_mpi, kernel_is_older
from ringleader.fabric.wires import Wire

FORK_SAFE_KERNEL = (5, 15)
"""From here on the kernel copies registered pages for a forked child by itself."""
OVER_LIBFABRIC = ("MPICH", "Intel MPI")
"""MPIs that speak TCP through libfabric."""


def libfabric_settings(inputs: SettingInputs) -> Settings:
    """Return what to set for libfabric: EFA by name, and the interface of TCP where it is certain."""
    return _efa(inputs) if inputs.ports.has(Wire.EFA) else _tcp(inputs)


def _efa(inputs: SettingInputs) -> Settings:
    found: list[Setting] = []
    silent: tuple[UnsetVariable, ...] = ()
    mpi = first_mpi(inputs.facts)
    if mpi is not None and mpi.embedded and mpi.family == "MPICH":
        why = "MPICH's wheel has a libfabric of its own; without EFA's provider in it no rank would start"
        silent = (UnsetVariable(variable="FI_PROVIDER", reason=why, steers_to_rdma=True),)
    else:
        why = "without it libfabric falls back to TCP without a word where EFA does not open"
        found.append(
            Setting(
                variable="FI_PROVIDER",
                value="efa",
                reason=why,
                library="libfabric",
                steers_to_rdma=True,
                job_wide=True,
            )
        )
    if kernel_is_older(inputs.facts, FORK_SAFE_KERNEL):
        found.append(
            Setting(
                variable="FI_EFA_FORK_SAFE",
                value="1",
                reason=f"loaders of data fork, and Linux {inputs.facts.kernel} does not copy locked pages",
                library="libfabric",
                steers_to_rdma=True,
            )
        )
    why = "0 helps where fork() fails for want of memory; it costs some speed"
    left = (UnsetVariable(variable="FI_EFA_USE_HUGE_PAGE", reason=why, steers_to_rdma=True),)
    return Settings(settings=tuple(found), left_to_the_user=left, not_set=silent)


def _tcp(inputs: SettingInputs) -> Settings:
    mpi, interface = first_mpi(inputs.facts), only_interface(inputs.facts)
    misleading = misleading_interfaces(inputs.facts)
    if mpi is None or mpi.family not in OVER_LIBFABRIC or interface is None or not misleading:
        return Settings()
    setting = Setting(
        variable="FI_TCP_IFACE",
        value=interface.name,
        reason=f"{', '.join(one.name for one in misleading)} leads to no other host",
        library="libfabric",
    )
    return Settings(settings=(setting,))

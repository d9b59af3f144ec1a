"""UCX's variables. Pure.

UCX finds GIDs, transports and, for memory of the CPU, the nearest device by itself. What it does not know is
which of its devices reach the other hosts, and the GPU that a rank is going to use.
"""

from __future__ import annotations

from ringleader.fabric.settings.setting import Setting, SettingInputs, Settings, UnsetVariable
from ringleader.fabric.topology.nic_assignment import gpu_distance
from ringleader.fabric.topology.pci_distance import PciDistance
from ringleader.fabric.versions import has_ucx
from ringleader.fabric.wires import Wire


def ucx_settings(inputs: SettingInputs) -> Settings:
    """Return what to set for UCX; nothing where nobody here uses it, or it has no InfiniBand or RoCE port."""
    ports = [one for one in inputs.ports.ports if one.wire in (Wire.INFINIBAND, Wire.ROCE)]
    if not ports or not has_ucx(inputs.facts):
        return Settings()
    found = Settings()
    if ports[0].wire is Wire.ROCE:
        why = "on RoCE it is 4 times the DSCP of the network's lossless class, which the switches decide"
        found += Settings(
            left_to_the_user=(_unset("UCX_IB_TRAFFIC_CLASS", why),),
            not_set=(_unset("UCX_IB_GID_INDEX", "UCX finds the GID of RoCE v2 by itself"),),
        )
    return found + _devices(inputs, [one.name for one in ports])


def _unset(variable: str, reason: str) -> UnsetVariable:
    return UnsetVariable(variable=variable, reason=reason, steers_to_rdma=True)


def _devices(inputs: SettingInputs, names: list[str]) -> Settings:
    if nearest := _nearest(inputs):
        value, why = nearest
    elif inputs.misleading_ports:
        value = ",".join(names)
        why = f"UCX would use {', '.join(inputs.misleading_ports)} too, which may not reach the other hosts"
    else:
        return Settings(not_set=(_unset("UCX_NET_DEVICES", "UCX takes the right ports by itself"),))
    setting = Setting(variable="UCX_NET_DEVICES", value=value, reason=why, library="UCX", steers_to_rdma=True)
    return Settings(settings=(setting,))


def _nearest(inputs: SettingInputs) -> tuple[str, str] | None:
    """Return the NIC at the rank's GPU and why, where others are farther from it; ``None``: all alike."""
    nic = inputs.nic
    if nic is None or nic.gpu is None or nic.distance is None or nic.distance > PciDistance.PXB:
        return None
    distances = {gpu_distance(inputs.facts, nic.gpu, one) for one in inputs.ports.ports}
    if distances == {nic.distance}:
        return None
    why = f"it is the NIC nearest to GPU{nic.gpu.index} ({nic.distance}); UCX goes by the CPU's place"
    return nic.nic.name, why

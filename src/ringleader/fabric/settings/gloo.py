"""Gloo's variable: it always speaks TCP, and finds its interface by the host's own name. Pure."""

from __future__ import annotations

from ringleader.fabric.settings.interfaces import misleading_interfaces, only_interface
from ringleader.fabric.settings.setting import Setting, SettingInputs, Settings


def gloo_settings(inputs: SettingInputs) -> Settings:
    """Return the interface where one alone leads to other hosts and others only look so."""
    interface, misleading = only_interface(inputs.facts), misleading_interfaces(inputs.facts)
    if interface is None or not misleading:
        return Settings()
    setting = Setting(
        variable="GLOO_SOCKET_IFNAME",
        value=interface.name,
        reason=f"{', '.join(one.name for one in misleading)} leads to no other host",
        library="Gloo",
    )
    return Settings(settings=(setting,))

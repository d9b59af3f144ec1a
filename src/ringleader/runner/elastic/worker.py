"""What an update of the hosts has brought. Path and name are Horovod's."""

from __future__ import annotations

from ringleader.adapters.elastic import HostUpdateResult

__all__ = ["HostUpdateResult"]

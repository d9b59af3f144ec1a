"""Exceptions under the path from which scripts import them."""

from __future__ import annotations

from ringleader.engine.exceptions import HorovodInternalError

__all__ = ["HorovodInternalError", "HorovodVersionMismatchError", "HostsUpdatedInterrupt"]


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818 (Horovod's name)
    """The hosts of an elastic job changed; raised by a commit, and handled by ``hvd.elastic.run``."""

    def __init__(self, skip_sync: bool) -> None:
        """``skip_sync`` says that hosts only went away, so that all who are left agree already."""
        super().__init__("the hosts of the job have changed")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A framework is not the version it was built for. For scripts that catch it: nothing is built here."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        """Take the framework's name, the version found, and the version that was built for."""
        super().__init__(f"{name} {version} is loaded, but it was built for {installed_version}", name=name)
        self.version = version
        self.installed_version = installed_version

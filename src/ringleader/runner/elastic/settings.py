"""What an elastic job is told. Path and names are Horovod's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringleader.runner.common.util.settings import BaseSettings
from ringleader.runner.elastic.discovery import HostDiscovery


@dataclass
class ElasticSettings(BaseSettings):
    """A job's options, where its hosts come from, and how much it may change."""

    discovery: HostDiscovery | None = None
    """Not pickled with the rest: only the launcher looks for hosts."""
    min_num_proc: int | None = None
    max_num_proc: int | None = None
    elastic_timeout: int | None = None
    """Seconds."""
    reset_limit: int | None = None
    cooldown_range: tuple[int, int] | None = None
    """Seconds."""
    elastic: bool = True

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"discovery": None}

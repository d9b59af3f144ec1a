"""What one call of ``ringleader scale`` measures: a new run, or the rest of a stored one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ringleader.bench.scale import Scale, turns_of
from ringleader.bench.turn_order import Turn, turns_left
from ringleader.scaling import Run

if TYPE_CHECKING:
    from ringleader.cli.scale.cluster_jobs import ClusterJobs


@dataclass(frozen=True, kw_only=True)
class Sitting:
    """What this call measures, and what it goes on with."""

    wanted: Scale
    stored: Run | None = None
    """The run that is resumed."""
    directory: Path | None = None
    """Of that run; a new one is made."""
    cluster: ClusterJobs | None = None
    """What starts the runs on Kubernetes; ``None``: they run on hosts."""
    in_allocation: bool = False
    """A batch system gave the hosts, so that their names differ from one sitting to the next."""

    def turns_left(self, measured: Run | None) -> tuple[Turn, ...]:
        """Return the runs that are still to be made where so much is measured."""
        return turns_left(turns_of(self.wanted), measured)


def stamp() -> str:
    return datetime.now().strftime("%Y%m%d-%H%M%S")

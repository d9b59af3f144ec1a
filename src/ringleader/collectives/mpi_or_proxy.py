"""MPI as a rank has it: in its own process, or in an elastic job through the MPI proxy beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ringleader.collectives import mpi_library
from ringleader.collectives.engine_settings import EngineSettings


def load(settings: EngineSettings, arrival: Mapping[str, Any]) -> Any:
    """Return mpi4py's MPI, or in an elastic job what stands for it in the next generation of the ranks.

    ``arrival``: what all ranks of that are to know of this one, plain values; see `arrivals`. Raises
    `WorldError` where the library that was loaded is not the launcher's, or no generation begins.
    """
    if not settings.elastic:
        return mpi_library.load(settings)
    from ringleader.collectives.mpi_proxy.membership import ELASTIC

    return ELASTIC.join(os.environ, arrival)


def proxied(mpi: Any) -> bool:
    """Return whether `load` gave what stands for MPI: nothing may wait inside of it then."""
    return bool(getattr(mpi, "proxied", False))


def arrivals(mpi: Any) -> list[Any]:
    """Return of each rank of an elastic job what it gave `load`."""
    return list(mpi.membership.arrivals)


def why_broken(mpi: Any) -> Callable[[], str]:
    """Return what says why no rank can go on, empty as long as they can: the end of one in an elastic job."""
    return mpi.membership.why_broken if proxied(mpi) else str


def request_sleep(mpi: Any) -> Callable[[float, int], int] | None:
    """Return what sleeps until requests are done, None where nothing wakes this rank then."""
    return mpi.membership.channel.sleep if proxied(mpi) else None


def slot(mpi: Any) -> int | None:
    """Return the number of this rank's slot on its host in an elastic job; None in other jobs."""
    return mpi.slot if proxied(mpi) else None


def generation(mpi: Any) -> int:
    """Return the number of the generation of an elastic job that ``mpi`` is of; 0 in other jobs."""
    return int(mpi.membership.generation) if proxied(mpi) else 0


def is_broken() -> bool:
    """Return whether this rank is in a generation of an elastic job that is over because a member ended."""
    if f"{__package__}.mpi_proxy.membership" not in sys.modules:
        return False
    from ringleader.collectives.mpi_proxy.membership import ELASTIC

    return ELASTIC.membership is not None and ELASTIC.membership.broken()


def leave() -> None:
    """In an elastic job take part in the present generation no more; `load` joins the next one."""
    if f"{__package__}.mpi_proxy.membership" in sys.modules:
        from ringleader.collectives.mpi_proxy.membership import ELASTIC

        ELASTIC.leave()

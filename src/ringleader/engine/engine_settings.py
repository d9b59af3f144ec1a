"""What the environment says about the ranks and the engine, before any MPI is loaded. Pure: the environment
is passed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringleader.plan.job import CONSISTENCY, MOST_RECYCLED, RECYCLED_RESULTS

IN_STEP = "in-step"
"""Value of ``RINGLEADER_UNCOUPLED`` for ranks that meet, but exchange nothing."""
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
_SIGNS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PMI_FD", "PMI_PORT", "HYDI_CONTROL_FD")
_ELASTIC = ("RINGLEADER_HOST_AGENT", "RINGLEADER_INCARNATION")
"""Set for each rank of an elastic job: see `generation_client`."""
FAMILIES = {
    "openmpi5": ("Open MPI v5",),
    "openmpi4": ("Open MPI v4",),
    "mpich": ("MPICH", "MVAPICH"),
    "intel": ("Intel",),
}
"""Family → what a library of it calls itself."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long things may take, in seconds."""

    mismatch: float
    """All ranks may stand still this long with nothing in common. Then it counts as a mistake of the script
    (until then another thread of it could ask for the missing operation)."""
    warn: float = float("inf")
    """A wait this long is reported, and an operation that only some ranks asked for that long ago."""
    shutdown: float = float("inf")
    """After this time such an operation is an error, and the engine ends on all ranks."""


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What the launcher left in the environment of this rank."""

    launched: bool
    """Whether an MPI launcher started this process; only then is an MPI loaded."""
    elastic: bool = False
    """Whether a host agent announces generations to this rank, and an MPI proxy does MPI for it."""
    size: int | None
    """Ranks in the job as the launcher counts them, where it says."""
    family: str
    """MPI that Ringleader's launcher used (a key of `FAMILIES`), empty under another launcher."""
    uncoupled: bool
    """Keep rank and size but exchange nothing."""
    in_step: bool = False
    """Uncoupled, but synchronize with the other ranks where something would be exchanged."""
    status_file: str
    """File in which the launcher notes ranks that ended; empty where there is none."""
    limits: Limits
    """How long ranks may wait for each other, for operations that only some of them ask for."""
    deadline_seconds: float
    """A wait this long is an error, none where it is infinite: one rank may evaluate while the others wait,
    and a peer that has ended is noticed anyway."""
    transport: str = ""
    """Transport to use instead of the best one: ``mpi`` leaves shared memory out. Empty: the best one."""
    ranks_per_host: int | None = None
    """Take this many consecutive ranks for a host, None: those that share memory. Lets one machine be
    measured and tested as several hosts."""
    fusion_bytes: int | None = None
    """Most bytes of small operations that travel together, 0: each by itself, None: what is best here."""
    dynamic_sets: bool = False
    """Whether process sets can be added and removed after ``init``."""
    consistency: str = "warn"
    """What is done where ranks' parameters differ: one of `CONSISTENCY`."""
    recycled_results: int = RECYCLED_RESULTS
    """Results of each size whose memory is kept and used again; 0: none."""


def read_settings(environ: Mapping[str, str]) -> EngineSettings:
    """Read the environment of a rank. Horovod's variables count where ours are not set."""
    size = next((int(environ[name]) for name in _SIZES[:2] if environ.get(name, "").isdigit()), None)
    warn = seconds_of(environ, "HOROVOD_STALL_CHECK_TIME_SECONDS", 60.0)
    if _on(environ, "HOROVOD_STALL_CHECK_DISABLE"):
        warn = float("inf")
    stall = seconds_of(environ, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", float("inf"))
    deadline = seconds_of(environ, "RINGLEADER_DEADLINE", stall)
    fusion = environ.get("RINGLEADER_FUSION_THRESHOLD") or environ.get("HOROVOD_FUSION_THRESHOLD") or ""
    recycled = environ.get("RINGLEADER_RECYCLED_RESULTS", "").strip() or str(RECYCLED_RESULTS)
    digits = recycled.lstrip("0")[:9] or "0"
    if not (recycled.isascii() and recycled.isdigit() and int(digits) <= MOST_RECYCLED):
        raise ValueError(f"RINGLEADER_RECYCLED_RESULTS is {recycled!r}: use 0 (none) to {MOST_RECYCLED}")
    elastic = all(environ.get(name) for name in _ELASTIC)
    consistency = environ.get("RINGLEADER_CONSISTENCY_CHECK", "").lower() or CONSISTENCY[0]
    if consistency not in CONSISTENCY:
        raise ValueError(
            f"RINGLEADER_CONSISTENCY_CHECK is {consistency!r}: use one of {', '.join(CONSISTENCY)}"
        )
    return EngineSettings(
        launched=any(name in environ for name in _SIGNS) or size is not None or elastic,
        elastic=elastic,
        size=size,
        family=environ.get("RINGLEADER_MPI_FAMILY", ""),
        uncoupled=environ.get("RINGLEADER_UNCOUPLED", "") in ("1", IN_STEP),
        in_step=environ.get("RINGLEADER_UNCOUPLED", "") == IN_STEP,
        status_file=environ.get("RINGLEADER_STATUS_FILE", ""),
        limits=Limits(
            mismatch=seconds_of(environ, "RINGLEADER_MISMATCH_PATIENCE", 5.0),
            warn=seconds_of(environ, "RINGLEADER_STALL_WARNING", warn),
            shutdown=min(deadline, stall),
        ),
        deadline_seconds=deadline,
        transport=environ.get("RINGLEADER_TRANSPORT", ""),
        ranks_per_host=int(seconds_of(environ, "RINGLEADER_RANKS_PER_HOST", 0.0)) or None,
        fusion_bytes=int(fusion) if fusion.isdigit() else None,
        dynamic_sets=_on(environ, "HOROVOD_DYNAMIC_PROCESS_SETS"),
        consistency=consistency,
        recycled_results=int(digits),
    )


def _on(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").strip().lower() not in ("", "0", "false")


def seconds_of(environ: Mapping[str, str], name: str, default: float) -> float:
    """Return the seconds that a variable says, the default where it says none."""
    try:
        value = float(environ.get(name, ""))
    except ValueError:
        return default
    return value if value > 0 else default


def wrong_library(settings: EngineSettings, *, library: str, size: int) -> str:
    """Return why the loaded MPI library cannot be the launcher's; empty where it can.

    ``library`` is what the library says of itself, ``size`` the number of ranks it sees.
    """
    wanted = FAMILIES.get(settings.family, ())
    name = library.strip().splitlines()[0].split(",")[0] if library.strip() else "an unknown MPI"
    hint = "set MPI4PY_LIBMPI to the libmpi that belongs to the launcher's mpirun"
    if wanted and not any(name.lower() in library.lower() for name in wanted):
        return f"the job was started by {wanted[0]} but this rank loaded {name}; {hint}"
    if settings.size is not None and settings.size != size and size == 1:
        return (
            f"the launcher started {settings.size} ranks but {name} sees only this one: "
            f"another MPI library than the launcher's was loaded; {hint}"
        )
    return ""

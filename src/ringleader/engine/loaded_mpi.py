"""MPI in this process: loaded late, initialized once, finalized at exit. Only this module imports mpi4py."""

from __future__ import annotations

import os
import sys
from typing import Any

from ringleader.engine.engine_settings import EngineSettings, wrong_library
from ringleader.engine.exceptions import WorldError

MPI4PY = tuple(f"4.{minor}" for minor in range(1, 10))
"""How versions that Ringleader works with begin; ``pyproject.toml`` says the same to pip."""


def load(settings: EngineSettings) -> Any:
    """Import mpi4py's MPI, initialize it in this process if nobody has, and return it.

    Raises `WorldError` where mpi4py is too old or too new, or the library that was loaded is not the
    launcher's.
    """
    # Without this every window of the embedded Open MPI prints an error line and costs 1.4 ms more.
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")
    # Open MPI over TCP lets ranks that exchange long messages take turns, unless it only sends: see
    # `render.mpirun_command`, for jobs that our launcher did not start.
    os.environ.setdefault("OMPI_MCA_btl_tcp_flags", "313")
    # mpirun asks ranks that share processors to give way with sched_yield while they wait inside MPI. Seen on
    # Linux 6.18: a rank that has done this many times gets no processor for minutes afterwards, though it
    # could run. Long waits sleep instead (`peer_wait`); short ones inside MPI may spin.
    os.environ.update({"OMPI_MCA_mpi_yield_when_idle": "0"})
    import mpi4py

    if not mpi4py.__version__.startswith(MPI4PY):
        raise WorldError(
            f"mpi4py {mpi4py.__version__} ({mpi4py.__file__}) is installed, and Ringleader needs 4.1 or "
            "newer, below 5: pip install 'mpi4py>=4.1,<5'"
        )
    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise WorldError(f"mpi4py found no MPI library to load: {error}") from error
    if MPI.Is_finalized():
        raise WorldError("MPI was finalized in this process and cannot be started again")
    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
        _OURS.append(os.getpid())
    wrong = wrong_library(settings, library=MPI.Get_library_version(), size=MPI.COMM_WORLD.size)
    if wrong:
        raise WorldError(wrong)
    return MPI


_OURS: list[int] = []
"""The process whose MPI was initialized here, so that it is its to finalize, and not that of a forked child,
which has this list too. It mirrors state of the MPI library, which is one per process."""


def ours() -> bool:
    """Return whether MPI runs in this process and was initialized by `load`."""
    return os.getpid() in _OURS and runs()


def inherited() -> bool:
    """Return whether `load` initialized MPI in a process of which this one is a forked child."""
    return bool(_OURS) and os.getpid() not in _OURS


def runs() -> bool:
    """Return whether MPI was initialized in this process, by whomever, and not finalized."""
    if "mpi4py.MPI" not in sys.modules:
        return False
    from mpi4py import MPI

    return MPI.Is_initialized() and not MPI.Is_finalized()


def finalize() -> None:
    """Finalize MPI if it is ours. Waits for all ranks of the job, as MPI does."""
    if ours():
        from mpi4py import MPI

        MPI.Finalize()

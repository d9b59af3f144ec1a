"""Which MPI there is, and a command on its ranks, with Horovod's settings. Path and names are Horovod's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ringleader.errors import RingleaderError
from ringleader.launch.mpirun.mpi_discovery import find_mpi
from ringleader.plan.job import Family
from ringleader.runner.launch import run_settings


def mpi_available(env: Mapping[str, str] | None = None) -> bool:
    """Return whether there is an MPI that can start ranks: ours, or on the PATH of ``env``."""
    return _family(env) is not None


def is_open_mpi(env: Mapping[str, str] | None = None) -> bool:
    """Return whether Open MPI starts the ranks."""
    return _family(env) in (Family.OPENMPI4, Family.OPENMPI5)


def is_mpich(env: Mapping[str, str] | None = None) -> bool:
    """Return whether MPICH, or one of its family, starts the ranks."""
    return _family(env) is Family.MPICH


def is_intel_mpi(env: Mapping[str, str] | None = None) -> bool:
    """Return whether Intel MPI starts the ranks."""
    return _family(env) is Family.INTEL


def is_spectrum_mpi(env: Mapping[str, str] | None = None) -> bool:
    """Return False: IBM's MPI is not among those that are driven here."""
    return False


def mpi_run(
    settings: Any, nics: Iterable[str] | None, env: Mapping[str, str], command: Sequence[str]
) -> None:
    """Run a command to its end; RuntimeError where a rank fails.

    ``settings``: `ringleader.runner.common.util.settings.Settings`. ``env``: the launcher's environment.
    """
    run_settings(settings, nics, env, command, use_gloo=False)


def _family(env: Mapping[str, str] | None) -> Family | None:
    try:
        return find_mpi(None, environ=os.environ if env is None else env).family
    except RingleaderError:
        return None

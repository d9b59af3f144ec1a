"""``ringleader doctor`` without options: facts of this host that a job here would meet. Nothing is started.

What the probe of a job asks every host (``ranks/host_facts_script.py``), with the MPI that ranks would be
started with and the frameworks that are installed.
"""

from __future__ import annotations

import importlib.metadata
import resource
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringleader import __version__
from ringleader.errors import RefusedError
from ringleader.finding import Finding, fault, passed, skipped, warning
from ringleader.launch.mpirun.mpi_discovery import find_mpi
from ringleader.ranks import host_facts_script
from ringleader.report.number_format import plural

FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "mxnet", "horovod", "mpi4py")
SMALL_SHM = 64 << 20
"""Bytes of /dev/shm that a container gets by default: too few for gradients of several ranks."""
FEW_FILES = 1024


def findings(environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """Look at this host and judge what was found."""
    found = host_facts_script.answer({}, environ)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes = resource.getrlimit(resource.RLIMIT_NPROC)
    return (
        passed("host", f"{found['hostname']}, addresses {', '.join(found['addresses']) or 'loopback only'}"),
        passed("python", f"{sys.executable}, Python {found['python'][1]}, Ringleader {__version__}"),
        _mpi(environ),
        *(_framework(name) for name in FRAMEWORKS),
        _cores(found),
        _gpus(found),
        _ssh(environ),
        shm(*found["limits"]["shm"]),
        limits(files, processes, found["limits"]["memlock"]),
    )


def _mpi(environ: Mapping[str, str]) -> Finding:
    try:
        mpi = find_mpi(None, environ=environ)
    except RefusedError as error:
        return fault("mpi", error.faults[0].what, hint=error.faults[0].hint)
    kind = "embedded, " if mpi.embedded else ""
    return passed(
        "mpi", f"{kind}{mpi.family} {mpi.version}: {mpi.mpirun}, {mpi.library or 'library unknown'}"
    )


def _framework(name: str) -> Finding:
    """Tell the version by the package's record: importing a framework takes seconds."""
    try:
        return passed(name, f"{importlib.metadata.version(name)} is installed (not loaded)")
    except importlib.metadata.PackageNotFoundError:
        return skipped(name, "is not installed for this interpreter")


def _cores(found: Mapping[str, Any]) -> Finding:
    granted = found["cpu_limit"]
    quota = f", of which a control group grants {granted:g}" if granted is not None else ""
    return passed("cores", plural(len(found["cores"]), "core") + quota)


def _gpus(found: Mapping[str, Any]) -> Finding:
    gpus = found["gpus"]
    return passed("gpus", ", ".join(gpus)) if gpus else skipped("gpus", "none is seen (nvidia-smi)")


def _ssh(environ: Mapping[str, str]) -> Finding:
    program = shutil.which("ssh", path=environ.get("PATH"))
    if program is None:
        return warning(
            "ssh", "no ssh client: jobs run on this host only", hint="apt-get install openssh-client"
        )
    config = Path(environ.get("HOME", "/"), ".ssh/config")
    return passed("ssh", f"{program}{f', {config}' if config.is_file() else ''}")


def shm(size: int, free: int) -> Finding:
    """Judge the bytes of /dev/shm, through which ranks of a host exchange."""
    said = f"/dev/shm has {free >> 20} of {size >> 20} MiB free"
    if not size:
        return fault(
            "shm", "there is no /dev/shm, through which ranks of one host exchange", hint="mount a tmpfs"
        )
    if free <= SMALL_SHM:
        return warning("shm", said, hint="docker run --shm-size 16g; --ipc host; or make room there")
    return passed("shm", said)


def limits(files: tuple[int, int], processes: tuple[int, int], memlock: int) -> Finding:
    """Judge limits of this process, which ranks inherit: (soft, hard), -1 is unlimited."""
    said = f"open files {_limit(files[0])} (hard {_limit(files[1])}), processes {_limit(processes[0])}, "
    said += f"locked memory {_limit(memlock)}{'' if memlock < 0 else ' bytes'}"
    if 0 <= files[1] <= FEW_FILES:
        return warning(
            "limits", said, hint="ulimit -Hn: several hundred ranks on one host need more open files"
        )
    return passed("limits", said)


def _limit(value: int) -> str:
    return "unlimited" if value < 0 else str(value)

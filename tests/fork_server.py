"""Programs of tests that start without importing: `forked_python` forks them from a Python that has."""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

PYTHON = Path(__file__).with_name("forked_python.py")
OVER_TCP = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm,tcp", "OMPI_MCA_mtl": "^ofi"}
"""What Open MPI 5 would find out by itself, in a second and a half."""


def clean_environment() -> dict[str, str]:
    """Return an environment without traces of an MPI job, with root allowed and one thread per rank."""
    traces = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "RINGLEADER_", "HYDRA_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(traces)}
    roots = {f"{mpi}_ALLOW_RUN_AS_ROOT{tail}": "1" for mpi in ("OMPI", "PRTE") for tail in ("", "_CONFIRM")}
    return {**environ, **roots, **session_directory(), "OMP_NUM_THREADS": "1"}


def session_directory() -> dict[str, str]:
    """Return variables that give one start of Open MPI an empty directory for its files.

    By default it is /tmp/ompi.PID. A killed mpirun leaves it there, and the next one that gets the same PID
    fails: "The PMIx server's listener thread failed to start". Linux has 32,768 PIDs by default.
    """
    place = tempfile.mkdtemp(dir=_sessions().name)
    return {"PRTE_MCA_prte_tmpdir_base": place, "OMPI_MCA_orte_tmpdir_base": place}


@functools.cache
def _sessions() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="rl-mpi-", dir="/tmp", ignore_cleanup_errors=True)


class ForkServer:
    """One Python for this process that has imported some modules, started when it is first wanted."""

    def __init__(self, *modules: str) -> None:
        """``modules`` start no thread."""
        self._modules = modules
        self._place: tempfile.TemporaryDirectory[str] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def command(self, *words: str) -> list[str]:
        """Return what stands for ``python`` with these words: a program or ``-m MODULE``, and arguments."""
        if self._place is None or self._server is None or self._server.poll() is not None:
            self._place = tempfile.TemporaryDirectory(prefix="forked-", dir="/tmp")
            self._start(f"{self._place.name}/socket", clean_environment())
        return [sys.executable, "-I", "-S", str(PYTHON), "run", f"{self._place.name}/socket", *words]

    def _start(self, path: str, environ: Mapping[str, str]) -> None:
        self._server = server = subprocess.Popen(
            [sys.executable, str(PYTHON), "serve", path, *self._modules],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the tests, which end it
        )
        atexit.register(_end, server)
        assert server.stdout is not None and server.stdout.readline() == b"ready\n"


def _end(server: subprocess.Popen[bytes]) -> None:
    try:
        server.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.communicate()


RANKS = ForkServer("numpy", "torch", "torch._dynamo", "ringleader.torch", "ringleader.torch.elastic")
"""For ranks; PyTorch imports its third module with the first optimizer, for seconds."""

COMMANDS = ForkServer(
    *("aiohttp", "yaml", "ringleader.kubernetes.client.cluster", "ringleader.kubernetes.client.kubeconfig"),
    *("ringleader.kubernetes.operator.runtime.process", "ringleader.cli.follow_job"),
    *(f"ringleader.cli.kubernetes.{module}" for module in ("job_commands", "run_job")),
)
"""For ``ringleader`` on Kubernetes."""

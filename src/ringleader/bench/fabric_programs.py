"""perftest and ucx_perftest on this host: the port that they use, a server that listens, a client to its end.

``program_commands`` has their commands. Nothing here needs RDMA by itself.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringleader.agents import parent_death
from ringleader.agents.hardware import output
from ringleader.agents.sysfs import text
from ringleader.bench.pair_plan import PairPlan, ProgramRun
from ringleader.bench.program_commands import PERFTEST, UCX_TESTS
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.port_selection import UsablePort, select_ports
from ringleader.fabric.readers.host import read_host
from ringleader.fabric.topology.nic_assignment import nearest_gpu

LISTEN_SECONDS = 5.0
"""Until a server listens: it opens the device first."""
STOP_SECONDS = 1.0

_LISTENING = "0A"
"""State of a listening socket in /proc/net/tcp."""


@dataclass(kw_only=True)
class StartedServer:
    """A server that listens, or why it does not."""

    port: int = 0
    """0: it does not listen."""
    error: str = ""


class HostPrograms:
    """What programs find on this host: RDMA ports, GPUs, executables."""

    def __init__(self, plan: PairPlan, root: Path = Path("/"), *, rank: int = 0) -> None:
        """Read what the runs of a plan need to know; ``rank``: the one that runs here."""
        self._plan = plan
        self._chosen = {int(one): names for one, *names in plan.ports}.get(rank, [])
        self._facts: HostFacts = read_host(
            root, areas=("RDMA devices", "NUMA nodes", "PCI devices", "GPUs"), seconds=5.0 * plan.patience
        )
        self.ports = select_ports(self._facts).ports

    def path(self, run: ProgramRun) -> str:
        """Return the executable of a run."""
        return self._plan.path or ("ucx_perftest" if run.test in UCX_TESTS else run.test)

    def port(self, run: ProgramRun) -> UsablePort | None:
        """Return the RDMA port of a run; ``None``: there is no such port that can be used here."""
        wanted = self._name(run)
        if wanted:
            return next((one for one in self.ports if wanted in (one.name, one.device.name)), None)
        return self.ports[run.rail] if run.rail < len(self.ports) else None

    def _name(self, run: ProgramRun) -> str:
        """Return the name of the port that a run must use; empty: whichever has the rail's number."""
        chosen = self._chosen[run.rail : run.rail + 1]
        return self._plan.port or "".join(chosen)

    def gpu(self, run: ProgramRun) -> int | None:
        """Return the GPU nearest to a run's port, where messages are to be in GPU memory."""
        port = self.port(run)
        if self._plan.memory != "cuda" or port is None:
            return None
        found = nearest_gpu(self._facts, port)
        return found.index if found is not None else None

    def environ(self, run: ProgramRun) -> dict[str, str]:
        """Return the variables: UCX keeps to the run's RDMA port, GPUs count in the order of the PCI bus."""
        environ, port = dict(os.environ), self.port(run)
        if run.test in UCX_TESTS and port:
            environ.setdefault("UCX_NET_DEVICES", port.name)
        if self._plan.memory == "cuda":
            environ.pop("CUDA_VISIBLE_DEVICES", None)
            environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        return environ

    def why_not(self) -> str:
        """Return why the runs of the plan cannot be done on this host; empty: they can."""
        for run in self._plan.runs:
            path, perftest = self.path(run), run.test in PERFTEST
            if shutil.which(path) is None:
                return f"{path} is not installed"
            if (perftest or self._chosen) and self.port(run) is None:
                name = self._name(run)
                named = f" {name}" if name else ""
                return f"there is no RDMA device{named} with an active port, and {run.test} needs one"
            if self._plan.memory == "cuda" and self.gpu(run) is None:
                return "no GPU here is reported by its driver"
            if self._plan.memory == "cuda" and "--use_cuda" not in output([path, "--help"]):
                return f"{path} has no --use_cuda: it was built without CUDA"
        return ""


@contextlib.contextmanager
def serve(
    argv_at: Callable[[int], tuple[str, ...]], *, environ: dict[str, str], seconds: float = LISTEN_SECONDS
) -> Iterator[StartedServer]:
    """Start the server whose command ``argv_at`` gives for a port, and yield it when it listens.

    ``seconds``: until it must listen. Afterwards it has ended.
    """
    port = _free_port()
    with tempfile.TemporaryFile() as said:
        process = _start(argv_at(port), said, environ=environ)
        if isinstance(process, str):
            yield StartedServer(error=process)
            return
        try:
            if _listens(process, port, seconds):
                yield StartedServer(port=port)
            else:
                late = f"it did not listen within {seconds:.0f} s"
                yield StartedServer(error=_why(said, process.poll(), late))
        finally:
            _end(process)


def run_to_end(argv: tuple[str, ...], *, environ: dict[str, str], deadline: float) -> tuple[str, str]:
    """Return what a program printed, and why it did not end well (empty: it did).

    ``deadline``: seconds from now after which it is ended.
    """
    with tempfile.TemporaryFile() as said:
        process = _start(argv, said, environ=environ)
        if isinstance(process, str):
            return "", process
        try:
            code: int | None = process.wait(deadline)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
        said.seek(0)
        printed = said.read().decode(errors="replace")
        if code != 0:
            return printed, _why(said, code, f"it did not end within {deadline:.0f} s")
        return printed, ""


def _start(argv: tuple[str, ...], said: Any, *, environ: dict[str, str]) -> subprocess.Popen[bytes] | str:
    """Start a program in its own process group; it dies with us."""
    try:
        return subprocess.Popen(
            parent_death.argv(argv),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environ,
            start_new_session=True,
        )
    except OSError as error:
        return f"{argv[0]} cannot be started: {error.strerror}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            return


def _listens(process: subprocess.Popen[bytes], port: int, seconds: float) -> bool:
    """Wait until something listens at the port here; asking it itself would be taken for the client."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        if port in _listening_ports():
            return True
        time.sleep(0.02)
    return False


def _listening_ports() -> set[int]:
    found = set()
    for name in ("tcp", "tcp6"):
        for line in text(Path("/proc/self/net") / name).splitlines()[1:]:
            words = line.split()
            if len(words) > 3 and words[3] == _LISTENING:
                found.add(int(words[1].rpartition(":")[2], 16))
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _why(said: Any, code: int | None, late: str) -> str:
    """The end of what a program said, after how it ended."""
    said.seek(0)
    lines = [line.strip() for line in said.read().decode(errors="replace").splitlines()]
    words = [line for line in lines if line and not re.match(r"[-*+ ]+$|\[thread \d+\]", line)]
    how = late if code is None else f"it ended with {code}"
    return "; ".join([how, *words[-2:]])[:500]

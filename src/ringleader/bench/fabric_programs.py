"""perftest and ucx_perftest between two hosts: one is the server, the other connects to it.

Nothing here needs RDMA by itself: whether a host can run them is what ``available`` says.
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringleader.agents import parent_death
from ringleader.agents.hardware import text
from ringleader.fabric.active.perftest_output import (
    perftest_bandwidth,
    perftest_latency,
    ucx_bandwidth,
    ucx_latency,
)

WRITE_BANDWIDTH, SEND_LATENCY = "ib_write_bw", "ib_send_lat"
UCX_BANDWIDTH, UCX_LATENCY = "ucx_perftest tag_bw", "ucx_perftest tag_lat"
PROGRAMS = (WRITE_BANDWIDTH, SEND_LATENCY, UCX_BANDWIDTH, UCX_LATENCY)

MESSAGE = 1024 * 1024
LATENCY_RUNS = 1000
UCX_RUNS = 500
LEAST_DURATION = 5
"""Seconds: perftest wants more than twice its margin, 2 s in old versions, a quarter in new ones."""
LISTEN_SECONDS = 5.0
"""Until a server listens: it opens the device first."""
STOP_SECONDS = 1.0

_LISTENING = "0A"
"""State of a listening socket in /proc/net/tcp."""


@dataclass(frozen=True, kw_only=True)
class RdmaPort:
    """The device and port that the programs of this host use."""

    device: str
    port: int
    gid_index: int | None = None
    """Of RoCE: the first RoCE v2 address with an IPv4 address; ``None``: the program's own choice."""


@dataclass(kw_only=True)
class StartedServer:
    """A server that listens, or why it does not."""

    port: int = 0
    """0: it does not listen."""
    error: str = ""


def available(root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return which of ``PROGRAMS`` this host can run, and why none, as values for the launcher."""
    path = (os.environ if environ is None else environ).get("PATH", os.defpath)
    found = [name for name in PROGRAMS if shutil.which(name.split()[0], path=path)]
    port = active_port(root)
    if port is None:
        return {"programs": [], "rdma_device": "", "program_note": "no RDMA device with an active port"}
    note = "" if found else "perftest and ucx_perftest are not installed"
    return {"programs": found, "rdma_device": port.device, "program_note": note}


def active_port(root: Path = Path("/")) -> RdmaPort | None:
    """Return the first active port of an RDMA device, in the order of names."""
    for state in sorted((root / "sys/class/infiniband").glob("*/ports/*/state")):
        place = state.parent
        if "ACTIVE" in text(state) and place.name.isdigit():
            gid = _roce_v2(place) if text(place / "link_layer") == "Ethernet" else None
            return RdmaPort(device=place.parent.parent.name, port=int(place.name), gid_index=gid)
    return None


def _roce_v2(place: Path) -> int | None:
    kinds = sorted((place / "gid_attrs/types").glob("*"), key=lambda one: (len(one.name), one.name))
    for kind in kinds:
        if text(kind) == "RoCE v2" and "ffff:" in text(place / "gids" / kind.name)[:35]:
            return int(kind.name)
    return None


def argv_of(
    program: str, port: int, seconds: float, rdma: RdmaPort | None, address: str = ""
) -> tuple[str, ...]:
    """Return the command of the server, or with an ``address`` of the client."""
    to = (address,) if address else ()
    if program in (UCX_BANDWIDTH, UCX_LATENCY):
        name, test = program.split()
        size, runs = (MESSAGE, UCX_RUNS) if program == UCX_BANDWIDTH else (8, LATENCY_RUNS)
        what = ("-t", test, "-s", str(size), "-n", str(runs)) if address else ()
        return (name, *to, "-p", str(port), *what)
    device = ("-d", rdma.device, "-i", str(rdma.port)) if rdma else ()
    gid = ("-x", str(rdma.gid_index)) if rdma and rdma.gid_index is not None else ()
    common = (program, *device, *gid, "-p", str(port), "-F")
    if program == WRITE_BANDWIDTH:
        duration = str(max(LEAST_DURATION, round(seconds)))
        return (*common, "-s", str(MESSAGE), "-D", duration, "--report_gbits", *to)
    return (*common, "-n", str(LATENCY_RUNS), *to)


def run_server(
    program: str, *, seconds: float, root: Path = Path("/")
) -> contextlib.AbstractContextManager[StartedServer]:
    """Start a server and yield it when it listens; afterwards it has ended."""
    rdma = active_port(root)
    return serve(lambda port: argv_of(program, port, seconds, rdma), environ=environment_of(program, rdma))


@contextlib.contextmanager
def serve(
    argv_at: Callable[[int], tuple[str, ...]], *, environ: dict[str, str], seconds: float = LISTEN_SECONDS
) -> Iterator[StartedServer]:
    """Start the server whose command ``argv_at`` gives for a port, and yield it when it listens.

    ``seconds``: until it must listen.
    """
    port = _free_port()
    argv = argv_at(port)
    started = StartedServer()
    with tempfile.TemporaryFile() as said:
        process = _start(argv, said, environ=environ)
        if isinstance(process, str):
            yield StartedServer(error=process)
            return
        try:
            started.port = port if _listens(process, port, seconds) else 0
            if not started.port:
                started.error = _why(said, process.poll(), f"it did not listen within {seconds:.0f} s")
            yield started
        finally:
            _end(process)


def run_client(
    program: str, *, address: str, port: int, seconds: float, deadline: float, root: Path = Path("/")
) -> dict[str, Any]:
    """Connect to a server, and return what was measured, as ``rate`` or ``seconds``, or ``error``.

    ``deadline``: seconds from now after which the client is ended.
    """
    rdma = active_port(root)
    argv = argv_of(program, port, seconds, rdma, address)
    output, error = run_to_end(argv, environ=environment_of(program, rdma), deadline=deadline)
    if error:
        return {"error": error}
    try:
        return {**result_of(program, output), "device": rdma.device if rdma else ""}
    except ValueError as wrong:
        return {"error": f"its output cannot be read: {wrong}"}


def run_to_end(argv: tuple[str, ...], *, environ: dict[str, str], deadline: float) -> tuple[str, str]:
    """Return what a program printed, and why it did not end well (empty: it did)."""
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
        output = said.read().decode(errors="replace")
        if code != 0:
            return output, _why(said, code, f"it did not end within {deadline:.0f} s")
        return output, ""


def result_of(program: str, output: str) -> dict[str, Any]:
    """Return the number in a program's output. Raises ValueError where there is none."""
    if program == WRITE_BANDWIDTH:
        row = perftest_bandwidth(output)[-1]
        return {"rate": row.average, "message_bytes": row.message_bytes}
    if program == UCX_BANDWIDTH:
        return {"rate": ucx_bandwidth(output, MESSAGE).average, "message_bytes": MESSAGE}
    found = perftest_latency(output)[-1] if program == SEND_LATENCY else ucx_latency(output)
    value = found.average if found.typical is None else found.typical
    return {"seconds": value, "round_trips": found.iterations}


def environment_of(program: str, rdma: RdmaPort | None) -> dict[str, str]:
    """UCX is held to the RDMA device that the rest is measured on; MPI's own variables mean nothing here."""
    environ = dict(os.environ)
    if program.startswith("ucx") and rdma:
        environ.setdefault("UCX_NET_DEVICES", f"{rdma.device}:{rdma.port}")
    return environ


def _start(argv: tuple[str, ...], said: Any, *, environ: dict[str, str]) -> subprocess.Popen[bytes] | str:
    """Start a program in a process group of its own; it dies with us."""
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


def _listening_ports(root: Path = Path("/")) -> set[int]:
    found = set()
    for name in ("tcp", "tcp6"):
        for line in text(root / "proc/self/net" / name).splitlines()[1:]:
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

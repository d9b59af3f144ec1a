"""``--max-restarts --warm``: on each host a Python that has imported what the script needs, beside the ranks.

The ranks of a restart are forked from it. It is started with the first ranks and lives until the launcher
ends: it holds a connection, and both sides have proven that they know a secret. Where it cannot be had, or
still imports, ranks start by themselves.
"""

from __future__ import annotations

import json
import os
import selectors
import sys
import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from queue import SimpleQueue

from ringleader.errors import RequestError
from ringleader.job import Job
from ringleader.launch.elastic.job_context import file_reader
from ringleader.launch.elastic.preload import warm_start
from ringleader.launch.host_probe.host_query import is_python
from ringleader.launch.host_program import run_on_host, why_failed
from ringleader.launch.prepare import Prepared
from ringleader.launch.supervision.agent_connections import AgentConnection, AgentServer, control_variable
from ringleader.rank_placement import HostFacts
from ringleader.ranks import warm_host
from ringleader.render.mpirun_command import scrubbed

START_SECONDS = 20.0
"""For a host's warm Python to begin; its imports come after that."""
TURN_SECONDS = 0.1


def warm_modules(job: Job) -> tuple[str, ...]:
    """Return what is imported ahead for a job's script; RequestError where its ranks cannot be forked."""
    start = warm_start(job.command, file_reader(job), is_python=is_python)
    if start.cold:
        raise RequestError(start.cold, where="--warm", hint="leave out --warm: every rank starts by itself")
    return start.modules


class WarmHosts:
    """The warm Pythons of one job."""

    def __init__(self, job: Job) -> None:
        """None is started yet. Raises RequestError, see ``warm_modules``."""
        self.modules = warm_modules(job)
        self._warnings: SimpleQueue[str] = SimpleQueue()
        self._token = os.urandom(32).hex()
        self._ends = threading.Event()
        self._keeper: threading.Thread | None = None
        self.directory = ""
        """Where rank agents find them, by the same path on every host; empty before ``start``."""

    def start(self, prepared: Prepared, environ: Mapping[str, str]) -> None:
        """Start one on each host of the first start; nothing here waits for it."""
        hosts = prepared.plan.hosts
        selector = selectors.PollSelector()
        server = AgentServer(
            selector,
            token=self._token,
            addresses=prepared.addresses,
            ranks=len(hosts),
            lost_after=warm_host.SILENCE_SECONDS,
        )
        self._keeper = threading.Thread(target=self._keep, args=(selector, server), name="warm", daemon=True)
        self._keeper.start()
        self.directory = f"{prepared.directory.rpartition('/')[0]}/{prepared.run_id}-warm"
        lease = control_variable(list(prepared.addresses), server.port)
        inherited = {"HOME": "/"} | scrubbed(environ)
        for host in hosts:
            given = (prepared, host, lease, inherited)
            threading.Thread(target=self._start, args=given, name="start-warm", daemon=True).start()

    def _start(self, prepared: Prepared, host: HostFacts, lease: str, environ: Mapping[str, str]) -> None:
        job = prepared.job
        words = {
            "lease": lease,
            "token": self._token,
            "directory": self.directory,
            "python": job.command[0],
            "modules": list(self.modules),
            "env": {"PYTHONUNBUFFERED": "1", **dict(job.env), "OMP_NUM_THREADS": "1"},
            "cwd": job.workdir,
        }
        beside = PurePosixPath(host.agent or str(Path(warm_host.__file__)))
        argv = (
            host.python or job.python or sys.executable,
            "-I",
            "-S",
            str(beside.with_name("warm_host.py")),
        )
        reply = run_on_host(
            host,
            argv,
            stdin=json.dumps(words).encode() + b"\n",
            seconds=START_SECONDS,
            environ=environ,
            ssh=prepared.ssh,
        )
        if reply.exit_code:
            why = why_failed(reply, "warm Python", START_SECONDS)
            self._warnings.put(f"{host.host.name}: {why}; its ranks start by themselves")

    def _keep(self, selector: selectors.BaseSelector, server: AgentServer) -> None:
        """Hold the connections of all of them, in a thread of its own: nothing is said on them."""
        with selector:
            while not self._ends.is_set():
                for key, mask in selector.select(TURN_SECONDS):
                    if isinstance(key.data, AgentConnection):
                        for _frame in server.serve(key.data, mask):
                            server.drop(key.data)
                    else:
                        server.accept()
                if text := server.tick():
                    self._warnings.put(text)
            server.close()

    def warnings(self) -> list[str]:
        """Return what the user should know since the last call."""
        return [self._warnings.get() for _ in range(self._warnings.qsize())]

    def close(self) -> None:
        """End all of them."""
        self._ends.set()
        if self._keeper is not None:
            self._keeper.join()

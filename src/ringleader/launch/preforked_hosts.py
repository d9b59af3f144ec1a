"""``--max-restarts --warm``: on each host a fork server that has imported what the script needs.

The ranks of a restart are forked from it. A host agent, as elastic jobs have it, keeps it from the first
start until the launcher ends. Where there is none, or it still imports, ranks start by themselves.
"""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Mapping
from queue import SimpleQueue

from ringleader.agents import protocol
from ringleader.errors import RequestError
from ringleader.launch.elastic.host_agents import HostAgents
from ringleader.launch.elastic.job_context import file_reader
from ringleader.launch.elastic.preloaded_modules import warm_start
from ringleader.launch.host_probe.host_answer import is_python
from ringleader.launch.launch_plan import Prepared, control_variable
from ringleader.launch.supervision.agent_connections import AgentConnection, AgentServer
from ringleader.plan.job import Job
from ringleader.render.mpirun_command import scrubbed

SILENCE_SECONDS = 30.0
"""A launcher whose machine says nothing for this long is gone."""
TURN_SECONDS = 0.1


def preloaded_modules(job: Job) -> tuple[str, ...]:
    """Return what is imported ahead for a job's script; RequestError where its ranks cannot be forked."""
    start = warm_start(job.command, file_reader(job), is_python=is_python)
    if start.cold:
        raise RequestError(start.cold, where="--warm", hint="leave out --warm: every rank starts by itself")
    return start.modules


class PreforkedHosts:
    """The fork servers of one job."""

    def __init__(self, job: Job) -> None:
        """None is started yet. Raises RequestError, see ``preloaded_modules``."""
        self.modules = preloaded_modules(job)
        self._warnings: SimpleQueue[str] = SimpleQueue()
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self.directory = ""
        """Where rank agents find them, by the same path on every host; empty before ``start``."""

    def start(self, prepared: Prepared, environ: Mapping[str, str]) -> None:
        """Start one on each host of the first start; nothing here waits for it."""
        job, hosts = prepared.job, prepared.plan.hosts
        token = os.urandom(32).hex()
        self._selector = selectors.PollSelector()
        self._server = AgentServer(
            self._selector,
            token=token,
            addresses=prepared.addresses,
            ranks=len(hosts),
            lost_after=SILENCE_SECONDS,
        )
        self.directory = f"{prepared.directory.rpartition('/')[0]}/{prepared.run_id}-warm"
        self._agents = HostAgents(
            server=self._server,
            control=control_variable(list(prepared.addresses), self._server.port),
            token=token,
            directory=self.directory,
            freeze_after=SILENCE_SECONDS,
            lost_after=SILENCE_SECONDS,
            environ={"HOME": "/"} | scrubbed(environ),
            ssh=prepared.ssh,
        )
        for host in hosts:
            self._agents.start(host)
        self._directories = {host.host.name: host.directory or job.workdir for host in hosts}
        self._order = {
            "do": "prepare",
            "python": job.command[0],
            "preload": self.modules,
            "env": {"PYTHONUNBUFFERED": "1", **dict(job.env), "OMP_NUM_THREADS": "1"},
            "serves_ranks": True,
        }
        self._thread = threading.Thread(target=self._run, name="preforked", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Hold the connections of their host agents, in its own thread."""
        with self._selector as selector:
            while not self._ends.is_set():
                for key, mask in selector.select(TURN_SECONDS):
                    if isinstance(key.data, AgentConnection):
                        self._serve(key.data, mask)
                    else:
                        self._server.accept()
                for name, why in self._agents.failed():
                    self._warn(name, why)
                if text := self._server.tick():
                    self._warnings.put(text)
            self._server.close()

    def _serve(self, connection: AgentConnection, mask: int) -> None:
        agents = self._agents
        try:
            for kind, payload in self._server.serve(connection, mask):
                if (name := agents.host(connection)) is None:
                    name = agents.hello(connection, protocol.read_message(payload))
                    agents.tell(name, **self._order, cwd=self._directories[name])
                elif (words := agents.frame(connection, kind, payload)) and words["do"] == "not_prepared":
                    self._warn(name, words["why"])
        except protocol.ProtocolError:
            self._server.drop(connection)
        if self._server.lost(connection) and agents.host(connection) is not None:
            agents.lost(connection)

    def _warn(self, host: str, why: str) -> None:
        self._warnings.put(f"{host}: {why}; its ranks start by themselves")

    def warnings(self) -> list[str]:
        """Return what the user should know since the last call."""
        return [self._warnings.get() for _ in range(self._warnings.qsize())]

    def close(self) -> None:
        """End all of them."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()

"""The hosts of an elastic job, one by one: probed, given an agent, made ready to start ranks, let go.

``host_agents`` holds the connections to their agents; which hosts there are is ``available_hosts``' business.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ringleader.agents import host_facts_script
from ringleader.agents.light_imports import socket
from ringleader.errors import RingleaderError
from ringleader.launch.elastic.host_agents import HostAgents, run_on_host
from ringleader.launch.elastic.job_context import ElasticContext, file_reader
from ringleader.launch.elastic.layout import agent_numbers
from ringleader.launch.elastic.membership_state import AT_ONCE
from ringleader.launch.elastic.preloaded_modules import warm_start
from ringleader.launch.host_probe.host_answer import HostReport, is_python, script_of
from ringleader.launch.host_probe.probe import own_names, probe, reached_by_ssh
from ringleader.launch.launch_plan import control_variable
from ringleader.launch.mpirun.mpirun_process import allow_open_files
from ringleader.launch.ssh.connections import SshConnections
from ringleader.launch.supervision.agent_connections import LOOPBACK, AgentServer
from ringleader.plan.job import Host, Job
from ringleader.plan.rank_placement import is_own_name, slots_of
from ringleader.render.mpirun_command import scrubbed

PERSIST_SECONDS = 600
"""A connection that an mpirun had opened would end with that mpirun, and with it the daemons of the next one:
the one that asked the host what it is must still be there."""
NOTICE_SECONDS = 60.0
"""After a notice of a host that it goes: until then it gets no rank, unless it is another machine by then."""
WAKE_SECONDS = 3.0
"""For the commands that have stopped agents continue."""
PREPARE_SECONDS = 40.0
"""For a host's fork server to have imported what ranks need; later ones start cold until it has."""

_OTHER_FILES, _FILES_OF_START = 128, 8
"""Files that are open besides the agents' connections, and those of a host that is probed and of one whose
agent is started: three pipes and one more each."""


@dataclass(eq=False)
class HostStart:
    """A host from the first look at it until it can start ranks."""

    until: float | None = None
    """When it counts as ready in any case: its agent runs, and prepares it; ``None``: it is being probed."""
    prepared: bool = False
    loading: bool = False
    """It reads the newest file of a commit."""


class ElasticHosts:
    """Every host that was looked at and is not lost."""

    def __init__(
        self, context: ElasticContext, server: AgentServer, tell: Callable[..., None], *, wake: int
    ) -> None:
        """``tell`` takes messages for the decider, in the loop's thread. ``wake``: an eventfd by which a
        thread tells that it has an answer; ``tick`` takes it."""
        self._context, self._tell, self._wake = context, tell, wake
        self.reports: dict[str, HostReport] = {}
        """What each host said that was looked at."""
        self._notices: dict[str, float] = {}
        """When a host said that it is about to go."""
        self._answers: SimpleQueue[tuple[str, HostReport | str]] = SimpleQueue()
        self._starts: dict[str, HostStart] = {}
        self._looks: deque[tuple[str, Job, HostStart]] = deque()
        self._gate = threading.BoundedSemaphore(AT_ONCE)
        self.lacks_state: Callable[[], bool] = lambda: False
        """Says whether no host holds a commit: then files are read."""
        self._script = script_of(context.job) or ""
        self._began_with = host_facts_script.checksum(Path(context.job.workdir or ".", self._script))
        """SHA-256 of the script, as it was when the job began; empty: it has none, or not here."""
        self._packages: tuple[str, Mapping[str, str]] = ("", {})
        """The host that imported first what ranks need, and its packages' versions."""
        self._here = own_names(socket.gethostname(), host_facts_script.interfaces())
        self.ssh: SshConnections | None = None
        warm = warm_start(context.job.command, file_reader(context.job), is_python=is_python)
        self._modules = warm.modules
        self._server = server
        self.agents = HostAgents(
            server=server,
            control=control_variable([LOOPBACK], server.port),
            token=context.token,
            directory=context.directory,
            freeze_after=context.job.lost_after,
            environ={"HOME": "/"} | scrubbed(context.environ),
        )

    # --- a host's start -----------------------------------------------------------------------------------

    def start(self, name: str, slots: int) -> None:
        """Look at a host; ``host_ready`` or ``host_refused`` follows."""
        context = self._context
        start = self._starts[name] = HostStart()
        if name in context.job.left_out:
            self._refuse(name, "it was left out by --check")
            return
        job = replace(context.job, hosts=(Host(name=name, slots=slots or None),))
        try:
            if reached_by_ssh(job, self._here):
                self._reach(job.hosts)
        except RingleaderError as error:
            self._refuse(name, str(error))
            return
        self._looks.append((name, job, start))

    def _reach(self, hosts: tuple[Host, ...]) -> None:
        """Let ssh know a host."""
        context = self._context
        if self.ssh is None:
            self._server.listen_to_others()
            self.agents.config["control"] = control_variable(list(context.addresses), self._server.port)
            self.ssh = self.agents.ssh = SshConnections(
                context.job.ssh, hosts, environ=context.environ, persist=PERSIST_SECONDS
            )
        self.ssh.add_host(hosts[0])

    def _look(self, name: str, job: Job, start: HostStart) -> None:
        """Ask a host what it is, in its own thread."""
        context = self._context
        answer: HostReport | str
        try:
            with self._gate:
                if self._starts.get(name) is not start:
                    return
                found = probe(
                    job, environ=context.environ, progress=lambda text: None, mpi=context.mpi, ssh=self.ssh
                )
            answer = found.facts[0]
        except RingleaderError as error:
            answer = "; ".join(f"{fault.where}: {fault.what}" for fault in error.faults) or str(error)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        if self._starts.get(name) is start:
            self._answers.put((name, answer))
            with suppress(OSError):
                os.eventfd_write(self._wake, 1)

    def look(self) -> None:
        """Look at the hosts that were started since the last call, once ssh knows all of them."""
        if not self._looks:
            return
        hosts = len(self._starts) + len(self.agents.hosts)
        try:
            allow_open_files(_OTHER_FILES + hosts + _FILES_OF_START * min(hosts, AT_ONCE), os.getpid())
        except RingleaderError as error:
            while self._looks:
                self._refuse(self._looks.popleft()[0], str(error))
        while self._looks:
            args = self._looks.popleft()
            threading.Thread(target=self._look, args=args, name=f"ask-{args[0]}", daemon=True).start()

    def tick(self, now: float) -> None:
        """Take what threads have found out, and wait for nobody too long."""
        while not self._answers.empty():
            name, answer = self._answers.get()
            if name in self._starts:
                self._looked_at(name, answer)
        for name, why in self.agents.failed():
            self._refuse(name, why)
        for name, start in list(self._starts.items()):
            if start.until is not None and now > start.until:
                self._ready(name)

    def _looked_at(self, name: str, answer: HostReport | str) -> None:
        if isinstance(answer, str):
            self._refuse(name, answer)
            return
        since = time.monotonic() - self._notices.get(name, -NOTICE_SECONDS)
        if since < NOTICE_SECONDS and name in self.reports and self.reports[name].identity == answer.identity:
            self._refuse(name, f"it said {since:.0f} s ago that it is about to go away")
            return
        names = [one for one, other in self.reports.items() if other.identity == answer.identity]
        self._began_with = self._began_with or answer.script or ""
        other_code = other_script(self._script, began_with=self._began_with, there=answer.script or "")
        why = self._why_no_other_name(name, answer, names) or other_code
        if why := why or self._why_not_by_the_wire(answer):
            self._refuse(name, why)
            return
        if names and name not in names:
            text = f"{name} is the same machine as {names[0]}: each is its own host"
            self._context.listener.warning(text)
        self.reports[name] = answer
        self.agents.start(answer, number=agent_numbers(self.reports)[name])

    def _why_no_other_name(self, name: str, answer: HostReport, names: Sequence[str]) -> str:
        """Return why a host cannot be one of several names of a machine; empty: it can, or is the only one.

        Names that this machine has for itself are meant as several hosts; others rather are a mistake.
        """
        used = {*self.agents.hosts, *self._starts} - {name}
        other = next((one for one in names if one in used), None)
        if other is None or (is_own_name(answer) and is_own_name(self.reports[other])):
            return ""
        return f"it is the same machine as {other}"

    def _why_not_by_the_wire(self, answer: HostReport) -> str:
        """Return why a host cannot meet ``--require``; empty: it may."""
        job = self._context.job
        if not job.require:
            return ""
        from ringleader.launch.job_transport import faults_of_host  # few jobs need it

        found = faults_of_host(job.require, answer, slots_of(answer, share_gpus=job.share_gpus))
        return "; ".join(fault.what for fault in found)

    def _refuse(self, name: str, why: str) -> None:
        self._starts.pop(name, None)
        self._tell("host_refused", host=name, why=why)

    def _ready(self, name: str) -> None:
        del self._starts[name]
        report = self.reports[name]
        slots = slots_of(report, share_gpus=self._context.job.share_gpus)
        self._tell("host_ready", host=name, slots=slots, machine=report.identity)

    # --- what agents say ----------------------------------------------------------------------------------

    def heard(self, name: str, words: Mapping[str, Any]) -> None:
        """Take what an agent says of its host."""
        start = self._starts.get(name)
        match words:
            case {"do": "notice"}:
                self._notices[name] = time.monotonic()
            case {"do": "host_failed", "why": why}:
                self.lost(name, f"its host agent failed: {why}")
            case {"do": "not_checkpointed", "number": number, "why": why}:
                self._warn(name, f"commit {number} is in no file: {why}")
            case {"do": "checkpoint_loading"} if start is not None:
                start.until = time.monotonic() + PREPARE_SECONDS
            case {"do": "checkpoint_loaded", "refused": refused}:
                for why in refused:
                    self._warn(name, f"a file of a commit is not used: {why}")
                if start is not None:
                    start.loading = False
                    if start.prepared:
                        self._ready(name)
            case {"do": "prepared", "versions": versions}:
                of, known = self._packages
                self._packages = (of, known) if of else (name, versions)
                self._is_prepared(name, other_packages(versions, known=known, of=of))
            case {"do": "not_prepared", "why": why}:
                of, known = self._packages
                lacks = words.get("lacks", "").partition(".")[0]
                other = f"{why} (it is there on {of})" if lacks in known else ""
                if not other or start is None:
                    self._warn(name, f"ranks start cold: {why}")
                self._is_prepared(name, other)

    def _warn(self, name: str, text: str) -> None:
        self._context.listener.warning(f"{name}: {text}")

    def lost(self, name: str, why: str) -> None:
        """A host's agent is gone, or has failed."""
        self._starts.pop(name, None)
        self._tell("host_lost", host=name, why=why)

    def prepare(self, name: str) -> None:
        """A host's agent has connected: have it import what ranks need.

        A command that is not a Python script starts cold.
        """
        context, report = self._context, self.reports[name]
        options, start = context.elastic, self._starts.setdefault(name, HostStart())
        start.until = time.monotonic() + PREPARE_SECONDS
        if options.checkpoint_dir is not None:
            directory = options.checkpoint_dir
            self.agents.tell(name, do="checkpoint", directory=directory, every=options.checkpoint_every)
            if self.lacks_state():
                start.loading = True
                self.agents.tell(name, do="load_checkpoint", directory=directory)
        if not self._modules:
            self._is_prepared(name)
            return
        # A rank that is forked keeps the streams of this Python.
        env = {"PYTHONUNBUFFERED": "1", **dict(context.job.env), "OMP_NUM_THREADS": "1"}
        python = report.program or context.job.command[0]
        cwd = report.directory or context.job.workdir
        words = {"python": python, "preload": self._modules, "env": env, "cwd": cwd}
        self.agents.tell(name, do="prepare", **words)

    def _is_prepared(self, name: str, other: str = "") -> None:
        """``other``: what a host has that the others have not; such a host is refused."""
        start = self._starts.get(name)
        if start is not None and other:
            self._refuse(name, other)
        elif start is not None:
            start.prepared = True
            if not start.loading:
                self._ready(name)

    # --- a host's end -------------------------------------------------------------------------------------

    def end(self, name: str, *, unfinished: bool) -> None:
        """Let a host go; ``unfinished`` as `HostAgents.bye` has it."""
        self._starts.pop(name, None)
        self.agents.bye(name, unfinished=unfinished)

    def wake(self) -> None:
        """Have agents that did not leave continue: one that was stopped (SIGSTOP) ends without us then."""
        until = time.monotonic() + WAKE_SECONDS
        for name in self.agents.hosts:
            it_and_its_parent = 'kill -CONT "$0" $(cut -d" " -f4 "/proc/$0/stat")'
            argv = ("sh", "-c", it_and_its_parent, str(self.agents.pid(name)))
            report, environ = self.reports[name], self._context.environ
            if (left := until - time.monotonic()) > 0:
                run_on_host(report, argv, stdin=b"", seconds=left, environ=environ, ssh=self.ssh)

    def close(self) -> None:
        """Let all of them go."""
        self._starts.clear()
        self.agents.bye_all()
        if self.ssh is not None:
            self.ssh.close()


def other_script(script: str, *, began_with: str, there: str) -> str:
    """Return what is wrong with a host's script; empty: nothing, or nobody knows.

    ``began_with``, ``there``: its SHA-256 in hex when the job began, and on the host now.
    """
    if not began_with or not there or began_with == there:
        return ""
    sums = f"SHA-256 {there[:12]}… there, {began_with[:12]}… then"
    return f"the script {script} is not the one that the job began with: {sums}"


def other_packages(there: Mapping[str, str], *, known: Mapping[str, str], of: str) -> str:
    """Return which packages have another version on a host; empty: none.

    ``known``: those of the host ``of``, on which the job began. One that says no version is passed over.
    """
    found = [
        f"{name} is {version} there, {known[name]} on {of}"
        for name, version in there.items()
        if version and known.get(name, version) not in ("", version)
    ]
    return "; ".join(found)

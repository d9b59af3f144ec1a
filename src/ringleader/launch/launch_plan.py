"""Everything that a launch decides before it starts anything: a dry run prints it, a launch does it."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ringleader.agents import job_directory as leftovers
from ringleader.agents import protocol, rank_identity
from ringleader.agents import rank_agent as agent_program
from ringleader.errors import ProbeError, RefusedError
from ringleader.launch import signals
from ringleader.launch.host_probe.probe import Probe, probe
from ringleader.launch.host_probe.unusable_hosts import hosts_without
from ringleader.launch.mpirun.mpi_discovery import find_mpi
from ringleader.launch.outcome import Listener
from ringleader.launch.transport_settings import JobSettings, job_settings
from ringleader.plan import batch_system
from ringleader.plan.job import Job, Mpi, check
from ringleader.plan.rank_placement import Plan, duplicate_names, place
from ringleader.render.hostfile import mpi_name
from ringleader.render.mpirun_command import SECRETS, MpirunCommand, mpirun_command, scrubbed
from ringleader.render.rank_environment import (
    FreePorts,
    Master,
    caller_of_containers,
    is_forwarded,
    library_log_variables,
    master_address,
    rank_environment,
)
from ringleader.value_class import dataclass

if TYPE_CHECKING:
    from ringleader.launch.ssh.connections import SshConnections
    from ringleader.render.container_command import ContainerHost

LEAST_FREE_BYTES = 1024 * 1024
"""Bytes that a job's directory should have at least: lists of hosts and of ends, an MPI's session files."""
Prober = Callable[..., Probe]
"""``probe``'s shape; tests hand in facts of hosts that do not exist."""


@dataclass(frozen=True, kw_only=True)
class ContainedLaunch:
    """What starting mpirun in a container takes besides its command."""

    engine: ContainerHost
    """This machine's."""
    caller: Mapping[str, str]
    """The caller's environment: the engine's client has it."""
    inside: Mapping[str, str]
    """Variables of the container, besides mpirun's own."""
    order: Mapping[str, Any]
    """For mpirun's supervisor: ``ssh``, the real one (empty: no host is remote), the ``socket`` where it is
    asked for, ``hosts``: what runs a shell's text in a host's container, by the MPI's name for the host,
    and ``remove``: what removes mpirun's container."""

    def client_environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the engine's client. ``ours``: variables for mpirun."""
        from ringleader.render.container_command import client_variable

        given = {**self.inside, **ours}
        return {**self.caller, **{client_variable(self.engine, name): given[name] for name in given}}


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A job that is ready to be started: only free ports and the secret are still to come."""

    job: Job
    """As asked for, with an absolute working directory."""
    environ: Mapping[str, str]
    """The caller's environment; with containers, what of it counts there."""
    mpi: Mpi
    plan: Plan
    ssh: SshConnections | None
    """Open connections to the remote hosts; ``close`` ends them."""
    job_id: str
    directory: str
    """The job's directory, by the same path on every host."""
    key: str
    """Names this machine within ``directory``."""
    addresses: tuple[str, ...]
    """Ours, by which the hosts may reach us, the likeliest first."""
    command: MpirunCommand
    settings: JobSettings
    """Variables for the transports of each host."""
    container: ContainedLaunch | None = None
    """The container that mpirun is in; ``None``: it is in none."""
    run_id: str
    """Names the job in all its starts, as ``job_id`` names one of them."""
    restart: int = 0
    """How often all ranks were started again until now."""
    warm_ranks: str = ""
    """Directory in which agents find what ranks are forked from; empty: ranks start by themselves."""

    def close(self) -> None:
        """End the connections to the hosts."""
        if self.ssh is not None:
            self.ssh.close()

    def mpirun_environment(self, *, port: int | str, token: str) -> dict[str, str]:
        """Return mpirun's whole environment: the caller's without anybody else's directions, and ours.

        ``port``: where the launcher listens. ``token``: the job's secret.
        """
        ours = {
            "RINGLEADER_CONTROL": control_variable(list(self.addresses), port),
            "RINGLEADER_TOKEN": token,
            "RINGLEADER_JOB_DIR": self.directory,
        }
        if self.container is not None:
            return self.container.client_environment(dict(self.command.environment) | ours)
        # Ours come first: Hydra 4.0 forgets the last variable of its environment when it passes a list on.
        inherited = {"HOME": home(self.environ)} | scrubbed(self.environ)
        ours = dict(self.command.environment) | ours
        return ours | inherited | ours

    @cached_property
    def _carried(self) -> Mapping[str, str]:
        """What of the caller's environment a rank's is made of: asked for once, not by every rank."""
        return {name: value for name, value in self.environ.items() if is_forwarded(name) or name == "PATH"}

    @cached_property
    def _withheld(self) -> dict[str, str]:
        """What mpirun is kept from seeing and a local rank sees, as its user's shell does."""
        seen = scrubbed(self.environ)
        withheld = {name: value for name, value in self.environ.items() if name not in seen}
        return {name: value for name, value in withheld.items() if name.startswith(batch_system.VARIABLES)}

    def start_message(
        self, rank: int, ports: FreePorts, *, reads: bool, open_files: int = 0
    ) -> dict[str, Any]:
        """Return the message that makes a rank's agent start.

        ``reads``: whether there is a standard input for rank 0. ``open_files``: the caller's soft limit,
        which ranks of this machine get back; 0: it stays as it is.
        """
        planned = self.plan.ranks[rank]
        host = self.plan.hosts[planned.host_index]
        master = Master(
            address=master_address(self.plan),
            port=str(self.job.master_port or ports.master),
            jax_port=str(ports.jax),
        )
        chosen = rank_environment(
            plan=self.plan,
            place=planned,
            job=self.job,
            mpi=self.mpi,
            job_id=self.job_id,
            master=master,
            caller=self._carried,
            python=host.python or self.job.python or sys.executable,
            settings=self.settings.variables(rank),
            run_id=self.run_id,
            restart=self.restart,
        )
        taken = self._withheld if host.is_local else {}
        return {
            "argv": self.job.command,
            "cwd": host.directory or self.job.workdir,
            "env": taken | dict(self.command.rank_environment) | dict(chosen.set),
            "unset": chosen.unset,
            "cpus": planned.cpus,
            "stdin": reads and rank == 0,
            "links": dict(self.command.links),
            "window": protocol.window(self.plan.size),
            "lost_after": self.job.lost_after,
            "open_files": open_files if host.is_local else 0,
            "warm_ranks": self.warm_ranks,
            "evidence": {
                "counters": planned.local_rank == 0,
                "patience": self.job.patience,
                "sample_seconds": self.job.sample_seconds,
                "kernel_log": self.job.kernel_log or "",
                "logs": library_log_variables(self.plan, planned, self.mpi),
            },
        }


def prepare(
    job: Job,
    *,
    environ: Mapping[str, str],
    listener: Listener,
    job_id: str,
    stop: int | None = None,
    prober: Prober = probe,
    run_id: str = "",
    restart: int = 0,
) -> Prepared:
    """Find the MPI, look at the hosts and place the ranks; nothing is started, the hosts stay connected.

    ``listener`` hears how far that has come, and which names turned out to be one machine. ``stop``: the
    descriptor of ``signals.caught``. ``run_id``, ``restart``: see ``Prepared``. Raises RequestError,
    ProbeError, RefusedError, and StoppedError where a signal came meanwhile.
    """
    job = replace(job, workdir=os.path.abspath(job.workdir or "."))  # noqa: PTH100
    check(job)
    mpi = None
    if job.container is None:  # else it is the image's
        mpi = find_mpi(job.mpi, environ=environ, python=job.python or sys.executable)
    try:
        job, probed = _probed(job, prober, listener, environ=environ, mpi=mpi, stop=stop)
    except KeyboardInterrupt:
        raise signals.stopped(stop) from None
    try:
        caller = environ
        if probed.engines is not None:
            mpi, environ = probed.mpi, caller_of_containers(caller, probed.path)
        assert mpi is not None
        _warn(probed, listener)
        plan = place(job, probed.facts)
        if job.require:
            from ringleader.launch.job_transport import faults_at_start  # few jobs need it

            if faults := faults_at_start(job.require, plan):
                raise RefusedError(faults)
        settings = job_settings(job, plan, mpi, probed.facts, environ)
        if full := why_unusable(environ.get("TMPDIR", "")):
            listener.warning(f"TMPDIR: {full}; the job's own files go to /tmp")
        if any(host.is_local for host in plan.hosts) and not os.access(leftovers.SHM, os.W_OK):
            what = f"{leftovers.SHM} cannot be written: ranks that share memory on this machine will fail"
            listener.warning(what)
        directory = job_directory({} if full or probed.engines else environ, plan, job_id)
        key = rank_identity.host_key(rank_identity.host_identity())
        addresses = tuple(control_addresses(plan))
        ssh = () if probed.ssh is None else probed.ssh.agent_argv("" if probed.engines else mpi.prefix)
        command = mpirun_command(
            plan=plan,
            mpi=mpi,
            job=job,
            agent=agent_command(job, plan),
            hostfile=f"{directory}/{key}/hostfile",
            session=f"{directory}/session",
            backing=leftovers.backing_directory(job_id),
            ssh=(*_python(plan, "container_ssh"), f"{directory}/{key}/ssh.sock")
            if probed.engines and ssh
            else ssh,
            here=addresses[0],
        )
    except BaseException:
        if probed.ssh is not None:
            probed.ssh.close()
        raise
    prepared = Prepared(
        job=job,
        environ=environ,
        mpi=mpi,
        plan=plan,
        ssh=probed.ssh,
        job_id=job_id,
        directory=directory,
        key=key,
        addresses=addresses,
        command=command,
        settings=settings,
        run_id=run_id or job_id,
        restart=restart,
    )
    return prepared if probed.engines is None else contained(prepared, probed.engines, caller, ssh)


def contained(
    prepared: Prepared, engines: Mapping[str, ContainerHost], caller: Mapping[str, str], ssh: tuple[str, ...]
) -> Prepared:
    """Put mpirun into a container, and the daemons that it starts into those of their hosts.

    ``caller``: the caller's whole environment. ``ssh``: the real one, empty where no host is remote.
    """
    from ringleader.launch.ssh.connections import remote_command
    from ringleader.render import container_command as containers

    plan, job, command = prepared.plan, prepared.job, prepared.command
    main, name = _python(plan, "container_main"), f"ringleader-{prepared.job_id}"
    inside = {key: value for key, value in scrubbed(prepared.environ).items() if key != "PATH"}
    inside |= {"SHELL": "/bin/sh"} | containers.many_daemons(len(plan.hosts))
    variables = sorted({*inside, *command.environment, *SECRETS})
    engine, hosts = engines[""], {}
    argv = containers.container_command(engine, job, (*main, *command.argv), name=name, variables=variables)
    for index, facts in enumerate(plan.hosts):
        if not facts.is_local:
            there, shell = engines[facts.host.name], (*main, "/bin/sh", "-c")
            words = containers.container_command(there, job, shell, name=f"{name}-{index}", removes=True)
            hosts[mpi_name(facts.host.name, prepared.mpi.family)] = remote_command(words)
    order = {"socket": f"{prepared.directory}/{prepared.key}/ssh.sock", "ssh": ssh, "hosts": hosts}
    order |= {"remove": containers.remove_command(engine, name)}
    launch = ContainedLaunch(engine=engine, caller=caller, inside=inside, order=order)
    return replace(prepared, command=replace(command, argv=argv), container=launch)


def _python(plan: Plan, program: str) -> tuple[str, ...]:
    """Return what runs a program of ``agents`` in the image."""
    return (plan.hosts[0].python, "-I", "-S", plan.hosts[0].agent.replace("rank_agent", program))


def _warn(probed: Probe, listener: Listener) -> None:
    """Report what is odd about hosts, but no fault."""
    for name, first in duplicate_names(probed.facts):
        listener.warning(f"{name} is the same machine as {first}: their slots are added up on {first}")
    for report in probed.facts:
        if unread := report.all_unread:
            what = f"not read in time, and so unknown: {', '.join(unread)}"
            listener.warning(f"{report.where}: {what}; to allow more time: --start-timeout")


def _probed(job: Job, prober: Prober, listener: Listener, **words: Any) -> tuple[Job, Probe]:
    """Probe all hosts, spare ones too; return the job on the first that can take part, and their facts."""
    try:
        found = prober(job, progress=listener.progress, **words)
    except ProbeError as error:
        left = hosts_without(job.hosts, error.faults)
        spare = job.spare_hosts - (len(job.hosts) - len(left))
        if not left or spare < 0:
            raise
        for fault in error.faults:
            listener.warning(f"{fault}\n    → the job starts without it: a spare host takes its place")
        return _probed(replace(job, hosts=left, spare_hosts=spare), prober, listener, **words)
    if not job.spare_hosts:
        return job, found
    needed = len(job.hosts) - job.spare_hosts
    return replace(job, hosts=job.hosts[:needed]), replace(found, facts=found.facts[:needed])


def agent_command(job: Job, plan: Plan) -> tuple[str, ...]:
    """Return the command of the rank agent, the same on every host of the plan.

    Raises RefusedError where the hosts' interpreters lie at different paths: an MPI starts one command.
    """
    ours = (job.python or sys.executable, agent_program.__file__)
    places = {(host.python or ours[0], host.agent or ours[1]): host.host.name for host in plan.hosts}
    if len(places) == 1:
        python, path = next(iter(places))
        return (python, "-I", "-S", path)
    pythons = {python: name for (python, _), name in places.items()}
    if len(pythons) == 1:
        return (next(iter(pythons)), "-I", "-m", "ringleader.agents.rank_agent")
    where = "; ".join(f"{python} on {name}" for python, name in pythons.items())
    raise RefusedError(
        f"the hosts run the agent with interpreters at different paths ({where})",
        where="--python",
        hint="an MPI starts the same command everywhere: make one path valid on all hosts, name it here",
    )


def home(environ: Mapping[str, str]) -> str:
    """Return the user's home directory, without which Open MPI 5 does not start; ``/`` where nobody knows."""
    with contextlib.suppress(KeyError):
        return environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return "/"


def job_directory(environ: Mapping[str, str], plan: Plan, job_id: str) -> str:
    """Return the path of the job's directory, the same on every host, short and without a space."""
    tmp = environ.get("TMPDIR", "/tmp").rstrip("/")
    local = all(host.is_local for host in plan.hosts)
    if not local or not os.path.isabs(tmp) or not os.path.isdir(tmp) or len(tmp) > 40 or " " in tmp:  # noqa: PTH112, PTH117
        tmp = "/tmp"
    return f"{leftovers.base_directory(tmp, os.getuid())}/{job_id}"


def why_unusable(directory: str) -> str:
    """Return why a directory cannot take a job's small files; the empty text where it can, or is none."""
    if not os.path.isdir(directory):  # noqa: PTH112
        return ""
    status = os.statvfs(directory)
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"{directory} cannot be written"
    if status.f_bavail * status.f_frsize < LEAST_FREE_BYTES or (status.f_files and not status.f_favail):
        return f"{directory} is full"
    return ""


def control_addresses(plan: Plan) -> list[str]:
    """Return our addresses by which the plan's hosts may reach us, the likeliest first."""
    remote = [host for host in plan.hosts if not host.is_local]
    if not remote:
        return ["127.0.0.1"]
    ours: list[str] = []
    for host in remote:
        ours += [found for address in host.addresses[:3] if (found := local_address_towards(address))]
    ours += [address for host in plan.hosts if host.is_local for address in host.addresses]
    if not ours:
        with contextlib.suppress(OSError):
            ours = [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)]
    if any(host.is_local for host in plan.hosts):
        ours.append("127.0.0.1")
    return list(dict.fromkeys(ours))


def local_address_towards(address: str) -> str | None:
    """Return the address of ours from which packets to ``address`` leave; nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])
    return None


def control_variable(addresses: list[str], port: int | str) -> str:
    """Return RINGLEADER_CONTROL: where agents find the launcher, best address first."""
    return ",".join(f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in addresses)

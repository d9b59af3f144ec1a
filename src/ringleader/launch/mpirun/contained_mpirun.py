"""mpirun in a container: its command, and how it reaches the containers of other hosts.

On this machine the container's main process starts mpirun, on each other host the MPI's daemon; what both
start is in their container. ssh stays outside (`ssh_relay`). What an engine is given is in
``render/container_command``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ringleader.launch.ssh.connections import remote_command
from ringleader.plan.job import Job
from ringleader.plan.rank_placement import Plan
from ringleader.render.container_command import (
    ContainerHost,
    client_variable,
    container_command,
    remove_command,
)
from ringleader.render.hostfile import mpi_name
from ringleader.render.mpirun_command import SECRETS, MpirunCommand, scrubbed
from ringleader.value_class import dataclass

if TYPE_CHECKING:
    from ringleader.launch.host_probe.probe import Images

MOST_DAEMONS, CONCURRENT = 128, ("PRTE_MCA_plm_ssh_num_concurrent", "OMPI_MCA_plm_rsh_num_concurrent")
"""How many ssh Open MPI 5 and 4 have open at once, and what changes that: in containers each stays open."""


@dataclass(frozen=True, kw_only=True)
class ContainedLaunch:
    """What starting mpirun in a container takes besides its command."""

    engine: ContainerHost
    """This machine's."""
    caller: Mapping[str, str]
    """The caller's environment: the engine's client has it."""
    inside: Mapping[str, str]
    """What of it, and of ours, the container gets; mpirun's own variables besides."""
    order: Mapping[str, Any]
    """For mpirun's supervisor: ``ssh``, the real one (empty: no host is remote), the ``socket`` where it is
    asked for, ``hosts``: what runs a shell's text in a host's container, by the name that the MPI has for it,
    and ``remove``: what removes mpirun's container."""

    def client_environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the engine's client. ``ours``: variables for mpirun."""
        given = {**self.inside, **ours}
        return {**self.caller, **{client_variable(self.engine, name): given[name] for name in given}}


def ssh_inside(plan: Plan, socket: str) -> tuple[str, ...]:
    """Return what stands for ssh in mpirun's container."""
    return (*_python(plan), f"{_agents(plan)}/container_ssh.py", socket)


def contained(
    command: MpirunCommand,
    *,
    plan: Plan,
    job: Job,
    job_id: str,
    images: Images,
    caller: Mapping[str, str],
    counts: Mapping[str, str],
    ssh: tuple[str, ...],
    socket: str,
) -> tuple[MpirunCommand, ContainedLaunch]:
    """Put an mpirun into a container.

    ``caller``: the caller's environment, ``counts``: what of it counts in containers. ``ssh``: the real one,
    empty where no host is remote. ``socket``: where it is asked for.
    """
    main = (*_python(plan), f"{_agents(plan)}/container_main.py")
    if len(plan.hosts) > MOST_DAEMONS:
        at_once = dict.fromkeys(CONCURRENT, str(len(plan.hosts)))
        command = replace(command, environment={**command.environment, **at_once})
    inside = {name: value for name, value in scrubbed(counts).items() if name != "PATH"} | {
        "SHELL": "/bin/sh"
    }
    variables = sorted({*inside, *command.environment, *SECRETS})
    engine, name = images.engines[""], f"ringleader-{job_id}"
    argv = container_command(engine, job, (*main, *command.argv), name=name, variables=variables)
    hosts = {}
    for index, facts in enumerate(plan.hosts):
        if not facts.is_local:
            shell = (*main, "/bin/sh", "-c")
            theirs = container_command(images.engines[facts.host.name], job, shell, name=f"{name}-{index}")
            hosts[mpi_name(facts.host.name, images.mpi.family)] = remote_command(theirs)
    order = {"socket": socket, "ssh": ssh, "hosts": hosts, "remove": remove_command(engine, name)}
    launch = ContainedLaunch(engine=engine, caller=caller, inside=inside, order=order)
    return replace(command, argv=argv), launch


def _python(plan: Plan) -> tuple[str, ...]:
    return (plan.hosts[0].python, "-I", "-S")


def _agents(plan: Plan) -> PurePosixPath:
    return PurePosixPath(plan.hosts[0].agent).parent

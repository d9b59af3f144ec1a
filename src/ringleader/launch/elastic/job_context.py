"""What all parts of an elastic job need and nobody changes, and what a world's plan follows from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ringleader.agents import job_directory
from ringleader.agents.elastic.generation_client import AGENT_NUMBERS
from ringleader.agents.rank_files import LINKS
from ringleader.launch.elastic.layout import Layout, agent_numbers, names_apart, slots_of
from ringleader.launch.host_probe.host_answer import HostReport
from ringleader.launch.launch_plan import Prepared, control_addresses
from ringleader.launch.outcome import Listener
from ringleader.launch.ssh.connections import SshConnections
from ringleader.launch.transport_settings import job_settings
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.job import Family, Job, Mpi, Placement
from ringleader.plan.rank_placement import Plan, place
from ringleader.render.mpirun_command import SECRETS, TABLE, MpirunCommand, library_links, mpirun_command
from ringleader.render.rank_environment import FreePorts
from ringleader.value_class import dataclass

PROXY_MODULE = "ringleader.engine.mpi_proxy"
_OF_PROXIES = (
    "OMPI_MCA_",
    "UCX_",
    "FI_",
    "MPICH_",
    "MPIR_CVAR_",
    "I_MPI_",
    "PYTHON",
    "RINGLEADER_",
    "HOROVOD_",
)
"""Beginnings of the variables of ranks that their proxies get, too."""
_PROXY_NAMES = ("MPI4PY_LIBMPI", "LD_LIBRARY_PATH")
_NOT_OF_PROXIES = ("RINGLEADER_CONTROL", "RINGLEADER_TOKEN", "RINGLEADER_REPORT_FD", "OMPI_MCA_orte_hnp_uri")
_TCP_COMPONENTS = {
    Family.OPENMPI5: {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm,tcp", "OMPI_MCA_mtl": "^ofi"},
    Family.OPENMPI4: {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader,tcp", "OMPI_MCA_mtl": "^ofi"},
}
"""Where no host has an RDMA device: what an MPI would find out anyway, in 1.5 s instead of 0.1."""


@dataclass(frozen=True, kw_only=True)
class ElasticContext:
    """One elastic job."""

    job: Job
    elastic: ElasticOptions
    environ: Mapping[str, str]
    """The caller's environment."""
    mpi: Mpi
    listener: Listener
    job_id: str
    directory: str
    """The job's directory, by the same path on every host."""
    key: str
    """Names this machine within ``directory``."""
    token: str
    addresses: tuple[str, ...]
    """Ours, by which hosts may reach us, the likeliest first."""
    python: str
    """Interpreter of agents and proxies, on every host."""


def slots_kept(plan: Plan, whole: Plan, layout: Layout) -> Plan:
    """Return a plan in which each rank has the number, the GPU and the cores of its slot.

    ``whole``: the plan of all slots of the hosts. Where some are left out, those that stay keep what they
    had, as do the ranks that train there.
    """
    places = {(place.host_index, place.local_rank): place for place in whole.ranks}
    ranks = []
    for member in plan.ranks:
        slot = layout[member.host_index][1][member.local_rank]
        own = places[member.host_index, slot]
        seen = own.visible_gpus
        ranks.append(replace(member, local_rank=slot, gpu=own.gpu, visible_gpus=seen, cpus=own.cpus))
    return replace(plan, ranks=tuple(ranks))


def prepared_world(
    context: ElasticContext,
    layout: Layout,
    reports: Mapping[str, HostReport],
    *,
    number: int,
    ssh: SshConnections | None,
) -> Prepared:
    """Return what a world is started with: its ``command`` starts the proxies, the rest is for its ranks.

    Ranks and proxies are numbered alike. Raises RequestError.
    """
    job, mpi = context.job, context.mpi
    machines = _with_slots(layout, reports)
    hosts = names_apart(machines)
    plan = _placed(job, hosts)
    if any(slots != tuple(range(len(slots))) for _, slots in layout):
        all_slots = tuple((host, tuple(range(max(slots) + 1))) for host, slots in layout)
        plan = slots_kept(plan, _placed(job, names_apart(_with_slots(all_slots, reports))), layout)
    prepared = Prepared(
        job=job,
        environ=context.environ,
        mpi=mpi,
        plan=plan,
        ssh=None,
        job_id=context.job_id,
        run_id=context.job_id,
        directory=context.directory,
        key=context.key,
        addresses=context.addresses,
        command=MpirunCommand(argv=(), environment={}, hostfile="", rank_environment={}, links={}),
        settings=job_settings(job, plan, mpi, hosts, context.environ),
    )
    variables = proxy_variables(prepared, number)
    number_of = agent_numbers(reports)
    numbers = [number_of[host] for host, _ in slots_of(layout)]
    if any(numbers):  # a machine with several agents: which one is each proxy's
        variables[AGENT_NUMBERS] = json.dumps(numbers)
    remote = any(not host.is_local for host in plan.hosts)
    command = mpirun_command(
        plan=_placed(job, machines),
        mpi=mpi,
        job=job,
        agent=(context.python, "-P", "-m", PROXY_MODULE),
        hostfile=f"{context.directory}/{context.key}/hostfile-{number}",
        session=f"{context.directory}/session/{number}",  # one MPI that ends removes only its part
        backing=job_directory.backing_directory(context.job_id),
        ssh=ssh.agent_argv(mpi.prefix) if ssh is not None and remote else (),
        here=control_addresses(plan)[0],
        exported=tuple(sorted({*variables, *TABLE[mpi.family].rank_environment})),
    )
    environment = {**command.environment, **dict(command.rank_environment), **variables}
    environment |= daemon_variables(mpi, job.lost_after)
    # Ranks are no children of an mpirun's: nothing of it is passed to them.
    command = replace(command, environment=environment, rank_environment={}, links={})
    return replace(prepared, command=command)


def _with_slots(layout: Layout, reports: Mapping[str, HostReport]) -> tuple[HostReport, ...]:
    return tuple(
        replace(reports[host], host=replace(reports[host].host, slots=len(slots))) for host, slots in layout
    )


def _placed(job: Job, machines: tuple[HostReport, ...]) -> Plan:
    hosts = tuple(one.host for one in machines)
    np = sum(host.slots or 0 for host in hosts)
    return place(replace(job, np=np, hosts=hosts, placement=Placement.SLOT), machines)


def daemon_variables(mpi: Mpi, lost_after: float) -> dict[str, str]:
    """Return what has Open MPI's daemon on a host that is cut off end, once the job continues without the
    host.

    By itself it notices after eight minutes that nothing comes from mpirun any more.
    """
    prefix = {Family.OPENMPI4: "OMPI_MCA", Family.OPENMPI5: "PRTE_MCA"}.get(mpi.family)
    if prefix is None:
        return {}
    numbers = {"time": max(1, round(2 * lost_after)), "intvl": 5, "probes": 2}
    return {f"{prefix}_oob_tcp_keepalive_{name}": str(number) for name, number in numbers.items()}


def world_environment(prepared: Prepared) -> dict[str, str]:
    """Return the whole environment of a world's mpirun: proxies need no secret of the launcher's."""
    environment = prepared.mpirun_environment(port=0, token="")
    return {name: value for name, value in environment.items() if name not in SECRETS[:2]}


def proxy_variables(prepared: Prepared, number: int) -> dict[str, str]:
    """Return the variables of a world's proxies: what MPI and our own code read, nothing of a script's."""
    chosen = prepared.start_message(0, FreePorts(master=0, jax=0), reads=False)["env"]
    found = {
        name: value
        for name, value in chosen.items()
        if (name.startswith(_OF_PROXIES) or name in _PROXY_NAMES) and name not in _NOT_OF_PROXIES
    }
    if not any(host.rdma for host in prepared.plan.hosts):
        found = _TCP_COMPONENTS.get(prepared.mpi.family, {}) | found
    found |= {"RINGLEADER_JOB_DIR": prepared.directory, "RINGLEADER_WORLD": str(number)}
    if links := library_links(prepared.mpi):
        found[LINKS] = json.dumps(links)
    return dict(sorted(found.items()))


def file_reader(job: Job) -> Callable[[str], bytes | None]:
    """Return what reads a file below the job's working directory, as this machine has it."""

    def read(path: str) -> bytes | None:
        try:
            return Path(job.workdir, path).read_bytes()
        except (OSError, ValueError):
            return None

    return read

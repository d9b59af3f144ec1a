"""The variables that tell each MPI where its hosts are and how to reach them. Pure.

The first of each list are those of the reference controller, in its order; they come after the user's and so
win, as there. The rest are ours and give way to a variable of the same name that the user has set:

* Open MPI 5 reads nothing but ``PRTE_MCA_*``: without them it starts every rank in the launcher.
* The agent is what mpirun calls instead of ssh (see docs/decisions/0006-reaching-the-planned-hosts.md).
* Daemons do not start each other (``no_tree_spawn``, a branch count of -1): only the launcher has the key.
* Hydra reads ``HYDRA_LAUNCHER_EXTRA_ARGS``; the reference's ``HYDRA_LAUNCH_EXTRA_ARGS`` is unknown to it.
"""

from __future__ import annotations

from ringleader.kubernetes.mpijob.model import MpiImplementation, MPIJob
from ringleader.kubernetes.mpijob.object_metadata import LAUNCHER, WORKER, Document
from ringleader.kubernetes.objects import rdma_annotations
from ringleader.kubernetes.objects.config_map import HOSTFILE_PATH
from ringleader.kubernetes.objects.exec_spawn import is_exec
from ringleader.kubernetes.objects.ssh_secret import is_reference_layout

ROLE = "K_MPI_JOB_ROLE"
SSH_ARGS = "-o ConnectionAttempts=10"

_AGENT_OF = {
    # Open MPI 4 looks for it in the workers as well and hangs where it is not: any program will do there.
    MpiImplementation.OPENMPI: (
        ("OMPI_MCA_plm_rsh_agent", "{}:/bin/sh"),
        ("PRTE_MCA_plm_ssh_agent", "{}"),
    ),
    MpiImplementation.INTEL: (("I_MPI_HYDRA_BOOTSTRAP_EXEC", "{}"),),
    MpiImplementation.MPICH: (("HYDRA_LAUNCHER_EXEC", "{}"),),
}
"""Variables that name what an MPI calls to start its daemon on another host."""

SSH_ARGS_OF = {
    MpiImplementation.OPENMPI: ("OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args"),
    MpiImplementation.INTEL: ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",),
    MpiImplementation.MPICH: ("HYDRA_LAUNCHER_EXTRA_ARGS",),
}
"""Variables that an MPI reads ssh's arguments from."""

_HIDE_GPUS = (("NVIDIA_VISIBLE_DEVICES", ""), ("NVIDIA_DRIVER_CAPABILITIES", ""))

Pairs = list[tuple[str, str]]


def of_worker(container: Document) -> Document:
    """Return a worker's first container with its variables."""
    return _with(container, [(ROLE, WORKER)])


def of_launcher(container: Document, job: MPIJob, agent: str) -> Document:
    """Return the launcher's first container with its variables. ``agent``: path of ssh's stand-in, or ""."""
    theirs = [(ROLE, LAUNCHER), *_reference(job)]
    if not job.spec.run_launcher_as_worker:
        theirs += _HIDE_GPUS
    has = {one.get("name") for one in container.get("env") or ()}
    ours = _ours(job) + _agent(job, agent)
    return _with(container, [*theirs, *((name, value) for name, value in ours if name not in has)])


def expected(job: MPIJob, agent: str) -> list[str]:
    """Return the variables by which a launch finds its hosts, ``NAME=VALUE``.

    Where one of them is something else when mpirun is called, the user has arranged the launch himself.
    """
    pairs = [*_reference(job), *_ours(job)]
    found = [(name, value) for name, value in pairs if value == HOSTFILE_PATH or name == "I_MPI_PERHOST"]
    return [f"{name}={value}" for name, value in [*found, *_agent(job, agent)]]


def ssh_args(job: MPIJob) -> str:
    """Return what ssh is told beside the host."""
    port = rdma_annotations.ssh_port(job)
    return SSH_ARGS if port is None else f"-p {port} {SSH_ARGS}"


def _agent(job: MPIJob, agent: str) -> Pairs:
    return [(name, form.format(agent)) for name, form in _AGENT_OF[job.spec.mpi_implementation] if agent]


def _with(container: Document, pairs: Pairs) -> Document:
    added = [{"name": name, "value": value} for name, value in pairs]
    return {**container, "env": [*(container.get("env") or ()), *added]}


def _reference(job: MPIJob) -> Pairs:
    """Return the variables of the reference; what ssh is told, only where there is ssh."""
    slots, ssh = str(job.spec.slots_per_worker), ssh_args(job)
    found = {
        MpiImplementation.OPENMPI: [
            ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
            ("OMPI_MCA_orte_default_hostfile", HOSTFILE_PATH),
            ("OMPI_MCA_plm_rsh_args", ssh),
            ("OMPI_MCA_orte_set_default_slots", slots),
        ],
        MpiImplementation.INTEL: [
            ("I_MPI_HYDRA_HOST_FILE", HOSTFILE_PATH),
            ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", ssh),
            ("I_MPI_PERHOST", slots),
        ],
        MpiImplementation.MPICH: [
            ("HYDRA_HOST_FILE", HOSTFILE_PATH),
            ("HYDRA_LAUNCH_EXTRA_ARGS", ssh),
        ],
    }[job.spec.mpi_implementation]
    return [pair for pair in found if pair[1] != ssh or not is_exec(job)]


def _ours(job: MPIJob) -> Pairs:
    has_one_key = is_reference_layout(job) and not is_exec(job)
    ssh = [] if is_exec(job) else [ssh_args(job)]
    if job.spec.mpi_implementation is MpiImplementation.MPICH:
        return [("HYDRA_LAUNCHER_EXTRA_ARGS", args) for args in ssh]
    if job.spec.mpi_implementation is MpiImplementation.INTEL:
        return [] if has_one_key else [("I_MPI_HYDRA_BRANCH_COUNT", "-1")]
    found = [
        ("PRTE_MCA_prte_keep_fqdn_hostnames", "true"),
        ("PRTE_MCA_prte_default_hostfile", HOSTFILE_PATH),
        *(("PRTE_MCA_plm_ssh_args", args) for args in ssh),
        ("PRTE_MCA_prte_set_default_slots", str(job.spec.slots_per_worker)),
    ]
    if not has_one_key:
        found += [("OMPI_MCA_plm_rsh_no_tree_spawn", "1"), ("PRTE_MCA_plm_ssh_no_tree_spawn", "1")]
    return found

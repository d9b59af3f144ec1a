"""The variables that tell each MPI where its hosts are and how to reach them. Pure.

The first of each list are those of the reference controller, in its order; they come after the user's and so
win, as there. The rest are ours and give way to a variable of the same name that the user has set:

* Open MPI 5 reads nothing but ``PRTE_MCA_*``: without them it starts every rank in the launcher.
* The agent is what mpirun calls instead of ssh (see docs/decisions/0006-reaching-the-planned-hosts.md).
* Daemons do not start each other (``no_tree_spawn``, a branch count of -1): only the launcher has the key.
* Hydra reads ``HYDRA_LAUNCHER_EXTRA_ARGS``; the reference's ``HYDRA_LAUNCH_EXTRA_ARGS`` is unknown to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ringleader.kubernetes.mpijob.model import MpiImplementation, MPIJob
from ringleader.kubernetes.mpijob.object_metadata import LAUNCHER, WORKER, Document
from ringleader.kubernetes.mpijob.object_names import HOSTFILE_PATH
from ringleader.kubernetes.objects import rdma_annotations
from ringleader.kubernetes.objects.exec_spawn import is_exec
from ringleader.kubernetes.objects.ssh_secret import is_reference_layout

ROLE = "K_MPI_JOB_ROLE"
SSH_ARGS = "-o ConnectionAttempts=10"
_HIDE_GPUS = (("NVIDIA_VISIBLE_DEVICES", ""), ("NVIDIA_DRIVER_CAPABILITIES", ""))
_REFERENCE, _ONE_KEY_EACH = "of the reference", "where workers have not got the launcher's key"


class _Variable(NamedTuple):
    name: str
    value: str
    """With ``{ssh}``, what ssh gets beside the host, ``{slots}`` or ``{agent}``; left out without it."""
    scope: str = ""


_OF = {
    MpiImplementation.OPENMPI: (
        _Variable("OMPI_MCA_orte_keep_fqdn_hostnames", "true", _REFERENCE),
        _Variable("OMPI_MCA_orte_default_hostfile", HOSTFILE_PATH, _REFERENCE),
        _Variable("OMPI_MCA_plm_rsh_args", "{ssh}", _REFERENCE),
        _Variable("OMPI_MCA_orte_set_default_slots", "{slots}", _REFERENCE),
        _Variable("PRTE_MCA_prte_keep_fqdn_hostnames", "true"),
        _Variable("PRTE_MCA_prte_default_hostfile", HOSTFILE_PATH),
        _Variable("PRTE_MCA_plm_ssh_args", "{ssh}"),
        _Variable("PRTE_MCA_prte_set_default_slots", "{slots}"),
        _Variable("OMPI_MCA_plm_rsh_no_tree_spawn", "1", _ONE_KEY_EACH),
        _Variable("PRTE_MCA_plm_ssh_no_tree_spawn", "1", _ONE_KEY_EACH),
        # Open MPI 4 looks for it in the workers as well and hangs where it is not: any program will do there.
        _Variable("OMPI_MCA_plm_rsh_agent", "{agent}:/bin/sh"),
        _Variable("PRTE_MCA_plm_ssh_agent", "{agent}"),
    ),
    MpiImplementation.INTEL: (
        _Variable("I_MPI_HYDRA_HOST_FILE", HOSTFILE_PATH, _REFERENCE),
        _Variable("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "{ssh}", _REFERENCE),
        _Variable("I_MPI_PERHOST", "{slots}", _REFERENCE),
        _Variable("I_MPI_HYDRA_BRANCH_COUNT", "-1", _ONE_KEY_EACH),
        _Variable("I_MPI_HYDRA_BOOTSTRAP_EXEC", "{agent}"),
    ),
    MpiImplementation.MPICH: (
        _Variable("HYDRA_HOST_FILE", HOSTFILE_PATH, _REFERENCE),
        _Variable("HYDRA_LAUNCH_EXTRA_ARGS", "{ssh}", _REFERENCE),
        _Variable("HYDRA_LAUNCHER_EXTRA_ARGS", "{ssh}"),
        _Variable("HYDRA_LAUNCHER_EXEC", "{agent}"),
    ),
}

SSH_ARGS_OF: Mapping[MpiImplementation, tuple[str, ...]] = {
    mpi: tuple(one.name for one in rows if one.value == "{ssh}" and one.name != "HYDRA_LAUNCH_EXTRA_ARGS")
    for mpi, rows in _OF.items()
}
"""Variables that an MPI reads ssh's arguments from."""


def of_worker(container: Document) -> Document:
    """Return a worker's first container with its variables."""
    return _with(container, [(ROLE, WORKER)])


def of_launcher(container: Document, job: MPIJob, agent: str) -> Document:
    """Return the launcher's first container with its variables. ``agent``: path of ssh's stand-in, or ""."""
    found = list(_variables(job, agent))
    theirs = [(ROLE, LAUNCHER), *((row.name, value) for row, value in found if row.scope == _REFERENCE)]
    if not job.spec.run_launcher_as_worker:
        theirs += _HIDE_GPUS
    has = {one.get("name") for one in container.get("env") or ()}
    ours = [(row.name, value) for row, value in found if row.scope != _REFERENCE and row.name not in has]
    return _with(container, [*theirs, *ours])


def expected(job: MPIJob, agent: str) -> list[str]:
    """Return the variables by which a launch finds its hosts, ``NAME=VALUE``.

    Where one of them is something else when mpirun is called, the user has arranged the launch himself.
    """
    return [
        f"{row.name}={value}"
        for row, value in _variables(job, agent)
        if value == HOSTFILE_PATH or row.name == "I_MPI_PERHOST" or "{agent}" in row.value
    ]


def ssh_args(job: MPIJob) -> str:
    """Return what ssh gets beside the host."""
    port = rdma_annotations.ssh_port(job)
    return SSH_ARGS if port is None else f"-p {port} {SSH_ARGS}"


def _variables(job: MPIJob, agent: str) -> Iterator[tuple[_Variable, str]]:
    context = {
        "ssh": "" if is_exec(job) else ssh_args(job),
        "slots": str(job.spec.slots_per_worker),
        "agent": agent,
    }
    has_one_key = is_reference_layout(job) and not is_exec(job)
    for row in _OF[job.spec.mpi_implementation]:
        is_known = all(value or f"{{{name}}}" not in row.value for name, value in context.items())
        if is_known and not (has_one_key and row.scope == _ONE_KEY_EACH):
            yield row, row.value.format_map(context)


def _with(container: Document, pairs: list[tuple[str, str]]) -> Document:
    added = [{"name": name, "value": value} for name, value in pairs]
    return {**container, "env": [*(container.get("env") or ()), *added]}

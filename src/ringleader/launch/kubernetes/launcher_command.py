"""The launcher's command: mpirun in the user's image. Pure.

The hostfile, its slots and how ssh is called are told to mpirun by the controller, through the environment.
Here is said how many ranks there are and what they run; see ``torchrun_variables`` for what they get.
"""

from __future__ import annotations

from ringleader.launch.kubernetes.job_request import JobRequest
from ringleader.launch.kubernetes.pod_template import Program, unexpanded
from ringleader.launch.kubernetes.torchrun_variables import SET_BY_TORCHRUN, rank_variables
from ringleader.mpijob.model import MpiImplementation
from ringleader.render.kubernetes.mpi_environment import SSH_ARGS, SSH_ARGS_OF

_OPENMPI = 'exec "$0" ${LD_LIBRARY_PATH:+-x LD_LIBRARY_PATH} "$@"'
"""mpirun with its arguments. A login through ssh has not the image's library path, so it is carried to the
ranks; named unset, it would be complained about."""


def launcher_program(request: JobRequest) -> Program:
    """Return how the launcher starts the ranks."""
    env = rank_variables(request)
    ranks = ("sh", "-c", SET_BY_TORCHRUN, "sh", *request.command)
    if request.mpi is MpiImplementation.OPENMPI:
        command: tuple[str, ...] = ("sh", "-c", _OPENMPI, request.mpirun)
        secrets = (secret.name for secret in request.secret_env)
        exported = tuple(dict.fromkeys(("PATH", *(name for name, _ in env), *secrets)))
        args: tuple[str, ...] = ("--allow-run-as-root", "-n", str(request.np))
        # Pods do not know of each other: bound ranks of two Pods on one node would share the same cores.
        args += ("--map-by", "node" if request.by_node else "slot", "--bind-to", "none")
        args += tuple(word for name in exported for word in ("-x", name))
    else:
        # Hydra carries the launcher's whole environment to the ranks.
        command = (request.mpirun,)
        args = ("-n", str(request.np), *(("-ppn", "1") if request.by_node else ()))
        args += ("-bind-to", "none") if request.mpi is MpiImplementation.MPICH else ()
    words = (*args, *request.mpirun_args, *ranks)
    return Program(
        command=tuple(map(unexpanded, (*_port(request), *command))),
        args=tuple(map(unexpanded, words)),
        env=tuple((name, unexpanded(value)) for name, value in env),
    )


def _port(request: JobRequest) -> tuple[str, ...]:
    """Return what tells ssh the workers' port.

    Every controller sets these variables in the container, and its own come after ours: so they are changed
    only when mpirun is called.
    """
    if request.ssh_port is None:
        return ()
    args = f"-p {request.ssh_port} {SSH_ARGS}"
    return ("env", *(f"{name}={args}" for name in SSH_ARGS_OF[request.mpi]))

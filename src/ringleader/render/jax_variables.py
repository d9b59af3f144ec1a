"""What `jax.distributed.initialize()` needs in a rank's environment so that it needs no arguments. Pure.

JAX looks for signs of launchers that it knows, Open MPI's before others. The sign is a variable of Open MPI 4
that Open MPI 5 does not set, and the numbers of ranks are variables that other MPIs do not set.
"""

from __future__ import annotations

from ringleader.plan.job import Family

SIGN = "OMPI_MCA_orte_hnp_uri"
"""Where Open MPI 4 has its mpirun, ``<job number>.0;tcp://<address>:<port>``. Open MPI 5 ignores it."""
FIRST_PORT, PORTS, JOB_NUMBERS = 61440, 4096, 4096
"""JAX makes the coordinator's port of the job's number: the first + number / 4096 modulo 4096. It takes the
address and port of JAX_COORDINATOR_ADDRESS instead where that is set; we let both say the same."""


def jax_variables(
    *,
    address: str,
    port: str,
    family: Family,
    rank: int,
    size: int,
    local_rank: int,
    gpu: int | None,
    alone: bool,
) -> dict[str, str]:
    """Return the variables of one rank.

    ``address``, ``port``: rank 0's host as all reach it, and a port that is free there; in a dry run a word.
    ``gpu``: which of the GPUs that the rank sees is its own. JAX takes the memory of every GPU that it sees,
    and `initialize` would ask for the one of the local rank, which may see fewer.
    ``alone``: the rank makes up a world of its own, whatever the MPI says.
    """
    host = f"[{address}]" if ":" in address else address
    variables = {"JAX_COORDINATOR_ADDRESS": f"{host}:{port}"}
    if gpu is not None:
        variables |= {"JAX_LOCAL_DEVICE_IDS": str(gpu), "JAX_CUDA_VISIBLE_DEVICES": str(gpu)}
    if family is not Family.OPENMPI4:  # which needs its own
        number = (int(port) - FIRST_PORT) % PORTS * JOB_NUMBERS if port.isdigit() else 0
        variables[SIGN] = f"{number}.0;tcp{'6' if ':' in address else ''}://{host}:{port}"
    if alone or family in (Family.MPICH, Family.INTEL):
        rank, size, local_rank = (0, 1, 0) if alone else (rank, size, local_rank)
        variables |= {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": str(size),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        }
    return variables

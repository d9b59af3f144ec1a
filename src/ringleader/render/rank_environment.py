"""The environment of one rank. Pure: the caller's own environment is handed in.

A rank on the launching host inherits the caller's environment; one on another host inherits what the login
there gives. Both then get, the later the stronger: the caller's variables that are worth carrying
(``is_forwarded``), what follows from the rank's place, and what the user set with ``-x`` or ``--env-file``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import PurePosixPath

from ringleader.plan.job import Family, Job, Mpi
from ringleader.plan.rank_placement import Plan, RankPlace
from ringleader.render.hostfile import bare_name
from ringleader.render.jax_variables import jax_variables
from ringleader.value_class import dataclass

LEAST_INTER_OP = 2
"""TensorFlow's threads for operations beside each other: a function of Python's that waits blocks one."""


def thread_variables(threads: int, *, bound: bool) -> dict[str, str]:
    """Return the variables of a rank that may use so many threads, ``bound`` to cores or not.

    NPROC is what XLA on CPUs (JAX) reads; other programs know it too, so it is set only where ranks roam.
    """
    variables = {
        "OMP_NUM_THREADS": threads,
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": max(LEAST_INTER_OP, threads),
    }
    if not bound:
        variables["NPROC"] = threads
    return {name: str(count) for name, count in variables.items()}


FORWARDED_PREFIXES = (
    "NCCL_", "UCX_", "FI_", "GLOO_", "OMPI_MCA_", "MPICH_", "MPIR_CVAR_", "MV2_", "MVP_", "I_MPI_",
    "RINGLEADER_", "HOROVOD_", "PYTHON", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TF_", "XLA_", "JAX_",
    "KERAS_", "MXNET_", "HF_", "TRANSFORMERS_", "WANDB_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_",
    "NUMEXPR_", "CUDA_", "CUBLAS_", "CUDNN_", "LC_",
)  # fmt: skip
"""Variables of the caller that begin so are carried to every host."""

FORWARDED_NAMES = (
    "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "PATH", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX", "NPROC",
)  # fmt: skip
"""Further variables of the caller that are carried to every host."""

_SECRET = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE
)

_OF_A_JOB = (
    "RINGLEADER_CONTROL", "RINGLEADER_TOKEN", "RINGLEADER_JOB_ID", "RINGLEADER_MPI_FAMILY",
    "RINGLEADER_LAUNCHED", "RINGLEADER_UNCOUPLED", "RINGLEADER_REPORT_FD", "RINGLEADER_STATUS_FILE",
)  # fmt: skip

_OF_HOROVODS_RANK = (
    "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME",
)  # fmt: skip

NEVER_FORWARDED = (
    *("CUDA_VISIBLE_DEVICES", "JAX_LOCAL_DEVICE_IDS", "JAX_CUDA_VISIBLE_DEVICES", "JAX_PROCESS_ID"),
    "JAX_COORDINATOR_ADDRESS",
    *("PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", *_OF_A_JOB, *_OF_HOROVODS_RANK),
)
"""Exceptions: facts about one host, one session or another job."""

OF_THE_COMMAND_LINE = "RINGLEADER_OPT_"
"""Variables that begin so are defaults of options of one command line: no rank sees them."""

_NEVER_PREFIXES = (
    *("OMPI_MCA_ess", "OMPI_MCA_orte_", "OMPI_MCA_pmix", "OMPI_MCA_initial_"),
    OF_THE_COMMAND_LINE,
)
# The first: an outer mpirun leaves these in our environment; a rank would look for the outer job's daemon.

RESERVED = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK",
    "ROLE_RANK", "ROLE_WORLD_SIZE", *_OF_A_JOB,
)  # fmt: skip
"""Variables that follow from a rank's place; ``-x`` and ``--env-file`` cannot set them."""

_UNSET = ("RINGLEADER_CONTROL", "RINGLEADER_TOKEN", "RINGLEADER_UNCOUPLED", "TORCHELASTIC_USE_AGENT_STORE")
# The last: an outer torchrun's variable that makes ranks wait for a store that nobody serves.

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, kw_only=True)
class FreePorts:
    """Ports that rank 0's agent holds until the ranks start; in a dry run words."""

    master: int | str
    """For ``torch.distributed`` and others."""
    jax: int | str
    """For ``jax.distributed``; of uncoupled ranks each has one on its own host."""


@dataclass(frozen=True, kw_only=True)
class Master:
    """Where ``torch.distributed`` and others meet."""

    address: str
    """MASTER_ADDR: an address of rank 0's host that all hosts reach; see ``master_address``."""
    port: str
    """MASTER_PORT in digits; in a dry run a word, since a free port is picked at start."""
    jax_port: str
    """Where ``jax.distributed`` meets, likewise."""


_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
"""glibc gives the memory of a step's activations back to the system and asks for it again in the next step:
1,600 page faults and 15 % of the time of a small net's step on a CPU. So it may keep 256 MiB (in bytes)."""


_HOROVODS_CONTROLLER = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
"""How Horovod says what ranks find each other by, and what carries their arrays."""


@dataclass(frozen=True, kw_only=True)
class RankEnvironment:
    """What the agent changes in the environment that it finds."""

    set: Mapping[str, str] = field(default_factory=dict)
    """Variables to set, sorted by name."""
    unset: tuple[str, ...] = ()
    """Variables to take away first."""


def is_secret(name: str) -> bool:
    """Say whether a variable's name speaks of a secret: such a value is neither shown nor carried unasked."""
    return _SECRET.search(name) is not None


def is_forwarded(name: str) -> bool:
    """Say whether a variable of the caller's is carried to every host."""
    if is_secret(name) or name in NEVER_FORWARDED or name.startswith(_NEVER_PREFIXES):
        return False
    return name in FORWARDED_NAMES or name.startswith(FORWARDED_PREFIXES)


def master_address(plan: Plan) -> str:
    """Return MASTER_ADDR: loopback where all ranks share a machine, else rank 0's host as others reach it."""
    if len(plan.hosts) == 1:
        return "127.0.0.1"
    first = plan.hosts[plan.ranks[0].host_index]
    return first.addresses[0] if first.addresses else bare_name(first.host.name)


def rank_environment(
    *,
    plan: Plan,
    place: RankPlace,
    job: Job,
    mpi: Mpi,
    job_id: str,
    master: Master,
    caller: Mapping[str, str],
    python: str,
    settings: Mapping[str, str] | None = None,
    run_id: str = "",
    restart: int = 0,
) -> RankEnvironment:
    """Return the environment of one rank.

    ``caller`` is the launcher's whole environment, ``python`` the absolute path of the interpreter whose
    directory goes in front of PATH, ``settings`` what fits the transports of its host (weaker than all the
    rest), ``run_id`` what names the job in all its starts (empty: ``job_id``), ``restart`` how often ranks
    were started again until now. PYTHONPATH is the agent's to complete, as only it knows where it is.
    """
    asked = dict(job.env)
    users = {name: value for name, value in caller.items() if is_forwarded(name)} | asked
    ours = _defaults(place, job, mpi) | _jax(plan, place, job, mpi, master)
    values = dict(settings or {}) | ours | users
    if job.threads is not None:  # the command line counts before the environment
        chosen = thread_variables(job.threads, bound=bool(place.cpus))
        values |= {name: value for name, value in chosen.items() if name not in asked}
    if "CUDA_VISIBLE_DEVICES" not in asked and place.visible_gpus is not None:
        values["CUDA_VISIBLE_DEVICES"] = place.visible_gpus
    values["PATH"] = search_path(job, caller, python)
    if users.get("LD_LIBRARY_PATH") and mpi.library:
        # The MPI completes this variable for what it starts; ours replaces that, so it must be complete too.
        values["LD_LIBRARY_PATH"] = f"{users['LD_LIBRARY_PATH']}:{PurePosixPath(mpi.library).parent}"
    values |= _meeting(place, job, master, run_id or job_id, asked)
    values["TORCHELASTIC_RESTART_COUNT"] = str(restart)
    values |= _numbers(plan, place, job) | _launch(job, mpi, job_id)
    if job.as_horovod:
        values |= _horovods_numbers(plan, place, job)
    never = (*_UNSET, *sorted(name for name in caller if name.startswith(OF_THE_COMMAND_LINE)))
    return RankEnvironment(
        set=dict(sorted(values.items())), unset=tuple(name for name in never if name not in values)
    )


def search_path(job: Job, caller: Mapping[str, str], python: str) -> str:
    """Return PATH of the ranks: the user's, with the directory of our interpreter ``python`` in front."""
    path = dict(job.env).get("PATH", caller.get("PATH", _DEFAULT_PATH))
    return _in_front(str(PurePosixPath(python).parent), path)


def _defaults(place: RankPlace, job: Job, mpi: Mpi) -> dict[str, str]:
    """Return what we choose unless the user's environment says something else."""
    threads = thread_variables(place.threads, bound=bool(place.cpus))
    values = {**threads, "PYTHONUNBUFFERED": "1", **_KEEP_MEMORY}
    if job.as_horovod:
        values |= _HOROVODS_CONTROLLER
    return values | interface_variables(job, mpi)


def interface_variables(job: Job, mpi: Mpi) -> dict[str, str]:
    """Return what ``--network-interface`` sets for each library."""
    values: dict[str, str] = {}
    interfaces = ",".join(name.strip() for name in (job.network_interface or "").split(","))
    if interfaces:
        values["GLOO_SOCKET_IFNAME"] = interfaces
        values["NCCL_SOCKET_IFNAME"] = f"={interfaces}"  # "=" asks for exactly these, not for prefixes.
        if mpi.family in (Family.OPENMPI4, Family.OPENMPI5):
            values["OMPI_MCA_btl_tcp_if_include"] = interfaces
        else:
            values["FI_TCP_IFACE"] = interfaces.split(",")[0]
    return values


def _jax(plan: Plan, place: RankPlace, job: Job, mpi: Mpi, master: Master) -> dict[str, str]:
    """Return what JAX finds out its world from; devices only where the user does not choose them."""
    visible = [] if "CUDA_VISIBLE_DEVICES" in dict(job.env) else (place.visible_gpus or "").split(",")
    return jax_variables(
        address="127.0.0.1" if job.uncoupled else master.address,
        port=master.jax_port,
        family=mpi.family,
        rank=place.rank,
        size=plan.size,
        local_rank=place.local_rank,
        gpu=visible.index(place.gpu) if place.gpu in visible else None,
        alone=job.uncoupled,
    )


def _meeting(
    place: RankPlace, job: Job, master: Master, run_id: str, asked: Mapping[str, str]
) -> dict[str, str]:
    """Return where the ranks meet; an uncoupled rank meets nobody, so any free port of its own will do."""
    alone = job.uncoupled
    return {
        "MASTER_ADDR": asked.get("MASTER_ADDR", "127.0.0.1" if alone else master.address),
        "MASTER_PORT": asked.get("MASTER_PORT", "0" if alone else master.port),
        "TORCHELASTIC_RUN_ID": f"{run_id}-{place.rank}" if alone else run_id,
        "TORCHELASTIC_MAX_RESTARTS": str(job.max_restarts),
    }


def _numbers(plan: Plan, place: RankPlace, job: Job) -> dict[str, str]:
    """Return torchrun's numbers of this rank: one group a host; uncoupled, a world of one."""
    rank, size, local_rank, local_size = place.rank, plan.size, place.local_rank, place.local_size
    group, groups = place.host_index, len(plan.hosts)
    if job.uncoupled:
        rank, size, local_rank, local_size, group, groups = 0, 1, 0, 1, 0, 1
    numbers = {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": local_size,
        "GROUP_RANK": group,
        "GROUP_WORLD_SIZE": groups,
        "NODE_RANK": group,
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
    }
    return {name: str(number) for name, number in numbers.items()} | {"ROLE_NAME": "default"}


def _horovods_numbers(plan: Plan, place: RankPlace, job: Job) -> dict[str, str]:
    """Return the numbers as horovodrun tells them, for scripts that read them before they import anything."""
    numbers = {
        "HOROVOD_RANK": place.rank,
        "HOROVOD_SIZE": plan.size,
        "HOROVOD_LOCAL_RANK": place.local_rank,
        "HOROVOD_LOCAL_SIZE": place.local_size,
        "HOROVOD_CROSS_RANK": place.cross_rank,
        "HOROVOD_CROSS_SIZE": place.cross_size,
    }
    if job.uncoupled:
        numbers = {name: int(name.endswith("SIZE")) for name in numbers}
    host = bare_name(plan.hosts[place.host_index].host.name)
    return {name: str(number) for name, number in numbers.items()} | {"HOROVOD_HOSTNAME": host}


def _launch(job: Job, mpi: Mpi, job_id: str) -> dict[str, str]:
    """Return what tells Ringleader's own code in the rank about the job."""
    values = {
        "RINGLEADER_JOB_ID": job_id,
        "RINGLEADER_LAUNCHED": "1",
        "RINGLEADER_MPI_FAMILY": str(mpi.family),
    }
    if mpi.library:
        values["MPI4PY_LIBMPI"] = mpi.library
    if job.uncoupled:
        values["RINGLEADER_UNCOUPLED"] = "in-step" if job.in_step else "1"
    if job.consistency_check is not None:
        values["RINGLEADER_CONSISTENCY_CHECK"] = job.consistency_check
    if job.as_horovod:
        values["RINGLEADER_AS_HOROVOD"] = "1"
    return values


def _in_front(first: str, rest: str) -> str:
    """Put a directory in front of a search path, once."""
    return ":".join([first, *(part for part in rest.split(":") if part and part != first)])

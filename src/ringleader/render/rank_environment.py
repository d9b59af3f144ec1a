"""The environment of one rank: each variable once, by what it follows from. Pure: the caller's is handed in.

A rank on the launching host inherits the caller's environment; one on another host inherits what the login
there gives. Both then get, the later the stronger: the caller's variables that are worth carrying
(``is_forwarded``), what follows from the rank's place, and what the user set with ``-x`` or ``--env-file``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import PurePosixPath

from ringleader.plan.job import Code, Family, Job, Mpi
from ringleader.plan.rank_placement import Plan, RankPlace
from ringleader.render.hostfile import bare_name
from ringleader.value_class import dataclass

LEAST_INTER_OP = 2
"""TensorFlow's threads for operations beside each other: a function of Python's that waits blocks one."""


def thread_variables(threads: int, *, bound: bool) -> dict[str, str]:
    """Return the variables of a rank that may use this many threads, ``bound`` to cores or not.

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

_OF_TORCHRUN = {
    "RANK": "rank", "WORLD_SIZE": "size", "LOCAL_RANK": "local_rank", "LOCAL_WORLD_SIZE": "local_size",
    "GROUP_RANK": "group", "GROUP_WORLD_SIZE": "groups", "NODE_RANK": "group",
    "ROLE_RANK": "rank", "ROLE_WORLD_SIZE": "size",
}  # fmt: skip
"""torchrun's variables → which number of ``_numbers`` they have: one group a host."""

_OF_HOROVOD = {
    "HOROVOD_RANK": "rank", "HOROVOD_SIZE": "size",
    "HOROVOD_LOCAL_RANK": "local_rank", "HOROVOD_LOCAL_SIZE": "local_size",
    "HOROVOD_CROSS_RANK": "cross_rank", "HOROVOD_CROSS_SIZE": "cross_size",
}  # fmt: skip
"""Numbers as horovodrun sets them, for scripts that read them before they import anything."""

_OF_OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "rank",
    "OMPI_COMM_WORLD_SIZE": "size",
    "OMPI_COMM_WORLD_LOCAL_RANK": "local_rank",
}
"""Numbers that JAX reads, which other MPIs do not set."""

_OF_A_JOB = (
    "RINGLEADER_CONTROL", "RINGLEADER_TOKEN", "RINGLEADER_JOB_ID", "RINGLEADER_MPI_FAMILY",
    "RINGLEADER_LAUNCHED", "RINGLEADER_UNCOUPLED", "RINGLEADER_REPORT_FD", "RINGLEADER_STATUS_FILE",
    "RINGLEADER_PROFILE", "RINGLEADER_STEP_TIMES",
)  # fmt: skip

NEVER_FORWARDED = (
    *("CUDA_VISIBLE_DEVICES", "JAX_LOCAL_DEVICE_IDS", "JAX_CUDA_VISIBLE_DEVICES", "JAX_PROCESS_ID"),
    *("JAX_COORDINATOR_ADDRESS", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT"),
    *(*_OF_A_JOB, *_OF_HOROVOD, "HOROVOD_HOSTNAME"),
)
"""Exceptions: facts about one host, one session or another job."""

OF_THE_COMMAND_LINE = "RINGLEADER_OPT_"
"""Variables that begin so are defaults of options of one command line: no rank sees them."""

_NEVER_PREFIXES = (
    # An outer mpirun leaves these in our environment; a rank would look for the outer job's daemon.
    *("OMPI_MCA_ess", "OMPI_MCA_orte_", "OMPI_MCA_pmix", "OMPI_MCA_initial_"),
    OF_THE_COMMAND_LINE,
)

RESERVED = (*_OF_TORCHRUN, *_OF_A_JOB)
"""Variables that follow from a rank's place; ``-x`` and ``--env-file`` cannot set them."""

_UNSET = (
    *("RINGLEADER_CONTROL", "RINGLEADER_TOKEN", "RINGLEADER_UNCOUPLED"),
    # An outer torchrun's variable that makes ranks wait for a store that nobody serves.
    "TORCHELASTIC_USE_AGENT_STORE",
)

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, kw_only=True)
class FreePorts:
    """Ports that rank 0's agent holds until the ranks start; in a dry run words."""

    master: int | str
    """For ``torch.distributed`` and others."""
    jax: int | str
    """For ``jax.distributed``; of independent ranks each has one on its own host."""


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
1,600 page faults and 15% of the time of a small net's step on a CPU. So it may keep 256 MiB (in bytes)."""


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


_OF_TERRAFORM = re.compile(
    r"TF_((ACC|CLI|CLOUD|LOG|REGISTRY|TOKEN|VAR)(_.*)?|APPEND_USER_AGENT|DATA_DIR|ENCRYPTION|IGNORE|INPUT|"
    r"IN_AUTOMATION|PLUGIN_CACHE.*|REATTACH_PROVIDERS|SKIP_.*|STATE_.*|WORKSPACE)"
)
"""Its variables begin as TensorFlow's do, and may hold keys of a cloud."""


def is_forwarded(name: str) -> bool:
    """Say whether a variable of the caller's is carried to every host."""
    if is_secret(name) or name in NEVER_FORWARDED or name.startswith(_NEVER_PREFIXES):
        return False
    if _OF_TERRAFORM.fullmatch(name):
        return False
    return name in FORWARDED_NAMES or name.startswith(FORWARDED_PREFIXES)


OF_A_HOSTS_FILES = (
    *("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH"),
    *("PYTHONPATH", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX"),
)
"""Variables of the caller that name places an image has elsewhere or not at all."""


def caller_of_containers(environ: Mapping[str, str], path: str) -> dict[str, str]:
    """Return what of the caller's environment counts in containers whose image has PATH ``path``."""
    kept = {name: value for name, value in environ.items() if is_forwarded(name)}
    return {name: value for name, value in kept.items() if name not in OF_A_HOSTS_FILES} | {"PATH": path}


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
    alone, address = job.uncoupled, "127.0.0.1" if job.uncoupled else master.address
    numbers = _numbers(plan, place, alone=alone)
    users = {name: value for name, value in caller.items() if is_forwarded(name)} | asked
    # What we choose unless the user's environment says something else.
    visible = [] if "CUDA_VISIBLE_DEVICES" in asked else (place.visible_gpus or "").split(",")
    ours = {
        **thread_variables(place.threads, bound=bool(place.cpus)),
        "PYTHONUNBUFFERED": "1",
        **_KEEP_MEMORY,
        **(_HOROVODS_CONTROLLER if job.as_horovod else {}),
        **interface_variables(job, mpi),
        **jax_variables(
            address=address,
            port=master.jax_port,
            family=mpi.family,
            numbers=numbers,
            gpu=visible.index(place.gpu) if place.gpu in visible else None,
            alone=alone,
        ),
    }
    values = {**(settings or {}), **ours, **users}
    if job.code is not None and users.get("PYTHONPATH"):
        directory = plan.hosts[place.host_index].directory or job.workdir
        values["PYTHONPATH"] = path_in_copy(users["PYTHONPATH"], job.code, directory)
    if job.threads is not None:  # the command line counts before the environment
        chosen = thread_variables(job.threads, bound=bool(place.cpus))
        values |= {name: value for name, value in chosen.items() if name not in asked}
    if "CUDA_VISIBLE_DEVICES" not in asked and place.visible_gpus is not None:
        values["CUDA_VISIBLE_DEVICES"] = place.visible_gpus
    values["PATH"] = search_path(job, caller, python)
    if users.get("LD_LIBRARY_PATH") and mpi.library:
        # The MPI completes this variable for what it starts; ours replaces that, so it must be complete too.
        values["LD_LIBRARY_PATH"] = f"{users['LD_LIBRARY_PATH']}:{PurePosixPath(mpi.library).parent}"
    # Where the ranks meet; an independent rank meets nobody, so any free port of its own will do.
    run = run_id or job_id
    values["MASTER_ADDR"] = asked.get("MASTER_ADDR", address)
    values["MASTER_PORT"] = asked.get("MASTER_PORT", "0" if alone else master.port)
    values["TORCHELASTIC_RUN_ID"] = f"{run}-{place.rank}" if alone else run
    values["TORCHELASTIC_MAX_RESTARTS"] = str(job.max_restarts)
    values["TORCHELASTIC_RESTART_COUNT"] = str(restart)
    values |= _named(_OF_TORCHRUN, numbers) | {"ROLE_NAME": "default"} | _launch(job, mpi, job_id)
    if job.as_horovod:
        values |= _named(_OF_HOROVOD, numbers)
        values["HOROVOD_HOSTNAME"] = bare_name(plan.hosts[place.host_index].host.name)
    never = (*_UNSET, *sorted(name for name in caller if name.startswith(OF_THE_COMMAND_LINE)))
    return RankEnvironment(
        set=dict(sorted(values.items())), unset=tuple(name for name in never if name not in values)
    )


def _numbers(plan: Plan, place: RankPlace, *, alone: bool) -> dict[str, int]:
    """Return the numbers of a rank; ``alone``: those of a world of one."""
    ranks = {
        "rank": place.rank,
        "local_rank": place.local_rank,
        "cross_rank": place.cross_rank,
        "group": place.host_index,
    }
    sizes = {
        "size": plan.size,
        "local_size": place.local_size,
        "cross_size": place.cross_size,
        "groups": len(plan.hosts),
    }
    return dict.fromkeys(ranks, 0) | dict.fromkeys(sizes, 1) if alone else ranks | sizes


def _named(variables: Mapping[str, str], numbers: Mapping[str, int]) -> dict[str, str]:
    return {variable: str(numbers[number]) for variable, number in variables.items()}


def search_path(job: Job, caller: Mapping[str, str], python: str) -> str:
    """Return PATH of the ranks: the user's, with the directory of our interpreter ``python`` in front."""
    path = dict(job.env).get("PATH", caller.get("PATH", _DEFAULT_PATH))
    first = str(PurePosixPath(python).parent)
    return ":".join([first, *(part for part in path.split(":") if part and part != first)])


def path_in_copy(path: str, code: Code, directory: str) -> str:
    """Return PYTHONPATH with what is sent taken from a host's copy. ``directory``: where its ranks run."""
    tree = directory.removesuffix(f"/{code.below}")
    moved = {entry: f"{tree}/{below}".removesuffix("/.") for entry, below in code.python_path}
    return ":".join(moved.get(entry, entry) for entry in path.split(":"))


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


JAX_SIGN = "OMPI_MCA_orte_hnp_uri"
"""Where Open MPI 4 has its mpirun, ``<job number>.0;tcp://<address>:<port>``. Open MPI 5 ignores it.

JAX looks for signs of launchers that it knows, Open MPI's before others: this one is set for it."""
JAX_FIRST_PORT, _JAX_PORTS, _JOB_NUMBERS = 61440, 4096, 4096
"""JAX makes the coordinator's port of the job's number: the first + number / 4096 modulo 4096. It takes the
address and port of JAX_COORDINATOR_ADDRESS instead where that is set; we let both say the same."""


def jax_variables(
    *, address: str, port: str, family: Family, numbers: Mapping[str, int], gpu: int | None, alone: bool
) -> dict[str, str]:
    """Return what `jax.distributed.initialize()` needs in a rank's environment so that it needs no arguments.

    ``address``, ``port``: rank 0's host as all reach it, and a port that is free there; in a dry run a word.
    ``numbers``: rank, size and local rank. ``gpu``: which of the GPUs that the rank sees is its own: JAX
    takes the memory of every GPU that it sees, and `initialize` would ask for the one of the local rank,
    which may see fewer. ``alone``: the rank is a world of one, whatever the MPI says.
    """
    host = f"[{address}]" if ":" in address else address
    variables = {"JAX_COORDINATOR_ADDRESS": f"{host}:{port}"}
    if gpu is not None:
        variables |= {"JAX_LOCAL_DEVICE_IDS": str(gpu), "JAX_CUDA_VISIBLE_DEVICES": str(gpu)}
    if family is not Family.OPENMPI4:  # which needs its own
        number = (int(port) - JAX_FIRST_PORT) % _JAX_PORTS * _JOB_NUMBERS if port.isdigit() else 0
        variables[JAX_SIGN] = f"{number}.0;tcp{'6' if ':' in address else ''}://{host}:{port}"
    if alone or family in (Family.MPICH, Family.INTEL):
        variables |= _named(_OF_OPENMPI, numbers)
    return variables


def _launch(job: Job, mpi: Mpi, job_id: str) -> dict[str, str]:
    """Return what Ringleader's own code in the rank reads about the job."""
    found = {
        "RINGLEADER_JOB_ID": job_id,
        "RINGLEADER_LAUNCHED": "1",
        "RINGLEADER_MPI_FAMILY": str(mpi.family),
        "MPI4PY_LIBMPI": mpi.library or None,
        "RINGLEADER_UNCOUPLED": ("in-step" if job.in_step else "1") if job.uncoupled else None,
        "RINGLEADER_CONSISTENCY_CHECK": job.consistency_check,
        "RINGLEADER_RECYCLED_RESULTS": None if job.recycled_results is None else str(job.recycled_results),
        "RINGLEADER_AS_HOROVOD": "1" if job.as_horovod else None,
        "RINGLEADER_PROFILE": job.profile,
        "RINGLEADER_STEP_TIMES": "1" if job.report is not None else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def library_log_variables(plan: Plan, place: RankPlace, mpi: Mpi) -> dict[str, Mapping[str, str]]:
    """Return library → the variables by which it writes a log of what it uses into the job's directory.

    NCCL's where a rank has GPUs, UCX's between hosts with RDMA. The agent sets those of a library only where
    the rank's environment has none (``agents/rank_evidence``).
    """
    from ringleader.agents.rank_evidence import DIRECTORY  # read once the agents are there

    found: dict[str, Mapping[str, str]] = {}
    host = plan.hosts[place.host_index]
    if host.gpus and place.gpu != "":
        found["nccl"] = {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,ENV",
            "NCCL_DEBUG_FILE": f"{DIRECTORY}/nccl.{place.rank}.%h.%p.log",
        }
    if len(plan.hosts) > 1 and host.rdma and mpi.family is not Family.INTEL:
        found["ucx"] = {
            "UCX_LOG_LEVEL": "info",
            "UCX_LOG_FILE": f"{DIRECTORY}/ucx.{place.rank}.%h.%p.log",
        }
    return found

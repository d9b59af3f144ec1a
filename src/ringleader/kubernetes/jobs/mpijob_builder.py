"""A request becomes an MPIJob, and its launcher's command: mpirun in the user's image. Pure.

The launcher may be ``ringleader run`` instead, which reads its hosts from the launcher's ConfigMap
(`objects/service_and_config_map`): the hostfile, or for an elastic job the operator's script. Its Pod needs
no account and no right of the API's. The Pods' templates are made in `pod_template`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ringleader.kubernetes.jobs.job_request import OUTCOME, REPORT, RUNS, JobRequest
from ringleader.kubernetes.jobs.pod_template import Program, pod_template, unexpanded
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.annotations import CHECK, CHECK_QUICK, GANG, MAX_WORKERS, MIN_WORKERS, SPAWN
from ringleader.kubernetes.mpijob.model import (
    CleanPodPolicy,
    LauncherCreationPolicy,
    LauncherSpec,
    Metadata,
    MpiImplementation,
    MPIJob,
    ReplicaSpecs,
    RestartPolicy,
    RunPolicy,
    SchedulingPolicy,
    Spec,
    WorkerSpec,
)
from ringleader.kubernetes.mpijob.object_metadata import KUEUE_PRIORITY, KUEUE_QUEUE
from ringleader.kubernetes.objects import ssh_secret
from ringleader.kubernetes.objects.gang_scheduling import VOLCANO
from ringleader.kubernetes.objects.mpi_environment import SSH_ARGS, SSH_ARGS_OF
from ringleader.kubernetes.objects.service_and_config_map import DISCOVER_HOSTS_PATH
from ringleader.kubernetes.rdma.pod_nics import add_nics
from ringleader.kubernetes.rdma.request import NicAllocation
from ringleader.option_fields import words_of
from ringleader.plan.elastic_options import COOLDOWN, ElasticOptions
from ringleader.render.rank_environment import JAX_FIRST_PORT, JAX_SIGN

_OPENMPI = 'exec "$0" ${LD_LIBRARY_PATH:+-x LD_LIBRARY_PATH} "$@"'
"""mpirun with its arguments. A login through ssh has not the image's library path, so it is carried to the
ranks; named unset, it would be complained about."""
_HERE = 'command -v "$0" >/dev/null || { echo "the image has no $0, which this job needs" >&2; exit 3; }; '
_RUN = f'{_HERE}exec "$0" run ${{LD_LIBRARY_PATH:+-x LD_LIBRARY_PATH}} "$@"'
"""The same for ``ringleader run``."""
_OWN = f'{_HERE}exec "$0" "$@"'
"""COMMAND itself, where it is one of Ringleader's."""
RETURNED, RETURN_VARIABLE = "/tmp/ringleader-returned", "RINGLEADER_RETURN"
"""Directory in the launcher that is sent back at its end, and the variable that names it."""
ATTEMPTS = 30
"""For a connection to a worker: its Pod may run before its sshd listens."""
_SET_BY_TORCHRUN = (
    'export RANK="${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"'
    ' WORLD_SIZE="${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}"'
    ' LOCAL_RANK="${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID}"'
    ' LOCAL_WORLD_SIZE="${OMPI_COMM_WORLD_LOCAL_SIZE:-$MPI_LOCALNRANKS}";'
)
_SET_FOR_JAX = (
    ' export OMPI_COMM_WORLD_RANK="$RANK" OMPI_COMM_WORLD_SIZE="$WORLD_SIZE"'
    ' OMPI_COMM_WORLD_LOCAL_RANK="$LOCAL_RANK"'
    f' JAX_COORDINATOR_ADDRESS="${{JAX_COORDINATOR_ADDRESS:-$MASTER_ADDR:{JAX_FIRST_PORT}}}"'
    f' {JAX_SIGN}="${{{JAX_SIGN}:-0.0;tcp://$MASTER_ADDR:{JAX_FIRST_PORT}}}";'
)
_AROUND_A_RANK = f'{_SET_BY_TORCHRUN}{_SET_FOR_JAX} exec "$@"'
"""Shell text: what torchrun would tell a rank, from what the MPI tells it, and where JAX meets. A Pod has its
own ports, so any will do; Open MPI 4 has set its own sign, which stays."""


_MEETING_POINT = ("MASTER_ADDR", "MASTER_PORT")
_MPI = {MpiImplementation.OPENMPI: "", MpiImplementation.MPICH: "mpich", MpiImplementation.INTEL: "intel"}
"""Words of ``--mpi``. Open MPI: the embedded one, else what the image's PATH has."""


def launcher_program(request: JobRequest) -> Program:
    """Return how the launcher starts the ranks."""
    if request.own_command:
        return _own_program(request)
    if request.has_ringleader:
        return _ringleader_program(request)
    env = _rank_variables(request)
    ranks = _rank_words(request.command)
    if request.mpi is MpiImplementation.OPENMPI:
        command: tuple[str, ...] = ("sh", "-c", _OPENMPI, request.mpirun or "mpirun")
        secrets = (secret["name"] for secret in request.secret_env)
        exported = tuple(dict.fromkeys(("PATH", *(name for name, _ in env), *secrets)))
        args: tuple[str, ...] = ("--allow-run-as-root", "-n", str(request.np))
        # Pods do not know of each other: bound ranks of two Pods on one node would share the same cores.
        args += ("--map-by", "node" if request.by_node else "slot", "--bind-to", "none")
        args += tuple(word for name in exported for word in ("-x", name))
    else:
        # Hydra carries the launcher's whole environment to the ranks.
        command = (request.mpirun or "mpirun",)
        args = ("-n", str(request.np), *(("-ppn", "1") if request.by_node else ()))
        args += ("-bind-to", "none") if request.mpi is MpiImplementation.MPICH else ()
    if request.ssh_port is not None:
        # Every controller sets these variables in the container, and its own come after ours: so they are
        # changed only when mpirun is called.
        ssh = f"-p {request.ssh_port} {SSH_ARGS}"
        command = ("env", *(f"{name}={ssh}" for name in SSH_ARGS_OF[request.mpi]), *command)
    words = (*args, *request.mpirun_args, *ranks)
    return _program(command, words, dict(env))


def _rank_words(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return what mpirun starts for each rank.

    Every mpirun takes the word ``:`` for the end of one program's words, even behind the program: a command
    that has one goes into the shell's text.
    """
    if ":" not in command:
        return ("sh", "-c", _AROUND_A_RANK, "sh", *command)
    return ("sh", "-c", _AROUND_A_RANK.replace('"$@"', shlex.join(command)))


def _ringleader_program(request: JobRequest) -> Program:
    """Return how `ringleader run` starts the ranks: it tells each where they meet."""
    env = {name: value for name, value in _rank_variables(request) if name not in _MEETING_POINT}
    words = (
        *(_fixed_hosts() if request.elastic is None else _changing_hosts(request, request.elastic)),
        *_other_options(request),
        # Pods do not know of each other: bound ranks of two Pods on one node would share the same cores.
        *("--bind", "none", *(() if request.elastic is None else ("--no-prefix",))),
        *request.run_words,
        *_passed(env, request),
        *("--", *request.command),
    )
    return _program(("sh", "-c", _RUN, "ringleader"), words, env | _variables_of_returns(request))


def _own_program(request: JobRequest) -> Program:
    """Return how COMMAND, one of Ringleader's, runs once in the launcher: variables give it its hosts."""
    env = {name: value for name, value in _rank_variables(request) if name not in _MEETING_POINT}
    prefix = f"RINGLEADER_OPT_{'_'.join(request.own_command)}_".upper().replace("-", "_")
    env |= {f"{prefix}HOSTFILE": object_names.HOSTFILE_PATH, f"{prefix}SSH_ATTEMPTS": str(ATTEMPTS)}
    found = {"SSH_PORT": request.ssh_port, "MPI": _mpi(request)}
    found["OUTPUT"] = f"{RETURNED}/{RUNS}" if RUNS in request.returned else None
    env |= {f"{prefix}{name}": str(value) for name, value in found.items() if value is not None}
    program, *words = request.command
    if request.own_command not in (("doctor",), ("bench",)):
        at = len(request.own_command)
        words[at:at] = _passed(dict(request.env), request)
    return _program(("sh", "-c", _OWN, program), words, env | _variables_of_returns(request))


def _passed(env: Iterable[str], request: JobRequest) -> tuple[str, ...]:
    """Return the words that carry variables from the launcher to the ranks: ssh does not."""
    names = dict.fromkeys((*env, *(secret["name"] for secret in request.secret_env)))
    return tuple(word for name in names for word in ("-x", name))


def _program(command: Iterable[str], words: Iterable[str], env: Mapping[str, str]) -> Program:
    return Program(
        command=tuple(map(unexpanded, command)),
        args=tuple(map(unexpanded, words)),
        env=tuple((name, unexpanded(value)) for name, value in env.items()),
    )


def _variables_of_returns(request: JobRequest) -> dict[str, str]:
    # The check of what mpirun reaches (decision 6) takes mpirun's place; Ringleader checks that by itself.
    found = {} if request.elastic else {"RINGLEADER_CHECK_HOSTS": "off"}
    return found | ({RETURN_VARIABLE: RETURNED} if request.returned else {})


def _mpi(request: JobRequest) -> str | None:
    return (_MPI[request.mpi] if request.mpirun in (None, "mpirun") else request.mpirun) or None


def _fixed_hosts() -> tuple[str, ...]:
    return ("--hostfile", object_names.HOSTFILE_PATH, "--ssh-attempts", str(ATTEMPTS))


def _changing_hosts(request: JobRequest, elastic: ElasticOptions) -> Iterator[str]:
    """Yield how an elastic job finds its hosts, and what was asked of it; the rest are its own defaults."""
    cooldown = COOLDOWN if elastic.cooldown is None else elastic.cooldown
    said = replace(elastic, min_np=1, discovery_script=None, slots=None, cooldown=cooldown)
    yield from ("--host-discovery-script", DISCOVER_HOSTS_PATH)
    yield from ("--slots-per-host", str(request.slots))  # other operators' scripts print hosts without them
    yield from ("--min-np", str(elastic.min_np))
    yield from words_of(said, ElasticOptions(cooldown=COOLDOWN))


def _other_options(request: JobRequest) -> Iterator[str]:
    """Yield how many ranks it begins with, by which MPI and ssh, and where what is sent back is written."""
    options: dict[str, object] = {"-n": request.np if request.elastic is None else request.start_np}
    options |= {"--ssh-port": request.ssh_port, "--mpi": _mpi(request)}
    for name, option in ((OUTCOME, "--json-file"), (REPORT, "--report")):
        options[option] = f"{RETURNED}/{name}" if name in request.returned else None
    for option, value in options.items():
        if value is not None:
            yield from (option, str(value))
    for word in request.mpirun_args:
        yield from ("--mpirun-arg", word)


def _elastic_annotations(request: JobRequest) -> dict[str, str]:
    """Return the annotations that tell the operator how many workers the job may have."""
    elastic = request.elastic
    if elastic is None:
        return {}

    def workers(ranks: int) -> int:
        return -(-ranks // max(1, request.slots))

    found = {MIN_WORKERS: str(max(elastic.min_hosts, workers(elastic.min_np), 1))}
    limits = (elastic.max_hosts, None if elastic.max_np is None else workers(elastic.max_np))
    if any(one is not None for one in limits):
        found[MAX_WORKERS] = str(min(one for one in limits if one is not None))
    return found


def _rank_variables(request: JobRequest) -> tuple[tuple[str, str], ...]:
    """Return what is the same for all ranks: where they meet, threads, NICs, and the user's own."""
    launcher, worker = object_names.launcher(request.name), object_names.worker(request.name, 0)
    first = launcher if request.run_launcher_as_worker else worker
    values = {
        # As every Pod of the namespace resolves it, whatever the cluster's domain.
        "MASTER_ADDR": f"{first}.{object_names.service(request.name)}",
        "MASTER_PORT": str(request.master_port),
        "PYTHONUNBUFFERED": "1",
    }
    if request.mpi is MpiImplementation.INTEL:
        values["I_MPI_PIN"] = "off"
    # A rank's share of its worker's CPUs, where those are limited: the node's cores are more.
    cpus = dict(request.resources).get("cpu", "")
    milli = cpus.removesuffix("m") if cpus.endswith("m") else f"{cpus}000"
    if cpus and milli.isdigit():
        values["OMP_NUM_THREADS"] = str(max(1, int(milli) // 1000 // max(1, request.slots)))
    nics = {} if request.rdma is None else dict(request.rdma.env)
    return tuple((values | nics | dict(request.env)).items())


def mpijob(request: JobRequest) -> MPIJob:
    """Return the job that a request asks for. What is wrong with it, ``mpijob.parser`` finds."""
    own = Program(command=(), args=(), env=())
    launcher_gets = request.resources if request.run_launcher_as_worker else request.launcher_resources
    launcher = LauncherSpec(
        restart_policy=RestartPolicy.NEVER,  # a failed attempt's Pod, and with it its log, stays
        template=pod_template(request, "launcher", launcher_program(request), launcher_gets),
    )
    worker = WorkerSpec(
        replicas=request.workers, template=pod_template(request, "worker", own, request.resources)
    )
    of_volcano = SchedulingPolicy(queue=request.queue) if request.queue and request.gang == VOLCANO else None
    kueue = request.queue if request.queue and of_volcano is None else ""
    notes = {SPAWN: request.spawn, GANG: request.gang, CHECK: CHECK_QUICK if request.check else None}
    labels = {KUEUE_QUEUE: kueue, KUEUE_PRIORITY: request.queue_priority}
    policy = RunPolicy(
        clean_pod_policy=CleanPodPolicy(request.clean_pod_policy),
        ttl_seconds_after_finished=request.ttl,
        active_deadline_seconds=request.timeout,
        backoff_limit=request.backoff_limit,
        scheduling_policy=of_volcano,
        # Kueue starts what it admits; a job that it does not know yet must not start by itself.
        suspend=request.suspend or bool(kueue),
    )
    # The launcher of an elastic job waits for hosts by itself, but not for ever, and nobody knows how long
    # Pods are queued: the operator makes it once the least number of workers is ready.
    starts = LauncherCreationPolicy.WAIT_FOR_WORKERS_READY
    job = MPIJob(
        metadata=Metadata(
            name=request.name,
            namespace=request.namespace,
            labels=dict(request.label) | {name: text for name, text in labels.items() if text},
            annotations=dict(request.annotation)
            | {name: text for name, text in notes.items() if text}
            | _elastic_annotations(request),
        ),
        spec=Spec(
            slots_per_worker=request.slots,
            run_launcher_as_worker=request.run_launcher_as_worker,
            run_policy=policy,
            ssh_auth_mount_path=request.ssh_path,
            launcher_creation_policy=starts if request.elastic else LauncherCreationPolicy.AT_STARTUP,
            mpi_implementation=request.mpi,
            mpi_replica_specs=ReplicaSpecs(launcher=launcher, worker=worker if request.workers else None),
        ),
    )
    return job if request.rdma is None else _with_nics(job, request, request.rdma)


def _with_nics(job: MPIJob, request: JobRequest, nics: NicAllocation) -> MPIJob:
    """Return a job whose templates of Pods in which ranks run have their NICs."""
    specs, port = job.spec.mpi_replica_specs, request.ssh_port
    role = "" if request.run_launcher_as_worker else "worker"

    def given(template: Mapping[str, Any], port: int | None) -> dict[str, Any]:
        found = dict(template)
        add_nics(found, replace(nics, ssh_port=port), job=request.name, role=role)
        if port is not None:
            # In words that every controller leaves as they are.
            args = [unexpanded(word) for word in (*ssh_secret.sshd_args(job), "-p", str(port))]
            found["spec"]["containers"][0] |= {"command": list(ssh_secret.SSHD), "args": args}
        # As people write it: metadata first.
        return {name: found[name] for name in ("metadata", "spec") if name in found}

    if specs.worker is not None:
        specs = replace(specs, worker=replace(specs.worker, template=given(specs.worker.template, port)))
    if request.run_launcher_as_worker:
        launcher = replace(specs.launcher, template=given(specs.launcher.template, None))
        specs = replace(specs, launcher=launcher)
    return replace(job, spec=replace(job.spec, mpi_replica_specs=specs))

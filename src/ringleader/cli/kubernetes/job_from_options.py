"""The options of a job on Kubernetes become a ``JobRequest`` and its MPIJob; every fault at once. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ringleader.cli.options.kubernetes_options import JobOptions
from ringleader.cli.options.option_checks import Faults, ReadText
from ringleader.cli.options.rank_options import elastic_options, variables_of
from ringleader.errors import collected, refuse
from ringleader.kubernetes.jobs.job_request import (
    DEFAULT_SSH_PATH,
    JobRequest,
    Pairs,
    is_device,
    named_amounts,
    own_command,
)
from ringleader.kubernetes.jobs.mpijob_builder import mpijob
from ringleader.kubernetes.jobs.pod_options import LARGEST, OF_HOSTS, RINGLEADER, NicOptions, PodOptions
from ringleader.kubernetes.mpijob.annotations import RDMA, SPAWN_EXEC
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.parser import check
from ringleader.kubernetes.objects.gang_scheduling import VOLCANO
from ringleader.kubernetes.rdma.pod_nics import NETWORKS, advice_on
from ringleader.kubernetes.rdma.request import (
    OFFERED,
    NicAllocation,
    RdmaRequest,
    allocate,
    pairs_of,
)
from ringleader.option_fields import faults_of_values, words_of
from ringleader.plan.elastic_options import COOLDOWN_OF_PODS, ElasticOptions
from ringleader.plan.job import Job, Placement, faults_of, faults_of_mpirun_words
from ringleader.render.rank_environment import is_secret
from ringleader.render.rdma_profiles import Spread, Way


def _spelling(field: str) -> str:
    return "--memory" if field == "has_cpu_or_memory" else f"--{field.replace('_', '-')}"


def allocation(
    given: NicOptions, *, gpus: int, asked: Iterable[str], shm_size: str | None, faults: Faults
) -> NicAllocation | None:
    """Return what each worker gets; ``None``: nothing was said of NICs, or it was wrong.

    ``asked``: resources that the worker asks for besides. ``shm_size`` as it was read.
    """
    if all(value in (None, "", ()) for value in vars(given).values()):  # a variable of the shell may be unset
        return None
    values = {name: value for name, value in vars(given).items() if value not in (None, "")}
    labels, unread = pairs_of(given.node_label)
    for word in unread:
        faults.add(f"--node-label {word}", "there is no value", f"NAME=VALUE, or {' or '.join(OFFERED)}")
    worked_out: dict[str, Any] = {
        "node_label": labels,
        "shm_size": shm_size,
        "gpus": gpus,
        "rdma_spread": None if given.rdma_spread is None else Spread(given.rdma_spread),
        "has_cpu_or_memory": bool({"cpu", "memory"} & set(asked)),
    }
    found: NicAllocation | None = None
    with collected(faults.found):
        found = allocate(RdmaRequest(**(values | worked_out)), _spelling)
    return found


_LONGEST = 40
"""Characters of a name that is made of a command."""


def request_of(
    given: JobOptions,
    *,
    faults: Faults,
    namespace: str,
    suffix: str,
    environ: Mapping[str, str],
    read: ReadText,
) -> JobRequest:
    """Return the request; what is wrong is added to ``faults``.

    ``suffix``: five random letters and digits for a name of our own making, or nothing. ``read`` is only used
    for the files of ``--env-file``.
    """
    job, pods, policy = given.job, given.pods, given.policy
    slots = policy.slots_per_worker or max(1, pods.gpus or 0)
    faults.found += (*job.faults, *faults_of_values(given), *faults_of_mpirun_words(job.extra_mpirun_args))
    elastic = _elastic(given, slots, faults)
    _check_ringleader(given, elastic, faults)
    if job.timeout is not None and job.timeout != int(job.timeout):
        faults.add("--timeout", f"{job.timeout:g} is not an integer")
    elif job.timeout is not None and job.timeout > LARGEST:
        faults.add("--timeout", f"{job.timeout:g} seconds", "use a number above 0, at most 2^63-1")
    if job.workdir and not job.workdir.startswith("/"):
        faults.add("--workdir", f"{job.workdir!r} is not absolute", "a path in the image: /workspace")
    for option, value in (("--queue-priority", pods.queue_priority), ("--topology", pods.topology)):
        if value is not None and (pods.queue is None or pods.gang == VOLCANO):
            faults.add(option, "is for Kueue, and there is no queue of it", "add --queue NAME")
    shm_size = "" if pods.shm_size is None else None if pods.shm_size == "none" else pods.shm_size
    worked_out = {
        "name": _name(given, suffix, faults),
        "namespace": namespace,
        "command": _command(given, faults),
        "image": _image(given, faults),
        "np": job.np or _most_ranks(elastic, slots),
        "slots": slots,
        "elastic": elastic,
        "check": job.check is not None,
        "start_np": None if elastic is None else job.np,
        "run_words": _run_words(job),
        "mpirun_args": job.extra_mpirun_args,
        "by_node": job.placement is Placement.NODE,
        "env": _variables(given, environ, read, faults),
        "master_port": job.master_port or JobRequest.master_port,
        "workdir": job.workdir,
        "resources": _resources(pods, faults),
        "shm_size": shm_size,
        "timeout": None if job.timeout is None else int(job.timeout),
        "nics": NicOptions(),  # they are in `rdma`
    }
    request = JobRequest(**(vars(pods) | vars(policy) | worked_out))
    paths = [mount["mountPath"] for _, mount in request.mounts]
    for path in dict.fromkeys(path for path in paths if paths.count(path) > 1):
        faults.add("--mount", f"two volumes are mounted at {path}")
    return _with_nics(request, pods, faults)


def _elastic(given: JobOptions, slots: int, faults: Faults) -> ElasticOptions | None:
    """Return between which bounds the job may change; ``None``: it does not, or something is wrong."""
    before, np = len(faults.found), given.job.np
    found = elastic_options(given.elastic, np=np, hostfile=None, faults=faults)
    if found is None:
        return None
    faults.found += found.faults(np)
    workers = -(-_most_ranks(found, slots) // slots) if np is None else -(-np // slots)
    if not found.min_hosts <= workers <= (found.max_hosts or workers):
        what = f"{workers} workers of {slots} slots are asked for"
        faults.add("--min-hosts, --max-hosts", what, "-n is the number of ranks to begin with")
    return None if faults.found[before:] else replace(found, cooldown=found.cooldown or COOLDOWN_OF_PODS)


_OF_RUN = ("--profile", "--profile-dir", "--max-restarts", "--warm")
"""Options with rules beyond their values."""


def _check_ringleader(given: JobOptions, elastic: ElasticOptions | None, faults: Faults) -> None:
    """Note what cannot be where Ringleader runs in the launcher."""
    pods, own = given.pods, " ".join(own_command(given.job.command))
    if given.job.check == "active" and (own or not (elastic or pods.launch_with == RINGLEADER)):
        hint = "--check quick, or add --launch-with ringleader" if not own else "--check quick"
        what = "needs `ringleader run` in the launcher, which measures between the Pods"
        faults.add("--check active", what, hint)
    if elastic is not None:
        where = "an elastic job"
    elif own:
        where = f"ringleader {own}"
    elif pods.launch_with == RINGLEADER:
        where = "--launch-with ringleader"
    else:
        return
    if own and elastic is not None:
        faults.add(
            "--min-np, --max-np …", f"not for {where}", f"ringleader {own} has a fixed number of ranks"
        )
    job = replace(given.job, elastic=elastic)
    faults.found += [one for one in faults_of(job) if one.where in _OF_RUN]
    if job.require:
        from ringleader.fabric.transport_proof.requirement import parse_requirement

        with collected(faults.found):
            parse_requirement(job.require)
    if own and (words := _run_words(replace(given.job, check=None), "report")):
        hint = f"write it behind ringleader {own}"
        faults.add(" ".join(words), f"not for {where}, which takes its own options", hint)
    if pods.launch_with == "mpirun":
        faults.add("--launch-with mpirun", f"not for {where}: Ringleader starts its ranks", "leave it out")
    if given.policy.run_launcher_as_worker:
        what = f"not for {where}: no ranks are started in the launcher's Pod"
        faults.add("--run-launcher-as-worker", what, "leave it out")
    if pods.spawn == SPAWN_EXEC:
        what = f"not for {where}: workers are reached over ssh"
        faults.add("--spawn exec", what, "leave it out; the image needs sshd")
    if pods.mpirun is not None and "/" not in pods.mpirun:
        hint = f"{where} takes /opt/mpi/bin/mpirun"
        faults.add("--mpirun", f"{pods.mpirun!r} is not a path", hint)


def _run_words(job: Job, *more: str) -> tuple[str, ...]:
    """Return the options of `ringleader run` that a job of options has besides those of a cluster."""
    names = OF_HOSTS - {"report"} | {"check", "placement", "master_port", *more}
    return tuple(words_of(replace(Job(), **{name: getattr(job, name) for name in sorted(names)}), Job()))


def _most_ranks(elastic: ElasticOptions | None, slots: int) -> int:
    """Return how many ranks a job has whose number nobody gave."""
    if elastic is None:
        return slots
    hosts = elastic.max_hosts or elastic.min_hosts
    return elastic.max_np or max(elastic.min_np, hosts * slots)


def _with_nics(request: JobRequest, given: PodOptions, faults: Faults) -> JobRequest:
    """Add the NICs of the workers."""
    resources = dict(request.resources)
    gpus = resources.get(given.gpu_resource, "")
    nics = allocation(
        given.nics,
        gpus=int(gpus) if gpus.isdigit() else 0,
        asked=resources,
        shm_size=request.shm_size,
        faults=faults,
    )
    if nics is None:
        return request
    for name in {nics.resource, *dict(nics.profile.more)} & set(resources):
        faults.add("--resource", f"{name} is asked for twice: it comes with --rdma {nics.profile.name}")
    if nics.networks and NETWORKS in dict(request.annotation):
        faults.add(f"--annotation {NETWORKS}", "is what --rdma-network writes", "leave out one of the two")
    for name in dict(request.annotation):
        if name.startswith(RDMA):
            faults.add(f"--annotation {name}", "stands beside --rdma", "leave out one of the two")
    if nics.makes_template and nics.gpus and given.gpu_resource != PodOptions.gpu_resource:
        what = f"claims are made for GPUs of the class {nics.gpu_class}"
        faults.add("--gpu-resource", what, "write a template and name it: --rdma-claim-template")
    if nics.profile.way is Way.CLAIM:
        resources.pop(given.gpu_resource, None)  # the claim holds them
    return replace(
        request,
        rdma=nics,
        resources=tuple(resources.items()),
        shm_size=nics.shm_size or request.shm_size,
    )


def job_of(request: JobRequest, faults: Faults) -> MPIJob:
    """Return the request's job, or raise RequestError with ``faults`` and what the job's own rules find."""
    job = mpijob(request)
    with collected(faults.found):
        check(job)
    refuse(faults.found)
    return job


def readable_secrets(request: JobRequest) -> tuple[str, ...]:
    """Return the variables whose names speak of secrets and whose values are in the manifest."""
    return tuple(name for name, _ in request.env if is_secret(name))


def remarks_on(request: JobRequest) -> tuple[str, ...]:
    """Return what the user should know of the NICs that he asks for, and of hosts that are too few."""
    if request.own_command and request.workers == 1 and request.slots > 1:
        what = f"ringleader {' '.join(request.own_command)} has one worker: -n counts ranks"
        return (f"{what}, {request.slots} per worker, so -n {2 * request.slots} makes two",)
    if request.rdma is None:
        return ()
    # Where the keys are not in root's home, the image's user is another.
    is_root = None if request.ssh_path == DEFAULT_SSH_PATH else False
    return advice_on(request.rdma, is_root=is_root)


def _name(given: JobOptions, suffix: str, faults: Faults) -> str:
    """Return the job's name: as given, or made of the script's or the program's."""
    if given.policy.name:
        return given.policy.name
    if given.policy.name is not None:
        faults.add("--job-name", "is empty", "give the job a name, or leave the option out")
    command = given.job.command
    scripts = (word for word in command if word.endswith((".py", ".sh")))
    base = PurePosixPath(next(scripts, command[0] if command else "job")).stem
    base = re.sub(r"[^a-z0-9]+", "-", base.lower())[:_LONGEST].strip("-")
    base = base if base[:1].isalpha() else f"job-{base}".rstrip("-")
    return f"{base}-{suffix}" if suffix else base


def _command(given: JobOptions, faults: Faults) -> tuple[str, ...]:
    command = given.job.command
    if not command:
        faults.add("COMMAND", "nothing to run", "-- python train.py")
    if any("\0" in word for word in command):
        faults.add("COMMAND", "an argument holds a NUL byte, which no program can be given")
    return command


def _image(given: JobOptions, faults: Faults) -> str:
    image = given.pods.image or ""
    if not image:
        faults.add("--image", "missing", "the image in which COMMAND and an MPI lie")
    elif re.search(r"\s", image) or image != image.strip("/:"):
        faults.add("--image", f"{image!r} is not an image", "such as registry.example.org/team/train:1.2")
    return image


def _resources(given: PodOptions, faults: Faults) -> Pairs:
    found = named_amounts(cpu=given.cpu, memory=given.memory)
    if given.gpus:
        found += ((given.gpu_resource, str(given.gpus)),)
        if not is_device(given.gpu_resource):
            what = f"{given.gpu_resource!r} is not a resource of a device plugin"
            faults.add("--gpu-resource", what, "such as nvidia.com/gpu")
    found += given.resource
    names = [name for name, _ in found]
    for name in {name for name in names if names.count(name) > 1}:
        faults.add("--resource", f"{name} is asked for twice")
    return found


def _variables(given: JobOptions, environ: Mapping[str, str], read: ReadText, faults: Faults) -> Pairs:
    """Return what our own options set, then what the files set, then what ``-x`` sets: the later wins."""
    found: dict[str, str] = {}
    if given.job.threads:
        found["OMP_NUM_THREADS"] = str(given.job.threads)
    if given.ranks.autotune:
        found["RINGLEADER_AUTOTUNE"] = "1"
    if given.job.consistency_check is not None:
        found["RINGLEADER_CONSISTENCY_CHECK"] = given.job.consistency_check
    if given.job.recycled_results is not None:
        found["RINGLEADER_RECYCLED_RESULTS"] = str(given.job.recycled_results)
    return tuple((found | variables_of(given.ranks, environ, read, faults)).items())

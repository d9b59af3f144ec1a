"""``ringleader render mpijob``, ``trainjob`` and ``pods``: jobs of Kubernetes, printed and not sent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ringleader.cli.kubernetes.connection import namespace_without_cluster
from ringleader.cli.kubernetes.manifest_arguments import (
    FilesOrCommand,
    changes_text,
    located,
    read_files,
    yaml_of,
)
from ringleader.cli.kubernetes.run_job import (
    as_train_job,
    check_ranks_of_trainer,
    for_runtime,
    objects,
    requested_job,
    settings_of,
)
from ringleader.cli.options.kubernetes_options import WITHOUT_HOSTS, ClusterOptions, FollowOptions, JobOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.output import JsonOptions, show
from ringleader.cli.typed_command import Command, misplaced
from ringleader.errors import Fault, refuse
from ringleader.kubernetes.jobs.job_request import JobRequest
from ringleader.kubernetes.jobs.pod_options import read_by
from ringleader.kubernetes.jobs.pod_template import single_pod
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.object_metadata import document
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.objects import rdma_annotations
from ringleader.kubernetes.objects.training_runtime import train_job_of
from ringleader.kubernetes.rdma.pod_nics import template
from ringleader.option_fields import flag, group, names_of, option
from ringleader.plan.elastic_options import ElasticOptions

if TYPE_CHECKING:
    from ringleader.kubernetes.mpijob.manifest_files import Rendered

NAME = "Job name. [default: the script's]"
"""What ``--job-name`` is where nothing is sent."""
_NAMED = {**WITHOUT_HOSTS, "job_name": NAME}
JOB_NAMES = names_of(JobOptions)
"""Parameters that describe a job."""


def claim_templates(request: JobRequest) -> list[dict[str, Any]]:
    """Return the ComputeDomain and the ResourceClaimTemplate that a job needs beside it, if it does."""
    nics, name, found = request.rdma, request.compute_domain, []
    if name is not None:
        meta = {"name": name} | ({"namespace": request.namespace} if request.namespace else {})
        spec = {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": name}}}
        found.append(document("resource.nvidia.com/v1beta1", "ComputeDomain", meta, spec=spec))
    if nics is not None and nics.makes_template:
        found.append(template(nics, job=request.name, namespace=request.namespace))
    return found


def show_objects(options: JsonOptions, values: Sequence[object]) -> None:
    """Print objects as YAML documents, or as JSON: the object, or a List of several."""
    one = values[0] if len(values) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(values)}
    show(options, one, lambda: yaml_of(values))


_EVERYDAY = (
    "convert json json_file namespace np x env_file workdir image job_name gpus cpu memory "
    "slots_per_worker rdma mount queue"
)


@dataclass(frozen=True, kw_only=True)
class MpiJobOptions:
    """The options of ``render mpijob``."""

    convert: bool = flag("Accept manifests of v1alpha1, v1alpha2 and v1 too; list the changes.")
    json: JsonOptions = group(JsonOptions)
    namespace: str | None = option(
        "Namespace. [default: left out; kubectl uses the context's]",
        metavar="NAME",
        read=read_by("namespace"),
    )
    job: JobOptions = group(JobOptions, changed={**_NAMED, "command": {"metavar": "FILE…|COMMAND…"}})


@FilesOrCommand.of(
    "mpijob",
    MpiJobOptions,
    everyday=_EVERYDAY,
    no_args_is_help=True,
)
def mpijob_command(options: MpiJobOptions) -> None:
    """Print MPIJobs made from options, or read from files with all defaults filled in.

    \b
      ringleader render mpijob -n 16 --gpus 8 --image example.org/team/train:1 --rdma shared -- python train.py
      ringleader render mpijob job.yaml
      ringleader render mpijob --convert job-of-2019.yaml

    With --image, the job is made from the options, as by run --on kubernetes, and works with every v2beta1
    controller. Otherwise FILE is YAML or JSON with any number of objects (`-` for standard input).
    All faults are listed with file, line and field, and the exit code is 2. Fields added by a server (uid,
    status and so on) are removed. Objects of other kinds are printed unchanged.
    """  # noqa: E501
    show_objects(
        options.json, of_options(options) if options.job.pods.image is not None else of_files(options)
    )


def of_options(options: MpiJobOptions) -> list[dict[str, Any]]:
    """Return the job that the options make, after the claims that it needs. Remarks go to standard error."""
    faults = Faults()
    if options.convert:
        faults.add("--convert and --image", "a job made of options is of the newest version")
    request, job = requested_job(options.job, faults, namespace=options.namespace or "")
    return [*claim_templates(request), *objects("kubernetes", job, FollowOptions())]


def of_files(options: MpiJobOptions) -> list[Any]:
    """Return the objects of the files. Changes of a conversion go to standard error."""
    own = JOB_NAMES - {"command"} | {"namespace"}
    faults = misplaced(own.__contains__, "is for a job made of options", "edit the file, or give --image")
    refuse(faults)
    rendered = read_files(options.job.job.command, faults, converting=options.convert)
    refuse(faults)
    remarks = _remarks(rendered)
    if options.convert:
        sys.stderr.write(changes_text(rendered))
    sys.stderr.writelines(f"ringleader: {one}\n" for one in remarks)
    return [one.value for one in rendered]


@dataclass(frozen=True, kw_only=True)
class TrainJobOptions(MpiJobOptions):
    """The options of ``render trainjob``."""

    follow: FollowOptions = group(FollowOptions, of="trainer")


@FilesOrCommand.of(
    "trainjob",
    TrainJobOptions,
    everyday=f"{_EVERYDAY} runtime",
    no_args_is_help=True,
)
def trainjob_command(options: TrainJobOptions) -> None:
    """Print TrainJobs of Kubeflow Trainer v2 made from options, or of the MPIJobs in files.

    \b
      ringleader render trainjob -n 16 --gpus 8 --image example.org/team/train:1 -- python train.py
      ringleader render trainjob job.yaml | kubectl apply -f -
      ringleader render trainjob --convert job-of-2019.yaml

    Each job comes with a separate TrainingRuntime, unless --runtime names a ClusterTrainingRuntime. What is
    different in the TrainJob is listed on stderr. TrainJobs in FILEs are checked and printed; objects of other
    kinds are printed unchanged.
    """  # noqa: E501
    follow = replace(options.follow, form="trainjob")
    if options.job.pods.image is None:
        show_objects(options.json, _converted(options, follow))
        return
    faults = Faults()
    if options.convert:
        faults.add("--convert and --image", "a job made of options is of the newest version")
    check_ranks_of_trainer(options.job, faults)
    given = for_runtime(options.job, follow)
    request, job = requested_job(given, faults, namespace=options.namespace or "")
    show_objects(options.json, [*claim_templates(request), *as_train_job(job, follow).documents()])


def _converted(options: TrainJobOptions, follow: FollowOptions) -> list[Any]:
    """Return the objects of the files, MPIJobs as TrainJobs. Changes go to standard error."""
    own = JOB_NAMES - {"command"} | {"namespace"}
    faults = misplaced(own.__contains__, "is for a job made of options", "edit the file, or give --image")
    kinds = ("MPIJob", "TrainJob")
    rendered = read_files(options.job.job.command, faults, converting=options.convert, kinds=kinds)
    found: list[Any] = []
    for one in rendered:
        documents = [one.value]
        if isinstance(one.job, MPIJob):
            with located(faults, one.where):
                made, changes = train_job_of(one.job, settings_of(follow), runtime=follow.runtime or "")
                sys.stderr.write(changes_text([replace(one, changes=(*one.changes, *changes))]))
                documents = list(made.documents())
        found += documents
    refuse(faults)
    return found


def _remarks(rendered: Sequence[Rendered]) -> list[str]:
    """Return what the user should know of the NICs that jobs ask for, each remark once.

    Raises RequestError where they cannot have them.
    """
    jobs = [(one.where, read(one.value)) for one in rendered if one.name]
    faults: list[Fault] = []
    for where, job in jobs:
        with located(faults, where):
            refuse(rdma_annotations.faults_of(job))
    refuse(faults)
    return list(dict.fromkeys(text for _, job in jobs for text in rdma_annotations.remarks_on(job)))


_MPI = (
    "np map_by master_port mpirun_arg slots_per_worker mpi_implementation mpirun launcher_cpu "
    "launcher_memory run_launcher_as_worker clean_pod_policy ttl backoff_limit spawn ssh_auth_mount_path "
    "rdma_spread rdma_ssh_port suspend queue gang autotune consistency_check recycled_results operator_image"
)
_OF_MPI = names_of(ElasticOptions, of="cluster") | set(_MPI.split())
"""Parameters that mean nothing for a single Pod."""


@dataclass(frozen=True, kw_only=True)
class PodsOptions:
    """The options of ``render pods``."""

    single: bool = flag("Print one Pod that runs COMMAND once, without MPI.")
    json: JsonOptions = group(JsonOptions)
    cluster: ClusterOptions = group(ClusterOptions)
    follow: FollowOptions = group(FollowOptions, of="pods")
    job: JobOptions = group(JobOptions, changed={**_NAMED, "command": {"metavar": "COMMAND…"}})


@Command.of(
    "pods",
    PodsOptions,
    everyday=(
        "single json json_file namespace np x env_file workdir image job_name gpus cpu memory "
        "slots_per_worker rdma mount"
    ),
    no_args_is_help=True,
)
def pods_command(options: PodsOptions) -> None:
    """Print a job as plain Pods: what run --on pods sends, without the keys.

    \b
      ringleader render pods -n 16 --gpus 8 --image example.org/team/train:1 --rdma shared -- python train.py
      ringleader render pods --single --gpus 8 --image team/train:1 -- ringleader run -n 8 python train.py

    With --single, it is one Pod for kubectl that runs COMMAND once: training on one node, without MPI.
    Otherwise the output is for reading only: run --on pods generates ssh keys, sends the objects in this
    order and starts the launcher last.
    """
    show_objects(options.json, single(options) if options.single else several(options))


def several(options: PodsOptions) -> list[dict[str, Any]]:
    """Return a job's objects in the order in which they are sent. Remarks go to standard error."""
    faults = Faults()
    namespace = namespace_without_cluster(options.cluster, faults.found)
    request, job = requested_job(options.job, faults, namespace=namespace, follow=options.follow)
    return [*claim_templates(request), *objects("pods", job, options.follow)]


def single(options: PodsOptions) -> list[dict[str, Any]]:
    """Return the one Pod. Remarks go to standard error."""
    faults = Faults()
    what, hint = "means nothing with --single", "one Pod runs COMMAND once, without MPI"
    faults.found += misplaced(_OF_MPI.__contains__, what, hint)
    asked = replace(options.job, pods=replace(options.job.pods, spawn=None))
    request, _ = requested_job(asked, faults, namespace=options.cluster.namespace or "")
    return [*claim_templates(request), single_pod(request)]

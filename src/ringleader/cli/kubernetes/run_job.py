"""``ringleader k8s submit``, ``run --on kubernetes``: a job is sent to a cluster; `follow_job` follows it."""

from __future__ import annotations

import os
import random
import string
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from ringleader import __version__
from ringleader.cli.follow_job import attend, job_terminal
from ringleader.cli.kubernetes.connection import (
    Connection,
    namespace_without_cluster,
    needs_kubernetes,
    tell,
    with_cluster,
)
from ringleader.cli.kubernetes.job_from_options import job_of, readable_secrets, remarks_on, request_of
from ringleader.cli.kubernetes.manifest_arguments import FilesOrCommand, changes_text, located, read_files
from ringleader.cli.options.kubernetes_options import (
    WITHOUT_HOSTS,
    ClusterOptions,
    FollowOptions,
    JobOptions,
    KubernetesOptions,
)
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.output import result_to
from ringleader.cli.returned_files import ReturnedFiles, write_below
from ringleader.cli.typed_command import misplaced
from ringleader.errors import Fault, RefusedError, RequestError, RingleaderError, collected, refuse
from ringleader.followed_job import End, Work
from ringleader.kubernetes.jobs.job_request import OUTCOME, REPORT, RUNS, JobRequest, own_command
from ringleader.kubernetes.jobs.job_state import JobView
from ringleader.kubernetes.jobs.job_submission import (
    MpiJobSubmission,
    OneJob,
    OperatorlessSubmission,
    TrainJobSubmission,
)
from ringleader.kubernetes.jobs.operatorless_objects import check_operatorless as check_objects
from ringleader.kubernetes.jobs.operatorless_objects import owned, plan
from ringleader.kubernetes.jobs.pod_options import RINGLEADER
from ringleader.kubernetes.mpijob.annotations import CHECK, WAIT_LIMIT
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.parser import request as as_requested
from ringleader.kubernetes.mpijob.parser import write
from ringleader.kubernetes.mpijob.train_job import TrainJob
from ringleader.kubernetes.objects.job_validation import check
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.objects.training_runtime import train_job_of
from ringleader.launch.job_record import FILE as RECORD
from ringleader.option_fields import flag, group, option, parts
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.text_files import decoded, json_document, read_text

AnyJob = MPIJob | TrainJob
Where = Literal["kubernetes", "pods"]
RUN_ID = "RUN"
JOB_UID = "UID-OF-THE-JOB"
"""Stand in a dry run for what is known only when the job is sent."""
FORMAT = 1
"""Of the outcome as JSON: grows when a reader of it must change."""


def run_request(on: Where, options: KubernetesOptions, runs: str = "runs") -> int:
    """Run a job made of options. Raises RequestError with every fault at once.

    ``runs``: where directories of measurements are kept that its launcher sends back.
    """
    cluster, follow, faults = options.cluster, options.follow, Faults()
    namespace = (
        namespace_without_cluster(cluster, faults.found)
        if follow.dry_run or cluster.namespace is not None
        else ""
    )
    keeping = replace(_keeping(options, faults), runs=runs)
    _, made = requested_job(
        for_runtime(options.job, follow),
        faults,
        namespace=namespace,
        suffix=_five_letters(),
        is_sent=True,
        returned=keeping.parts,
    )
    return run_job(on, cluster, ready(on, made, follow), follow, keeping)


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What of a job's launcher is kept here."""

    parts: tuple[str, ...] = ()
    """Of OUTCOME, REPORT and RUNS."""
    report: str = ""
    """Directory of the record."""
    runs: str = ""
    """Where those of measurements are."""

    def keep(self, files: ReturnedFiles, end: End, say: Callable[[str], None]) -> tuple[End, dict[str, Any]]:
        """Write what came back; return the end, and what is added to the outcome.

        A job that succeeded and whose result is lost has failed.
        """
        try:
            found = files.files()
            for folder, place in ((REPORT, Path(self.report)), (RUNS, Path(self.runs))):
                names = write_below(found, folder, place) if folder in self.parts else []
                places = {place / name.split("/")[1] if folder == RUNS else place for name in names}
                for one in sorted(places):
                    say(f"kept in {one}")
            return end, {"outcome": json_document(decoded(found[OUTCOME]))} if OUTCOME in found else {}
        except (ValueError, OSError) as error:
            what = f"what the launcher wrote cannot be kept: {error}"
            if end.exit_code and files.has_begun:  # a launcher that failed early has sent nothing
                say(what)
            lost = replace(end, exit_code=RefusedError.exit_code, whose="ringleader", reason=what)
            return end if end.exit_code else lost, {}


def _keeping(options: KubernetesOptions, faults: Faults) -> Keeping:
    """Return what of a job is kept here, where its launcher can write it."""
    given, follow = options.job, options.follow
    own, report = own_command(given.job.command), given.job.report or ""
    parts = [RUNS] if own[:1] in (("bench",), ("scale",)) else []
    if {"-o", "--output"} & {word.partition("=")[0] for word in takewhile("--".__ne__, given.job.command)}:
        parts = []  # it is kept where they say
    if not own and (given.pods.launch_with == RINGLEADER or given.elastic):
        parts += [REPORT] if report else []
        parts += [OUTCOME] if follow.json.json or follow.json.json_file is not None else []
    if follow.form == "trainjob":
        check_ranks_of_trainer(given, faults)
    for part, where, hint in (
        (REPORT, "--report with --detach", "leave one of them out"),
        (RUNS, "--detach", f"leave it out, or ringleader {' '.join(own)} --output DIR on a --mount"),
    ):
        if part in parts and follow.detach:
            faults.add(where, "the result comes with the log, which nobody follows", hint)
    if REPORT in parts and Path(report, RECORD).exists():
        faults.add("--report", f"{report}/{RECORD} already exists", "name another directory")
    return Keeping(parts=() if follow.detach else tuple(parts), report=report)


def check_ranks_of_trainer(given: JobOptions, faults: Faults) -> None:
    """Note what cannot start ranks in a TrainJob."""
    own = own_command(given.job.command)
    if own or given.pods.launch_with == RINGLEADER:
        where = "--launch-with ringleader" if not own else f"COMMAND (ringleader {' '.join(own)})"
        what = "has not been tried with the hostfile and keys of Kubeflow Trainer"
        faults.add(where, what, "make an MPIJob of it")


def for_runtime(job: JobOptions, follow: FollowOptions) -> JobOptions:
    """Return the options of a job in a runtime that exists: its launcher is one of the nodes."""
    if follow.runtime is None:
        return job
    return replace(job, policy=replace(job.policy, run_launcher_as_worker=True))


def requested_job(
    given: JobOptions,
    faults: Faults,
    *,
    namespace: str,
    suffix: str = "",
    is_sent: bool = False,
    follow: FollowOptions | None = None,
    returned: tuple[str, ...] = (),
) -> tuple[JobRequest, MPIJob]:
    """Return the job that options make. RequestError with ``faults``; remarks go to standard error.

    A job without a name is called after its script: without a ``suffix`` the same options always make the
    same job. ``follow``: no operator is there for it. ``returned``: as the request has it.
    """
    request = request_of(
        given, faults=faults, namespace=namespace, suffix=suffix, environ=os.environ, read=read_text
    )
    request = replace(request, returned=returned)
    if is_sent:
        check_claims(request, faults)
    job = job_of(request, faults)
    if follow is not None:
        check_operatorless(job, follow)
    told = [
        f"whoever may read the job can read {name}; --secret-env takes it from a Secret"
        for name in readable_secrets(request)
    ]
    for text in (*told, *remarks_on(request)):
        tell(text)
    return request, job


def check_claims(request: JobRequest, faults: Faults) -> None:
    """Note where a job needs a template of claims, which is not sent with it."""
    if request.rdma is not None and request.rdma.makes_template:
        hint = "ringleader render mpijob prints it with its job: send it with kubectl, then name it here"
        faults.add("--rdma-claim-template", f"missing: --rdma {request.rdma.profile.name} needs one", hint)


def as_train_job(job: MPIJob, follow: FollowOptions) -> TrainJob:
    """Return the TrainJob of a job; what it cannot do that the MPIJob did goes to standard error."""
    found, changes = train_job_of(job, settings_of(follow), runtime=follow.runtime or "")
    for change in changes:
        if change.is_lost:
            tell(str(change))
    return found


def placed(connection: Connection, job: OneJob) -> tuple[Connection, OneJob]:
    """Return both in the job's namespace: its own, else that of the connection."""
    space = job.metadata.namespace or connection.namespace
    here = replace(job, metadata=replace(job.metadata, namespace=space))
    return replace(connection, namespace=space), here


def ready(on: Where, job: AnyJob, follow: FollowOptions) -> AnyJob:
    """Return a job as it is sent. Raises RequestError with what cannot be."""
    if not job.metadata.name:  # we ask for it by name
        name = job.metadata.generate_name + _five_letters()
        job = replace(job, metadata=replace(job.metadata, name=name, generate_name=""))
    _check_form(on, job, follow)
    if isinstance(job, MPIJob):
        if on == "pods":
            check_operatorless(job, follow)
        elif follow.form == "trainjob":
            return as_train_job(job, follow)
    return job


def run_job(
    on: Where, cluster: ClusterOptions, job: AnyJob, follow: FollowOptions, keeping: Keeping | None = None
) -> int:
    """Send a job that is `ready` and follow it; return the exit code."""
    if follow.dry_run:
        sys.stdout.write(dry_run_text(on, job, follow))
        return 0
    with result_to(follow.json) as result:
        about = {"format": FORMAT, "ringleader": __version__, "job": job.metadata.name}
        try:
            end, kept = with_cluster(cluster, lambda one: _stay(on, one, job, follow, keeping or Keeping()))
        except RingleaderError as error:
            values = {"exit_code": error.exit_code, "whose": "ringleader", "reason": str(error)}
            result.keep(lambda: about | values, failed=True)
            raise
        values = {"exit_code": end.exit_code, "whose": end.whose, "reason": end.reason}
        values |= {"state": end.state, "launcher": end.launcher} | kept
        result.keep(lambda: about | values, failed=bool(end.exit_code))
    return end.exit_code


def _check_form(on: Where, job: AnyJob, follow: FollowOptions) -> None:
    """Raise RequestError for options about TrainJobs that mean nothing here."""
    faults = Faults()
    if on == "pods" and (follow.form == "trainjob" or isinstance(job, TrainJob)):
        faults.add("--on pods", "makes Pods without Kubeflow Trainer", "leave it out for a TrainJob")
    if follow.runtime is not None and (follow.form != "trainjob" or isinstance(job, TrainJob)):
        faults.add("--runtime", "is for what --as trainjob makes a TrainJob of", "add it, or edit the file")
    refuse(faults.found)


async def _stay(
    on: Where, connection: Connection, job: AnyJob, follow: FollowOptions, keeping: Keeping
) -> tuple[End, dict[str, Any]]:
    """Send a job, stay with it, and show how it went; return its end, and what is added to the outcome."""
    here, job = placed(connection, job)
    name = job.metadata.name
    terminal = job_terminal(name, quiet=follow.quiet, output_to_stderr=follow.json.json)
    terminal.files = ReturnedFiles() if keeping.parts else None
    try:
        work = work_of(on, here, job, follow, terminal.say)
        end = await attend(here, work, terminal, follow, name=name)
    except RingleaderError:
        terminal.finish(None)
        raise
    kept: dict[str, Any] = {}
    if terminal.files is not None:
        end, kept = keeping.keep(terminal.files, end, terminal.say)
    terminal.finish(end)
    return end, kept


def _five_letters() -> str:
    """Return what makes a name new, as the API server does it for ``generateName``."""
    return "".join(random.choices(string.ascii_lowercase + string.digits, k=5))


def dry_run_text(on: Where, job: AnyJob, follow: FollowOptions) -> str:
    """Return the YAML that would be sent."""
    with needs_kubernetes():
        from ringleader.kubernetes.mpijob.yaml_text import text_of
    return text_of(objects(on, job, follow))


def objects(on: Where, job: AnyJob, follow: FollowOptions) -> list[dict[str, Any]]:
    """Return the objects that would be sent, in that order; keys are not among them."""
    if isinstance(job, TrainJob):
        return job.documents()
    if on == "kubernetes":
        return [write(as_requested(job))]
    first, *rest = plan(job, settings_of(follow), run=RUN_ID).documents
    name = first["metadata"]["name"]
    return [first, *(owned(one, name=name, uid=JOB_UID) for one in rest)]


def check_operatorless(job: MPIJob, follow: FollowOptions) -> None:
    """Raise RequestError with all that cannot be done without an operator."""
    faults: list[Fault] = []
    with collected(faults):
        check_objects(job)
    with collected(faults):
        check(job, settings_of(follow))
    notes = job.metadata.annotations
    if follow.detach and CHECK in notes and WAIT_LIMIT not in notes:
        what = "nobody sees that a node is refused, and the launcher waits for its Pod forever"
        hint = f"leave it out, or --annotation {WAIT_LIMIT}=3600"
        faults.append(Fault(where="--check with --detach", what=what, hint=hint))
    refuse(faults)


def work_of(
    on: Where, connection: Connection, job: AnyJob, follow: FollowOptions, tell: Callable[[str], None]
) -> Work[JobView]:
    """Return what brings a job onto this kind of cluster and takes it away again."""
    if isinstance(job, TrainJob):
        return TrainJobSubmission(connection.cluster, job, tell=tell)
    if on == "pods":
        return OperatorlessSubmission(connection.cluster, job, settings_of(follow), tell=tell)
    return MpiJobSubmission(connection.cluster, job, tell=tell)


def settings_of(follow: FollowOptions) -> OperatorSettings:
    """Return the settings of an operator as far as objects of a job without one depend on them."""
    return OperatorSettings(image=follow.operator_image or "", has_exec_spawn=True)


_OF_FILES = {"detach", "rm", "quiet", "dry_run", "json", "json_file", "start_timeout", "on", "convert"}
_OF_FILES |= {"operator_image", "as", "runtime", "namespace", "context", "kubeconfig", "command"}


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """The options of ``submit``."""

    on: Literal["kubernetes", "pods"] = option(
        "pods: create the Pods directly, without an operator or MPIJobs, and delete them at the end.",
        default="kubernetes",
        metavar="kubernetes|pods",
        choices=("kubernetes", "pods"),
    )
    convert: bool = flag("Accept manifests of v1alpha1, v1alpha2 and v1 too.")
    cluster: ClusterOptions = group(ClusterOptions)
    follow: FollowOptions = group(FollowOptions)
    job: JobOptions = group(JobOptions, changed={**WITHOUT_HOSTS, "command": {"metavar": "FILE|COMMAND..."}})


@FilesOrCommand.of(
    "submit",
    SubmitOptions,
    first=(
        *("np", "map_by", "threads", "master_port", "x", "env_file", "autotune", "consistency_check"),
        *("quiet", "timeout", "workdir", "dry_run", "json", "json_file", "mpirun_arg", "start_timeout"),
        "recycled_results",
        *(part.parameter for part in parts(ElasticOptions)),
    ),
    everyday=(
        "np slots_per_worker x workdir timeout quiet dry_run json on namespace detach rm image job_name "
        "gpus cpu memory rdma mount queue"
    ),
    no_args_is_help=True,
)
def command(options: SubmitOptions) -> int:
    """Submit an MPIJob and follow it: show its progress and the launcher's log, return its exit code.

    The job is an MPIJob or TrainJob read from FILE (YAML or JSON, or `-` for standard input) or, with
    --image, made from the options and COMMAND: -n 8 --gpus 4 makes two workers (Pods) of four ranks, and a
    launcher that starts them. The cluster needs an MPIJob operator (`ringleader operator manifests`), or
    with --as trainjob Kubeflow Trainer v2; --on pods needs neither. This machine needs
    ringleader[kubernetes].

    \b
      ringleader k8s submit job.yaml
      ringleader k8s submit -n 8 --gpus 4 --image example.org/team/train:1 -- python train.py --lr 0.1
      ringleader k8s submit --detach job.yaml
      ringleader k8s submit --as trainjob job.yaml

    Ctrl-C asks whether to delete the job; several jobs in FILE need --detach.
    """
    on, job, follow, cluster = options.on, options.job, options.follow, options.cluster
    if job.pods.image is not None:
        if options.convert:
            what = "a job made from options is of the newest version"
            raise RequestError([*job.job.faults, Fault(where="--convert and --image", what=what)])
        return run_request(on, KubernetesOptions(cluster=cluster, job=job, follow=follow))
    faults = Faults(found=list(job.job.faults))
    return max(run_job(on, cluster, one, follow) for one in _jobs_of_files(options, faults))


def _jobs_of_files(options: SubmitOptions, faults: Faults) -> tuple[AnyJob, ...]:
    """Return the jobs. Raises RequestError with every fault at once."""
    files, follow = options.job.job.command, options.follow
    namespace = options.cluster.namespace
    what, hint = "is for a job made from options", "edit the file, or give --image"
    faults.found += misplaced(lambda name: name not in _OF_FILES, what, hint)
    kinds = ("MPIJob", "TrainJob")
    rendered = read_files(files, faults.found, converting=options.convert, kinds=kinds)
    for other in rendered:
        if not other.name:
            what = f"a {other.value.get('kind')}: only MPIJobs and TrainJobs are sent"
            hint = "kubectl apply -f takes files of any objects; ringleader k8s logs -f JOB"
            faults.add(other.where, what, hint)
    jobs = [(one.where, one.job) for one in rendered if one.job is not None]
    found = tuple(job for _, job in jobs)
    if len(found) > 1 and not follow.detach and not follow.dry_run:
        names = ", ".join(one.metadata.name or one.metadata.generate_name for one in found)
        faults.add("FILE", f"holds {len(found)} jobs: {names}", "with --detach all are sent")
    if namespace is not None:
        for one in found:
            if one.metadata.namespace not in ("", namespace):
                what = f"{one.metadata.name} belongs to namespace {one.metadata.namespace}"
                faults.add("--namespace", what, "leave out one of the two")
    sent = []
    for where, job in () if faults.found else jobs:  # all are judged before the first is sent
        with located(faults.found, where):
            sent.append(ready(options.on, job, follow))
    refuse(faults.found)
    if options.convert:
        sys.stderr.write(changes_text(rendered))
    return tuple(sent)

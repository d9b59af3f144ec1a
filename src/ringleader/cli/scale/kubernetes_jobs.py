"""``ringleader scale --on kubernetes``: the same sizes, each a job that is deleted afterwards.

With ``--launch-with ringleader`` there is one job, whose launcher measures all of them as on hosts.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ringleader.bench.scale.measurement import ScaleRequest, SizeRun, job_of
from ringleader.bench.scale.meter import LauncherLog, Meter
from ringleader.bench.scale.sizes import host_words, parse_baseline, parse_grid
from ringleader.cli.bench.bench_options import is_taken
from ringleader.cli.follow_job import SENDING, attend
from ringleader.cli.kubernetes import job_from_options
from ringleader.cli.kubernetes.connection import Connection, with_cluster
from ringleader.cli.kubernetes.run_job import (
    Where,
    check_claims,
    check_operatorless,
    dry_run_text,
    placed,
    run_request,
    work_of,
)
from ringleader.cli.options.kubernetes_options import (
    ClusterOptions,
    FollowOptions,
    JobOptions,
    KubernetesOptions,
    misplaced_options,
)
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.output import JsonOptions
from ringleader.cli.scale.options import ScaleOptions, make_request
from ringleader.cli.typed_command import faults_of_words, misplaced, words_given
from ringleader.errors import Fault, RequestError, RingleaderError, collected, refuse
from ringleader.fabric.facts import HostFacts as DeviceFacts
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.kubernetes.jobs.job_submission import until_gone
from ringleader.kubernetes.jobs.pod_options import PodOptions, PolicyOptions
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.option_fields import names_of, parts
from ringleader.plan.job import Host, Job, Mpi
from ringleader.plan.rank_placement import HostFacts, Plan, RankPlace
from ringleader.scaling import Request, Run, Size
from ringleader.slurm.batch_script import BatchOptions
from ringleader.text_files import read_text

if TYPE_CHECKING:
    from ringleader.cli.returned_files import ReturnedFiles
    from ringleader.followed_job import End, Progress, Work
    from ringleader.kubernetes.jobs.job_state import JobView

START_TIMEOUT = 900.0
"""Seconds that the Pods of a size may take to run: a sweep must not wait for ever for one that never fits."""


def kubernetes_request(
    options: ScaleOptions, words: tuple[str, ...], stored: Run | None
) -> tuple[ScaleRequest, KubernetesJobs]:
    """Return what is measured on Kubernetes, and what starts it.

    RequestError with every fault of every size's job.
    """
    faults = Faults(found=list(options.job.faults))
    if options.slurm.detach:
        faults.add("--detach", "means nothing here: the results come with the log", "leave it out")
    on: Where = "pods" if options.hosts.on == "pods" else "kubernetes"
    if options.grid is None and stored is None:
        faults.add("--grid", "is needed on Kubernetes", "name sizes as workers x ranks: --grid 1x1,1x2,2x2")
        options = replace(options, grid="1x1")
    jobs, sizes = _jobs(on, options), _sizes(options, stored)
    threads = stored.context.threads if stored is not None else _threads(options, sizes)
    most, slots = max(size.hosts for size in sizes), max(size.slots for size in sizes)
    # Workers stand for hosts: as many as the largest size needs, with room for its ranks.
    workers = tuple(Host(name=f"worker-{index}", slots=slots) for index in range(most))
    job = Job(command=options.job.command, hosts=workers, bind="none", threads=threads)
    request = Request(
        options=words, workdir=options.job.workdir or "the image's", hosts=host_words(job.hosts)
    )
    asked = None
    with collected(faults.found):
        coupled = replace(options, no_uncoupled=True, in_step=None)
        image = options.pods.image or ""
        asked = make_request(coupled, job, request, cores=1, image=image, stored=stored)
    # Where the sizes are not known, one job shows what else is wrong.
    every = [replace(job, np=1, hosts=job.hosts[:1])]
    if asked is not None:
        every = [job_of(SizeRun(size=size), asked) for size in asked.sizes]
    for one in every:
        with collected(faults.found, RingleaderError):
            jobs.mpijob(one, os.environ, suffix="xxxxx")
    if asked is None or faults.found:
        raise RequestError(faults.found)
    return asked, jobs


_OUTSIDE = names_of(PodOptions) | names_of(ClusterOptions) | names_of(FollowOptions) | names_of(BatchOptions)
_OUTSIDE |= {"on", "output", "dry_run", "workdir", "x", "env_file"}
_NOT_INSIDE = {
    "resume": "a run that was measured in one job cannot be continued in another",
    "replace": "the run is kept where none is yet",
    "json": "the run comes back as files; report.json is one of them",
    "json_file": "the run comes back as files; report.json is one of them",
}


def run_in_launcher(options: ScaleOptions, context: click.Context) -> int:
    """Measure all sizes in one job, whose launcher runs this command; return the exit code.

    RequestError with every fault.
    """
    own = {part.parameter for part in parts(ScaleOptions) if part.kind is None}
    faults = [*faults_of_words(context), *misplaced_options(context, options.hosts.on, own)]
    for name, what in _NOT_INSIDE.items():
        faults += misplaced(name.__eq__, what, "leave it out, or leave out --launch-with ringleader")
    if options.name is not None and is_taken(Path(options.output) / options.name):
        faults.append(
            Fault(where="--name", what=f"{options.output}/{options.name} exists", hint="name another")
        )
    with collected(faults):
        asked, jobs = kubernetes_request(options, (), None)
    refuse(faults)
    hosts, slots = (max(getattr(size, name) for size in asked.sizes) for name in ("hosts", "slots"))
    command = ("ringleader", "scale", *words_given(context, _OUTSIDE), "--", *options.job.command)
    check = options.job.check and "quick"  # the command inside makes the others
    job = Job(command=command, np=hosts * slots, workdir=options.job.workdir, check=check)
    policy = PolicyOptions(slots_per_worker=slots)
    follow = replace(options.follow, dry_run=options.dry_run)
    there = KubernetesOptions(
        cluster=options.cluster, job=replace(jobs.options, job=job, policy=policy), follow=follow
    )
    return run_request(jobs.on, there, options.output)


def _jobs(on: Where, options: ScaleOptions) -> KubernetesJobs:
    """Return what starts the sizes' jobs."""
    asked = options.job
    job = Job(
        timeout=asked.timeout,
        workdir=asked.workdir,
        extra_mpirun_args=asked.extra_mpirun_args,
        check=asked.check,
    )
    return KubernetesJobs(
        on=on,
        cluster=options.cluster,
        options=JobOptions(
            job=job,
            ranks=options.ranks,
            pods=options.pods,
            policy=PolicyOptions(clean_pod_policy="None"),  # they tell their nodes; then all is deleted
        ),
        follow=replace(
            options.follow,
            start_timeout=options.follow.start_timeout or START_TIMEOUT,
            json=JsonOptions(json=True),  # standard output is for the results
        ),
    )


def _sizes(options: ScaleOptions, stored: Run | None) -> list[Size]:
    """Return all sizes that are meant; what is wrong with them is found later."""
    sizes = [point.size for point in (stored.points if stored else ())]
    faults = Faults()
    with collected(faults.found):
        sizes += parse_grid(options.grid or "1x1")
    with collected(faults.found):
        sizes.append(parse_baseline(options.baseline))
    return sizes


def _threads(options: ScaleOptions, sizes: list[Size]) -> int | None:
    """Return OMP_NUM_THREADS, the same at every size: a share of ``--cpu``, where nothing else is said."""
    cpu = options.pods.cpu or ""
    share = max(1, int(cpu) // max(size.slots for size in sizes)) if cpu.isdigit() else None
    return options.job.threads or share


GONE_SECONDS = 120.0
"""Until the Pods of a size have left their nodes: the next size needs the room."""


@dataclass(frozen=True, kw_only=True)
class KubernetesOutcome:
    """How a job on a cluster ended, and on which nodes it was."""

    exit_code: int
    whose: str
    reason: str
    plan: Plan | None
    mpi: Mpi | None = None
    proof: TransportProof | None = None
    devices: Mapping[str, DeviceFacts] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class KubernetesJobs:
    """Starts one job after the other; a launcher for `bench.scale.measurement`."""

    on: Where
    cluster: ClusterOptions
    options: JobOptions
    """Without command, ranks and slots: those are the sizes'."""
    follow: FollowOptions

    def __call__(self, job: Job, *, environ: Mapping[str, str], listener: Meter) -> KubernetesOutcome:
        """Run the job to its end, telling the listener what its log says; nothing of it is left behind."""
        made = self.mpijob(job, environ, suffix=uuid.uuid4().hex[:5])
        log = LauncherLog(listener, job.np or 1)
        end, nodes = with_cluster(self.cluster, lambda one: self._measured(one, made, log, listener))
        log.end()
        return KubernetesOutcome(
            exit_code=end.exit_code,
            whose=end.whose,
            reason=end.reason,
            plan=plan_of(nodes, job, {rank: said.get("cores") for rank, said in listener.contexts.items()}),
        )

    def mpijob(self, job: Job, environ: Mapping[str, str], *, suffix: str) -> MPIJob:
        """Return a size's job on the cluster. Raises RequestError with every fault at once."""
        faults = Faults()
        asked = replace(self.options.job, command=job.command, np=job.np, threads=job.threads)
        policy = replace(self.options.policy, slots_per_worker=job.hosts[0].slots)
        options = replace(self.options, job=asked, policy=policy)
        request = job_from_options.request_of(
            options,
            faults=faults,
            namespace=self.cluster.namespace or "",
            suffix=suffix,
            environ=environ,
            read=read_text,
        )
        check_claims(request, faults)
        request = replace(request, env=(*request.env, ("RINGLEADER_REPORT_LINES", "1")))
        made = job_from_options.job_of(request, faults)
        if self.on == "pods":
            check_operatorless(made, self.follow)
        return made

    def yaml(self, job: Job, environ: Mapping[str, str]) -> str:
        """Return what would be sent for a size."""
        return dry_run_text(self.on, self.mpijob(job, environ, suffix="xxxxx"), self.follow)

    async def _measured(
        self, connection: Connection, job: MPIJob, log: LauncherLog, meter: Meter
    ) -> tuple[End, list[str]]:
        here, job = placed(connection, job)
        name = job.metadata.name
        work = _TakenAway(here, work_of(self.on, here, job, self.follow, meter.warning), meter.progress)
        terminal = _MeterTerminal(name, log, meter)
        return await attend(here, work, terminal, self.follow, name=name), work.nodes


class _TakenAway:
    """A job of which nothing is left, however it ends."""

    cleans_up = True

    def __init__(self, connection: Connection, work: Work[JobView], tell: Callable[[str], None]) -> None:
        self._connection, self._work, self._tell = connection, work, tell
        self._sending: asyncio.Future[JobView] | None = None
        self.nodes: list[str] = []
        """Node of each worker, by its index."""

    async def send(self) -> JobView:
        """Send it; a create that is on its way is finished even if nobody waits for it any more."""
        self._sending = asyncio.ensure_future(self._work.send())
        return await asyncio.shield(self._sending)

    async def remove(self) -> None:
        """Delete it and wait until its Pods have left their nodes."""
        if self._sending is None:
            return
        await asyncio.wait({self._sending}, timeout=SENDING)
        sent = self._sending.done() and not self._sending.cancelled() and self._sending.exception() is None
        job = self._sending.result() if sent else None
        if job is not None:
            self.nodes = await self._nodes_of(job)
        await self._work.remove()
        if job is not None:
            await until_gone(self._connection.cluster, job, seconds=GONE_SECONDS, tell=self._tell)

    async def _nodes_of(self, job: JobView) -> list[str]:
        from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
        from ringleader.kubernetes.client.api_resources import PODS
        from ringleader.kubernetes.jobs.job_state import job_pod_view

        try:
            listing = await self._connection.cluster.list(PODS, job.namespace, labels=job.selector)
        except (ApiError, UnreachableError):
            return []
        pods = [job_pod_view(one) for one in listing.items]
        workers = sorted((pod.index or 0, pod.node) for pod in pods if pod.role == "worker")
        return [node for _, node in workers]


class _MeterTerminal:
    """Tells a meter what a person at the terminal would see."""

    files: ReturnedFiles | None = None

    def __init__(self, name: str, log: LauncherLog, meter: Meter) -> None:
        self.name, self._log, self._meter = name, log, meter

    def output(self, data: bytes) -> None:
        self._log.feed(data)

    def progress(self, progress: Progress) -> None:
        self._meter.progress(f"{self.name}: {progress.text}")

    def warning(self, text: str) -> None:
        self._meter.warning(text)

    def say(self, text: str) -> None:
        (self._meter.progress if text == f"deleting {self.name}" else self._meter.warning)(text)

    async def ask(self, question: str) -> str:
        """Nobody is asked: what we started we take away."""
        return "y"


def plan_of(nodes: list[str], job: Job, cores: Mapping[int, object]) -> Plan | None:
    """Return which rank was on which node, workers filled in order; ``None`` where a node is not known.

    ``cores``: what ranks reported of the CPUs that they may use, by rank.
    """
    slots = (job.hosts[0].slots or 1) if job.hosts else 1
    if len(nodes) < len(job.hosts) or not all(nodes):
        return None
    names = list(dict.fromkeys(nodes))
    of_rank = [names.index(nodes[rank // slots]) for rank in range(job.np or 0)]
    hosts = []
    for index, name in enumerate(names):
        ranks = [rank for rank, host in enumerate(of_rank) if host == index]
        count = next((cores[rank] for rank in ranks if isinstance(cores.get(rank), int)), 0)
        assert isinstance(count, int)
        hosts.append(
            HostFacts(
                host=Host(name=name, slots=len(ranks)),
                hostname=name,
                identity=name,
                is_local=False,
                cpus=tuple(range(count)),
            )
        )
    places = tuple(
        RankPlace(
            rank=rank,
            host_index=host,
            local_rank=of_rank[:rank].count(host),
            local_size=of_rank.count(host),
            cross_rank=host,
            cross_size=len(names),
            cpus=(),
            threads=1,
            gpu=None,
        )
        for rank, host in enumerate(of_rank)
    )
    return Plan(hosts=tuple(hosts), ranks=places)

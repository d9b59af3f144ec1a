"""``ringleader operator run``: the controller of MPIJobs, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ringleader.cli.extras import needs_kubernetes
from ringleader.cli.number_types import FiniteRange
from ringleader.errors import Fault, RefusedError

if TYPE_CHECKING:
    from ringleader.controller.runtime.process import ProcessTerms
    from ringleader.kube.client import RestCluster
    from ringleader.render.kubernetes.operator_settings import OperatorSettings

HELP = """Run the operator until SIGTERM or Ctrl-C.

It looks after the MPIJobs of all namespaces, or of one. Several may run: one works, the others wait for its
Lease. Exit codes: 0 told to stop; 3 not allowed, no CRD, or the Lease is lost.
"""


@dataclass(frozen=True, kw_only=True)
class OperatorWords:
    """The options, as they were written."""

    namespace: str = ""
    lock_namespace: str | None = None
    leader_election: bool = True
    image: str | None = None
    image_pull_policy: str = ""
    wait_timeout: float = 900.0
    exec_spawn: bool = False
    log_tails: bool = False
    gang_scheduling: str = ""
    cluster_domain: str = ""
    host: str = ""
    port: int = 8080
    silence: float = 5.0
    monitoring_port: int | None = None
    kube_api_qps: float = 1000.0
    kube_api_burst: int = 2000
    parallel_jobs: int = 32
    parallel_requests: int = 64
    kubeconfig: str | None = None
    context: str | None = None
    log_format: Literal["json", "text"] = "json"
    log_level: str = "info"
    dry_run: bool = False


OPTIONS: tuple[click.Parameter, ...] = (
    click.Option(
        ["--namespace"], default="", envvar="KUBEFLOW_NAMESPACE", help="Look after this namespace only."
    ),
    click.Option(["--lock-namespace"], help="Where the Lease lies. [default: the operator's own]"),
    click.Option(
        ["--leader-election/--no-leader-election"], default=True, help="Work only while holding the Lease."
    ),
    click.Option(
        ["--image"],
        envvar="RINGLEADER_OPERATOR_IMAGE",
        help="The operator's own image, for what it runs in the Pods of jobs.",
    ),
    click.Option(
        ["--image-pull-policy"],
        type=click.Choice(["", "Always", "IfNotPresent", "Never"]),
        default="",
        show_choices=False,
        metavar="POLICY",
        help="For that image: Always, IfNotPresent or Never.",
    ),
    click.Option(
        ["--wait-timeout"],
        default=900.0,
        show_default=True,
        type=FiniteRange(min=0, min_open=True),
        help="Seconds that a launcher waits for workers that have an address and do not answer.",
    ),
    click.Option(
        ["--exec-spawn/--no-exec-spawn"],
        default=False,
        help="Run jobs with ringleader/spawn: exec. [default: refuse them]",
    ),
    click.Option(
        ["--log-tails/--no-log-tails"],
        default=False,
        help="Show the end of a failed container's log in status and events. [default: no]",
    ),
    click.Option(
        ["--gang-scheduling"],
        default="",
        metavar="NAME",
        help="Gang scheduler of jobs that name none: volcano, or a scheduler with coscheduling.",
    ),
    click.Option(["--cluster-domain"], default="", help="End of host names, such as cluster.local."),
    click.Option(["--host"], default="", help="Address that probes are answered on. [default: all]"),
    click.Option(
        ["--port"],
        default=8080,
        show_default=True,
        type=click.IntRange(-1, 65535),
        help="For /healthz, /readyz, /metrics; 0: none; -1: any.",
    ),
    click.Option(
        ["--silence"],
        default=5.0,
        show_default=True,
        type=FiniteRange(min=0, min_open=True),
        help="Seconds without an answer of the API server after which it is not ready.",
    ),
    click.Option(["--monitoring-port"], type=click.IntRange(-1, 65535), hidden=True),
    click.Option(
        ["--kube-api-qps"],
        default=1000.0,
        show_default=True,
        type=FiniteRange(min=0),
        help="Requests per second; 0: no limit.",
    ),
    click.Option(
        ["--kube-api-burst"],
        default=2000,
        show_default=True,
        type=click.IntRange(min=1),
        help="Requests at once after a rest.",
    ),
    click.Option(
        ["--parallel-jobs", "--threadiness", "parallel_jobs"],
        default=32,
        show_default=True,
        type=click.IntRange(min=1),
        help="Jobs that are looked at side by side.",
    ),
    click.Option(
        ["--parallel-requests"],
        default=64,
        show_default=True,
        type=click.IntRange(min=1),
        help="Requests under way at the same time.",
    ),
    click.Option(["--kubeconfig", "--kubeConfig", "kubeconfig"], help="As kubectl reads it."),
    click.Option(["--context"], help="Context of the kubeconfig."),
    click.Option(["--log-format"], type=click.Choice(["json", "text"]), default="json", show_default=True),
    click.Option(
        ["--log-level"],
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
    ),
    click.Option(["--dry-run"], is_flag=True, help="Say whether it could run here, and with what."),
)


class OperatorRunCommand(click.Command):
    """A command whose words arrive as one value."""

    def invoke(self, ctx: click.Context) -> None:
        """Run the operator."""
        with needs_kubernetes():
            run(read_words(ctx.params), environ=os.environ)


command = OperatorRunCommand(
    "run", params=list(OPTIONS), help=HELP, context_settings={"help_option_names": ["-h", "--help"]}
)


def read_words(params: Mapping[str, Any]) -> OperatorWords:
    """Return the options as a value."""
    return OperatorWords(**{one.name: params[one.name] for one in fields(OperatorWords)})


def run(words: OperatorWords, *, environ: Mapping[str, str]) -> None:
    """Run the operator until a signal comes. Raises RefusedError where the cluster does not let us."""
    from ringleader.controller.runtime.log_format import log_to_standard_error

    log_to_standard_error(words.log_format, words.log_level)
    asyncio.run(_run(words, environ))


async def _run(words: OperatorWords, environ: Mapping[str, str]) -> None:
    from ringleader.controller.runtime.process import Operator
    from ringleader.kube.client import RestCluster
    from ringleader.kube.credential_sources import credentials

    found = await credentials(kubeconfig=words.kubeconfig, context=words.context)
    terms = terms_of(words, environ, found.namespace)
    cluster = RestCluster(
        found,
        qps=words.kube_api_qps,
        burst=words.kube_api_burst,
        connections=words.parallel_requests,
        user_agent="ringleader-operator",
    )
    if words.dry_run:
        await _rehearse(cluster, terms, settings_of(words, ""))
        return
    lease_cluster = RestCluster(found, timeout=5.0, connections=2, user_agent="ringleader-operator-lease")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    settings = settings_of(words, _text(Path("/etc/resolv.conf")))
    operator = Operator(cluster, settings, terms, lease_cluster=lease_cluster)
    try:
        await operator.run(stop)
    except OSError as error:
        what = f"cannot listen on port {terms.port}: {error.strerror or error}"
        raise RefusedError(Fault(where="--port", what=what)) from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


async def _rehearse(cluster: RestCluster, terms: ProcessTerms, settings: OperatorSettings) -> None:
    """Ask the cluster all that is asked at the start, and say what would be looked after."""
    from ringleader.controller.runtime import rbac_check
    from ringleader.kube.api_resources import MPIJOBS

    try:
        lock = terms.lease.namespace if terms.lease else None
        await rbac_check.check(cluster, terms.namespace, lock, rbac_check.wanted(settings))
        jobs = await cluster.list(MPIJOBS, terms.namespace)
    finally:
        await cluster.close()
    where = f"namespace {terms.namespace}" if terms.namespace else "all namespaces"
    print(f"would look after {len(jobs.items)} MPIJobs in {where}")
    if terms.lease is not None:
        print(f"would work while holding the Lease {terms.lease.namespace}/{terms.lease.name}")
    print(f"would answer probes on port {terms.port}" if terms.port else "would answer no probes")


def settings_of(words: OperatorWords, resolv_conf: str) -> OperatorSettings:
    """Return what decisions rest on besides the job. ``resolv_conf``: the text of our own resolver's file."""
    from ringleader.render.kubernetes.operator_settings import OperatorSettings, domain_of_search

    return OperatorSettings(
        image=words.image or "",
        image_pull_policy=words.image_pull_policy,
        cluster_domain=words.cluster_domain,
        dns_domain=domain_of_search(resolv_conf),
        gang=words.gang_scheduling,
        wait_timeout=words.wait_timeout,
        has_exec_spawn=words.exec_spawn,
        has_log_tails=words.log_tails,
    )


def terms_of(words: OperatorWords, environ: Mapping[str, str], own_namespace: str) -> ProcessTerms:
    """Return how the process is to work."""
    from ringleader.controller.runtime.leader_election import LeaseTerms, lease_name
    from ringleader.controller.runtime.process import ProcessTerms

    instance = environ.get("POD_NAME") or platform.node() or "mpi-operator"
    lease = None
    if words.leader_election:
        identity = f"{instance}_{uuid.uuid4()}"
        lock = words.lock_namespace or own_namespace
        lease = LeaseTerms(namespace=lock, name=lease_name(words.namespace, lock), identity=identity)
    port = words.port if words.monitoring_port is None else words.monitoring_port
    return ProcessTerms(
        namespace=words.namespace,
        lease=lease,
        host=words.host,
        port=None if port == 0 else max(0, port),
        silence=words.silence,
        parallel_jobs=words.parallel_jobs,
        parallel_requests=words.parallel_requests,
    )

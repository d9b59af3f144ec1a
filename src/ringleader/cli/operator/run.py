"""``ringleader operator run``: the controller of MPIJobs, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ringleader.cli.extras import needs_kubernetes
from ringleader.cli.options.option_checks import FiniteRange
from ringleader.cli.typed_command import Command, Option

if TYPE_CHECKING:
    from ringleader.controller.runtime.process import ProcessOptions
    from ringleader.kube.client import RestCluster
    from ringleader.render.kubernetes.operator_settings import OperatorSettings

HELP = """Run the operator until SIGTERM or Ctrl-C.

It looks after the MPIJobs of all namespaces, or of one. Several may run: one works, the others wait for its
Lease. Exit codes: 0 told to stop; 3 not allowed, no CRD, or the Lease is lost.
"""


@dataclass(frozen=True, kw_only=True)
class OperatorOptions:
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
    Option(["--namespace"], default="", envvar="KUBEFLOW_NAMESPACE", help="Look after this namespace only."),
    Option(["--lock-namespace"], help="Where the Lease lies. [default: the operator's own]"),
    Option(
        ["--leader-election/--no-leader-election"], default=True, help="Work only while holding the Lease."
    ),
    Option(
        ["--image"],
        envvar="RINGLEADER_OPERATOR_IMAGE",
        help="The operator's own image, for what it runs in the Pods of jobs.",
    ),
    Option(
        ["--image-pull-policy"],
        type=click.Choice(["", "Always", "IfNotPresent", "Never"]),
        default="",
        show_choices=False,
        metavar="POLICY",
        help="For that image: Always, IfNotPresent or Never.",
    ),
    Option(
        ["--wait-timeout"],
        default=900.0,
        show_default=True,
        type=FiniteRange(min=0, min_open=True),
        help="Seconds that a launcher waits for workers that have an address and do not answer.",
    ),
    Option(
        ["--exec-spawn/--no-exec-spawn"],
        default=False,
        help="Run jobs with ringleader/spawn: exec. [default: refuse them]",
    ),
    Option(
        ["--log-tails/--no-log-tails"],
        default=False,
        help="Show the end of a failed container's log in status and events. [default: no]",
    ),
    Option(
        ["--gang-scheduling"],
        default="",
        metavar="NAME",
        help="Gang scheduler of jobs that name none: volcano, or a scheduler with coscheduling.",
    ),
    Option(["--cluster-domain"], default="", help="End of host names, such as cluster.local."),
    Option(["--host"], default="", help="Address that probes are answered on. [default: all]"),
    Option(
        ["--port"],
        default=8080,
        show_default=True,
        type=click.IntRange(-1, 65535),
        help="For /healthz, /readyz, /metrics; 0: none; -1: any.",
    ),
    Option(
        ["--silence"],
        default=5.0,
        show_default=True,
        type=FiniteRange(min=0, min_open=True),
        help="Seconds without an answer of the API server after which it is not ready.",
    ),
    Option(["--monitoring-port"], type=click.IntRange(-1, 65535), hidden=True),
    Option(
        ["--kube-api-qps"],
        default=1000.0,
        show_default=True,
        type=FiniteRange(min=0),
        help="Requests per second; 0: no limit.",
    ),
    Option(
        ["--kube-api-burst"],
        default=2000,
        show_default=True,
        type=click.IntRange(min=1),
        help="Requests at once after a rest.",
    ),
    Option(
        ["--parallel-jobs"],
        old=["--threadiness"],
        default=32,
        show_default=True,
        type=click.IntRange(min=1),
        help="Jobs that are looked at side by side.",
    ),
    Option(
        ["--parallel-requests"],
        default=64,
        show_default=True,
        type=click.IntRange(min=1),
        help="Requests under way at the same time, at most.",
    ),
    Option(["--kubeconfig", "kubeconfig"], old=["--kubeConfig"], help="As kubectl reads it."),
    Option(["--context"], help="Context of the kubeconfig."),
    Option(["--log-format"], type=click.Choice(["json", "text"]), default="json", show_default=True),
    Option(
        ["--log-level"],
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
    ),
    Option(["--dry-run"], is_flag=True, help="Say whether it could run here, and with what."),
)


def run_operator(options: OperatorOptions) -> None:
    """Run the operator until a signal comes. Raises RefusedError where the cluster does not let us."""
    from ringleader.controller.runtime.log_format import log_to_standard_error

    log_to_standard_error(options.log_format, options.log_level)
    with needs_kubernetes():
        asyncio.run(_run(options, os.environ))


command = Command("run", options=OperatorOptions, run=run_operator, params=list(OPTIONS), help=HELP)


async def _run(options: OperatorOptions, environ: Mapping[str, str]) -> None:
    from ringleader.controller.runtime.process import Operator
    from ringleader.kube.client import RestCluster
    from ringleader.kube.credential_sources import credentials

    found = await credentials(kubeconfig=options.kubeconfig, context=options.context)
    terms = terms_of(options, environ, found.namespace)
    cluster = RestCluster(
        found,
        qps=options.kube_api_qps,
        burst=options.kube_api_burst,
        connections=options.parallel_requests,
        user_agent="ringleader-operator",
    )
    if options.dry_run:
        await _dry_run(cluster, terms, settings_of(options, ""))
        return
    apart = await credentials(kubeconfig=options.kubeconfig, context=options.context)
    lease_cluster = RestCluster(apart, timeout=5.0, connections=2, user_agent="ringleader-operator-lease")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    settings = settings_of(options, _text(Path("/etc/resolv.conf")))
    operator = Operator(cluster, settings, terms, lease_cluster=lease_cluster)
    await operator.run(stop)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


async def _dry_run(cluster: RestCluster, terms: ProcessOptions, settings: OperatorSettings) -> None:
    """Ask the cluster all that is asked at the start, and say what would be looked after."""
    from ringleader.controller.runtime import rbac_check
    from ringleader.kube.api_resources import MPIJOBS

    try:
        lock = terms.lease.namespace if terms.lease else None
        await rbac_check.check(cluster, terms.namespace, lock, rbac_check.required_rights(settings))
        jobs = await cluster.list(MPIJOBS, terms.namespace)
    finally:
        await cluster.close()
    where = f"namespace {terms.namespace}" if terms.namespace else "all namespaces"
    print(f"would look after {len(jobs.items)} MPIJobs in {where}")
    if terms.lease is not None:
        print(f"would work while holding the Lease {terms.lease.namespace}/{terms.lease.name}")
    print(f"would answer probes on port {terms.port}" if terms.port else "would answer no probes")


def settings_of(options: OperatorOptions, resolv_conf: str) -> OperatorSettings:
    """Return what decisions rest on besides the job. ``resolv_conf``: the text of our own resolver's file."""
    from ringleader.render.kubernetes.operator_settings import OperatorSettings, domain_of_search

    return OperatorSettings(
        image=options.image or "",
        image_pull_policy=options.image_pull_policy,
        cluster_domain=options.cluster_domain,
        dns_domain=domain_of_search(resolv_conf),
        gang=options.gang_scheduling,
        wait_timeout=options.wait_timeout,
        has_exec_spawn=options.exec_spawn,
        has_log_tails=options.log_tails,
    )


def terms_of(options: OperatorOptions, environ: Mapping[str, str], own_namespace: str) -> ProcessOptions:
    """Return how the process is to work."""
    from ringleader.controller.runtime.leader_election import LeaseOptions, lease_name
    from ringleader.controller.runtime.process import ProcessOptions

    instance = environ.get("POD_NAME") or platform.node() or "mpi-operator"
    lease = None
    if options.leader_election:
        identity = f"{instance}_{uuid.uuid4()}"
        lock = options.lock_namespace or own_namespace
        lease = LeaseOptions(namespace=lock, name=lease_name(options.namespace, lock), identity=identity)
    port = options.port if options.monitoring_port is None else options.monitoring_port
    return ProcessOptions(
        namespace=options.namespace,
        lease=lease,
        host=options.host,
        port=None if port == 0 else max(0, port),
        silence=options.silence,
        parallel_jobs=options.parallel_jobs,
        parallel_requests=options.parallel_requests,
    )

"""``ringleader operator``: the controller of MPIJobs, and the objects that a cluster needs for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ringleader import __version__
from ringleader.cli.kubernetes.connection import needs_kubernetes
from ringleader.cli.kubernetes.manifest_arguments import yaml_of
from ringleader.cli.output import JsonOptions, show
from ringleader.cli.typed_command import Command
from ringleader.errors import RequestError
from ringleader.kubernetes.objects.operator_manifests import NAMESPACE, Installation, check, manifests
from ringleader.kubernetes.objects.operator_settings import OperatorSettings, domain_of_search
from ringleader.option_fields import LEAST, flag, group, option

if TYPE_CHECKING:
    from ringleader.kubernetes.client.cluster import Cluster
    from ringleader.kubernetes.operator.runtime.process import ProcessOptions


_OURS = {"image": {"default": f"ringleader-operator:{__version__}", "show_default": True}}


@dataclass(frozen=True, kw_only=True)
class ManifestsOptions:
    """The options, as they were written."""

    namespace: str | None = option("Manage only the jobs of this namespace, and run there.", metavar="NS")
    cluster_scope: bool = flag("Manage the jobs of all namespaces (default).")
    install_in: str | None = option("Namespace of the operator. [default: mpi-operator]", metavar="NS")
    installation: Installation = group(Installation, changed=_OURS)
    admission_policy: bool | None = flag(
        "Add admission policies that limit the operator's account to what belongs to MPIJobs; needs "
        "Kubernetes 1.30. [default: not with --namespace, unless with --exec-spawn]",
        "--admission-policy/--no-admission-policy",
        default=None,
        after="log_tails",
    )
    crd: bool | None = flag("Add the CRD. [default: not with --namespace]", "--crd/--no-crd", default=None)
    json: JsonOptions = group(JsonOptions)


@Command.of("manifests", ManifestsOptions)
def manifests_command(options: ManifestsOptions) -> None:
    """Print the objects that run the operator, without sending them.

    \b
      ringleader operator manifests --image REGISTRY/ringleader-operator:TAG | kubectl apply -f -
    """
    namespace = options.namespace
    if namespace is not None and options.cluster_scope:
        raise RequestError("and --cluster-scope exclude each other", where="--namespace")
    if namespace == "":
        raise RequestError("is empty", where="--namespace", hint="leave it out for all namespaces")
    by_default = not namespace or options.installation.has_exec_spawn
    installation = replace(
        options.installation,
        namespace=options.install_in or namespace or NAMESPACE,
        scope=namespace or "",
        has_admission_policy=by_default if options.admission_policy is None else options.admission_policy,
        has_crd=not namespace if options.crd is None else options.crd,
        has_namespace=not namespace,
    )
    check(installation)
    documents = manifests(installation)
    show(
        options.json,
        {"apiVersion": "v1", "kind": "List", "items": documents},
        lambda: yaml_of(documents),
    )


@dataclass(frozen=True, kw_only=True)
class CrdOptions:
    """The options of ``operator crd``."""

    json: JsonOptions = group(JsonOptions)


def crd(options: CrdOptions) -> None:
    """Print the CustomResourceDefinition of MPIJob.

    \b
      ringleader operator crd | kubectl apply -f -
    """
    from ringleader.kubernetes.mpijob.crd import crd as definition

    value = definition()
    show(options.json, value, lambda: yaml_of([value]))


crd_command = Command(
    "crd",
    CrdOptions,
    crd,
)


@dataclass(frozen=True, kw_only=True)
class OperatorOptions:
    """The options, as they were written."""

    namespace: str = option("Manage only this namespace's jobs.", default="", envvar="KUBEFLOW_NAMESPACE")
    lock_namespace: str | None = option("Namespace of the Lease. [default: the operator's]")
    leader_election: bool = flag(
        "Work only while holding the Lease.", "--leader-election/--no-leader-election", default=True
    )
    settings: OperatorSettings = group(OperatorSettings)
    host: str = option("Address on which to answer probes. [default: all]", default="")
    port: int = option(
        "Port for /healthz, /readyz and /metrics; 0: none; -1: any free one.",
        default=8080,
        least=-1,
        most=65535,
        wrong="{} is not a port number",
    )
    silence: float = option(
        "Seconds without an answer from the API server after which the operator is not ready.",
        default=5.0,
        above=0,
        unit="seconds",
    )
    monitoring_port: int | None = option(
        None, least=-1, most=65535, wrong="{} is not a port number", hidden=True
    )
    kube_api_qps: float = option("Requests per second; 0: no limit.", default=1000.0, least=0, wrong=LEAST)
    kube_api_burst: int = option("Burst of requests above that rate.", default=2000, least=1, wrong=LEAST)
    parallel_jobs: int = option(
        "Jobs to process in parallel.",
        default=32,
        old=("--threadiness",),
        least=1,
        wrong=LEAST,
    )
    parallel_requests: int = option("Maximum number of requests in flight.", default=64, least=1, wrong=LEAST)
    kubeconfig: str | None = option("kubeconfig file. [default: as kubectl]", old=("--kubeConfig",))
    context: str | None = option("Context of the kubeconfig.")
    log_format: Literal["json", "text"] = option("Format of logs.", default="json", choices=["json", "text"])
    log_level: str = option("Lowest level.", default="info", choices=["debug", "info", "warning", "error"])
    dry_run: bool = flag("Print whether it could run here, and with what.")


@Command.of("run", OperatorOptions)
def run_command(options: OperatorOptions) -> None:
    """Run the operator until SIGTERM or Ctrl-C.

    It manages the MPIJobs of all namespaces or of one. If several operators run, one is active and the others
    wait for its Lease. Exit codes: 0 stopped by a signal; 3 no rights, no CRD, or the Lease was lost.
    """
    from ringleader.kubernetes.operator.runtime.monitoring import log_to_standard_error

    log_to_standard_error(options.log_format, options.log_level)
    with needs_kubernetes():
        asyncio.run(_run(options, os.environ))


async def _run(options: OperatorOptions, environ: Mapping[str, str]) -> None:
    from ringleader.kubernetes.client.cluster import Cluster
    from ringleader.kubernetes.client.kubeconfig import credentials
    from ringleader.kubernetes.operator.runtime.process import Operator

    found = await credentials(kubeconfig=options.kubeconfig, context=options.context)
    terms = terms_of(options, environ, found.namespace)
    cluster = Cluster(
        found,
        qps=options.kube_api_qps,
        burst=options.kube_api_burst,
        connections=options.parallel_requests,
        user_agent="ringleader-operator",
    )
    if options.dry_run:
        await _dry_run(cluster, terms, options.settings)
        return
    apart = await credentials(kubeconfig=options.kubeconfig, context=options.context)
    lease_cluster = Cluster(apart, timeout=5.0, connections=2, user_agent="ringleader-operator-lease")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    resolv_conf = ""
    with contextlib.suppress(OSError):
        resolv_conf = Path("/etc/resolv.conf").read_text(encoding="utf-8", errors="replace")
    settings = settings_of(options, resolv_conf)
    operator = Operator(cluster, settings, terms, lease_cluster=lease_cluster)
    await operator.run(stop)


async def _dry_run(cluster: Cluster, terms: ProcessOptions, settings: OperatorSettings) -> None:
    """Ask the cluster all that is asked at the start, and say what would be looked after."""
    from ringleader.kubernetes.client.api_resources import MPIJOBS
    from ringleader.kubernetes.operator.runtime import rbac_check

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
    return replace(options.settings, dns_domain=domain_of_search(resolv_conf))


def terms_of(options: OperatorOptions, environ: Mapping[str, str], own_namespace: str) -> ProcessOptions:
    """Return how the process is to work."""
    from ringleader.kubernetes.operator.runtime.leader_election import LeaseOptions, lease_name
    from ringleader.kubernetes.operator.runtime.process import ProcessOptions

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

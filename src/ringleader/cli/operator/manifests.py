"""``ringleader operator manifests`` and ``crd``: what a cluster needs for the operator, printed."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader import __version__
from ringleader.cli.json_output import JsonOptions, show
from ringleader.cli.kubernetes.manifest_arguments import yaml_of
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError
from ringleader.mpijob.crd import crd as definition
from ringleader.option_fields import flag, group, option
from ringleader.render.kubernetes.operator_manifests import NAMESPACE, Installation, check, manifests

IMAGE = f"ringleader-operator:{__version__}"


@dataclass(frozen=True, kw_only=True)
class ManifestsOptions:
    """The options, as they were written."""

    namespace: str | None = option("Look after the jobs of this namespace only, and run there.", metavar="NS")
    cluster_scope: bool = flag("Look after the jobs of all namespaces. The default.")
    install_in: str | None = option("Where the operator runs. [default: mpi-operator]", metavar="NS")
    image: str = option(
        "The operator's image: deploy/operator/Dockerfile.", default=IMAGE, envvar="RINGLEADER_OPERATOR_IMAGE"
    )
    gang: str = option("Gang scheduler of jobs that name none.", default="", metavar="NAME")
    cluster_domain: str = option("End of host names, such as cluster.local.", default="")
    replicas: int = option("Operators, one of which works.", default=1)
    wait_timeout: float | None = option(
        "How long a launcher waits for workers that have an address and do not answer. [default: 900]",
        metavar="SECONDS",
    )
    exec_spawn: bool = flag(
        "Give the rights that jobs with ringleader/spawn: exec need. [default: refuse such jobs]",
        "--exec-spawn/--no-exec-spawn",
    )
    log_tails: bool = flag(
        "Show the end of a failed container's log in status and events: logs may hold secrets. [default: no]",
        "--log-tails/--no-log-tails",
    )
    admission_policy: bool | None = flag(
        "With policies that keep the operator's account to what belongs to MPIJobs; Kubernetes 1.30."
        " [default: not with --namespace, unless with --exec-spawn]",
        "--admission-policy/--no-admission-policy",
        default=None,
    )
    network_policy: bool = flag(
        "Let Pods of its own namespace and of those labelled metrics=enabled read the metrics, no others.",
        "--network-policy/--no-network-policy",
        default=True,
    )
    crd: bool | None = flag("With the CRD. [default: not with --namespace]", "--crd/--no-crd", default=None)
    json: JsonOptions = group(JsonOptions)


def print_manifests(options: ManifestsOptions) -> None:
    """Print the objects."""
    namespace = options.namespace
    if namespace is not None and options.cluster_scope:
        raise RequestError(Fault(where="--namespace", what="and --cluster-scope exclude each other"))
    if namespace == "":
        raise RequestError(
            Fault(where="--namespace", what="is empty", hint="leave it out for all namespaces")
        )
    installation = Installation(
        image=options.image,
        namespace=options.install_in or namespace or NAMESPACE,
        scope=namespace or "",
        gang=options.gang,
        cluster_domain=options.cluster_domain,
        replicas=options.replicas,
        wait_timeout=options.wait_timeout,
        has_exec_spawn=options.exec_spawn,
        has_log_tails=options.log_tails,
        has_admission_policy=not namespace or options.exec_spawn
        if options.admission_policy is None
        else options.admission_policy,
        has_network_policy=options.network_policy,
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


command = Command(
    "manifests",
    options=ManifestsOptions,
    run=print_manifests,
    help="""Print the objects that run the operator; nothing is sent.

    ringleader operator manifests --image REGISTRY/ringleader-operator:TAG | kubectl apply -f -""",
)


@dataclass(frozen=True, kw_only=True)
class CrdOptions:
    """The options of ``operator crd``."""

    json: JsonOptions = group(JsonOptions)


def crd(options: CrdOptions) -> None:
    """Print the definition."""
    value = definition()
    show(options.json, value, lambda: yaml_of([value]))


crd_command = Command(
    "crd",
    options=CrdOptions,
    run=crd,
    help="""Print the CustomResourceDefinition of MPIJob.

    ringleader operator crd | kubectl apply -f -""",
)

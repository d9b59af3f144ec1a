"""``ringleader operator manifests``: what a cluster needs for the operator, to be applied or kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringleader import __version__
from ringleader.cli.json_output import JSON_OPTIONS, JsonOptions, show
from ringleader.cli.kubernetes.manifest_arguments import yaml_of
from ringleader.cli.typed_command import Command, Option
from ringleader.errors import Fault, RequestError

IMAGE = f"ringleader-operator:{__version__}"


@dataclass(frozen=True, kw_only=True)
class ManifestsOptions:
    """The options, as they were written."""

    namespace: str | None = None
    cluster_scope: bool = False
    install_in: str | None = None
    image: str = IMAGE
    gang: str = ""
    cluster_domain: str = ""
    replicas: int = 1
    wait_timeout: float | None = None
    exec_spawn: bool = False
    log_tails: bool = False
    admission_policy: bool | None = None
    network_policy: bool = True
    crd: bool | None = None
    json: JsonOptions = field(default_factory=JsonOptions)


OPTIONS = (
    Option(["--namespace"], metavar="NS", help="Look after the jobs of this namespace only, and run there."),
    Option(["--cluster-scope"], is_flag=True, help="Look after the jobs of all namespaces. The default."),
    Option(["--install-in"], metavar="NS", help="Where the operator runs. [default: mpi-operator]"),
    Option(
        ["--image"],
        default=IMAGE,
        envvar="RINGLEADER_OPERATOR_IMAGE",
        show_default=True,
        help="The operator's image: deploy/operator/Dockerfile.",
    ),
    Option(["--gang"], default="", metavar="NAME", help="Gang scheduler of jobs that name none."),
    Option(["--cluster-domain"], default="", help="End of host names, such as cluster.local."),
    Option(["--replicas"], default=1, show_default=True, help="Operators, one of which works."),
    Option(
        ["--wait-timeout"],
        type=float,
        metavar="SECONDS",
        help="How long a launcher waits for workers that have an address and do not answer. [default: 900]",
    ),
    Option(
        ["--exec-spawn/--no-exec-spawn"],
        default=False,
        help="Give the rights that jobs with ringleader/spawn: exec need. [default: refuse such jobs]",
    ),
    Option(
        ["--log-tails/--no-log-tails"],
        default=False,
        help="Show the end of a failed container's log in status and events: logs may hold secrets."
        " [default: no]",
    ),
    Option(
        ["--admission-policy/--no-admission-policy"],
        default=None,
        help="With policies that keep the operator's account to what belongs to MPIJobs; Kubernetes 1.30."
        " [default: not with --namespace, unless with --exec-spawn]",
    ),
    Option(
        ["--network-policy/--no-network-policy"],
        default=True,
        help="Let Pods of its own namespace and of those labelled metrics=enabled read the metrics, no "
        "others.",
    ),
    Option(["--crd/--no-crd"], default=None, help="With the CRD. [default: not with --namespace]"),
    *JSON_OPTIONS,
)


def print_manifests(options: ManifestsOptions) -> None:
    """Print the objects."""
    from ringleader.render.kubernetes.operator_manifests import NAMESPACE, Installation, check, manifests

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
    params=list(OPTIONS),
    help="""Print the objects that run the operator; nothing is sent.

    ringleader operator manifests --image REGISTRY/ringleader-operator:TAG | kubectl apply -f -""",
)

"""``ringleader operator manifests``: what a cluster needs for the operator, to be applied or kept."""

from __future__ import annotations

import json
import sys

import click

from ringleader import __version__
from ringleader.cli.extras import needs_kubernetes
from ringleader.errors import Fault, RequestError

IMAGE = f"ringleader-operator:{__version__}"


@click.command(name="manifests")
@click.option("--namespace", metavar="NS", help="Look after the jobs of this namespace only, and run there.")
@click.option("--cluster-scope", is_flag=True, help="Look after the jobs of all namespaces. The default.")
@click.option("--install-in", metavar="NS", help="Where the operator runs. [default: mpi-operator]")
@click.option(
    "--image",
    default=IMAGE,
    envvar="RINGLEADER_OPERATOR_IMAGE",
    show_default=True,
    help="The operator's image: deploy/operator/Dockerfile.",
)
@click.option("--gang", default="", metavar="NAME", help="Gang scheduler of jobs that name none.")
@click.option("--cluster-domain", default="", help="End of host names, such as cluster.local.")
@click.option("--replicas", default=1, show_default=True, help="Operators, one of which works.")
@click.option(
    "--wait-timeout",
    type=float,
    metavar="SECONDS",
    help="How long a launcher waits for workers that have an address and do not answer. [default: 900]",
)
@click.option(
    "--exec-spawn/--no-exec-spawn",
    default=False,
    help="Give the rights that jobs with ringleader/spawn: exec need. [default: refuse such jobs]",
)
@click.option(
    "--log-tails/--no-log-tails",
    default=False,
    help="Show the end of a failed container's log in status and events: logs may hold secrets."
    " [default: no]",
)
@click.option(
    "--admission-policy/--no-admission-policy",
    default=None,
    help="With policies that keep the operator's account to what belongs to MPIJobs; Kubernetes 1.30."
    " [default: not with --namespace]",
)
@click.option(
    "--network-policy/--no-network-policy",
    default=True,
    help="Let Pods of its own namespace and of those labelled metrics=enabled read the metrics, no others.",
)
@click.option("--crd/--no-crd", default=None, help="With the CRD. [default: not with --namespace]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON List.")
def command(
    namespace: str | None,
    cluster_scope: bool,
    install_in: str | None,
    image: str,
    gang: str,
    cluster_domain: str,
    replicas: int,
    wait_timeout: float | None,
    exec_spawn: bool,
    log_tails: bool,
    admission_policy: bool | None,
    network_policy: bool,
    crd: bool | None,
    as_json: bool,
) -> None:
    """Print the objects that run the operator; nothing is sent.

    ringleader operator manifests --image REGISTRY/ringleader-operator:TAG | kubectl apply -f -
    """
    from ringleader.render.kubernetes.operator_manifests import NAMESPACE, Installation, check, manifests

    if namespace is not None and cluster_scope:
        raise RequestError(Fault(where="--namespace", what="and --cluster-scope exclude each other"))
    if namespace == "":
        raise RequestError(
            Fault(where="--namespace", what="is empty", hint="leave it out for all namespaces")
        )
    wish = Installation(
        image=image,
        namespace=install_in or namespace or NAMESPACE,
        scope=namespace or "",
        gang=gang,
        cluster_domain=cluster_domain,
        replicas=replicas,
        wait_timeout=wait_timeout,
        has_exec_spawn=exec_spawn,
        has_log_tails=log_tails,
        has_admission_policy=not namespace if admission_policy is None else admission_policy,
        has_network_policy=network_policy,
        has_crd=not namespace if crd is None else crd,
        has_namespace=not namespace,
    )
    check(wish)
    documents = manifests(wish)
    if as_json:
        listed = {"apiVersion": "v1", "kind": "List", "items": documents}
        sys.stdout.write(json.dumps(listed, indent=2, ensure_ascii=False) + "\n")
        return
    with needs_kubernetes():
        from ringleader.mpijob.yaml_text import text_of
    sys.stdout.write(text_of(documents))

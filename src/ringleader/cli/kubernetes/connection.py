"""From the words of a command to a connection with a cluster."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ringleader.cli.extras import needs_kubernetes
from ringleader.cli.options.kubernetes_options import ClusterWords
from ringleader.errors import Fault, RequestError

if TYPE_CHECKING:
    from ringleader.kube.cluster import Cluster

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A cluster that we speak to, and where in it."""

    cluster: Cluster
    namespace: str
    words: str
    """The options that led here, for commands that we tell the user to type: `` --namespace team``."""


def with_cluster(words: ClusterWords, do: Callable[[Place], Awaitable[Result]]) -> Result:
    """Connect, do something and close. Raises RequestError where no cluster is configured."""
    with needs_kubernetes():
        from ringleader.kube.client import RestCluster
        from ringleader.kube.credential_sources import credentials

    async def doing() -> Result:
        found = await credentials(kubeconfig=words.kubeconfig, context=words.context)
        cluster = RestCluster(found)
        try:
            namespace = checked_namespace(words.namespace) or found.namespace
            return await do(Place(cluster=cluster, namespace=namespace, words=again(words)))
        finally:
            await cluster.close()

    return asyncio.run(doing())


def namespace_without_cluster(words: ClusterWords) -> str:
    """Return the namespace that a job would be sent to; ``default`` where no cluster is configured."""
    if words.namespace is not None:
        return checked_namespace(words.namespace)
    with needs_kubernetes():
        from ringleader.kube.credential_sources import in_cluster
        from ringleader.kube.kubeconfig import choose, files_of, read
    config = read(files_of(words.kubeconfig, os.environ))
    if config.is_empty and not words.context:
        found = in_cluster(os.environ)
        return found.namespace if found is not None else "default"
    return choose(config, words.context).namespace or "default"


def checked_namespace(name: str | None) -> str:
    """Return a namespace as it was given; RequestError where none can have this name."""
    from ringleader.mpijob.object_names import is_namespace

    if name is not None and not is_namespace(name):
        hint = "use a-z, 0-9 and -"
        raise RequestError(Fault(where="--namespace", what=f"{name!r} is not a namespace's name", hint=hint))
    return name or ""


def again(words: ClusterWords) -> str:
    """Return the options that lead to the same place once more."""
    given = (
        ("--namespace", words.namespace),
        ("--context", words.context),
        ("--kubeconfig", words.kubeconfig),
    )
    return "".join(f" {option} {shlex.quote(value)}" for option, value in given if value is not None)

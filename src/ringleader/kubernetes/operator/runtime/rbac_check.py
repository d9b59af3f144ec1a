"""What the operator must be allowed to do, asked before it begins: all that is missing is said at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ringleader.errors import Fault, RefusedError
from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import (
    ACCESS_REVIEWS,
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LEASES,
    MPIJOBS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.objects.operator_settings import OperatorSettings

_log = logging.getLogger(__name__)
_HINT = "ringleader operator manifests | kubectl apply -f -"


@dataclass(frozen=True, kw_only=True)
class Right:
    """One thing that one may be allowed to do."""

    verb: str
    resource: Resource
    subresource: str = ""
    is_needed: bool = True
    """Without it no job could run; others are told of where they are missed."""

    def __str__(self) -> str:
        group = f".{self.resource.group}" if self.resource.group else ""
        return f"{self.verb} {self.resource.plural}{group}{'/' if self.subresource else ''}{self.subresource}"


RIGHTS = (
    *(Right(verb=verb, resource=MPIJOBS) for verb in ("list", "watch", "get")),
    Right(verb="patch", resource=MPIJOBS, subresource="status"),
    Right(verb="delete", resource=MPIJOBS, is_needed=False),
    *(Right(verb=verb, resource=PODS) for verb in ("list", "watch", "get", "create", "delete")),
    Right(verb="patch", resource=PODS, is_needed=False),
    *(Right(verb=verb, resource=JOBS) for verb in ("list", "watch", "get", "create", "patch")),
    Right(verb="delete", resource=JOBS, is_needed=False),
    *(Right(verb=verb, resource=SERVICES) for verb in ("list", "watch", "get", "create", "patch")),
    *(Right(verb=verb, resource=CONFIG_MAPS) for verb in ("get", "create", "patch")),
    *(Right(verb=verb, resource=SECRETS) for verb in ("get", "create", "patch")),
    Right(verb="create", resource=EVENTS, is_needed=False),
)
"""Rights in the namespaces that are looked after."""
LOG_RIGHTS = (Right(verb="get", resource=PODS, subresource="log", is_needed=False),)
"""Besides, where ends of logs are to be shown."""
EXEC_RIGHTS = (
    *(Right(verb=verb, resource=SERVICE_ACCOUNTS, is_needed=False) for verb in ("get", "create")),
    *(Right(verb=verb, resource=ROLES, is_needed=False) for verb in ("get", "create", "patch")),
    *(Right(verb=verb, resource=ROLE_BINDINGS, is_needed=False) for verb in ("get", "create", "patch")),
    *(Right(verb=verb, resource=PODS, subresource="exec", is_needed=False) for verb in ("get", "create")),
)
"""Besides, where jobs may spawn by exec."""
LEASE_RIGHTS = tuple(Right(verb=verb, resource=LEASES) for verb in ("get", "create", "update"))
"""Rights in the namespace of the Lease."""


def required_rights(settings: OperatorSettings) -> tuple[Right, ...]:
    """Return the rights that an operator with these settings takes where it looks after jobs."""
    logs = LOG_RIGHTS if settings.has_log_tails else ()
    return (*RIGHTS, *logs, *(EXEC_RIGHTS if settings.has_exec_spawn else ()))


async def check(
    cluster: Cluster, namespace: str, lock_namespace: str | None, rights: Sequence[Right] = RIGHTS
) -> None:
    """Raise RefusedError where the CRD or rights are missing.

    ``namespace`` is empty for all; ``lock_namespace`` is ``None`` without a Lease. UnreachableError and other
    ApiErrors pass through.
    """
    await _check_crd(cluster, namespace)
    asked = [(right, namespace) for right in rights]
    if lock_namespace is not None:
        asked += [(right, lock_namespace) for right in LEASE_RIGHTS]
    answers = await asyncio.gather(*(_is_allowed(cluster, right, where) for right, where in asked))
    missing = [(*one, why) for one, (is_allowed, why) in zip(asked, answers, strict=True) if not is_allowed]
    faults = [_fault(right, where, why) for right, where, why in missing if right.is_needed]
    if faults:
        raise RefusedError(faults)
    for right, where, _ in missing:
        _log.warning("not allowed to %s in %s", right, where or "all namespaces")


async def _check_crd(cluster: Cluster, namespace: str) -> None:
    try:
        await cluster.list(MPIJOBS, namespace, fields="metadata.name=none")
    except ApiError as error:
        if error.is_missing:
            what = f"the cluster does not know {MPIJOBS.kind}s of {MPIJOBS.api_version}"
            hint = "ringleader operator crd | kubectl apply -f -"
            raise RefusedError(Fault(where="", what=what, hint=hint)) from None
        if error.status in (401, 403):
            raise RefusedError(Fault(where="", what=error.message, hint=_HINT)) from None
        raise


async def _is_allowed(cluster: Cluster, right: Right, namespace: str) -> tuple[bool, str]:
    attributes = {
        "group": right.resource.group,
        "resource": right.resource.plural,
        "subresource": right.subresource,
        "verb": right.verb,
        "namespace": namespace,
    }
    review = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "metadata": {},
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    try:
        status = (await cluster.create(ACCESS_REVIEWS, review)).get("status") or {}
    except ApiError as error:
        if error.is_passing or error.status == 401:
            raise
        return True, ""  # a server that does not say what it allows: the requests themselves will show
    return bool(status.get("allowed")), status.get("reason") or ""


def _fault(right: Right, namespace: str, why: str) -> Fault:
    where = f"namespace {namespace}" if namespace else "all namespaces"
    return Fault(where=where, what=f"not allowed to {right}{': ' if why else ''}{why}", hint=_HINT)

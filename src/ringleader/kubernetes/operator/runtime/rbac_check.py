"""What the operator must be allowed to do, checked before it begins: all that is missing is reported at once.

The rights are those that ``objects.operator_manifests`` grants.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringleader.errors import Fault, RefusedError
from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import ACCESS_REVIEWS, MPIJOBS
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.objects.operator_manifests import (
    EXEC_RULES,
    JOB_RULES,
    LEASE_RULES,
    LOG_RULES,
)
from ringleader.kubernetes.objects.operator_settings import OperatorSettings

_log = logging.getLogger(__name__)
_HINT = "ringleader operator manifests | kubectl apply -f -"
_MISSED_LATER = frozenset(
    (
        "delete mpijobs",
        "patch pods",
        "delete jobs",
        "create events",
        "patch jobs/status",
        "get mpijobs/status",
    )
)
"""Rights without which jobs run all the same: they are missed where they are used."""
_NOT_ASKED = ("mpijobs/finalizers", "podgroups")
"""Resources that only some clusters have or check."""


@dataclass(frozen=True, kw_only=True)
class Right:
    """One thing that one may be allowed to do."""

    verb: str
    group: str
    resource: str
    """With its subresource: ``pods/log``."""
    is_needed: bool = True
    """Without it no job could run."""

    def __str__(self) -> str:
        plural, slash, subresource = self.resource.partition("/")
        return f"{self.verb} {plural}{'.' if self.group else ''}{self.group}{slash}{subresource}"


def _rights(rules: Iterable[Object], *, is_needed: bool = True) -> tuple[Right, ...]:
    return tuple(
        Right(
            verb=verb,
            group=group,
            resource=resource,
            is_needed=is_needed and f"{verb} {resource}" not in _MISSED_LATER,
        )
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if resource not in _NOT_ASKED
    )


LEASE_RIGHTS = _rights(LEASE_RULES)
"""Rights in the namespace of the Lease."""


def required_rights(settings: OperatorSettings) -> tuple[Right, ...]:
    """Return the rights that an operator with these settings needs where it looks after jobs."""
    more = (*(LOG_RULES if settings.has_log_tails else ()), *(EXEC_RULES if settings.has_exec_spawn else ()))
    return (*_rights(JOB_RULES), *_rights(more, is_needed=False))


async def check(
    cluster: Cluster, namespace: str, lock_namespace: str | None, rights: Sequence[Right]
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
    faults = []
    for (right, where), (is_allowed, why) in zip(asked, answers, strict=True):
        place = f"namespace {where}" if where else "all namespaces"
        if not is_allowed and right.is_needed:
            what = f"not allowed to {right}{': ' if why else ''}{why}"
            faults.append(Fault(where=place, what=what, hint=_HINT))
    if faults:
        raise RefusedError(faults)
    for (right, where), (is_allowed, _) in zip(asked, answers, strict=True):
        if not is_allowed:
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
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
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

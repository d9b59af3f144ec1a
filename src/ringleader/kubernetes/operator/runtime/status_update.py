"""The one write of a job's status in a pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import MPIJOBS
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.operator.runtime.caches import Caches


async def write_status(
    cluster: Cluster, caches: Caches, document: Object, status: Mapping[str, Any]
) -> Object | None:
    """Write a whole status over the one in ``document`` and return the job as it is then.

    The write holds for that very version of the job: if somebody has changed it since, nothing is written,
    the changed job goes into the caches and ``None`` comes back, to decide anew. Raises ApiError otherwise.
    """
    meta = document["metadata"]
    patch = {
        "metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
        "status": difference(document.get("status") or {}, status),
    }
    try:
        stored = await cluster.patch(MPIJOBS, meta["name"], patch, meta["namespace"], subresource="status")
    except ApiError as error:
        if error.is_missing:
            caches.mpijobs.missing(meta["namespace"], meta["name"], meta["uid"])
            return None
        if not error.is_stale:
            raise
        await _refresh(cluster, caches, meta)
        return None
    caches.wrote(MPIJOBS, stored, meta["name"])
    return stored


async def _refresh(cluster: Cluster, caches: Caches, meta: Mapping[str, Any]) -> None:
    try:
        found = await cluster.get(MPIJOBS, meta["name"], meta["namespace"])
    except ApiError as error:
        if not error.is_missing:
            raise
        caches.mpijobs.missing(meta["namespace"], meta["name"], meta["uid"])
    else:
        caches.wrote(MPIJOBS, found, meta["name"])


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7386) that turns one object into another."""
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := difference(old, value):
                patch[key] = inner
        elif key not in before or old != value:
            patch[key] = value
    return patch

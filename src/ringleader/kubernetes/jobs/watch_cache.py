"""Objects of one selection, kept up to date for somebody who looks on, over a server that comes and goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ringleader.kubernetes.client.api_resources import Resource
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.informer import Informer
from ringleader.kubernetes.client.retry import Backoff, Outage

View = TypeVar("View")

BACKOFF = Backoff(first=0.5, longest=8.0, spread=0.0)
"""Between attempts to reach a server that does not answer."""
WATCH = 60.0
"""Seconds of one watch."""


def watched(
    cluster: Cluster,
    resource: Resource,
    namespace: str,
    *,
    view: Callable[[Object], View],
    changed: Callable[[View | None], None],
    outage: Outage,
    labels: str = "",
    fields: str = "",
) -> Informer[View]:
    """Return an informer, to be run. ``changed`` hears each new view, and ``None`` for what is gone."""
    return Informer(
        cluster,
        resource,
        namespace=namespace,
        labels=labels,
        fields=fields,
        project=view,
        changed=lambda _namespace, _name, value: changed(value),
        outage=outage,
        watch_timeout=WATCH,
        backoff=BACKOFF,
    )


def values(informer: Informer[View]) -> tuple[View, ...]:
    """Return what is there now."""
    return tuple(value for _, _, value in informer.items())


async def tell_when_synced(informer: Informer[Any], tell: Callable[[], None]) -> None:
    """Tell once that the first list is there, which may be empty."""
    await informer.synced.wait()
    tell()

"""A container's log as it comes, over connections that break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from ringleader.kube.api_errors import ApiError, UnreachableError
from ringleader.kube.api_resources import PODS
from ringleader.kube.cluster import Cluster
from ringleader.launch.kubernetes.exit_status import main_container
from ringleader.launch.kubernetes.job_view import pod_view
from ringleader.launch.kubernetes.watch_cache import PAUSES, Outage

REMEMBERED = 4096
"""Bytes of the end that are compared where a log goes on after an interruption."""


class Shown:
    """How much of a log has been shown, so that what is read again is shown once."""

    def __init__(self) -> None:
        """Begin with nothing shown."""
        self.bytes = 0
        self._end = b""
        self._left = 0
        self._again = b""
        self.is_cut = False
        """The log on the node no longer begins where it did: something may be missing."""

    def restart(self) -> None:
        """The log is read from its beginning again."""
        self._left, self._again = self.bytes, b""

    def new(self, data: bytes) -> bytes:
        """Return what of ``data`` has not been shown yet."""
        if self._left:
            old, data = data[: self._left], data[self._left :]
            self._left -= len(old)
            self._again = (self._again + old)[-REMEMBERED:]
            if self._left == 0 and self._again != self._end:
                self.is_cut = True
        if data:
            self.bytes += len(data)
            self._end = (self._end + data)[-REMEMBERED:]
        return data


async def follow_log(
    cluster: Cluster, pod: str, namespace: str, *, container: str, outage: Outage, warn: Callable[[str], None]
) -> AsyncIterator[bytes]:
    """Yield a container's log from its beginning until the container has ended.

    Raises ApiError where the server refuses for good; a Pod that is gone is an end.
    """
    shown, attempt = Shown(), 0
    while True:
        try:
            shown.restart()
            async for data in cluster.logs(pod, namespace, container=container, follow=True):
                attempt = 0
                outage.over()
                new = shown.new(data)
                if shown.is_cut:
                    shown.is_cut = False
                    warn(f"the log of {pod} was cut on its node; some of it may be missing here")
                if new:
                    yield new
            if await has_ended(cluster, pod, namespace, container):
                return
        except ApiError as error:
            if error.status == 404:
                return
            if not (error.is_passing or _is_early(error)):
                raise
            if error.is_passing:
                outage.began(error)
        except UnreachableError as error:
            outage.began(error)
        await asyncio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
        attempt += 1


def _is_early(error: ApiError) -> bool:
    """Say whether the container only has to start first."""
    return error.status == 400 and "waiting to start" in error.message


async def has_ended(cluster: Cluster, pod: str, namespace: str, container: str) -> bool:
    """Say whether a container has ended for good, or its Pod is gone."""
    try:
        view = pod_view(await cluster.get(PODS, pod, namespace))
    except ApiError as error:
        if error.is_missing:
            return True
        raise
    found = main_container(view, container)
    return view.has_ended or (found is not None and found.state == "terminated")

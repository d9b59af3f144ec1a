"""A container's log as it comes, over connections that break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from ringleader.kube.api_errors import ApiError, UnreachableError
from ringleader.kube.api_resources import PODS
from ringleader.kube.cluster import Cluster
from ringleader.kube.pod_view import pod_view
from ringleader.kube.retry import Backoff, Outage, may_pass
from ringleader.launch.kubernetes.exit_status import main_container

REMEMBERED = 4096
"""Bytes of the end that are compared where a log goes on after an interruption."""


class LogPosition:
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
    position, backoff, attempt = LogPosition(), Backoff(), 0
    while True:
        try:
            position.restart()
            async for data in cluster.logs(pod, namespace, container=container, follow=True):
                attempt = 0
                outage.over()
                new = position.new(data)
                if position.is_cut:
                    position.is_cut = False
                    warn(f"the log of {pod} was cut on its node; some of it may be missing here")
                if new:
                    yield new
            if await has_ended(cluster, pod, namespace, container):
                return
        except (ApiError, UnreachableError) as error:
            if isinstance(error, ApiError) and error.is_missing:
                return
            if may_pass(error):
                outage.began(error)
            elif not _is_early(error):
                raise
        attempt += 1
        await asyncio.sleep(backoff.after(attempt))


def _is_early(error: ApiError | UnreachableError) -> bool:
    """Say whether the container only has to start first."""
    return isinstance(error, ApiError) and error.status == 400 and "waiting to start" in error.message


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

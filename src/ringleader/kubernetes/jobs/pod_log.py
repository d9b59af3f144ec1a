"""A container's log as it comes, over connections that break."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import PODS
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.retry import Backoff, Outage, may_pass
from ringleader.kubernetes.jobs.job_state import main_container
from ringleader.kubernetes.pod_view import pod_view

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d)) ")
"""What the kubelet writes before each line (Kubernetes 1.36, cri-client/pkg/logs/logs.go)."""
_LONGEST_STAMP = len("2026-01-31T12:00:00.000000000+00:00 ")
_DISORDER = 1.0
"""Seconds by which lines of the two streams of a container may be out of order."""


class LogPosition:
    """How much of a log with time stamps has been shown, so that what is read again is shown once."""

    def __init__(self) -> None:
        """Begin with nothing shown."""
        self._stamp, self._lines, self._shown = b"", 0, 0
        """Of the last line: its stamp, how many lines had it so far, and how many bytes of it were shown."""
        self._missing, self._dropped = 0, 0
        """Lines with this stamp still to be found again; bytes of the present line that were shown before."""
        self._head, self._is_start = b"", True
        """The beginning of a line whose stamp is not complete yet."""
        self.is_cut = False
        """The log on the node no longer begins where it did: something may be missing."""

    def restart(self) -> str:
        """Return the moment from which the log is read again; empty: from its beginning."""
        self._head, self._is_start, self._missing = b"", True, self._lines
        seconds = rfc3339.seconds_of(self._stamp.decode())
        return "" if seconds is None else rfc3339.text_of(seconds - _DISORDER)

    def new(self, data: bytes) -> bytes:
        """Return what of ``data`` has not been shown yet, without the stamps."""
        shown = []
        data, self._head = self._head + data, b""
        while data:
            if self._is_start:
                stamp = _STAMP.match(data)
                if stamp is None and len(data) < _LONGEST_STAMP and b"\n" not in data:
                    self._head = data
                    break
                self._begin(stamp[1] if stamp else b"")
                data = data[stamp.end() :] if stamp else data
            text, end, data = data.partition(b"\n")
            line, self._is_start = text + end, bool(end)
            fresh = line[self._dropped :]
            self._dropped = max(0, self._dropped - len(line))
            self._shown += len(fresh)
            shown.append(fresh)
        return b"".join(shown)

    def _begin(self, stamp: bytes) -> None:
        """Begin a line. One without a stamp is the rest of a line whose beginning was not asked for."""
        self._dropped = 0
        if self._missing and stamp == self._stamp:
            self._missing -= 1
            self._dropped = sys.maxsize if self._missing else self._shown
        elif self._missing and not self._is_later(stamp):
            self._dropped = sys.maxsize
        elif stamp:
            self.is_cut, self._missing = self.is_cut or self._missing > 0, 0
            self._lines = self._lines + 1 if stamp == self._stamp else 1
            self._stamp, self._shown = stamp, 0

    def _is_later(self, stamp: bytes) -> bool:
        """Say whether a line is so much later than the last one shown that this one is gone."""
        now, last = (rfc3339.seconds_of(one.decode()) for one in (stamp, self._stamp))
        return now is not None and last is not None and now > last + _DISORDER


async def follow_log(
    cluster: Cluster, pod: str, namespace: str, *, container: str, outage: Outage, warn: Callable[[str], None]
) -> AsyncIterator[bytes]:
    """Yield a container's log from its beginning until the container has ended.

    Raises ApiError where the server refuses for good; a Pod that is gone is an end.
    """
    position, backoff, attempt = LogPosition(), Backoff(), 0
    while True:
        try:
            since = position.restart()
            async for data in cluster.logs(
                pod, namespace, container=container, follow=True, timestamps=True, since=since
            ):
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

"""The last lines of logs, for the message that says why a job failed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing

from ringleader.controller.decide.decision import LogRequest
from ringleader.errors import RefusedError
from ringleader.kube.cluster import Cluster

LINES = 20
"""Lines that are asked for. What a condition shows of them is the decision's business."""
LONGEST = 16 * 1024
"""Bytes of a log that are kept."""
_READ = 256 * 1024
"""Bytes that are read of it at most: the server counts them from the first of the lines."""
PATIENCE = 5.0
"""Seconds for a log: a node that is gone must not hold up the word that the job failed."""


async def fetch_tails(cluster: Cluster, namespace: str, wishes: Iterable[LogRequest]) -> dict[str, str]:
    """Return the end of each log by Pod name; empty text where there is none to be had."""
    wanted = list(wishes)
    found = await asyncio.gather(*(_tail(cluster, namespace, wish) for wish in wanted))
    return {wish.pod: text for wish, text in zip(wanted, found, strict=True)}


async def _tail(cluster: Cluster, namespace: str, wish: LogRequest) -> str:
    parts = []
    try:
        async with asyncio.timeout(PATIENCE):
            stream = cluster.logs(
                wish.pod,
                namespace,
                container=wish.container,
                tail=LINES,
                previous=wish.previous,
                limit_bytes=_READ,
            )
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    parts.append(piece)
    except (RefusedError, TimeoutError):
        if not parts:
            return ""
    return b"".join(parts)[-LONGEST:].decode(errors="replace")

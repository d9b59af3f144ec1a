"""Wait until every worker is ready: its sshd greets us, or the API server says that its Pod is ready.

Rounds of probes with growing pauses, and a deadline.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ringleader.errors import Fault, RefusedError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import PODS
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.retry import Backoff
from ringleader.kubernetes.pod_view import pod_view

AT_ONCE = 64
"""Hosts that are asked side by side."""
LONGEST_PAUSE = 5.0
PAUSES = Backoff(first=0.1, longest=LONGEST_PAUSE, growth=1.5, spread=0.0)
REPORT_EVERY = 10.0
NAMED = 5
"""Hosts that a line of progress names."""
USUAL_PORTS = (22, 2222)
"""sshd's own, and that of the reference's images, whose users are not root."""
PROBE_SECONDS = 5.0
"""Seconds for an address, a connection, a first word."""


class Readiness(Enum):
    """How far a worker is."""

    READY = "ready"
    NO_ADDRESS = "has no address yet"
    """Its Pod is not placed, or its image not there: nobody knows for how long."""
    NO_ANSWER = "does not answer"


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What one worker said."""

    readiness: Readiness
    detail: str = ""
    """More of it, for people; empty where the readiness says all."""

    def __str__(self) -> str:
        return self.detail or self.readiness.value


Probe = Callable[[str], Awaitable[ProbeResult]]
"""Probe a host, by its name in the hostfile."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long to wait, in seconds."""

    timeout: float
    """For a host that has an address and does not answer, from when it was first seen to have one. Hosts
    without an address have no limit: their Pods are queued, or their images pulled, and nobody knows for how
    long."""
    total: float | None = None
    """For all, whatever they wait for; it takes the place of ``timeout``. ``None``: no such limit."""
    knows_port: bool = True
    """False: we may look in the wrong place. Then the launcher continues when the time is over and every host
    has an address, but none has said a word."""


async def wait_for(
    hosts: Sequence[str],
    probe: Probe,
    limits: Limits,
    *,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Return when every host is ready. RefusedError with the others' names when the time is over.

    ``say`` takes a line for people.
    """
    start = clock()
    waiting: dict[str, ProbeResult] = dict.fromkeys(
        hosts, ProbeResult(readiness=Readiness.NO_ADDRESS, detail="not asked yet")
    )
    unanswered_since: dict[str, float] = {}
    told = start
    for attempt in itertools.count(1):
        began = clock()
        waiting = await _round(list(waiting), probe)
        if not waiting:
            break
        unanswered_since = {
            host: unanswered_since.get(host, began)
            for host, answer in waiting.items()
            if answer.readiness is Readiness.NO_ANSWER
        }
        left = _left(limits, start, unanswered_since, began)
        if left <= 0:
            if not limits.knows_port and len(waiting) == len(hosts):
                if len(unanswered_since) == len(hosts):
                    seconds = clock() - start
                    say(f"no worker answered in {seconds:.0f} s; continuing: {_some(waiting)}")
                    return
                if limits.total is None:
                    left = LONGEST_PAUSE  # those that come later may answer, and tell where
            if left <= 0:
                raise RefusedError(_late(waiting, len(hosts), limits))
        if clock() - told >= REPORT_EVERY:
            told = clock()
            say(f"waiting for {len(waiting)} of {len(hosts)} workers: {_some(waiting)}")
        await sleep(min(PAUSES.after(attempt), left))
    say(f"all {len(hosts)} workers are ready after {clock() - start:.1f} s")


def _left(limits: Limits, start: float, unanswered_since: Mapping[str, float], now: float) -> float:
    """Return the seconds until somebody is given up; endless where nobody will be."""
    if limits.total is not None:
        return start + limits.total - now
    return min(unanswered_since.values(), default=float("inf")) + limits.timeout - now


async def _round(hosts: Sequence[str], probe: Probe) -> dict[str, ProbeResult]:
    """Probe every host once and return what those said that are not ready."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(host: str) -> ProbeResult:
        async with gate:
            return await probe(host)

    answers = await asyncio.gather(*map(one, hosts))
    pairs = zip(hosts, answers, strict=True)
    return {host: answer for host, answer in pairs if answer.readiness is not Readiness.READY}


def _some(waiting: dict[str, ProbeResult]) -> str:
    texts = [f"{host.partition('.')[0]} {answer}" for host, answer in list(waiting.items())[:NAMED]]
    more = len(waiting) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "")


def _late(waiting: dict[str, ProbeResult], count: int, limits: Limits) -> list[Fault]:
    what = (
        f"{len(waiting)} of {count} workers are not ready; {limits.timeout:g} s without an answer is too long"
    )
    if limits.total is not None:
        what = f"{len(waiting)} of {count} workers were not ready after {limits.total:g} s"
    first = Fault(where="", what=what, hint="kubectl describe pod shows what a worker waits for")
    return [first, *(Fault(where=host, what=str(answer)) for host, answer in waiting.items())]


def port_in_ssh_config(file: Path) -> tuple[int, ...]:
    """Return the port in what ``ssh -G HOST`` printed: where the image's ssh turns to; () where it is not."""
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name.lower() == "port" and value.strip().isdecimal():
            return (int(value),)
    return ()


class SshProbe:
    """Asks workers; where their port is unknown, the first that answers tells it for all."""

    def __init__(self, ports: Sequence[int], *, by_address: bool = False) -> None:
        """``ports``: those that may be meant, the likeliest first.

        ``by_address``: an address is enough; nothing is sent to the worker.
        """
        self._ports, self._by_address = tuple(ports), by_address

    async def __call__(self, host: str) -> ProbeResult:
        """Probe one host."""
        try:
            # Names are asked for anew each time: nothing of ours remembers that there was no such name.
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            reason = getattr(error, "strerror", None) or error
            return ProbeResult(readiness=Readiness.NO_ADDRESS, detail=f"has no address yet ({reason})")
        if self._by_address:
            return ProbeResult(readiness=Readiness.READY)
        address = found[0][4][0]
        for port in self._ports:
            if await _is_sshd(str(address), port):
                self._ports = (port,)
                return ProbeResult(readiness=Readiness.READY)
        ports = " or ".join(map(str, self._ports))
        return ProbeResult(readiness=Readiness.NO_ANSWER, detail=f"has no sshd on port {ports} yet")


async def _is_sshd(address: str, port: int) -> bool:
    """Say whether an sshd greets us there. A mesh's proxy takes any connection."""
    writer = None
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(address, port)
            return (await reader.readexactly(4)) == b"SSH-"
    except (OSError, EOFError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


class PodProbe:
    """Asks for Pods one by one: that is all that a launcher's role allows."""

    def __init__(self, cluster: Cluster, namespace: str, *, by_address: bool = False) -> None:
        """``namespace``: that of the job. ``by_address``: it is enough that the Pod runs."""
        self._cluster, self._namespace, self._by_address = cluster, namespace, by_address

    async def __call__(self, host: str) -> ProbeResult:
        """Look up the Pod of a host of the hostfile."""
        try:
            pod = pod_view(await self._cluster.get(PODS, host.partition(".")[0], self._namespace))
        except ApiError as error:
            if error.is_missing:
                return ProbeResult(readiness=Readiness.NO_ADDRESS, detail="does not exist yet")
            # The rights to a Pod come after the Pod: until every worker is there, there may be none.
            readiness = Readiness.NO_ADDRESS if error.status == 403 else Readiness.NO_ANSWER
            return ProbeResult(readiness=readiness, detail=f"cannot be looked at: {error.message}")
        except UnreachableError as error:
            return ProbeResult(readiness=Readiness.NO_ANSWER, detail=f"cannot be looked at: {error}")
        if pod.is_ready or (self._by_address and pod.phase == "Running"):
            return ProbeResult(readiness=Readiness.READY)
        # A Pod may be Pending for days: queued, or its image pulled.
        readiness = Readiness.NO_ADDRESS if pod.phase == "Pending" else Readiness.NO_ANSWER
        return ProbeResult(readiness=readiness, detail=f"is {pod.phase}, not ready")

"""Whether a worker is ready: its sshd greets us, or the API server says that its Pod is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress

from ringleader.kube.api_errors import ApiError, UnreachableError
from ringleader.kube.api_resources import PODS
from ringleader.kube.cluster import Cluster
from ringleader.podagent.wait_for_workers import ProbeResult, Readiness

USUAL_PORTS = (22, 2222)
"""sshd's own, and that of the reference's images, whose users are not root."""
PATIENCE = 5.0
"""Seconds for an address, a connection, a first word."""


def port_in_ssh_config(ssh_config: str) -> tuple[int, ...]:
    """Return the port in what ``ssh -G HOST`` printed: where the image's ssh turns to; () where it is not."""
    for line in ssh_config.splitlines():
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
        async with asyncio.timeout(PATIENCE):
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
            pod = await self._cluster.get(PODS, host.partition(".")[0], self._namespace)
        except ApiError as error:
            if error.is_missing:
                return ProbeResult(readiness=Readiness.NO_ADDRESS, detail="is not there yet")
            # The rights to a Pod come after the Pod: until every worker is there, there may be none.
            readiness = Readiness.NO_ADDRESS if error.status == 403 else Readiness.NO_ANSWER
            return ProbeResult(readiness=readiness, detail=f"cannot be looked at: {error.message}")
        except UnreachableError as error:
            return ProbeResult(readiness=Readiness.NO_ANSWER, detail=f"cannot be looked at: {error}")
        status = pod.get("status") or {}
        phase = status.get("phase", "Pending")
        conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
        if conditions.get("Ready") == "True" or (self._by_address and phase == "Running"):
            return ProbeResult(readiness=Readiness.READY)
        # A Pod may be Pending for days: queued, or its image pulled.
        readiness = Readiness.NO_ADDRESS if phase == "Pending" else Readiness.NO_ANSWER
        return ProbeResult(readiness=readiness, detail=f"is {phase}, not ready")

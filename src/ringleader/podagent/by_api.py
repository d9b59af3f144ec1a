"""Ask the API server whether a worker's Pod is ready: for jobs whose workers have no sshd."""

from __future__ import annotations

from ringleader.kube.port import ApiError, Cluster, UnreachableError
from ringleader.kube.resources import PODS
from ringleader.podagent.answers import Answer, State


class PodQuestion:
    """Asks for Pods one by one: that is all that a launcher's role allows."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        """``namespace``: that of the job."""
        self._cluster, self._namespace = cluster, namespace

    async def __call__(self, host: str) -> Answer:
        """Ask for the Pod of a host of the hostfile."""
        try:
            pod = await self._cluster.get(PODS, host.partition(".")[0], self._namespace)
        except ApiError as error:
            detail = "is not there yet" if error.is_missing else f"cannot be looked at: {error.message}"
            return Answer(state=State.NAMELESS, detail=detail)
        except UnreachableError as error:
            return Answer(state=State.NAMELESS, detail=f"cannot be looked at: {error}")
        status = pod.get("status") or {}
        conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
        if conditions.get("Ready") == "True":
            return Answer(state=State.READY)
        return Answer(state=State.SILENT, detail=f"is {status.get('phase', 'Pending')}, not ready")

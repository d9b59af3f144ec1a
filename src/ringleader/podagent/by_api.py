"""Ask the API server whether a worker's Pod is ready: for jobs whose workers have no sshd."""

from __future__ import annotations

from ringleader.kube.api_errors import ApiError, UnreachableError
from ringleader.kube.api_resources import PODS
from ringleader.kube.cluster import Cluster
from ringleader.podagent.answers import Answer, State


class PodQuestion:
    """Asks for Pods one by one: that is all that a launcher's role allows."""

    def __init__(self, cluster: Cluster, namespace: str, *, by_address: bool = False) -> None:
        """``namespace``: that of the job. ``by_address``: it is enough that the Pod runs."""
        self._cluster, self._namespace, self._by_address = cluster, namespace, by_address

    async def __call__(self, host: str) -> Answer:
        """Ask for the Pod of a host of the hostfile."""
        try:
            pod = await self._cluster.get(PODS, host.partition(".")[0], self._namespace)
        except ApiError as error:
            if error.is_missing:
                return Answer(state=State.NAMELESS, detail="is not there yet")
            # The rights to a Pod come after the Pod: until every worker is there, there may be none.
            state = State.NAMELESS if error.status == 403 else State.SILENT
            return Answer(state=state, detail=f"cannot be looked at: {error.message}")
        except UnreachableError as error:
            return Answer(state=State.SILENT, detail=f"cannot be looked at: {error}")
        status = pod.get("status") or {}
        phase = status.get("phase", "Pending")
        conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
        if conditions.get("Ready") == "True" or (self._by_address and phase == "Running"):
            return Answer(state=State.READY)
        # A Pod may be Pending for days: queued, or its image pulled.
        state = State.NAMELESS if phase == "Pending" else State.SILENT
        return Answer(state=state, detail=f"is {phase}, not ready")

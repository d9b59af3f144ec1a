"""Events for ``kubectl describe``: sent in the order of their causes, each cause once.

An event's name is made of the job, the status that it comes after and its words. A controller that was ended
between the event and the next write of the status thus comes to the same name again, and the server refuses
it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

from ringleader.errors import RefusedError
from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import EVENTS
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.retry import Backoff
from ringleader.kubernetes.client.rfc3339 import text_of
from ringleader.kubernetes.mpijob.object_metadata import API_VERSION, KIND
from ringleader.kubernetes.operator.decide.decision import JobEvent

COMPONENT = "mpi-job-controller"
"""Who reports, as the reference controller calls itself."""
LONGEST_MESSAGE = 1024
"""Characters that the API takes."""
_SENDERS = 8
"""Jobs whose events are under way at the same time."""
_REMEMBERED = 10_000
_TRIES = 6
_log = logging.getLogger(__name__)


class EventSender:
    """Sends events beside the passes, so that no pass waits for them."""

    def __init__(self, cluster: Cluster, *, clock: Callable[[], float], first_pause: float = 0.5) -> None:
        """``clock``: seconds since the epoch.

        ``first_pause``: seconds before an event is tried again; they double with each try.
        """
        self._cluster, self._clock = cluster, clock
        self._pauses = Backoff(first=first_pause, longest=60.0, spread=0.0)
        self._waiting: dict[str, deque[Object]] = {}
        self._turns: asyncio.Queue[str] = asyncio.Queue()
        self._sent: OrderedDict[str, None] = OrderedDict()
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, job: Object, events: Iterable[JobEvent]) -> None:
        """Queue the events of a decision on a job, given as the document that was decided on."""
        uid = job["metadata"]["uid"]
        for event in events:
            document = event_document(job, event, self._clock())
            name = document["metadata"]["name"]
            if name in self._sent:
                continue
            self._sent[name] = None
            if len(self._sent) > _REMEMBERED:
                self._sent.popitem(last=False)
            self._idle.clear()
            if uid in self._waiting:
                self._waiting[uid].append(document)
            else:
                self._waiting[uid] = deque([document])
                self._turns.put_nowait(uid)

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_SENDERS):
                group.create_task(self._some())

    async def drained(self) -> None:
        """Wait until nothing is left to send."""
        await self._idle.wait()

    async def _some(self) -> None:
        while True:
            uid = await self._turns.get()
            waiting = self._waiting[uid]
            while waiting:
                await self._send(waiting[0])
                waiting.popleft()
            del self._waiting[uid]
            if not self._waiting:
                self._idle.set()

    async def _send(self, event: Object) -> None:
        where = f"{event['metadata']['namespace']}/{event['involvedObject']['name']}"
        for attempt in range(1, _TRIES + 1):
            try:
                await self._cluster.create(EVENTS, event)
                return
            except RefusedError as error:
                fault = error
                if isinstance(error, ApiError):
                    if error.is_there_already:
                        return
                    if not error.is_passing:
                        break
            await asyncio.sleep(self._pauses.after(attempt))
        _log.warning("event %s of %s was not sent: %s", event["reason"], where, fault)


def event_document(job: Object, event: JobEvent, now: float) -> Object:
    """Return an event of a job field by field as the reference controller writes it."""
    meta = job["metadata"]
    message = event.message
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 1] + "…"
    stamp = text_of(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": _name(job, event), "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta.get("resourceVersion", ""),
        },
        "type": event.type,
        "reason": event.reason,
        "message": message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def _name(job: Object, event: JobEvent) -> str:
    conditions = (job.get("status") or {}).get("conditions") or []
    cause = [job["metadata"]["uid"], conditions, event.type, event.reason, event.message]
    digest = hashlib.sha256(json.dumps(cause, sort_keys=True).encode()).hexdigest()
    return f"{job['metadata']['name']}.{digest[:16]}"

"""Scheduler and kubelet: Pods go from Pending to Running to done, by annotation or step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from tests.kube.fake import kinds, pod_status
from tests.kube.fake import simulation_settings as says
from tests.kube.fake.containers import Containers
from tests.kube.fake.metadata import seconds, timestamp
from tests.kube.fake.objects import Objects
from tests.kube.fake.simulation_settings import StandInOptions, annotation, exit_code
from tests.kube.fake.store import Collection, Document, Entry, Event, Key

Edit = Callable[[Document], None]


class Runner(Protocol):
    """Starts something real for a Pod; see ``simulated_containers``."""

    def start(self, pod: Document, ended: Callable[[int], None], started: Callable[[], None]) -> None:
        """Begin: call ``started`` once its containers run and ``ended`` when they have ended."""

    def stop(self, uid: str, grace: float) -> None:
        """End what runs for a Pod; ``ended`` is called when it has."""

    def renew(self, pod: Document) -> None:
        """Write the ConfigMaps of a Pod anew: a kubelet does where the Pod's annotations change."""


class Kubelet:
    """Moves Pods. Methods for tests take a Pod's name and namespace and may be called from any thread."""

    def __init__(
        self,
        objects: Objects,
        containers: Containers,
        options: StandInOptions,
        in_loop: Callable[[Callable[[], None]], None],
    ) -> None:
        self.runner: Runner | None = None
        """Set it before any Pod exists to run real processes."""
        self._objects = objects
        self._containers = containers
        self._options = options
        self._in_loop = in_loop
        self._number = 0
        self._attempts: dict[tuple[str, ...], int] = {}
        """uids of owners and name → attempts begun."""
        objects.store.observers.append(self._observe)

    # Steps that a test takes

    def schedule(self, pod: str, namespace: str = "default") -> None:
        """Bind the Pod to a node."""
        self._do(pod, namespace, self._bind)

    def unschedulable(self, pod: str, message: str, namespace: str = "default") -> None:
        """Let no node take the Pod."""
        self._step(pod, namespace, lambda one: pod_status.unschedulable(one, message, self._when()))

    def wait(self, pod: str, reason: str, message: str = "", namespace: str = "default") -> None:
        """Let the first container wait: ``ImagePullBackOff`` …"""
        self._do(pod, namespace, self._bind)
        self._step(pod, namespace, lambda one: pod_status.wait(one, reason, message))

    def run(self, pod: str, namespace: str = "default", *, ready: bool = True) -> None:
        """Bind and start the Pod, its init containers done."""
        self._do(pod, namespace, self._bind)
        self._do(pod, namespace, lambda key: self._start(key, ready=ready))

    def set_ready(self, pod: str, ready: bool, namespace: str = "default") -> None:
        """Let the Pod's probes succeed, or fail."""
        self._step(pod, namespace, lambda one: pod_status.set_ready(one, self._when(), ready=ready))

    def restart(self, pod: str, code: int = 1, reason: str = "", namespace: str = "default") -> None:
        """Let the first container fail and start again in place."""
        self._step(pod, namespace, lambda one: pod_status.restart(one, code, reason, self._when()))
        self._do(pod, namespace, lambda key: self._start(key, ready=True))

    def finish(self, pod: str, code: int = 0, reason: str = "", namespace: str = "default") -> None:
        """Let the Pod end: 0 succeeds, all else fails."""
        self._step(pod, namespace, lambda one: pod_status.end(one, code, reason, self._when()))

    def evict(self, pod: str, message: str = "", namespace: str = "default", reason: str = "Evicted") -> None:
        """Let the node take its resources back."""
        words = message or "The node was low on resource: memory."
        self._step(pod, namespace, lambda one: pod_status.evict(one, words, self._when(), reason))

    def remove(self, pod: str, namespace: str = "default") -> None:
        """Finish the deletion of a Pod whose containers have ended."""
        self._do(pod, namespace, self._remove)

    def _do(self, pod: str, namespace: str, work: Callable[[Key], None]) -> None:
        def do() -> None:
            self._objects.find(kinds.POD, namespace, pod)
            work((namespace, pod))

        self._in_loop(do)

    def _step(self, pod: str, namespace: str, edit: Edit) -> None:
        self._do(pod, namespace, lambda key: self._edit(key, "", edit))

    # Everything below runs on the server's loop

    def _when(self) -> str:
        return timestamp(self._objects.now())

    def _entry(self, key: Key, uid: str) -> Entry | None:
        entry = self._objects.store.collection(kinds.POD).entries.get(key)
        return entry if entry is not None and uid in ("", entry.uid) else None

    def _edit(self, key: Key, uid: str, edit: Edit) -> Document | None:
        """Change a Pod's status if it is still there and not over."""
        entry = self._entry(key, uid)
        if entry is None:
            return None
        pod = entry.document()
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            return None
        edit(pod)
        self._objects.store.write(self._objects.store.collection(kinds.POD), pod, entry)
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            for container in pod["spec"]["containers"]:  # whoever follows a log learns that it is complete
                self._containers.log(key[0], entry.uid, container["name"]).end()
        return pod

    def _observe(self, collection: Collection, event: Event) -> None:
        if collection.kind is not kinds.POD:
            return
        entry = event.new
        if entry is None:
            self._containers.forget(event.last.key[0], event.last.uid)
            return
        loop = asyncio.get_running_loop()
        began = event.old is None
        if entry.is_deleting:
            if event.old is not None and not event.old.is_deleting:
                loop.call_soon(self._stop, entry.key, entry.uid)
            return
        if b'"activeDeadlineSeconds"' in entry.encoded:
            loop.call_soon(self._watch_deadline, entry.key, entry.uid)
        if self.runner is not None and not began and _annotations(event.old) != _annotations(entry):
            loop.call_soon(self.runner.renew, entry.document())
        ungated = (
            not began
            and b'"schedulingGates"' in event.old.encoded
            and (  # type: ignore[union-attr]
                b'"schedulingGates"' not in entry.encoded
            )
        )
        if (began or ungated) and self._options.kubelet == "automatic":
            if self._options.start_seconds:
                loop.call_later(self._options.start_seconds, self._begin, entry.key, entry.uid)
            else:
                loop.call_soon(self._begin, entry.key, entry.uid)

    def _begin(self, key: Key, uid: str) -> None:
        """Do with a new Pod what its annotations say."""
        entry = self._entry(key, uid)
        if entry is None or entry.is_deleting:
            return
        pod = entry.document()
        if pod["spec"].get("schedulingGates") or pod["spec"].get("nodeName"):
            return
        stays = annotation(pod, says.STAY_PENDING)
        if stays:
            self._edit(key, uid, lambda one: pod_status.unschedulable(one, stays, self._when()))
            return
        self._bind(key)
        waits = annotation(pod, says.WAITING_REASON)
        if waits:
            message = annotation(pod, says.WAITING_MESSAGE)
            self._edit(key, uid, lambda one: pod_status.wait(one, waits, message))
        elif self.runner is not None:
            self._run_real(key, uid)
        elif self._initialise(key, uid, pod):
            self._start(key, ready=None)

    def _bind(self, key: Key) -> None:
        entry = self._entry(key, "")
        if entry is None or entry.document()["spec"].get("nodeName"):
            return
        self._number += 1
        number, nodes = self._number, self._options.nodes
        self._edit(key, "", lambda one: pod_status.bind(one, number, nodes, self._when()))

    def _initialise(self, key: Key, uid: str, pod: Document) -> bool:
        """Let the init containers end; return whether the others may start."""
        for number, _ in enumerate(pod["spec"].get("initContainers") or ()):
            code = int(annotation(pod, says.INIT_EXIT_CODE) or 0) if number == 0 else 0

            def end(one: Document, number: int = number, code: int = code) -> None:
                pod_status.end_init(one, number, code, self._when())
                if code:
                    one["status"]["phase"] = "Failed"

            self._edit(key, uid, end)
            if code:
                return False
        return True

    def _start(self, key: Key, *, ready: bool | None) -> None:
        """Start all containers; ``ready``: ``None`` lets the annotations say."""
        entry = self._entry(key, "")
        if entry is None:
            return
        pod, uid = entry.document(), entry.uid
        later = float(annotation(pod, says.READY_SECONDS) or 0)
        if ready is None:
            ready = annotation(pod, says.NOT_READY) != "true" and not later

        def edit(one: Document) -> None:
            when = self._when()
            for place in range(len(one["spec"].get("initContainers") or ())):
                if "terminated" not in one["status"]["initContainerStatuses"][place]["state"]:
                    pod_status.end_init(one, place, 0, when)
            pod_status.start(one, when)
            pod_status.set_ready(one, when, ready=bool(ready))

        # A Pod that is made anew for the same owner is its next attempt; a Job's Pods share a prefix only.
        metadata = pod["metadata"]
        series = (*entry.owners, metadata.get("generateName") or metadata["name"])
        attempt = self._attempts[series] = self._attempts.get(series, -1) + 1
        name = pod["spec"]["containers"][0]["name"]
        log = self._containers.begin_run(key[0], uid, name)
        if self._edit(key, uid, edit) is None:
            return
        text = annotation(pod, says.LOG)
        if text:
            log.write(text.encode() if text.endswith("\n") else text.encode() + b"\n")
        if self._options.kubelet != "automatic" or self.runner is not None:
            return
        loop = asyncio.get_running_loop()
        if later:
            loop.call_later(later, self._become_ready, key, uid)
        lasts = annotation(pod, says.RUN_SECONDS)
        if lasts or annotation(pod, says.EXIT_CODE):
            code = exit_code(pod, attempt)
            loop.call_later(float(lasts or 0), self._end, key, uid, code, annotation(pod, says.REASON))

    def _watch_deadline(self, key: Key, uid: str) -> None:
        """End a Pod that has been active for too long, or look again when its time is up."""
        entry = self._entry(key, uid)
        if entry is None or entry.is_deleting:
            return
        pod = entry.document()
        deadline, began = pod["spec"].get("activeDeadlineSeconds"), pod["status"].get("startTime")
        if deadline is None or began is None or pod["status"]["phase"] in ("Succeeded", "Failed"):
            return
        left = seconds(began) + deadline - self._objects.now()
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._watch_deadline, key, uid)
            return
        if self.runner is not None:
            self.runner.stop(uid, 0.0)
        self._edit(key, uid, lambda one: pod_status.exceed(one, self._when()))

    def _become_ready(self, key: Key, uid: str) -> None:
        self._edit(key, uid, lambda one: pod_status.set_ready(one, self._when(), ready=True))

    def _end(self, key: Key, uid: str, code: int, reason: str) -> None:
        """The first container has ended: run it again, or let the Pod be over."""
        entry = self._entry(key, uid)
        if entry is None:
            return
        pod = entry.document()
        policy = pod["spec"]["restartPolicy"]
        again = policy == "Always" or (policy == "OnFailure" and code != 0)
        reason = reason if code else ""
        if again and not entry.is_deleting:
            done = self._edit(key, uid, lambda one: pod_status.restart(one, code, reason, self._when()))
            if done is not None:
                count = done["status"]["containerStatuses"][0]["restartCount"]
                pause = min(self._options.retry_seconds * 2 ** (count - 1), 300.0)
                asyncio.get_running_loop().call_later(pause, self._start_again, key, uid)
        else:
            self._containers.log(key[0], uid, pod["spec"]["containers"][0]["name"]).end()
            self._edit(key, uid, lambda one: pod_status.end(one, code, reason, self._when()))
            if entry.is_deleting:
                self._remove(key)

    def _start_again(self, key: Key, uid: str) -> None:
        entry = self._entry(key, uid)
        if entry is None or entry.is_deleting:
            return
        if self.runner is not None:
            self._run_real(key, uid)
        else:
            self._start(key, ready=None)

    def _stop(self, key: Key, uid: str) -> None:
        """End a Pod that is being deleted."""
        entry = self._entry(key, uid)
        if entry is None:
            return
        pod = entry.document()
        if not pod["spec"].get("nodeName", "").startswith(pod_status.NODE):
            return  # not one of ours
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        if self.runner is not None:
            self.runner.stop(uid, grace)
            return
        asyncio.get_running_loop().call_later(self._options.stop_seconds, self._end, key, uid, 137, "Error")

    def _remove(self, key: Key) -> None:
        entry = self._entry(key, "")
        if entry is not None and entry.is_deleting:
            self._objects.finish_pod(key, entry.uid)

    def _run_real(self, key: Key, uid: str) -> None:
        assert self.runner is not None
        entry = self._entry(key, uid)
        if entry is not None:
            self.runner.start(
                entry.document(),
                lambda code: self._end(key, uid, code, ""),
                lambda: self._start(key, ready=True),
            )


def _annotations(entry: Entry | None) -> Document:
    return {} if entry is None else entry.document()["metadata"].get("annotations") or {}

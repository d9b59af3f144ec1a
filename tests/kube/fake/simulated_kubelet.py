"""Scheduler and kubelet: Pods go from Pending to Running to done, at once or step by step."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any, Protocol

from tests.kube.fake import kinds
from tests.kube.fake.containers import Containers
from tests.kube.fake.objects import Objects
from tests.kube.fake.rules import timestamp
from tests.kube.fake.simulated_job_controller import OVER, StandInOptions, condition
from tests.kube.fake.store import Collection, Document, Entry, Event, Key

Edit = Callable[[Document], None]
NODE = "node-"
"""What names of the stand-in's nodes begin with; there are four."""


class Runner(Protocol):
    """Starts something real for a Pod, as ``tests/kube/training/nodes.py`` does."""

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
        self._objects, self._containers = objects, containers
        self._options, self._in_loop = options, in_loop
        self._number = 0
        objects.store.observers.append(self._observe)

    # Steps that a test takes

    def unschedulable(self, pod: str, message: str, namespace: str = "default") -> None:
        """Let no node take the Pod."""

        def edit(one: Document) -> None:
            condition(one, "PodScheduled", "False", self._when(), "Unschedulable", message)

        self._do(pod, namespace, lambda key: self._edit(key, "", edit))

    def wait(self, pod: str, reason: str, message: str = "", namespace: str = "default") -> None:
        """Let the first container wait: ``ImagePullBackOff`` …"""

        def edit(one: Document) -> None:
            one["status"]["containerStatuses"][0]["state"] = {
                "waiting": {"reason": reason, "message": message}
            }

        self._do(pod, namespace, self._bind)
        self._do(pod, namespace, lambda key: self._edit(key, "", edit))

    def run(self, pod: str, namespace: str = "default") -> None:
        """Bind and start the Pod, its init containers done."""
        self._do(pod, namespace, self._bind)
        self._do(pod, namespace, self._start)

    def fail_init(self, pod: str, code: int, message: str = "", namespace: str = "default") -> None:
        """Let the first init container fail; with ``Never`` so has the Pod, and no other one starts.

        A fallback to logs makes the end of its log the message (Kubernetes 1.35, pkg/kubelet/kuberuntime
        getTerminationMessage); that, and the restarts of other policies, are not played.
        """
        self._do(pod, namespace, self._bind)

        def edit(one: Document) -> None:
            status = one["status"]
            ended = _ended(status["initContainerStatuses"][0], code, self._when())
            status["initContainerStatuses"][0]["state"] = {"terminated": {**ended, "message": message}}
            status["phase"] = "Failed" if one["spec"]["restartPolicy"] == "Never" else "Pending"

        self._do(pod, namespace, lambda key: self._edit(key, "", edit))

    def finish(self, pod: str, code: int = 0, namespace: str = "default") -> None:
        """Let the Pod end: 0 succeeds, all else fails."""
        self._do(pod, namespace, lambda key: self._edit(key, "", lambda one: self._end(one, code)))

    def _do(self, pod: str, namespace: str, work: Callable[[Key], Any]) -> None:
        def do() -> None:
            self._objects.find(kinds.POD, namespace, pod)
            work((namespace, pod))

        self._in_loop(do)

    # A Pod's status as its kubelet writes it; everything below runs on the server's loop

    def _when(self) -> str:
        return timestamp(self._objects.now())

    def _bind(self, key: Key) -> None:
        """The scheduler has found a node."""
        entry = self._entry(key, "")
        if entry is None or "startTime" in entry.document()["status"]:
            return
        self._number += 1

        def edit(pod: Document) -> None:
            spec, status, when = pod["spec"], pod["status"], self._when()
            spec.setdefault("nodeName", f"{NODE}{self._number % 4}")
            condition(pod, "PodScheduled", "True", when)
            status["startTime"] = when
            for word in ("initContainer", "container"):
                if spec.get(f"{word}s"):
                    status[f"{word}Statuses"] = [_first_state(one) for one in spec[f"{word}s"]]
            self._ready(pod, False)

        self._edit(key, "", edit)

    def _ready(self, pod: Document, ready: bool) -> None:
        for one in pod["status"]["containerStatuses"]:
            one["ready"] = ready
        for word in ("ContainersReady", "Ready"):
            status, reason = ("True", "") if ready else ("False", "ContainersNotReady")
            condition(pod, word, status, self._when(), reason)

    def _end(self, pod: Document, code: int) -> None:
        """All containers have ended and none will run again."""
        for place, one in enumerate(pod["status"].get("containerStatuses") or ()):
            one["state"] = {"terminated": _ended(one, code if place == 0 else 0, self._when())}
            one["ready"] = False
        pod["status"]["phase"] = "Succeeded" if code == 0 else "Failed"
        for word in ("ContainersReady", "Ready"):
            condition(pod, word, "False", self._when(), "PodCompleted" if code == 0 else "PodFailed")

    # What happens by itself

    def _entry(self, key: Key, uid: str) -> Entry | None:
        entry = self._objects.store.collection(kinds.POD).entries.get(key)
        return entry if entry is not None and uid in ("", entry.uid) else None

    def _edit(self, key: Key, uid: str, edit: Edit) -> Document | None:
        """Change a Pod if it is still there and not over."""
        entry = self._entry(key, uid)
        pod = entry.document() if entry is not None else {"status": {"phase": "Failed"}}
        if entry is None or pod["status"].get("phase") in OVER:
            return None
        edit(pod)
        self._objects.store.write(self._objects.store.collection(kinds.POD), pod, entry)
        if pod["status"].get("phase") in OVER:
            for container in pod["spec"]["containers"]:  # whoever follows a log learns that it is complete
                self._containers.log(key[0], entry.uid, container["name"]).end()
        return pod

    def _observe(self, collection: Collection, event: Event) -> None:
        if collection.kind is not kinds.POD:
            return
        entry, old = event.new, event.old
        if entry is None:
            self._containers.forget(event.last.key[0], event.last.uid)
            return
        loop = asyncio.get_running_loop()
        if entry.is_deleting:
            if old is not None and not old.is_deleting:
                loop.call_soon(self._stop, entry.key, entry.uid)
            return
        if self.runner is not None and old is not None and _annotations(old) != _annotations(entry):
            loop.call_soon(self.runner.renew, entry.document())
        if old is None and self._options.kubelet == "automatic":
            loop.call_soon(self._begin, entry.key, entry.uid)

    def _begin(self, key: Key, uid: str) -> None:
        """Start a new Pod."""
        entry = self._entry(key, uid)
        if entry is None or entry.is_deleting:
            return
        self._bind(key)
        if self.runner is None:
            self._start(key)
        elif (bound := self._entry(key, uid)) is not None:
            ended = functools.partial(self._ended, key, uid)
            self.runner.start(bound.document(), ended, lambda: self._start(key))

    def _start(self, key: Key) -> None:
        """Start all containers."""
        entry = self._entry(key, "")
        if entry is None:
            return

        def edit(pod: Document) -> None:
            status, when = pod["status"], self._when()
            for one in status.get("initContainerStatuses") or ():
                one["state"] = {"terminated": _ended(one, 0, when)}
            status["phase"] = "Running"
            for one in status["containerStatuses"]:
                one["state"] = {"running": {"startedAt": when}}
            self._ready(pod, True)

        pod = self._edit(key, entry.uid, edit)
        if pod is not None:
            self._containers.begin_run(key[0], entry.uid, pod["spec"]["containers"][0]["name"])

    def _ended(self, key: Key, uid: str, code: int) -> None:
        """The first container has ended, and the Pod with it; one that is being deleted goes."""
        self._edit(key, uid, lambda one: self._end(one, code))
        entry = self._entry(key, uid)
        if entry is not None and entry.is_deleting:
            self._objects.delete(kinds.POD, entry, grace=0)

    def _stop(self, key: Key, uid: str) -> None:
        """End a Pod that is being deleted."""
        entry = self._entry(key, uid)
        pod = entry.document() if entry is not None else {"spec": {}}
        if not pod["spec"].get("nodeName", "").startswith(NODE):
            return  # not one of ours
        if self.runner is not None:
            self.runner.stop(uid, float(pod["metadata"].get("deletionGracePeriodSeconds") or 0))
        else:
            asyncio.get_running_loop().call_soon(self._ended, key, uid, 137)


def _first_state(container: Document) -> Document:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    found = {"name": container["name"], "image": container["image"], "imageID": ""}
    return {**found, "ready": False, "restartCount": 0, "state": waiting}


def _ended(one: Document, code: int, when: str) -> Document:
    began = (one["state"].get("running") or {}).get("startedAt", when)
    reason = "Error" if code else "Completed"
    return {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": when}


def _annotations(entry: Entry) -> Document:
    return entry.document()["metadata"].get("annotations") or {}

"""Scheduler and kubelet: Pods go from Pending to Running to done, at once or step by step."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from tests.kube.fake import kinds
from tests.kube.fake.containers import Containers
from tests.kube.fake.metadata import seconds, timestamp
from tests.kube.fake.objects import Objects
from tests.kube.fake.simulated_job_controller import RETRY, StandInOptions, condition
from tests.kube.fake.store import Collection, Document, Entry, Event, Key

Edit = Callable[[Document], None]
NODE = "node-"
"""What names of the stand-in's nodes begin with; there are four."""
OVER = ("Succeeded", "Failed")


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
        waiting = {"reason": reason, **({"message": message} if message else {})}
        self._do(pod, namespace, self._bind)
        self._set_first(pod, namespace, {"state": {"waiting": waiting}})

    def run(self, pod: str, namespace: str = "default") -> None:
        """Bind and start the Pod, its init containers done."""
        self._do(pod, namespace, self._bind)
        self._do(pod, namespace, self._start)

    def restart(self, pod: str, code: int = 1, reason: str = "", namespace: str = "default") -> None:
        """Let the first container fail and start again in place, before a controller can remove the Pod."""

        def again(key: Key) -> None:
            self._edit(key, "", lambda one: self._restart(one, code, reason))
            self._start(key)

        self._do(pod, namespace, again)

    def fail_init(self, pod: str, code: int, message: str = "", namespace: str = "default") -> None:
        """Let the first init container fail; with ``Never`` so has the Pod, and no other one starts.

        A fallback to logs makes the end of its log the message (Kubernetes 1.35, pkg/kubelet/kuberuntime
        getTerminationMessage); that, and the restarts of other policies, are not played.
        """
        self._do(pod, namespace, self._bind)

        def edit(one: Document) -> None:
            status = one["status"]
            ended = _ended(status["initContainerStatuses"][0], code, "", self._when())
            status["initContainerStatuses"][0]["state"] = {"terminated": {**ended, "message": message}}
            status["phase"] = "Failed" if one["spec"]["restartPolicy"] == "Never" else "Pending"

        self._do(pod, namespace, lambda key: self._edit(key, "", edit))

    def finish(self, pod: str, code: int = 0, reason: str = "", namespace: str = "default") -> None:
        """Let the Pod end: 0 succeeds, all else fails."""
        self._do(pod, namespace, lambda key: self._edit(key, "", lambda one: self._end(one, code, reason)))

    def _set_first(self, pod: str, namespace: str, fields: Document) -> None:
        def edit(one: Document) -> None:
            one["status"]["containerStatuses"][0] |= fields

        self._do(pod, namespace, lambda key: self._edit(key, "", edit))

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
        if entry is None or entry.document()["spec"].get("nodeName"):
            return
        self._number += 1
        number, node = self._number, self._number % 4

        def edit(pod: Document) -> None:
            spec, status, when = pod["spec"], pod["status"], self._when()
            spec["nodeName"] = f"{NODE}{node}"
            condition(pod, "PodScheduled", "True", when)
            own = f"10.244.{number // 250 % 250}.{number % 250 + 1}"
            status |= {"hostIP": f"10.0.0.{node + 1}", "startTime": when}
            status["podIP"] = status["hostIP"] if spec.get("hostNetwork") else own
            status["podIPs"] = [{"ip": status["podIP"]}]
            for word, name in (
                ("initContainers", "initContainerStatuses"),
                ("containers", "containerStatuses"),
            ):
                if spec.get(word):
                    status[name] = [_first_state(one) for one in spec[word]]
            self._ready(pod, False)

        self._edit(key, "", edit)

    def _ready(self, pod: Document, ready: bool) -> None:
        for one in pod["status"]["containerStatuses"]:
            one["ready"] = ready and "running" in one["state"]
        for word in ("ContainersReady", "Ready"):
            status, reason = ("True", "") if ready else ("False", "ContainersNotReady")
            condition(pod, word, status, self._when(), reason)

    def _restart(self, pod: Document, code: int, reason: str) -> None:
        """The first container has ended and waits for its next run."""
        one = pod["status"]["containerStatuses"][0]
        one["lastState"] = {"terminated": _ended(one, code, reason, self._when())}
        one["restartCount"] += 1
        words = "back-off restarting failed container"
        one["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": words}}
        self._ready(pod, False)

    def _end(self, pod: Document, code: int, reason: str) -> None:
        """All containers have ended and none will run again."""
        for place, one in enumerate(pod["status"].get("containerStatuses") or ()):
            mine = (code, reason) if place == 0 else (0, "")
            one["state"] = {"terminated": _ended(one, *mine, self._when())}
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
        if b'"activeDeadlineSeconds"' in entry.encoded:
            loop.call_soon(self._watch_deadline, entry.key, entry.uid)
        if self.runner is not None and old is not None and _annotations(old) != _annotations(entry):
            loop.call_soon(self.runner.renew, entry.document())
        if old is None and self._options.kubelet == "automatic":
            loop.call_soon(self._begin, entry.key, entry.uid)

    def _begin(self, key: Key, uid: str) -> None:
        """Start a new Pod."""
        entry = self._entry(key, uid)
        spec = {} if entry is None or entry.is_deleting else entry.document()["spec"]
        if not spec or spec.get("nodeName"):
            return
        self._bind(key)
        if self.runner is not None:
            self._run_real(key, uid)
        else:
            self._start(key)

    def _start(self, key: Key) -> None:
        """Start all containers."""
        entry = self._entry(key, "")
        if entry is None:
            return

        def edit(pod: Document) -> None:
            status, when = pod["status"], self._when()
            for one in status.get("initContainerStatuses") or ():
                if "terminated" not in one["state"]:
                    one["state"] = {"terminated": _ended(one, 0, "", when)}
            status["phase"] = "Running"
            for one in status["containerStatuses"]:
                one["state"] = {"running": {"startedAt": when}}
            self._ready(pod, True)

        pod = self._edit(key, entry.uid, edit)
        if pod is not None:
            self._containers.begin_run(key[0], entry.uid, pod["spec"]["containers"][0]["name"])

    def _watch_deadline(self, key: Key, uid: str) -> None:
        """End a Pod that has been active for too long, or look again when its time is up."""
        entry = self._entry(key, uid)
        pod = {} if entry is None or entry.is_deleting else entry.document()
        began = (pod.get("status") or {}).get("startTime")
        if began is None or pod["status"]["phase"] in OVER:
            return
        left = seconds(began) + pod["spec"]["activeDeadlineSeconds"] - self._objects.now()
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._watch_deadline, key, uid)
            return
        if self.runner is not None:
            self.runner.stop(uid, 0.0)

        def exceed(one: Document) -> None:
            self._end(one, 137, "Error")
            words = "Pod was active on the node longer than the specified deadline"
            one["status"] |= {"reason": "DeadlineExceeded", "message": words}

        self._edit(key, uid, exceed)

    def _ended(self, key: Key, uid: str, code: int) -> None:
        """The first container has ended: run it again, or let the Pod be over."""
        entry = self._entry(key, uid)
        if entry is None:
            return
        policy = entry.document()["spec"]["restartPolicy"]
        again = policy == "Always" or (policy == "OnFailure" and code != 0)
        if again and not entry.is_deleting:
            done = self._edit(key, uid, lambda one: self._restart(one, code, ""))
            if done is not None:
                count = done["status"]["containerStatuses"][0]["restartCount"]
                pause = min(RETRY * 2 ** (count - 1), 300.0)
                asyncio.get_running_loop().call_later(pause, self._run_real, key, uid)
            return
        self._edit(key, uid, lambda one: self._end(one, code, ""))
        if entry.is_deleting:
            self._objects.finish_pod(key, uid)

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

    def _run_real(self, key: Key, uid: str) -> None:
        entry = self._entry(key, uid)
        if self.runner is not None and entry is not None and not entry.is_deleting:
            self.runner.start(
                entry.document(),
                lambda code: self._ended(key, uid, code),
                lambda: self._start(key),
            )


def _first_state(container: Document) -> Document:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": "ContainerCreating"}},
        "lastState": {},
    }


def _ended(one: Document, code: int, reason: str, when: str) -> Document:
    running: Any = one["state"].get("running") or {}
    return {
        "exitCode": code,
        "reason": reason or ("Completed" if code == 0 else "Error"),
        "startedAt": running.get("startedAt", when),
        "finishedAt": when,
    }


def _annotations(entry: Entry) -> Document:
    return entry.document()["metadata"].get("annotations") or {}

"""A Pod's status as its kubelet writes it. Pure: functions change the document that they are given."""

from __future__ import annotations

from typing import Any

from tests.kube.fake.simulation_settings import condition
from tests.kube.fake.store import Document

NODE = "node-"
"""What names of the stand-in's nodes begin with."""
_ADDRESS = "10.244.{}.{}"


def bind(pod: Document, number: int, nodes: int, when: str) -> None:
    """The scheduler has found a node."""
    node = number % nodes
    pod["spec"]["nodeName"] = f"{NODE}{node}"
    condition(pod, "PodScheduled", "True", when)
    status = pod["status"]
    status["hostIP"] = f"10.0.0.{node + 1}"
    status["hostIPs"] = [{"ip": status["hostIP"]}]
    status["startTime"] = when
    if pod["spec"].get("hostNetwork"):
        status["podIP"] = status["hostIP"]
    else:
        status["podIP"] = _ADDRESS.format(number // 250 % 250, number % 250 + 1)
    status["podIPs"] = [{"ip": status["podIP"]}]
    has_init = bool(pod["spec"].get("initContainers"))
    condition(pod, "Initialized", "False" if has_init else "True", when)
    _set_ready(pod, when, ready=False)
    waiting = "PodInitializing" if has_init else "ContainerCreating"
    for word, name in (
        ("initContainers", "initContainerStatuses"),
        ("containers", "containerStatuses"),
    ):
        found = [_first_state(one, waiting) for one in pod["spec"].get(word) or ()]
        if found:
            status[name] = found


def _first_state(container: Document, waiting: str) -> Document:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": waiting}},
        "lastState": {},
    }


def unschedulable(pod: Document, message: str, when: str) -> None:
    """No node takes the Pod."""
    condition(pod, "PodScheduled", "False", when, "Unschedulable", message)


def wait(pod: Document, reason: str, message: str) -> None:
    """The first container cannot start."""
    waiting = {"reason": reason, **({"message": message} if message else {})}
    pod["status"]["containerStatuses"][0]["state"] = {"waiting": waiting}


def end_init(pod: Document, number: int, code: int, when: str) -> bool:
    """An init container has ended; return whether all have, and well."""
    statuses = pod["status"]["initContainerStatuses"]
    statuses[number]["state"] = {"terminated": _ended(code, "", when, when)}
    statuses[number]["ready"] = code == 0
    if code != 0:
        return False
    if number + 1 < len(statuses):
        return False
    condition(pod, "Initialized", "True", when)
    return True


def start(pod: Document, when: str) -> None:
    """All containers run."""
    pod["status"]["phase"] = "Running"
    for one in pod["status"]["containerStatuses"]:
        one["state"] = {"running": {"startedAt": when}}
        one["started"] = True
        one["imageID"] = f"{one['image']}@sha256:{'0' * 64}"
        one["containerID"] = f"fake://{pod['metadata']['uid']}/{one['name']}"


def set_ready(pod: Document, when: str, *, ready: bool) -> None:
    """The Pod's probes succeed, or no longer do."""
    for one in pod["status"]["containerStatuses"]:
        one["ready"] = ready and "running" in one["state"]
    _set_ready(pod, when, ready=ready)


def _set_ready(pod: Document, when: str, *, ready: bool) -> None:
    names = [one["name"] for one in pod["spec"]["containers"]]
    message = "" if ready else f"containers with unready status: [{' '.join(names)}]"
    for word in ("ContainersReady", "Ready"):
        status, reason = ("True", "") if ready else ("False", "ContainersNotReady")
        condition(pod, word, status, when, reason, message)


def restart(pod: Document, code: int, reason: str, when: str) -> None:
    """The first container has ended and waits for its next run."""
    one = pod["status"]["containerStatuses"][0]
    one["lastState"] = {"terminated": _ended(code, reason, _started(one, when), when)}
    one["restartCount"] += 1
    one["started"] = False
    words = "back-off restarting failed container"
    one["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": words}}
    set_ready(pod, when, ready=False)


def end(pod: Document, code: int, reason: str, when: str) -> None:
    """All containers have ended and none will run again."""
    for place, one in enumerate(pod["status"].get("containerStatuses") or ()):
        mine = code if place == 0 else 0
        one["state"] = {"terminated": _ended(mine, reason if place == 0 else "", _started(one, when), when)}
        one["ready"] = one["started"] = False
    pod["status"]["phase"] = "Succeeded" if code == 0 else "Failed"
    for word in ("ContainersReady", "Ready"):
        words = "PodCompleted" if code == 0 else "PodFailed"
        condition(pod, word, "False", when, words)


def evict(pod: Document, message: str, when: str, reason: str = "Evicted") -> None:
    """The node needs its resources back."""
    status = pod["status"]
    for one in status.get("containerStatuses") or ():
        if "running" in one["state"]:
            one["state"] = {"terminated": _ended(137, "Error", _started(one, when), when)}
        one["ready"] = one["started"] = False
    status["phase"], status["reason"], status["message"] = "Failed", reason, message
    condition(pod, "DisruptionTarget", "True", when, "TerminationByKubelet", message)
    for word in ("ContainersReady", "Ready"):
        condition(pod, word, "False", when, "PodFailed")


def exceed(pod: Document, when: str) -> None:
    """The Pod has been active longer than it may."""
    end(pod, 137, "Error", when)
    pod["status"]["reason"] = "DeadlineExceeded"
    pod["status"]["message"] = "Pod was active on the node longer than the specified deadline"


def _started(one: Document, otherwise: str) -> str:
    running: Any = one["state"].get("running") or {}
    return str(running.get("startedAt", otherwise))


def _ended(code: int, reason: str, started: str, finished: str) -> Document:
    return {
        "exitCode": code,
        "reason": reason or ("Completed" if code == 0 else "Error"),
        "startedAt": started,
        "finishedAt": finished,
    }

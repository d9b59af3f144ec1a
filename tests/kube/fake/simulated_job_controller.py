"""The Job controller's stand-in: level-based, one pass a Job, the rules of Kubernetes 1.31 and later.

It follows ``pkg/controller/job/job_controller.go``, but for finalizers: it counts Pods as they end. What
moves Pods is ``simulated_kubelet``.
"""

import asyncio
import copy
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from tests.kube.fake import kinds
from tests.kube.fake.objects import Objects
from tests.kube.fake.refusals import Refusal
from tests.kube.fake.rules import NAME_LABEL, UID_LABEL, timestamp
from tests.kube.fake.store import Collection, Document, Entry, Event, Key

RETRY = 0.02
"""Seconds before a failed Pod is tried again; doubles each time. A real cluster begins at 10."""
OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class StandInOptions:
    """How a cluster's own controllers and nodes behave."""

    kubelet: Literal["automatic", "driven"] = "automatic"
    """``automatic``: Pods start at once and run until the test ends them. ``driven``: the test moves them."""


def condition(
    document: Document, type_: str, status: str, when: str, reason: str = "", message: str = ""
) -> None:
    """Set a condition in an object's status."""
    conditions = document.setdefault("status", {}).setdefault("conditions", [])
    present = next((one for one in conditions if one["type"] == type_), None)
    if present is None:
        present = {"type": type_}
        conditions.append(present)
    if present.get("status") != status:
        present["lastTransitionTime"] = when
    for key, value in (("status", status), ("reason", reason), ("message", message)):
        present[key] = value
        if not value:
            del present[key]


def holds(document: Document, type_: str) -> bool:
    """Whether a condition is True."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(one["type"] == type_ and one["status"] == "True" for one in conditions)


class JobController:
    """Makes, counts and deletes the Pods of Jobs."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._due: set[Key] = set()
        self._ended: dict[str, dict[str, str]] = {}
        """uid of a Job → uid of a Pod that has ended → what it counts as."""
        self._pauses: dict[str, tuple[int, float]] = {}
        """uid of a Job → failures in a row, and when its next Pod may be made (loop time)."""
        objects.store.observers.append(self._observe)

    def _observe(self, collection: Collection, event: Event) -> None:
        if collection.kind is kinds.JOB and event.new is not None:
            self._enqueue(event.last.key)
        elif collection.kind is kinds.POD:
            for uid in event.last.owners:
                place = self._objects.store.by_uid.get(uid)
                is_job = place is not None and place[0].kind is kinds.JOB
                if is_job and _controls(uid, event.last.document()):  # not one that goes with the Job alone
                    self._count(uid, event)
                    self._enqueue(place[1])

    def _count(self, job: str, event: Event) -> None:
        """Count a Pod that has ended, or is gone before that, once."""
        phase = event.last.document()["status"].get("phase")
        ended = self._ended.setdefault(job, {})
        if (phase in OVER or event.new is None) and event.last.uid not in ended:
            ended[event.last.uid] = "succeeded" if phase == "Succeeded" else "failed"
            if phase != "Succeeded":
                self._back_off(job)

    def _back_off(self, job: str) -> float:
        times = self._pauses.get(job, (0, 0.0))[0] + 1
        pause = min(RETRY * 2 ** (times - 1), 360.0)
        self._pauses[job] = (times, asyncio.get_running_loop().time() + pause)
        return pause

    def _enqueue(self, key: Key) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._work)
        self._due.add(key)

    def _later(self, delay: float, key: Key) -> None:
        asyncio.get_running_loop().call_later(delay, self._enqueue, key)

    def _work(self) -> None:
        due, self._due = self._due, set()
        for key in sorted(due):
            entry = self._objects.store.collection(kinds.JOB).entries.get(key)
            if entry is not None and not entry.is_deleting:
                self._sync(entry)

    # One pass

    def _sync(self, entry: Entry) -> None:
        job = entry.document()
        if holds(job, "Complete") or holds(job, "Failed"):
            return
        spec, status, when = job["spec"], job.setdefault("status", {}), timestamp(self._objects.now())
        before = copy.deepcopy(status)
        _suspend_or_resume(job, when)
        counted = Counter(self._ended.get(entry.uid, {}).values())
        has_succeeded = counted["succeeded"] >= (spec.get("completions") or 1)
        verdict = None if has_succeeded or spec["suspend"] else _verdict(job, counted["failed"])
        if verdict or spec["suspend"] or has_succeeded:
            for pod, _ in self._pods(entry, deleting=False):
                if spec["suspend"]:  # nobody's failure
                    self._ended.setdefault(entry.uid, {})[pod.uid] = "stopped"
                self._objects.delete(kinds.POD, pod)
        else:
            self._make_pods(entry, job, counted["succeeded"])
        active, terminating = (self._pods(entry, deleting=word) for word in (False, True))
        counted = Counter(self._ended.get(entry.uid, {}).values())
        status |= {"active": len(active), "ready": sum(holds(pod, "Ready") for _, pod in active)}
        status |= {"terminating": len(terminating), "uncountedTerminatedPods": {}}
        status |= {word: counted[word] for word in ("succeeded", "failed")}
        for word in ("active", "succeeded", "failed"):
            if not status[word]:
                del status[word]
        is_empty = not active and not terminating
        if verdict is not None:
            _conclude(job, ("FailureTarget", "Failed"), when, verdict, is_empty=is_empty)
        elif has_succeeded and not spec["suspend"]:
            words = ("CompletionsReached", "Reached expected number of succeeded pods")
            _conclude(job, ("SuccessCriteriaMet", "Complete"), when, words, is_empty=is_empty)
        if status != before:
            self._objects.update(kinds.JOB, entry, job, subresource="status")

    def _pods(self, entry: Entry, *, deleting: bool) -> list[tuple[Entry, Document]]:
        """Pods of a Job that have not ended, the oldest first."""
        below = self._objects.store.dependents.get(entry.uid, {})
        found = [place.entries[key] for place, key in below if place.kind is kinds.POD]
        pods = [(one, one.document()) for one in found if one.is_deleting == deleting]
        pods = [one for one in pods if _controls(entry.uid, one[1])]
        return [one for one in pods if one[1]["status"].get("phase") not in OVER]

    def _make_pods(self, entry: Entry, job: Document, succeeded: int) -> None:
        spec = job["spec"]
        there = len(self._pods(entry, deleting=False))
        if spec["podReplacementPolicy"] == "Failed":
            there += len(self._pods(entry, deleting=True))
        missing = min(spec["parallelism"], (spec.get("completions") or 1) - succeeded) - there
        pause = self._pauses.get(entry.uid, (0, 0.0))[1] - asyncio.get_running_loop().time()
        if missing > 0 and pause > 0:
            self._later(pause, entry.key)
            return
        try:
            for _ in range(missing):
                self._objects.create(kinds.POD, entry.key[0], _pod(job))
        except Refusal:
            self._later(self._back_off(entry.uid), entry.key)


def _suspend_or_resume(job: Document, when: str) -> None:
    status = job["status"]
    if job["spec"]["suspend"]:
        condition(job, "Suspended", "True", when, "JobSuspended", "Job suspended")
        status.pop("startTime", None)
        return
    if holds(job, "Suspended"):
        condition(job, "Suspended", "False", when, "JobResumed", "Job resumed")
        status["startTime"] = when
    status.setdefault("startTime", when)


def _verdict(job: Document, failed: int) -> tuple[str, str] | None:
    """Reason and message of a Job's failure; ``None``: it has not failed."""
    if failed > job["spec"]["backoffLimit"] or holds(job, "FailureTarget"):
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    return None


def _pod(job: Document) -> Document:
    template, about = copy.deepcopy(job["spec"]["template"]), job["metadata"]
    metadata = template.get("metadata") or {}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": about["name"], "uid": about["uid"]}
    labels = {NAME_LABEL: about["name"], UID_LABEL: about["uid"]}
    return {
        "metadata": {
            "generateName": f"{about['name']}-",
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": template["spec"],
    }


def _controls(job: str, pod: Document) -> bool:
    """Say whether a Pod is the Job's own (GetControllerOf in apimachinery's ``controller_ref.go``)."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(one["uid"] == job and one.get("controller") for one in owners)


def _conclude(
    job: Document, types: tuple[str, str], when: str, words: tuple[str, str], *, is_empty: bool
) -> None:
    """Announce the end, and declare it once no Pod is left that runs."""
    condition(job, types[0], "True", when, *words)
    if is_empty:
        condition(job, types[1], "True", when, *words)
        if types[1] == "Complete":
            job["status"]["completionTime"] = when

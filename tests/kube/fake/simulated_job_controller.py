"""The Job controller's stand-in: level-based, one pass a Job, the rules of Kubernetes 1.31 and later.

It follows ``pkg/controller/job/job_controller.go``. What moves Pods is ``simulated_kubelet``.
"""

import asyncio
import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tests.kube.fake import kinds
from tests.kube.fake.kind_rules import NAME_LABEL, UID_LABEL
from tests.kube.fake.metadata import seconds, timestamp
from tests.kube.fake.objects import Objects
from tests.kube.fake.refusals import Refusal
from tests.kube.fake.store import Collection, Document, Entry, Event, Key

TRACKING = "batch.kubernetes.io/job-tracking"
"""Finalizer that keeps a Pod until it has been counted."""
_TRACKED = TRACKING.encode()
RETRY = 0.02
"""Seconds before a failed Pod or container is tried again; doubles each time. A real cluster begins at 10."""


@dataclass(frozen=True, kw_only=True)
class StandInOptions:
    """How a cluster's own controllers and nodes behave."""

    kubelet: Literal["automatic", "driven"] = "automatic"
    """``automatic``: Pods start at once and run until the test ends them. ``driven``: the test moves them."""
    jobs: bool = True
    """The Job controller works."""


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


def _is_over(pod: Document) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


class JobController:
    """Makes, counts and deletes the Pods of Jobs."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._due: set[Key] = set()
        self._is_scheduled = False
        self._refusals: dict[str, int] = {}
        """uid of a Job → Pods refused in a row."""
        self._wait_until: dict[str, float] = {}
        """uid of a Job → when its next Pod may be made (loop time)."""
        objects.store.observers.append(self._observe)

    def _observe(self, collection: Collection, event: Event) -> None:
        store = self._objects.store
        if collection.kind is kinds.JOB:
            if event.new is None:
                self._wait_until.pop(event.last.uid, None)
                for below, key in list(store.dependents.get(event.last.uid, {}).values()):
                    self._release_later(below, key)
            else:
                self._enqueue(event.last.key)
        elif collection.kind is kinds.POD:
            owners = (store.by_uid.get(uid) for uid in event.last.owners)
            jobs = [place[1] for place in owners if place is not None and place[0].kind is kinds.JOB]
            for key in jobs:
                self._enqueue(key)
            if not jobs and event.new is not None and event.new.is_deleting:
                self._release_later(collection, event.new.key)

    def _enqueue(self, key: Key) -> None:
        self._due.add(key)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._work)

    def _later(self, delay: float, key: Key) -> None:
        asyncio.get_running_loop().call_later(delay, self._enqueue, key)

    def _work(self) -> None:
        self._is_scheduled = False
        due, self._due = self._due, set()
        for key in sorted(due):
            entry = self._objects.store.collection(kinds.JOB).entries.get(key)
            if entry is not None:
                self._sync(entry)

    def _release_later(self, collection: Collection, key: Key) -> None:
        """Let go of a Pod whose Job has gone."""
        entry = collection.entries[key]
        if collection.kind is kinds.POD and _TRACKED in entry.encoded:
            asyncio.get_running_loop().call_soon(self._release, key, entry.uid)

    def _release(self, key: Key, uid: str) -> None:
        store = self._objects.store
        entry = store.collection(kinds.POD).entries.get(key)
        if entry is None or entry.uid != uid:
            return
        owners = (store.by_uid.get(owner) for owner in entry.owners)
        if any(place is not None and place[0].kind is kinds.JOB for place in owners):
            return
        document = entry.document()
        if TRACKING in (document["metadata"].get("finalizers") or ()):
            self._untrack(entry, document)

    def _untrack(self, entry: Entry, pod: Document) -> None:
        left = [one for one in pod["metadata"]["finalizers"] if one != TRACKING]
        pod["metadata"]["finalizers"] = left
        if not left:
            del pod["metadata"]["finalizers"]
        self._objects.update(kinds.POD, entry, pod)

    # One pass

    def _sync(self, entry: Entry) -> None:
        job = entry.document()
        if holds(job, "Complete") or holds(job, "Failed"):
            self._expire(entry, job)
            return
        if entry.is_deleting:
            return
        before = copy.deepcopy(job.get("status"))
        status = job.setdefault("status", {})
        pods = self._pods(entry)
        self._count(job, pods)
        pods = self._pods(entry)
        self._suspend_or_resume(job)
        active = [one for one in pods if not _is_over(one[1]) and not one[0].is_deleting]
        terminating = [one for one in pods if not _is_over(one[1]) and one[0].is_deleting]
        verdict = self._verdict(job, active)
        if verdict or job["spec"]["suspend"] or self._succeeded(job):
            # Pods that are stopped by a suspension are nobody's failure: they are not counted.
            self._delete(active, is_counted=not job["spec"]["suspend"])
            active = []
            terminating = [one for one in self._pods(entry) if not _is_over(one[1])]
        else:
            active = self._make_pods(entry, job, active, terminating)
        status["active"] = len(active)
        status["ready"] = sum(holds(pod, "Ready") for _, pod in active)
        status["terminating"] = len(terminating)
        status["uncountedTerminatedPods"] = {}
        self._conclude(job, verdict, is_empty=not active and not terminating)
        for word in ("active", "succeeded", "failed"):
            if not status.get(word):
                status.pop(word, None)
        if status != before:
            present = self._objects.store.collection(kinds.JOB).entries.get(entry.key)
            if present is not None:
                document = present.document()
                document["status"] = status
                self._objects.update(kinds.JOB, present, document, subresource="status")

    def _pods(self, entry: Entry) -> list[tuple[Entry, Document]]:
        below = self._objects.store.dependents.get(entry.uid, {})
        found = [place.entries[key] for place, key in below.values() if place.kind is kinds.POD]
        return [(one, one.document()) for one in sorted(found, key=lambda one: one.version)]

    def _count(self, job: Document, pods: Iterable[tuple[Entry, Document]]) -> None:
        """Count Pods that have ended, each once, and let go of them."""
        status = job["status"]
        for entry, pod in pods:
            if TRACKING not in (pod["metadata"].get("finalizers") or ()) or not _is_over(pod):
                continue
            word = "succeeded" if pod["status"]["phase"] == "Succeeded" else "failed"
            status[word] = status.get(word, 0) + 1
            if word == "failed":
                self._back_off(job["metadata"]["uid"], status["failed"])
            self._untrack(entry, pod)

    def _back_off(self, uid: str, failures: int) -> float:
        pause = min(RETRY * 2 ** (failures - 1), 360.0)
        self._wait_until[uid] = asyncio.get_running_loop().time() + pause
        return pause

    def _suspend_or_resume(self, job: Document) -> None:
        status, when = job["status"], timestamp(self._objects.now())
        if job["spec"]["suspend"]:
            condition(job, "Suspended", "True", when, "JobSuspended", "Job suspended")
            status.pop("startTime", None)
            return
        if holds(job, "Suspended"):
            condition(job, "Suspended", "False", when, "JobResumed", "Job resumed")
            status["startTime"] = when
        status.setdefault("startTime", when)

    def _succeeded(self, job: Document) -> bool:
        wanted = job["spec"].get("completions") or 1
        return int(job["status"].get("succeeded", 0)) >= wanted

    def _verdict(self, job: Document, active: list[tuple[Entry, Document]]) -> tuple[str, str] | None:
        """Reason and message of a Job's failure; ``None``: it has not failed."""
        present = [one for one in job["status"].get("conditions") or () if one["type"] == "FailureTarget"]
        if present:
            return present[0]["reason"], present[0]["message"]
        spec, status = job["spec"], job["status"]
        if self._succeeded(job) or spec["suspend"]:
            return None
        limit = spec["backoffLimit"]
        restarts = sum(
            one.get("restartCount", 0)
            for _, pod in active
            for word in ("initContainerStatuses", "containerStatuses")
            for one in pod.get("status", {}).get(word) or ()
        )
        in_place = spec["template"]["spec"]["restartPolicy"] == "OnFailure"
        too_often = in_place and (restarts > 0 if limit == 0 else restarts >= limit)
        if status.get("failed", 0) > limit or too_often:
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline = spec.get("activeDeadlineSeconds")
        if deadline is not None and "startTime" in status:
            left = seconds(status["startTime"]) + deadline - self._objects.now()
            if left <= 0:
                return "DeadlineExceeded", "Job was active longer than specified deadline"
            self._later(left, (job["metadata"]["namespace"], job["metadata"]["name"]))
        return None

    def _delete(self, pods: Iterable[tuple[Entry, Document]], *, is_counted: bool) -> None:
        store = self._objects.store.collection(kinds.POD)
        for entry, pod in pods:
            if not is_counted and TRACKING in (pod["metadata"].get("finalizers") or ()):
                self._untrack(entry, pod)
            present = store.entries.get(entry.key)
            if present is not None and not present.is_deleting:
                self._objects.delete(kinds.POD, present)

    def _make_pods(
        self,
        entry: Entry,
        job: Document,
        active: list[tuple[Entry, Document]],
        terminating: list[tuple[Entry, Document]],
    ) -> list[tuple[Entry, Document]]:
        spec = job["spec"]
        wanted = min(spec["parallelism"], (spec.get("completions") or 1) - job["status"].get("succeeded", 0))
        there = len(active)
        if spec["podReplacementPolicy"] == "Failed":
            there += len(terminating)
        if there >= wanted:
            return active
        loop = asyncio.get_running_loop()
        pause = self._wait_until.get(entry.uid, 0.0) - loop.time()
        if pause > 0:
            self._later(pause, entry.key)
            return active
        try:
            for _ in range(wanted - there):
                self._objects.create(kinds.POD, entry.key[0], self._pod(job))
            self._refusals.pop(entry.uid, None)
        except Refusal:
            times = self._refusals[entry.uid] = self._refusals.get(entry.uid, 0) + 1
            self._later(self._back_off(entry.uid, times), entry.key)
        return [one for one in self._pods(entry) if not _is_over(one[1]) and not one[0].is_deleting]

    def _pod(self, job: Document) -> Document:
        template = copy.deepcopy(job["spec"]["template"])
        metadata = template.get("metadata") or {}
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        labels = {NAME_LABEL: job["metadata"]["name"], UID_LABEL: job["metadata"]["uid"]}
        return {
            "metadata": {
                "generateName": f"{job['metadata']['name']}-",
                "labels": {**(metadata.get("labels") or {}), **labels},
                "annotations": metadata.get("annotations") or {},
                "finalizers": [*(metadata.get("finalizers") or ()), TRACKING],
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }

    def _conclude(self, job: Document, verdict: tuple[str, str] | None, *, is_empty: bool) -> None:
        """Announce the end, and declare it once no Pod is left that runs."""
        when = timestamp(self._objects.now())
        if verdict is not None:
            condition(job, "FailureTarget", "True", when, *verdict)
            if is_empty:
                condition(job, "Failed", "True", when, *verdict)
        elif self._succeeded(job) and not job["spec"]["suspend"]:
            words = ("CompletionsReached", "Reached expected number of succeeded pods")
            condition(job, "SuccessCriteriaMet", "True", when, *words)
            if is_empty:
                condition(job, "Complete", "True", when, *words)
                job["status"]["completionTime"] = when

    def _expire(self, entry: Entry, job: Document) -> None:
        """Delete a Job whose time after its end is up."""
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or entry.is_deleting:
            return
        ended = next(
            one["lastTransitionTime"]
            for one in job["status"]["conditions"]
            if one["type"] in ("Complete", "Failed") and one["status"] == "True"
        )
        left = seconds(ended) + ttl - self._objects.now()
        if left > 0:
            self._later(left, entry.key)
        else:
            self._objects.delete(kinds.JOB, entry)

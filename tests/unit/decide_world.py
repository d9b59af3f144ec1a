"""A cluster in memory for the tests of ``decide``: decisions take effect at once, Pods move on demand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from tests.kube.fake.server import merge

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.api_resources import MPIJOBS, PODS, of_document
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.mpijob.status import Condition
from ringleader.kubernetes.objects.launcher_and_workers import worker_pod
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.objects.ssh_secret import keys
from ringleader.kubernetes.operator.decide.decision import (
    Action,
    Create,
    CreateKeys,
    CreateWorker,
    Decision,
    Delete,
    JobEvent,
    Observed,
    Patch,
    Rejection,
)
from ringleader.kubernetes.operator.decide.policy_order import decide
from ringleader.kubernetes.operator.decide.status import status_of
from ringleader.kubernetes.pod_view import ContainerView, PodView

START = 1767225600.0
"""2026-01-01T00:00:00Z."""
FIELDS = {
    "Service": "service",
    "ConfigMap": "config_map",
    "Secret": "secret",
    "Job": "launcher",
    "PodGroup": "pod_group",
    "ServiceAccount": "service_account",
    "Role": "role",
    "RoleBinding": "role_binding",
}
"""Kind → field of Observed."""
SETTINGS = OperatorSettings(image="registry.example/ringleader:1", has_exec_spawn=True, has_log_tails=True)


def make_job(
    *, workers: int | None = 2, name: str = "pi", annotations: Mapping[str, str] | None = None, **spec: Any
) -> MPIJob:
    """An MPIJob as a cluster stores it; ``spec`` adds fields of the spec, ``template`` of both templates."""
    more = spec.pop("template", {})
    template = {"spec": {"containers": [{"name": "main", "image": "mpi"}], **more}}
    replicas: dict[str, Any] = {"Launcher": {"template": template}}
    if workers is not None:
        replicas["Worker"] = {"replicas": workers, "template": template}
    document = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {
            "name": name,
            "namespace": "lab",
            "uid": "job-uid",
            "creationTimestamp": rfc3339.text_of(START),
            "annotations": dict(annotations or {}),
        },
        "spec": {"mpiReplicaSpecs": replicas, **spec},
    }
    return read(document, strict=False)


@dataclass(kw_only=True)
class World:
    """What a cluster holds of one job."""

    job: MPIJob = field(default_factory=make_job)
    now: float = START
    settings: OperatorSettings = SETTINGS
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By kind."""
    pods: dict[str, PodView] = field(default_factory=dict)
    rejections: tuple[Rejection, ...] = ()
    absent: dict[str, str] = field(default_factory=dict)
    """Role → what a volume of its Pods lacks."""
    logs: dict[str, str] = field(default_factory=dict)
    """What a log would end with."""
    events: list[JobEvent] = field(default_factory=list)
    writes: int = 0
    """How often the status was written."""
    annotated: dict[str, dict[str, str]] = field(default_factory=dict)
    """Pod → annotations that were added to it."""
    kept_off: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Worker → nodes that it must not get."""
    applied: list[Action] = field(default_factory=list)
    broken: int = 0
    """Passes that were broken off; each may have counted a restart without having said so."""
    is_job_gone: bool = False
    counter: Callable[[], int] = field(default_factory=lambda: itertools.count(1).__next__)

    # --- the controller -------------------------------------------------------------------------------

    def observed(self, logs: Mapping[str, str] | None = None) -> Observed:
        """What is seen of the job."""
        held = {FIELDS[kind]: deepcopy(one) for kind, one in self.objects.items()}
        pods = tuple(self.pods.values())
        return Observed(
            **held,  # type: ignore[arg-type]
            pods=pods,
            absent=self.absent,
            rejections=self.rejections,
            logs=logs or {},
        )

    def decide(self) -> Decision:
        """What would be done now, logs fetched."""
        logs: dict[str, str] = {}
        for _ in range(3):
            found = decide(self.job, self.observed(logs), self.now, self.settings)
            if not found.logs:
                return found
            assert not found.stages
            assert found.status is None
            logs |= {wish.pod: self.logs.get(wish.pod, "") for wish in found.logs}
        raise AssertionError("asks for the same log again and again")

    def step(self) -> Decision:
        """One pass."""
        found = self.decide()
        for action in itertools.chain.from_iterable(found.stages):
            self.apply(action)
        if found.status is not None:
            self.writes += 1
            self.job = replace(self.job, status=status_of({"status": deepcopy(dict(found.status))}))
        self.events += found.events
        return found

    def settle(self, passes: int = 12) -> World:
        """Passes until one has nothing to do; deleted Pods are gone after each."""
        for _ in range(passes):
            found = self.step()
            has_changed = self.vanish()
            if not has_changed and not found.stages and found.status is None:
                assert not found.events
                return self
        raise AssertionError(f"does not come to rest: {found}")

    def wait(self, seconds: float) -> World:
        """Let time pass, then settle."""
        self.now += seconds
        return self.settle()

    # --- the cluster ----------------------------------------------------------------------------------

    def apply(self, action: Action) -> None:
        """Do what a decision says."""
        self.applied.append(action)
        match action:
            case Create(document=document):
                self.add(document)
            case CreateKeys(document=document):
                self.add({**document, "data": dict.fromkeys(self.keys_of(document), "")})
            case CreateWorker(index=index, name=name, left_out=left_out):
                assert name not in self.pods, "a worker is made over one that is there"
                document = worker_pod(self.job, index, self.settings, left_out=left_out)
                self.kept_off[name] = left_out
                assert document["metadata"]["name"] == name
                self.pods[name] = PodView(
                    name=name,
                    uid=self.uid(),
                    role="worker",
                    index=index,
                    owner_uid=self.job.metadata.uid,
                    owner_name=self.job.metadata.name,
                    created_at=rfc3339.text_of(self.now),
                )
            case Patch(resource=resource, name=name, patch=patch):
                self.patch(resource.kind, name, patch)
            case Delete(resource=resource, name=name, uid=uid):
                self.delete(resource.kind, name, uid)

    def keys_of(self, document: Mapping[str, Any]) -> Iterable[str]:
        """Names of the keys that applying draws."""
        return keys(self.job)

    def uid(self) -> str:
        """A fresh one."""
        return f"{self.counter():08x}-0000-4000-8000-000000000000"

    def add(self, document: dict[str, Any]) -> dict[str, Any]:
        """Store a new object."""
        kind = document["kind"]
        assert of_document(document).kind == kind
        assert kind not in self.objects, f"{kind} is made over one that is there"
        stored = deepcopy(document)
        stored["metadata"] |= {"uid": self.uid(), "creationTimestamp": rfc3339.text_of(self.now)}
        if kind == "Job":
            stored["status"] = {}
        self.objects[kind] = stored
        return stored

    def patch(self, kind: str, name: str, patch: Mapping[str, Any]) -> None:
        """A merge patch."""
        if kind == PODS.kind:
            if "spec" in patch:
                deadline = patch["spec"]["activeDeadlineSeconds"]
                self.pods[name] = replace(self.pods[name], deadline=deadline)
            if "metadata" in patch:
                self.annotated[name] = {**self.annotated.get(name, {}), **patch["metadata"]["annotations"]}
            return
        assert self.objects[kind]["metadata"]["name"] == name
        self.objects[kind] = merge(self.objects[kind], patch)

    def delete(self, kind: str, name: str, uid: str) -> None:
        """Delete one object; a Pod stays until ``vanish``, a Job's Pods go with it."""
        if kind == MPIJOBS.kind:
            assert uid == self.job.metadata.uid
            self.is_job_gone = True
        elif kind == PODS.kind:
            assert self.pods[name].uid == uid
            assert not self.pods[name].is_deleting, "deleted twice"
            self.pods[name] = replace(self.pods[name], is_deleting=True)
        else:
            gone = self.objects.pop(kind)
            assert gone["metadata"]["uid"] == uid
            for pod in list(self.pods.values()):
                if pod.owner_uid == uid:
                    self.pods[pod.name] = replace(pod, is_deleting=True)

    def vanish(self) -> bool:
        """Pods that are being deleted are gone; say whether there were any."""
        before = len(self.pods)
        self.pods = {name: pod for name, pod in self.pods.items() if not pod.is_deleting}
        return len(self.pods) != before

    # --- kubelet and Job controller ---------------------------------------------------------------------

    def change(self, name: str, **fields: Any) -> World:
        """A Pod's state changes."""
        self.pods[name] = replace(self.pods[name], **fields)
        return self

    def run(self, *names: str) -> World:
        """Pods run and are ready; without names all of them that are pending."""
        for pod in list(self.pods.values()):
            if pod.name in names or (not names and pod.phase == "Pending"):
                main = ContainerView(name="main", state="running")
                self.change(pod.name, phase="Running", is_ready=True, containers=(main,))
        return self

    def fail(self, name: str, code: int = 1, *, reason: str = "Error", at: str = "", **fields: Any) -> World:
        """A Pod's container ends badly."""
        ended = ContainerView(
            name="main",
            state="terminated",
            exit_code=code,
            reason=reason,
            finished_at=at or rfc3339.text_of(self.now),
        )
        return self.change(name, phase="Failed", is_ready=False, containers=(ended,), **fields)

    def unfit(self, name: str, node: str, code: int = 3, **fields: Any) -> World:
        """The check of a Pod's node ends badly; with ``phase=Pending`` the kubelet will run it again."""
        at = rfc3339.text_of(self.now)
        ended = {
            "state": "terminated",
            "exit_code": code,
            "message": f"node {node}: kernel.xid: 79 → reset\n",
        }
        check = ContainerView(name="ringleader-check", is_init=True, finished_at=at, **ended)
        return self.change(name, **{"phase": "Failed", "node": node, "containers": (check,), **fields})

    def evict(self, name: str) -> World:
        """The kubelet evicts a Pod."""
        return self.change(name, phase="Failed", is_ready=False, reason="Evicted", message="low on memory")

    def launch(self, phase: str = "Running") -> str:
        """The Job controller makes the launcher's Pod; return its name."""
        job = self.objects["Job"]
        name = f"{job['metadata']['name']}-{self.counter():05d}"
        self.pods[name] = PodView(
            name=name,
            uid=self.uid(),
            role="launcher",
            owner_uid=job["metadata"]["uid"],
            owner_name=job["metadata"]["name"],
            phase="Pending",
            created_at=rfc3339.text_of(self.now),
        )
        job["status"].setdefault("startTime", rfc3339.text_of(self.now))
        if phase == "Running":
            self.run(name)
        return name

    def finish(self, type_: str = "Complete", reason: str = "", message: str = "", failed: int = 0) -> World:
        """The launcher's Job ends."""
        status = self.objects["Job"]["status"]
        if type_ == "Complete":
            status["completionTime"] = rfc3339.text_of(self.now)
        status["failed"] = failed
        status["conditions"] = [{"type": type_, "status": "True", "reason": reason, "message": message}]
        return self

    def start(self) -> World:
        """Bring a new job to where it runs."""
        self.settle()
        self.run()
        self.settle()
        self.launch()
        return self.settle()

    # --- looking ----------------------------------------------------------------------------------------

    def condition(self, type_: str) -> Condition | None:
        """A condition of the job."""
        return next((one for one in self.job.status.conditions if one.type == type_), None)

    @property
    def state(self) -> str:
        """What ``kubectl get`` shows."""
        return self.job.status.conditions[-1].type

    @property
    def reasons(self) -> list[str]:
        """Reasons of the events so far."""
        return [note.reason for note in self.events]

    def workers(self) -> list[int]:
        """Indices of the workers that are there."""
        return sorted(pod.index for pod in self.pods.values() if pod.index is not None)

    def edit(self, **spec: Any) -> World:
        """The user changes the run policy, the number of ``workers`` or the launcher's ``template``."""
        specs = self.job.spec.mpi_replica_specs
        if "workers" in spec:
            assert specs.worker is not None
            specs = replace(specs, worker=replace(specs.worker, replicas=spec.pop("workers")))
        if "template" in spec:
            specs = replace(specs, launcher=replace(specs.launcher, template=spec.pop("template")))
        policy = replace(self.job.spec.run_policy, **spec)
        self.job = replace(self.job, spec=replace(self.job.spec, run_policy=policy, mpi_replica_specs=specs))
        return self

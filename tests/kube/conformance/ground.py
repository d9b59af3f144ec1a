"""The ground that checks stand on: a namespace of their own in a cluster, fake or real."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kube.conformance.http import Answer, Http
from tests.kube.fake import FakeCluster
from tests.time_limits import patience

from ringleader.kubernetes.mpijob.crd import crd

API = "https://kubernetes.io/docs/reference/using-api/api-concepts/"
CONVENTIONS = "https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md"
DOCS = "https://kubernetes.io/docs/"
FACTS = "facts of the project on testing without a cluster"

Document = dict[str, Any]
IMAGE = "registry.k8s.io/e2e-test-images/busybox:1.29-4"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One expectation."""

    name: str
    cites: str
    """Where it is promised."""
    proves: tuple[str, ...]
    """Features of the fake that it would miss."""
    run: Callable[[Ground], Awaitable[None]]
    fake_only: str = ""
    """Why it cannot run on a real cluster; empty: it can."""


def check(
    *proves: str, cites: str, fake_only: str = ""
) -> Callable[[Callable[[Ground], Awaitable[None]]], Check]:
    """Make a check of a function."""

    def make(run: Callable[[Ground], Awaitable[None]]) -> Check:
        return Check(name=run.__name__, cites=cites, proves=proves, run=run, fake_only=fake_only)

    return make


@dataclass(kw_only=True)
class Ground:
    """What a check works with."""

    http: Http
    namespace: str
    patience: float
    """Seconds that something may take to come about."""
    fake: FakeCluster | None = None
    extra: list[str] = field(default_factory=list)
    """Paths of objects outside of the namespace, to delete in the end."""

    @property
    def pods(self) -> str:
        return self.path("pods")

    @property
    def maps(self) -> str:
        return self.path("configmaps")

    @property
    def jobs(self) -> str:
        return self.path("jobs", "batch/v1")

    @property
    def mpijobs(self) -> str:
        return self.path("mpijobs", "kubeflow.org/v2beta1")

    def path(self, plural: str, group_version: str = "") -> str:
        """The path of a collection in the check's namespace."""
        prefix = f"/apis/{group_version}" if group_version else "/api/v1"
        return f"{prefix}/namespaces/{self.namespace}/{plural}"

    async def create(self, path: str, document: Document, **query: str) -> Document:
        return (await self.http.call("POST", path, document, **query)).ok(201)

    async def get(self, path: str) -> Document:
        return (await self.http.call("GET", path)).ok(200)

    async def change(self, path: str, patch: Document) -> Document:
        answer = await self.http.call("PATCH", path, patch, content_type="application/merge-patch+json")
        return answer.ok(200)

    async def names(self, path: str, **query: str) -> list[str]:
        """Names of the objects that a list returns."""
        found = (await self.http.call("GET", path, **query)).ok(200)
        return sorted(one["metadata"]["name"] for one in found["items"])

    async def until(self, what: str, test: Callable[[], Awaitable[bool]]) -> None:
        """Wait for something to come about."""
        loop = asyncio.get_running_loop()
        end = loop.time() + patience(self.patience)
        while not await test():
            assert loop.time() < end, f"not within {self.patience} s: {what}"
            await asyncio.sleep(0.02)

    async def gone(self, path: str) -> None:
        """Wait until an object has gone."""

        async def test() -> bool:
            return (await self.http.call("GET", path)).status == 404

        await self.until(f"{path} is gone", test)

    async def map(self, name: str = "map", **metadata: Any) -> Document:
        """Make a ConfigMap."""
        return await self.create(self.maps, {"metadata": {"name": name, **metadata}, "data": {"a": "1"}})

    async def run_pod(self, name: str, *lines: str) -> Document:
        """Make a Pod that says some lines and goes on running."""
        words = " ".join(f"echo {line};" for line in lines)
        made = await self.create(self.pods, pod(name, command=["sh", "-c", f"{words} sleep 3600"]))
        if self.fake is not None:
            fake, namespace = self.fake, self.namespace
            await _in_thread(lambda: fake.kubelet.run(name, namespace))
            await _in_thread(
                lambda: fake.write_log(name, "".join(f"{one}\n" for one in lines), namespace=namespace)
            )

        async def runs() -> bool:
            return (await self.get(f"{self.pods}/{name}"))["status"]["phase"] == "Running"

        await self.until(f"Pod {name} runs", runs)
        return made

    async def on_fake(self, work: Callable[[FakeCluster], Any]) -> None:
        """Do something to the fake that real clusters do by themselves, or in time."""
        if self.fake is not None:
            fake = self.fake
            await _in_thread(lambda: work(fake))

    async def as_user(self, name: str) -> Mapping[str, str]:
        """Headers of another user: by a token on the fake, by impersonation on a real cluster."""
        if self.fake is None:
            return {"Impersonate-User": name}
        fake = self.fake
        token = await _in_thread(lambda: fake.add_user(name))
        return {"Authorization": f"Bearer {token}"}

    async def allow(self, user: str, *rules: Document) -> None:
        """Bind a Role with these rules to a user."""
        rbac = "rbac.authorization.k8s.io"
        role = {"metadata": {"name": "role"}, "rules": list(rules)}
        await self.create(self.path("roles", f"{rbac}/v1"), role)
        binding = {
            "metadata": {"name": "binding"},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "role"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
        }
        await self.create(self.path("rolebindings", f"{rbac}/v1"), binding)


async def _in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work)


def pod(name: str = "pod", *, command: list[str] | None = None, **spec: Any) -> Document:
    """A Pod that any cluster takes."""
    container: Document = {"name": "main", "image": IMAGE}
    if command:
        container["command"] = command
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def job(name: str = "job", **spec: Any) -> Document:
    """A suspended Job: nothing of it runs."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": IMAGE}]}}
    return {"metadata": {"name": name}, "spec": {"suspend": True, "template": template, **spec}}


def mpijob(name: str = "train", **spec: Any) -> Document:
    """The smallest MPIJob with workers."""
    template = {"template": {"spec": {"containers": [{"name": "main", "image": IMAGE}]}}}
    replicas = {"Launcher": template, "Worker": {"replicas": 2, **template}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"mpiReplicaSpecs": replicas, **spec},
    }


async def enter(http: Http, *, fake: FakeCluster | None, patience: float) -> Ground:
    """Make a namespace and stand in it."""
    name = f"conformance-{uuid.uuid4().hex[:10]}"
    answer = await http.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    answer.ok(201)
    return Ground(http=http, namespace=name, patience=patience, fake=fake)


async def leave(ground: Ground) -> None:
    """Delete what the check has made."""
    for path in [f"/api/v1/namespaces/{ground.namespace}", *ground.extra]:
        await ground.http.call("DELETE", path)


async def install_crd(http: Http) -> bool:
    """Install the project's CRD where there is none; return whether it was."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    made: Answer = await http.call("POST", path, crd())
    assert made.status in (201, 409), made.text
    return made.status == 201

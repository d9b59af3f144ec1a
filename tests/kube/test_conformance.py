"""What Ringleader relies on in a Kubernetes API server, put to the fake or to a real cluster.

The real one is behind ``TEST_API_SERVER``, the address of a ``kubectl proxy``. None of the project's own
client is used, so that the judge is independent. Each check says where it is promised: a page of
https://kubernetes.io/docs or of the API conventions.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from tests.kube.fake import FakeCluster, StandInOptions
from tests.kube.fake.access import ADMIN_TOKEN
from tests.kube.fake.containers import local_process
from tests.mpijobs import mpijob
from tests.time_limits import patience

from ringleader.kubernetes.mpijob.crd import crd

REAL = os.environ.get("TEST_API_SERVER", "")
IMAGE = "registry.k8s.io/e2e-test-images/busybox:1.29-4"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
HOLD = "example.com/hold"
READ = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
Document = dict[str, Any]


class Answer:
    """What a server answered."""

    def __init__(self, status: int, text: str, warnings: str) -> None:
        self.status, self.text, self.warnings = status, text, warnings

    def ok(self) -> Document:
        assert self.status in (200, 201, 202), f"HTTP {self.status}: {self.text}"
        return json.loads(self.text)

    def refused(self, status: int, words: str = "") -> None:
        assert self.status == status, f"HTTP {self.status} where {status} was expected: {self.text}"
        found = json.loads(self.text)
        assert (found["kind"], found["code"]) == ("Status", status) and words in found["message"], found


class Ground:
    """A server, and a namespace in it that is the check's own."""

    def __init__(self, url: str, session: aiohttp.ClientSession, fake: FakeCluster | None) -> None:
        self.url, self.session, self.fake = url, session, fake
        self.namespace = f"conformance-{uuid.uuid4().hex[:10]}"
        self.pods, self.maps = self.path("/api/v1", "pods"), self.path("/api/v1", "configmaps")
        self.jobs = self.path("/apis/batch/v1", "jobs")
        self.mpijobs = self.path("/apis/kubeflow.org/v2beta1", "mpijobs")

    def path(self, group: str, plural: str) -> str:
        return f"{group}/namespaces/{self.namespace}/{plural}"

    async def call(self, method: str, path: str, body: Any = None, who: Any = None, **query: str) -> Answer:
        """Send a request and read its whole answer."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        form = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers, url = {"Content-Type": form, **(who or {})}, f"{self.url}{path}"
        async with self.session.request(method, url, data=data, headers=headers, params=query) as response:
            warnings = ", ".join(response.headers.getall("Warning", []))
            return Answer(response.status, await response.text(), warnings)

    async def create(self, path: str, document: Document) -> Document:
        return (await self.call("POST", path, document)).ok()

    async def get(self, path: str, **query: str) -> Document:
        return (await self.call("GET", path, **query)).ok()

    async def change(self, path: str, body: Document) -> Document:
        return (await self.call("PATCH", path, body)).ok()

    async def delete(self, path: str, **options: Any) -> Answer:
        return await self.call("DELETE", path, {"propagationPolicy": "Background", **options})

    async def exists(self, path: str) -> bool:
        return (await self.call("GET", path)).status == 200

    async def map(self, name: str = "map", **metadata: Any) -> Document:
        """Make a ConfigMap."""
        return await self.create(self.maps, {"metadata": {"name": name, **metadata}, "data": {"a": "1"}})

    @asynccontextmanager
    async def watch(self, **query: str) -> AsyncIterator[Callable[[], Awaitable[Document | None]]]:
        """Open a watch of ConfigMaps; yields what returns its next event, ``None`` at its end."""
        async with self.session.get(f"{self.url}{self.maps}", params={"watch": "true", **query}) as response:

            async def event() -> Document | None:
                async with asyncio.timeout(patience(60)):
                    line = await response.content.readline()
                found = json.loads(line) if line else None
                # A cluster's own controllers put a ConfigMap into every namespace.
                is_ours = found is None or found["object"]["metadata"].get("name") != "kube-root-ca.crt"
                return found if is_ours else await event()

            yield event

    async def until(self, test: Callable[[], Awaitable[bool]]) -> None:
        """Wait for something to come about."""
        async with asyncio.timeout(patience(60)):
            while not await test():
                await asyncio.sleep(0.02)

    async def gone(self, path: str) -> None:
        async def test() -> bool:
            return not await self.exists(path)

        await self.until(test)

    async def on_fake(self, work: Callable[[FakeCluster], Any]) -> None:
        """Do something to the fake that real clusters do by themselves, or in time."""
        if (fake := self.fake) is not None:
            await asyncio.to_thread(lambda: work(fake))

    async def run_pod(self, *lines: str) -> str:
        """Make a Pod that says some lines and runs on; return its path."""
        words, text = " ".join(f"echo {line};" for line in lines), "".join(f"{line}\n" for line in lines)
        await self.create(self.pods, pod(command=["sh", "-c", f"{words} sleep 3600"]))
        await self.on_fake(lambda fake: fake.kubelet.run("pod", self.namespace))
        await self.on_fake(lambda fake: fake.write_log("pod", text, namespace=self.namespace))
        path = f"{self.pods}/pod"

        async def says() -> bool:
            is_running = (await self.get(path))["status"]["phase"] == "Running"
            return is_running and (await self.call("GET", f"{path}/log")).text == text

        await self.until(says)
        return path

    async def eve(self, *rules: Document) -> Document:
        """Headers of another user with a Role: by a token on the fake, by impersonation on a real cluster."""
        await self.create(self.path(RBAC, "roles"), {"metadata": {"name": "role"}, "rules": list(rules)})
        await self.create(self.path(RBAC, "rolebindings"), binding("role"))
        if self.fake is None:
            return {"Impersonate-User": "eve"}
        return {"Authorization": f"Bearer {self.fake.add_user('eve')}"}


def pod(name: str = "pod", *, command: list[str] | None = None, **spec: Any) -> Document:
    """A Pod that any cluster takes."""
    container = {"name": "main", "image": IMAGE, **({"command": command} if command else {})}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def job(**spec: Any) -> Document:
    """A suspended Job: nothing of it runs."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": IMAGE}]}}
    return {"metadata": {"name": "job"}, "spec": {"suspend": True, "template": template, **spec}}


def binding(role: str) -> Document:
    """A binding of eve to a Role."""
    group = "rbac.authorization.k8s.io"
    reference, eve = {"kind": "Role", "name": role}, {"kind": "User", "name": "eve"}
    subjects = [{"apiGroup": group, **eve}]
    return {"metadata": {"name": role}, "roleRef": {"apiGroup": group, **reference}, "subjects": subjects}


# The checks: identity, versions, conflicts, status, generation


async def names_are_taken_or_not_found(on: Ground) -> None:
    """API conventions, HTTP status codes; concepts/overview/working-with-objects/names, labels."""
    first = await on.map()
    answer = await on.call("POST", on.maps, {"metadata": {"name": "map"}})
    answer.refused(409, 'configmaps "map" already exists')
    assert json.loads(answer.text)["reason"] == "AlreadyExists"
    (await on.delete(f"{on.maps}/map")).ok()
    assert (await on.map())["metadata"]["uid"] != first["metadata"]["uid"]
    (await on.call("GET", f"{on.jobs}/none")).refused(404, 'jobs.batch "none" not found')
    assert (await on.call("GET", "/apis/batch/v9/jobs")).status == 404
    made = await on.create(on.maps, {"metadata": {"generateName": "some-"}})
    assert made["metadata"]["name"].startswith("some-") and len(made["metadata"]["name"]) > 5
    for name in ("Upper", "under_score", "-front", "x" * 254):
        (await on.call("POST", on.pods, pod(name))).refused(422, "metadata.name: Invalid value")
    for labels in ({"a": "x" * 64}, {"a": "with space"}, {"a/b/c": "x"}):
        answer = await on.call("POST", on.maps, {"metadata": {"name": "m", "labels": labels}})
        answer.refused(422, "metadata.labels: Invalid value")


async def stale_writes_are_refused(on: Ground) -> None:
    """API conventions, concurrency control; api-concepts: preconditions, patch and apply."""
    path, stale = f"{on.maps}/map", await on.map(labels={"a": "1", "b": "2"})
    changed = await on.change(path, {"data": {"x": "2"}, "metadata": {"labels": {"a": None}}})
    assert changed["metadata"]["labels"] == {"b": "2"} and changed["data"] == {"a": "1", "x": "2"}
    old, new = (int(one["metadata"]["resourceVersion"]) for one in (stale, changed))
    assert new > old
    words = 'Operation cannot be fulfilled on configmaps "map": the object has been modified'
    (await on.call("PUT", path, stale)).refused(409, words)
    (await on.call("PATCH", path, {"metadata": {"resourceVersion": str(old)}})).refused(409)
    same = (await on.call("PUT", path, changed)).ok()
    assert same["metadata"]["resourceVersion"] == str(new), "a write that changes nothing makes no version"
    other = "00000000-0000-0000-0000-000000000000"
    (await on.call("PATCH", path, {"metadata": {"uid": other}})).refused(409, "Precondition failed: UID")
    (await on.delete(path, preconditions={"uid": other})).refused(409, "UID in the precondition")
    (await on.delete(path, preconditions={"uid": stale["metadata"]["uid"]})).ok()


async def status_is_apart(on: Ground) -> None:
    """API conventions, spec and status: /status changes status alone, generation counts the rest."""
    path, status = f"{on.mpijobs}/train", {"startTime": "2026-01-01T00:00:00Z"}
    made = await on.create(on.mpijobs, {**mpijob(), "status": status})
    assert "status" not in made and "status" not in await on.change(path, {"status": status})
    both = {"metadata": {"labels": {"a": "b"}}, "spec": {"slotsPerWorker": 7}, "status": status}
    found = await on.change(f"{path}/status", both)
    assert found["status"] == status, found["status"]
    assert found["spec"]["slotsPerWorker"] == 1 and "labels" not in found["metadata"]
    found = await on.change(path, {"metadata": {"labels": {"a": "b"}}})
    assert found["metadata"]["generation"] == 1
    found = await on.change(path, {"spec": {"slotsPerWorker": 2}, "status": None})
    assert found["metadata"]["generation"] == 2 and found["status"] == status


# Lists and watches


async def lists_are_selected_and_come_in_pages(on: Ground) -> None:
    """labels and field-selectors; api-concepts: retrieving large results sets in chunks."""
    await on.map("one", labels={"app": "a", "tier": "front"})
    await on.map("two", labels={"app": "b"})
    for query, wanted in (
        ({"labelSelector": "app=a,tier=front"}, ["one"]),
        ({"labelSelector": "app=a,tier=back"}, []),
        ({"fieldSelector": "metadata.name=two"}, ["two"]),
    ):
        items = (await on.get(on.maps, **query))["items"]
        assert [one["metadata"]["name"] for one in items] == wanted, query
        assert all("kind" not in one for one in items), "built-in kinds leave it out"
    (await on.call("GET", on.maps, labelSelector="app in a")).refused(400)
    answer = await on.call("GET", on.pods, fieldSelector="spec.subdomain=x")
    answer.refused(400, "field label not supported")
    for name in "abc":
        await on.create(on.mpijobs, mpijob(name))
    first = await on.get(on.mpijobs, limit="1")
    token = first["metadata"]["continue"]
    (await on.delete(f"{on.mpijobs}/b")).ok()
    await on.create(on.mpijobs, mpijob("d"))
    rest = await on.get(on.mpijobs, limit="9", **{"continue": token})
    assert [one["metadata"]["name"] for one in rest["items"]] == ["b", "c"], "the moment of the first page"
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    if on.fake is not None:  # a real cluster forgets after five minutes
        token = (await on.get(on.mpijobs, limit="1"))["metadata"]["continue"]
        await on.on_fake(lambda fake: fake.compact())
        answer = await on.call("GET", on.mpijobs, limit="1", **{"continue": token})
        answer.refused(410, "continue parameter is too old")


async def watches_tell_of_changes(on: Ground) -> None:
    """api-concepts, efficient detection of changes, semantics for watch: leaving a selector is DELETED."""
    path, version = f"{on.maps}/map", (await on.get(on.maps))["metadata"]["resourceVersion"]
    async with (
        on.watch(resourceVersion=version) as event,
        on.watch(resourceVersion=version, labelSelector="in=yes") as in_view,
    ):
        made = await on.map()
        await on.change(path, {"metadata": {"labels": {"in": "yes"}}})
        await on.change(path, {"data": {"a": "2"}})
        changed = await on.change(path, {"metadata": {"labels": {"in": "no"}}})
        (await on.delete(path)).ok()
        seen = [await event() for _ in range(5)]
        assert [one["type"] for one in seen] == ["ADDED", *["MODIFIED"] * 3, "DELETED"]
        versions = [one["object"]["metadata"]["resourceVersion"] for one in seen]
        assert versions[0] == made["metadata"]["resourceVersion"] and seen[0]["object"]["kind"] == "ConfigMap"
        assert int(versions[4]) > int(versions[3]) == int(changed["metadata"]["resourceVersion"])
        assert [(await in_view())["type"] for _ in range(3)] == ["ADDED", "MODIFIED", "DELETED"]
    async with on.watch(resourceVersion=version) as event:
        assert [(await event())["type"] for _ in range(2)] == ["ADDED", "MODIFIED"]
    await on.map("one")
    async with on.watch(fieldSelector="metadata.name=one") as event:
        assert (await event())["type"] == "ADDED", "without a version, first what there is"


async def bookmarks_tell_how_far_a_watch_is(on: Ground) -> None:
    """api-concepts, watch bookmarks; 410 Gone responses: a version that has been forgotten."""
    version, made = (await on.get(on.maps))["metadata"]["resourceVersion"], await on.map()
    bookmark: Document = {}
    async with on.watch(resourceVersion=version, timeoutSeconds="2", allowWatchBookmarks="true") as event:
        while (found := await event()) is not None:
            bookmark = found if found["type"] == "BOOKMARK" else bookmark
    reached = int(bookmark["object"]["metadata"]["resourceVersion"])
    assert reached >= int(made["metadata"]["resourceVersion"])
    await on.on_fake(lambda fake: fake.compact())
    async with on.watch(resourceVersion="1") as event:
        found = await event()
        said = (found["type"], found["object"]["code"], found["object"]["reason"])
        assert said == ("ERROR", 410, "Expired")
        assert await event() is None, "the watch continues"


# Deletion


async def what_is_deleted_goes_in_its_time(on: Ground) -> None:
    """concepts/overview/working-with-objects/finalizers; workloads/pods/pod-lifecycle, Pod termination."""
    path, placed = f"{on.maps}/map", f"{on.pods}/placed"
    await on.map(finalizers=[HOLD])
    (await on.delete(path)).ok()
    assert (await on.get(path))["metadata"]["deletionTimestamp"]
    await on.change(path, {"metadata": {"finalizers": None}})
    await on.gone(path)
    await on.create(on.pods, pod("placed", nodeName="no-such-node", terminationGracePeriodSeconds=45))
    await on.create(on.pods, pod("waiting", schedulerName="nobody"))
    (await on.delete(placed)).ok()
    metadata = (await on.get(placed))["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 45 and metadata["deletionTimestamp"]
    (await on.delete(f"{on.pods}/waiting")).ok()
    assert not await on.exists(f"{on.pods}/waiting"), "a Pod without a node goes at once"
    (await on.delete(placed, gracePeriodSeconds=0)).ok()
    await on.gone(placed)


async def dependents_go_with_their_owner(on: Ground) -> None:
    """concepts/architecture/garbage-collection: cascading deletion; of two owners, one is enough."""

    def owner(name: str, uid: str) -> Document:
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}

    made = [await on.map(name) for name in ("first", "second")]
    first, second = (owner(one["metadata"]["name"], one["metadata"]["uid"]) for one in made)
    await on.map("below", ownerReferences=[first])
    await on.map("both", ownerReferences=[first, second])
    await on.map("orphan", ownerReferences=[owner("nobody", "00000000-1111-2222-3333-444444444444")])
    await on.gone(f"{on.maps}/orphan")
    (await on.delete(f"{on.maps}/first")).ok()
    await on.gone(f"{on.maps}/below")
    assert await on.exists(f"{on.maps}/both")


async def namespaces_take_everything_along(on: Ground) -> None:
    """reference/access-authn-authz/admission-controllers, NamespaceLifecycle."""
    path, late = f"/api/v1/namespaces/{on.namespace}", {"metadata": {"name": "late"}}
    answer = await on.call("POST", "/api/v1/namespaces/no-such/configmaps", late)
    answer.refused(404, 'namespaces "no-such" not found')
    await on.map(finalizers=[HOLD])
    await on.create(on.jobs, job())
    (await on.delete(path)).ok()
    words = f"unable to create new content in namespace {on.namespace} because it is being terminated"
    (await on.call("POST", on.maps, late)).refused(403, words)
    await on.gone(f"{on.jobs}/job")
    assert await on.exists(path), "the namespace has gone before what is in it"
    await on.change(f"{on.maps}/map", {"metadata": {"finalizers": None}})
    await on.gone(path)


# What is refused, and what is filled in


async def bodies_are_decoded(on: Ground) -> None:
    """api-concepts, field validation, warnings; API conventions: 400 where a body is unreadable."""
    answer = await on.call("POST", on.jobs, job(parallelism="two"))
    answer.refused(400, "json: cannot unmarshal string into Go struct field")
    (await on.call("POST", on.maps, b"{not json")).refused(400)
    document = pod(schedulerName="nobody", replicas=3)
    document["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    answer = await on.call("POST", on.pods, document)
    assert "replicas" not in answer.ok()["spec"]
    for words in (r"unknown field \"spec.replicas\"", r"env[1]: hides previous definition of \"A\""):
        assert words in answer.warnings
    answer = await on.call("POST", on.jobs, job(workers=3), fieldValidation="Strict")
    answer.refused(400, 'strict decoding error: unknown field "spec.workers"')


async def pods_are_judged(on: Ground) -> None:
    """reference/kubernetes-api, Pod; workloads/pods, update and replacement."""
    mounts = [{"name": "nowhere", "mountPath": "/x"}]
    for words, containers in (
        ("spec.containers: Required value", []),
        ("spec.containers[0].image: Required value", [{"name": "main"}]),
        ('Mounts[0].name: Not found: "nowhere"', [{"name": "a", "image": "i", "volumeMounts": mounts}]),
    ):
        (await on.call("POST", on.pods, pod(containers=containers))).refused(422, words)
    words = f'error looking up service account {on.namespace}/nobody: serviceaccount "nobody" not found'
    (await on.call("POST", on.pods, pod(serviceAccountName="nobody"))).refused(403, words)
    found = (await on.create(on.pods, pod(schedulerName="nobody")))["spec"]
    assert (found["restartPolicy"], found["terminationGracePeriodSeconds"]) == ("Always", 30)
    answer = await on.call("PATCH", f"{on.pods}/pod", {"spec": {"hostname": "other"}})
    answer.refused(422, "pod updates may not change fields other than")
    await on.change(f"{on.pods}/pod", {"spec": {"activeDeadlineSeconds": 60}})


async def jobs_can_be_directed_only_while_suspended(on: Ground) -> None:
    """concepts/workloads/controllers/job, mutable scheduling directives."""
    path = f"{on.jobs}/job"
    made = await on.create(on.jobs, job(activeDeadlineSeconds=0))  # taken, although a Pod's must be above
    spec, uid = made["spec"], made["metadata"]["uid"]
    assert (spec["backoffLimit"], spec["completions"], spec["parallelism"]) == (6, 1, 1)
    assert spec["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": uid}
    await on.change(path, {"spec": {"template": {"spec": {"nodeSelector": {"zone": "none-such"}}}}})
    answer = await on.call("PATCH", path, {"spec": {"template": {"spec": {"hostname": "x"}}}})
    answer.refused(422, "spec.template: Invalid value")
    (await on.call("PATCH", path, {"spec": {"completions": 5}})).refused(
        422, "spec.completions: Invalid value"
    )
    await on.change(path, {"spec": {"suspend": False}})
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"zone": "other"}}}}}
    (await on.call("PATCH", path, patch)).refused(422, "field is immutable")


async def custom_resources_are_defaulted_pruned_and_scale(on: Ground) -> None:
    """tasks/extend-kubernetes/custom-resources: defaulting, field pruning, scale subresource."""
    path, made = f"{on.mpijobs}/train", await on.create(on.mpijobs, mpijob(cleanPodPolicy="All"))
    assert made["spec"]["sshAuthMountPath"] == "/root/.ssh" and "cleanPodPolicy" not in made["spec"]
    assert made["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["image"]
    status = {"startTime": "2026-01-01T00:00:00Z"}
    found = await on.change(f"{path}/status", {"status": {**status, "observedGeneration": 1}})
    assert found["status"] == status, found["status"]
    listed = (await on.get("/apis/kubeflow.org/v2beta1"))["resources"]
    assert {"mpijobs", "mpijobs/status", "mpijobs/scale"} <= {one["name"] for one in listed}
    assert {"batch", "kubeflow.org"} <= {one["name"] for one in (await on.get("/apis"))["groups"]}
    found = await on.get(f"{path}/scale")
    assert (found["kind"], found["apiVersion"], found["spec"]["replicas"]) == ("Scale", "autoscaling/v1", 2)
    (await on.call("PUT", f"{path}/scale", {**found, "spec": {"replicas": 5}})).ok()
    changed = await on.get(path)
    assert changed["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 5
    assert changed["metadata"]["generation"] == made["metadata"]["generation"] + 1


async def bad_custom_resources_are_refused(on: Ground) -> None:
    """tasks/extend-kubernetes/custom-resources: validation, validation rules, transition rules."""
    without = mpijob()
    del without["spec"]["mpiReplicaSpecs"]
    for words, document in (
        ("spec.slotsPerWorker: Invalid value", mpijob(slotsPerWorker="two")),
        ("should be greater than or equal to 0", mpijob(slotsPerWorker=-1)),
        ("spec.mpiImplementation: Unsupported value", mpijob(mpiImplementation="LAM")),
        ("spec.mpiReplicaSpecs: Required value", without),
        ("metadata.name is too long", mpijob("x" * 60)),
    ):
        (await on.call("POST", on.mpijobs, document)).refused(422, words)
    await on.create(on.mpijobs, mpijob(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    one, path = {"type": "Created", "status": "True"}, f"{on.mpijobs}/train"
    answer = await on.call("PATCH", f"{path}/status", {"status": {"conditions": [one, one]}})
    answer.refused(422, "status.conditions[1]: Duplicate value")
    answer = await on.call("PATCH", path, {"spec": {"runPolicy": {"managedBy": "kubeflow.org/mpi-operator"}}})
    answer.refused(422, "runPolicy.managedBy cannot be changed")


# Rights


async def _allowed(on: Ground, eve: Document, method: str, path: str, body: Any = None) -> Answer:
    """The first answer that is not a refusal: a cluster's authorizers learn of a Role in time."""
    found: list[Answer] = []

    async def is_allowed() -> bool:
        found[:] = [await on.call(method, path, body, eve)]
        return found[0].status != 403

    await on.until(is_allowed)
    return found[0]


async def what_no_rule_allows_is_forbidden(on: Ground) -> None:
    """reference/access-authn-authz/rbac, referring to resources; authorization, checking API access."""
    await on.map("mine")
    if on.fake is not None:  # others may let in whoever is unknown
        wrong = {"Authorization": "Bearer wrong"}
        (await on.call("GET", on.maps, who=wrong)).refused(401, "Unauthorized")
    await on.create(on.pods, pod(schedulerName="nobody"))
    whole = {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}
    watch = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}
    eve = await on.eve({**READ, "verbs": ["get"], "resourceNames": ["mine"]}, whole, watch)
    (await _allowed(on, eve, "GET", f"{on.maps}/mine")).ok()
    where = f'in API group "" in the namespace "{on.namespace}"'
    said = f'configmaps "other" is forbidden: User "eve" cannot get resource "configmaps" {where}'
    for method, path, words in (
        ("GET", f"{on.maps}/other", said),
        ("DELETE", f"{on.maps}/mine", "cannot delete"),
        ("GET", "/api/v1/configmaps", 'cannot list resource "configmaps"'),
        ("GET", f"{on.pods}/pod/log", 'cannot get resource "pods/log"'),
        ("PATCH", f"{on.pods}/pod/status", 'cannot patch resource "pods/status"'),
    ):
        (await on.call(method, path, who=eve)).refused(403, words)
    if on.fake is not None:  # clusters before 1.35 want the right to get alone
        answer = await on.call("GET", f"{on.pods}/pod/exec", who=eve, command="true")
        answer.refused(403, 'cannot create resource "pods/exec"')
    for below, allowed in (("", True), ("log", False)):
        wanted = {"namespace": on.namespace, "verb": "list", "resource": "pods", "subresource": below}
        about = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body = {**about, "spec": {"resourceAttributes": wanted}}
        assert (await on.call("POST", REVIEWS, body, eve)).ok()["status"]["allowed"] is allowed, below


async def nobody_grants_more_than_they_have(on: Ground) -> None:
    """reference/access-authn-authz/rbac, privilege escalation prevention and bootstrapping."""
    resources = ["roles", "rolebindings"]
    grant = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": resources, "verbs": ["create"]}
    eve, roles = await on.eve(READ, grant), on.path(RBAC, "roles")
    fine = {"metadata": {"generateName": "fine-"}, "rules": [READ]}
    (await _allowed(on, eve, "POST", roles, fine)).ok()
    more = {"metadata": {"name": "more"}, "rules": [{**READ, "verbs": ["delete"]}]}
    answer = await on.call("POST", roles, more, eve)
    answer.refused(403, "attempting to grant RBAC permissions not currently held")
    answer = await _allowed(on, eve, "POST", on.path(RBAC, "rolebindings"), binding("not-yet"))
    answer.refused(404, '"not-yet" not found')


# Containers


async def logs_are_read(on: Ground) -> None:
    """reference/kubernetes-api, Pod: tailLines, limitBytes, follow, previous."""
    path = f"{await on.run_pod('one', 'two', 'three')}/log"
    for query, text in (({"tailLines": "2"}, "two\nthree\n"), ({"limitBytes": "5"}, "one\nt")):
        assert (await on.call("GET", path, **query)).text == text
    answer = await on.call("GET", path, previous="true")
    answer.refused(400, 'previous terminated container "main" in pod "pod" not found')
    if on.fake is not None:  # what follows takes a container that speaks when it is told
        params = {"follow": "true", "tailLines": "0"}
        async with on.session.get(f"{on.url}{path}", params=params) as response, asyncio.timeout(60):
            await on.on_fake(lambda fake: fake.write_log("pod", "four\n", namespace=on.namespace))
            assert await response.content.readline() == b"four\n"


async def commands_run_in_containers(on: Ground) -> None:
    """reference/kubernetes-api, Pod: exec over WebSocket; v5 ends standard input with channel 255."""
    url = f"{on.url}{await on.run_pod()}/exec".replace("http", "ws", 1)

    async def execute(*command: str) -> tuple[bytes, Document]:
        """Run a command; return its output and how it ended."""
        query = [("command", word) for word in command]
        query += [(word, "true") for word in ("stdin", "stdout", "stderr")] + [("container", "main")]
        out = {1: b"", 2: b"", 3: b""}
        connected = on.session.ws_connect(url, params=query, protocols=("v5.channel.k8s.io",))
        async with asyncio.timeout(60), connected as socket:
            await socket.send_bytes(b"\0some text\n")
            await socket.send_bytes(bytes([255, 0]))
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY and message.data:
                    out[message.data[0]] += message.data[1:]
        return out[1], json.loads(out[3])

    out, end = await execute("cat")
    assert out == b"some text\n" and end["status"] == "Success"
    _, end = await execute("sh", "-c", "exit 3")
    assert (end["status"], end["reason"]) == ("Failure", "NonZeroExitCode"), end
    assert end["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


CHECKS = (
    names_are_taken_or_not_found, stale_writes_are_refused, status_is_apart,
    lists_are_selected_and_come_in_pages, watches_tell_of_changes, bookmarks_tell_how_far_a_watch_is,
    what_is_deleted_goes_in_its_time, dependents_go_with_their_owner, namespaces_take_everything_along,
    bodies_are_decoded, pods_are_judged, jobs_can_be_directed_only_while_suspended,
    custom_resources_are_defaulted_pruned_and_scale, bad_custom_resources_are_refused,
    what_no_rule_allows_is_forbidden, nobody_grants_more_than_they_have, logs_are_read,
    commands_run_in_containers,
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, str, FakeCluster | None]]:
    """The server to judge: address, token, and the handles of the fake if it is one."""
    if REAL:
        yield REAL, "", None
        return
    with FakeCluster(stand_in=StandInOptions(kubelet="driven")) as fake:
        fake.containers.handler = local_process(prefix=lambda _: (), environment=lambda _: dict(os.environ))
        fake.create(crd())
        yield fake.url, ADMIN_TOKEN, fake


@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_check(
    check: Callable[[Ground], Awaitable[None]], server: tuple[str, str, FakeCluster | None]
) -> None:
    url, token, fake = server
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers) as session:
        on = Ground(url, session, fake)
        path = "/api/v1/namespaces"
        await on.create(path, {"metadata": {"name": on.namespace}})
        try:
            await check(on)
        finally:
            await on.delete(f"{path}/{on.namespace}")

"""The checks, put to the fake or to the cluster of ``TEST_KUBECONFIG``; each says where it is promised."""

import asyncio
import base64
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.kube.conformance.ground import (
    RBAC,
    Answer,
    Document,
    Ground,
    Server,
    ground,
    job,
    mpijob,
    pod,
    server_of,
)
from tests.kube.fake import FakeCluster, StandInOptions
from tests.kube.fake.access import ADMIN_TOKEN

from ringleader.kubernetes.mpijob.crd import crd

REAL = os.environ.get("TEST_KUBECONFIG", "")
DOCS = "https://kubernetes.io/docs/"
API = f"{DOCS}reference/using-api/api-concepts/"
CONVENTIONS = "https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md"
CUSTOM = f"{DOCS}tasks/extend-kubernetes/custom-resources/custom-resource-definitions/"
GARBAGE = f"{DOCS}concepts/architecture/garbage-collection/"
RIGHTS = f"{DOCS}reference/access-authn-authz/rbac/"
POD = f"{DOCS}reference/kubernetes-api/workload-resources/pod-v1/"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
HOLD = "example.com/hold"
READ: Document = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
Run = Callable[[Ground], Awaitable[None]]
CHECKS: list[tuple[Run, str, bool]] = []
"""Check, where it is promised, and whether only the fake can be put to it."""


def check(cites: str, *, fake_only: bool = False) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        CHECKS.append((run, cites, fake_only))
        return run

    return add


# Identity, versions, conflicts, status, generation


@check(f"{CONVENTIONS}#http-status-codes")
async def names_are_taken_or_not_found(on: Ground) -> None:
    first = await on.map()
    found = (await on.call("POST", on.maps, {"metadata": {"name": "map"}})).refused(409, "AlreadyExists")
    assert found["message"] == 'configmaps "map" already exists'
    assert found["details"] == {"name": "map", "kind": "configmaps"}, found
    (await on.delete(f"{on.maps}/map")).ok()
    assert (await on.map())["metadata"]["uid"] != first["metadata"]["uid"]
    found = (await on.call("GET", f"{on.jobs}/none")).refused(404, "NotFound", 'jobs.batch "none" not found')
    assert found["details"] == {"name": "none", "group": "batch", "kind": "jobs"}, found
    (await on.delete(f"{on.pods}/none")).refused(404, "NotFound")
    made = await on.create(on.maps, {"metadata": {"generateName": "some-"}})
    assert made["metadata"]["name"].startswith("some-") and len(made["metadata"]["name"]) > 5


@check(f"{CONVENTIONS}#concurrency-control-and-consistency")
async def stale_writes_are_refused(on: Ground) -> None:
    path, stale = f"{on.maps}/map", await on.map()
    changed = await on.change(path, {"data": {"a": "2"}})
    old, new = (int(one["metadata"]["resourceVersion"]) for one in (stale, changed))
    assert new > old
    words = 'Operation cannot be fulfilled on configmaps "map": the object has been modified'
    (await on.call("PUT", path, {**stale, "data": {"a": "3"}})).refused(409, "Conflict", words)
    body = {"metadata": {"resourceVersion": str(old)}, "data": {"a": "3"}}
    (await on.patch(path, body)).refused(409, "Conflict")
    same = (await on.call("PUT", path, changed)).ok(200)
    assert same["metadata"]["resourceVersion"] == str(new), "a write that changes nothing makes no version"
    blind = await on.create(on.mpijobs, mpijob())
    del blind["metadata"]["resourceVersion"]
    answer = await on.call("PUT", f"{on.mpijobs}/train", blind)
    answer.refused(422, "Invalid", "metadata.resourceVersion: Invalid value")


@check(f"{API}: DeleteOptions.preconditions.uid, and metadata.uid of a patch, must match, else 409")
async def only_the_very_one_is_written(on: Ground) -> None:
    path, made = f"{on.maps}/map", await on.map()
    other = "00000000-0000-0000-0000-000000000000"
    # A deletion says it in other words than an update does, and names the kind, not the resource.
    words = 'Operation cannot be fulfilled on ConfigMap "map": the UID in the precondition (00000000-'
    (await on.delete(path, preconditions={"uid": other})).refused(409, "Conflict", words)
    (await on.patch(path, {"metadata": {"uid": other}})).refused(409, "Conflict", "Precondition failed: UID")
    (await on.delete(path, preconditions={"uid": made["metadata"]["uid"]})).ok(200)


@check(f"{CONVENTIONS}#spec-and-status: /status changes status alone, generation counts changes of the rest")
async def status_is_apart(on: Ground) -> None:
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


@check(f"{API}#patch-and-apply: RFC 7396; another kind of patch is 415")
async def objects_are_patched(on: Ground) -> None:
    path = f"{on.maps}/map"
    await on.map(labels={"a": "1", "b": "2"})
    found = await on.change(path, {"metadata": {"labels": {"a": None}}, "data": {"x": "y"}})
    assert found["metadata"]["labels"] == {"b": "2"} and found["data"] == {"a": "1", "x": "y"}
    (await on.patch(path, {"data": {}}, "application/json")).refused(415, "UnsupportedMediaType")


@check(f"{DOCS}concepts/overview/working-with-objects/names/, labels/#syntax")
async def names_and_labels_are_of_dns(on: Ground) -> None:
    for name in ("Upper", "under_score", "-front", "x" * 254):
        (await on.call("POST", on.pods, pod(name))).refused(422, "Invalid", "metadata.name: Invalid value")
    service = {"metadata": {"name": "1st"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    (await on.call("POST", on.path("services"), service)).refused(422, "Invalid", "DNS-1035")
    for labels in ({"a": "x" * 64}, {"a": "with space"}, {"a/b/c": "x"}):
        answer = await on.call("POST", on.maps, {"metadata": {"name": "m", "labels": labels}})
        answer.refused(422, "Invalid", "metadata.labels: Invalid value")


# Lists and watches


@check(f"{DOCS}concepts/overview/working-with-objects/labels/#label-selectors, field-selectors/")
async def selectors_select(on: Ground) -> None:
    await on.map("one", labels={"app": "a", "tier": "front"})
    await on.map("two", labels={"app": "b"})
    await on.map("three")
    for selector, wanted in (
        ("app=a", ["one"]),
        ("app=a,tier=front", ["one"]),
        ("app=a,tier=back", []),
    ):
        assert await on.names(on.maps, labelSelector=selector) == wanted, selector
    (await on.call("GET", on.maps, labelSelector="app in a")).refused(400, "BadRequest")
    assert await on.names(on.maps, fieldSelector="metadata.name=two") == ["two"]
    answer = await on.call("GET", on.pods, fieldSelector="spec.subdomain=x")
    answer.refused(400, "BadRequest", "field label not supported")


@check(f"{API}#retrieving-large-results-sets-in-chunks: all pages show the moment of the first")
async def lists_come_in_pages(on: Ground) -> None:
    for name in "abc":
        await on.create(on.mpijobs, mpijob(name))
    first = await on.get(on.mpijobs, limit="1")
    assert first["items"][0]["kind"] == "MPIJob" and first["metadata"]["remainingItemCount"] == 2
    (await on.delete(f"{on.mpijobs}/b")).ok(200)
    await on.create(on.mpijobs, mpijob("d"))
    await on.change(f"{on.mpijobs}/c", {"spec": {"slotsPerWorker": 5}})
    rest = await on.get(on.mpijobs, limit="9", **{"continue": first["metadata"]["continue"]})
    assert [one["metadata"]["name"] for one in rest["items"]] == ["b", "c"]
    assert rest["items"][1]["spec"]["slotsPerWorker"] == 1
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    await on.map()
    assert all("kind" not in one for one in (await on.get(on.maps))["items"]), "built-in kinds leave it out"


@check(
    f"{API}#retrieving-large-results-sets-in-chunks: 410 when the token's moment is forgotten", fake_only=True
)
async def old_pages_are_gone(on: Ground) -> None:
    for name in "ab":
        await on.create(on.mpijobs, mpijob(name))
    first = await on.get(on.mpijobs, limit="1")
    await on.create(on.mpijobs, mpijob("c"))
    await on.on_fake(lambda fake: fake.compact())
    answer = await on.call("GET", on.mpijobs, limit="1", **{"continue": first["metadata"]["continue"]})
    answer.refused(410, "Expired", "continue parameter is too old")


@check(f"{API}#efficient-detection-of-changes: in order, each with the whole object; from any version on")
async def watches_tell_of_changes(on: Ground) -> None:
    version = await on.version()
    async with on.watch(on.maps, resourceVersion=version) as watch:
        made = await on.map()
        added = await watch.next()
        assert (added["type"], added["object"]["kind"]) == ("ADDED", "ConfigMap")
        assert added["object"]["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        changed = await on.change(f"{on.maps}/map", {"data": {"a": "2"}})
        event = await watch.next()
        assert event["type"] == "MODIFIED" and event["object"]["data"] == {"a": "2"}
        (await on.delete(f"{on.maps}/map")).ok()
        event = await watch.next()
        last = int(event["object"]["metadata"]["resourceVersion"])
        assert event["type"] == "DELETED" and last > int(changed["metadata"]["resourceVersion"])
    async with on.watch(on.maps, resourceVersion=version) as watch:
        assert await watch.shown(3) == [(word, "map") for word in ("ADDED", "MODIFIED", "DELETED")]
    await on.map("one")
    async with on.watch(on.maps, fieldSelector="metadata.name=one") as watch:
        assert await watch.shown(1) == [("ADDED", "one")], "without a version, first what there is"


@check(f"{API}#semantics-for-watch: leaving a selector is DELETED")
async def objects_enter_and_leave_a_view(on: Ground) -> None:
    path, version = f"{on.maps}/map", await on.version()
    async with on.watch(on.maps, resourceVersion=version, labelSelector="in=yes") as watch:
        await on.map()
        await on.change(path, {"metadata": {"labels": {"in": "yes"}}})
        await on.change(path, {"data": {"a": "2"}})
        await on.change(path, {"metadata": {"labels": {"in": "no"}}})
        assert await watch.shown(3) == [(word, "map") for word in ("ADDED", "MODIFIED", "DELETED")]


@check(f"{API}#watch-bookmarks: on request, at the latest before a watch ends in good order")
async def bookmarks_tell_how_far_a_watch_is(on: Ground) -> None:
    version, made = await on.version(), await on.map()
    query = {"resourceVersion": version, "timeoutSeconds": "2", "allowWatchBookmarks": "true"}
    bookmark: Document = {}
    async with on.watch(on.maps, **query) as watch:
        while (event := await watch.any()) is not None:
            bookmark = event if event["type"] == "BOOKMARK" else bookmark
    reached = int(bookmark["object"]["metadata"]["resourceVersion"])
    assert reached >= int(made["metadata"]["resourceVersion"])


@check(f"{API}#410-gone-responses: a version that has been forgotten: an ERROR event with 410")
async def a_forgotten_version_is_gone(on: Ground) -> None:
    await on.map()
    await on.change(f"{on.maps}/map", {"data": {"a": "2"}})
    await on.on_fake(lambda fake: fake.compact())
    async with on.watch(on.maps, resourceVersion="1") as watch:
        event = await watch.next()
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
            "ERROR",
            410,
            "Expired",
        )
        assert "too old resource version" in event["object"]["message"]
        assert await watch.any() is None, "the watch continues"


# Deletion


def _owner(owner: Document) -> list[Document]:
    meta = {key: owner["metadata"][key] for key in ("name", "uid")}
    same = {"controller": True, "blockOwnerDeletion": True}
    return [{"apiVersion": "v1", "kind": "ConfigMap", **meta, **same}]


@check(f"{DOCS}concepts/overview/working-with-objects/finalizers/")
async def finalizers_hold_objects(on: Ground) -> None:
    path = f"{on.maps}/map"
    await on.map(finalizers=[HOLD])
    answer = (await on.delete(path)).ok(200)
    assert answer["kind"] == "ConfigMap" and answer["metadata"]["deletionTimestamp"]
    assert (await on.get(path))["metadata"]["deletionTimestamp"]
    await on.change(path, {"metadata": {"finalizers": None}})
    await on.gone(path)


@check(f"{DOCS}concepts/workloads/pods/pod-lifecycle/#pod-termination")
async def pods_on_nodes_are_given_time(on: Ground) -> None:
    placed = f"{on.pods}/placed"
    await on.create(on.pods, pod("placed", nodeName="no-such-node", terminationGracePeriodSeconds=45))
    await on.create(on.pods, pod("waiting", schedulerName="nobody"))
    (await on.delete(placed)).ok(200)
    metadata = (await on.get(placed))["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 45 and metadata["deletionTimestamp"]
    (await on.delete(f"{on.pods}/waiting")).ok(200)
    assert not await on.exists(f"{on.pods}/waiting"), "a Pod without a node goes at once"
    (await on.delete(placed, gracePeriodSeconds=0)).ok(200)
    await on.gone(placed)


@check(f"{GARBAGE}#cascading-deletion, #owners-dependents: of two owners, one is enough")
async def dependents_go_with_their_owner(on: Ground) -> None:
    first, second = await on.map("first"), await on.map("second")
    await on.map("below", ownerReferences=_owner(first))
    await on.map("both", ownerReferences=[*_owner(first), {**_owner(second)[0], "controller": False}])
    nobody = {"metadata": {"name": "nobody", "uid": "00000000-1111-2222-3333-444444444444"}}
    await on.map("orphan", ownerReferences=_owner(nobody))
    await on.gone(f"{on.maps}/orphan")
    (await on.delete(f"{on.maps}/first")).ok(200)
    assert not await on.exists(f"{on.maps}/first")
    await on.gone(f"{on.maps}/below")
    assert await on.exists(f"{on.maps}/both")


@check(f"{DOCS}reference/access-authn-authz/admission-controllers/#namespacelifecycle")
async def namespaces_take_everything_along(on: Ground) -> None:
    body, path = {"metadata": {"name": "map"}}, f"/api/v1/namespaces/{on.namespace}"
    answer = await on.call("POST", "/api/v1/namespaces/no-such-namespace/configmaps", body)
    answer.refused(404, "NotFound", 'namespaces "no-such-namespace" not found')
    await on.map(finalizers=[HOLD])
    await on.create(on.jobs, job())
    (await on.delete(path)).ok(200, 202)
    words = f"unable to create new content in namespace {on.namespace} because it is being terminated"
    found = (await on.call("POST", on.maps, {"metadata": {"name": "late"}})).refused(403, "Forbidden", words)
    assert found["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert (await on.get(path))["status"]["phase"] == "Terminating"
    await on.gone(f"{on.jobs}/job")
    assert await on.exists(path), "the namespace has gone before what is in it"
    await on.change(f"{on.maps}/map", {"metadata": {"finalizers": None}})
    await on.gone(path)


# What is refused of built-in kinds, and what is filled in


@check(f"{API}#field-validation, #warnings; {CONVENTIONS}#http-status-codes: 400 where a body is unreadable")
async def bodies_are_decoded(on: Ground) -> None:
    answer = await on.call("POST", on.jobs, job(parallelism="two"))
    answer.refused(400, "BadRequest", "json: cannot unmarshal string into Go struct field")
    (await on.call("POST", on.maps, b"{not json")).refused(400, "BadRequest")
    for path in ("/apis/example.com/v1/things", "/api/v1/things", "/apis/batch/v9/jobs"):
        assert (await on.call("GET", path)).status == 404, path
    document = pod(schedulerName="nobody", replicas=3)
    document["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    answer = await on.call("POST", on.pods, document)
    assert "replicas" not in answer.ok(201)["spec"]
    for words in (r"unknown field \"spec.replicas\"", r"env[1]: hides previous definition of \"A\""):
        assert words in str(answer.headers.get("Warning", "")) or on.fake is None, answer.headers
    answer = await on.call("POST", on.jobs, job(workers=3), fieldValidation="Strict")
    answer.refused(400, "BadRequest", 'strict decoding error: unknown field "spec.workers"')


@check(f"{API}: defaults are stored and sent back")
async def defaults_are_filled_in(on: Ground) -> None:
    found = (await on.create(on.pods, pod(schedulerName="nobody")))["spec"]
    assert (found["restartPolicy"], found["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert found["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    made = await on.create(on.jobs, job())
    spec, uid = made["spec"], made["metadata"]["uid"]
    assert (spec["backoffLimit"], spec["completions"], spec["parallelism"]) == (6, 1, 1)
    assert spec["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": uid}
    assert spec["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "job"


@check(f"{POD}: what a Pod needs; {DOCS}concepts/workloads/pods/#pod-update-and-replacement")
async def bad_pods_are_refused(on: Ground) -> None:
    image = pod()["spec"]["containers"][0]
    mount = {"name": "nowhere", "mountPath": "/x"}
    volume = {"name": "Bad_Name", "emptyDir": {}}
    cases: dict[str, Document] = {
        "spec.containers: Required value": {"containers": []},
        "spec.containers[0].image: Required value": {"containers": [{"name": "main"}]},
        "spec.containers[1].name: Duplicate value": {"containers": [image, image]},
        'volumeMounts[0].name: Not found: "nowhere"': {"containers": [{**image, "volumeMounts": [mount]}]},
        "spec.restartPolicy: Unsupported value": {"containers": [image], "restartPolicy": "Sometimes"},
        "spec.volumes[0].name: Invalid value": {"containers": [image], "volumes": [volume]},
        "spec.hostname: Invalid value": {"containers": [image], "hostname": "a.b"},
    }
    for words, spec in cases.items():
        answer = await on.call("POST", on.pods, {"metadata": {"name": "p"}, "spec": spec})
        answer.refused(422, "Invalid", words)
    await on.create(on.pods, pod(schedulerName="nobody"))
    answer = await on.patch(f"{on.pods}/pod", {"spec": {"hostname": "other"}})
    answer.refused(422, "Invalid", "pod updates may not change fields other than")
    await on.change(f"{on.pods}/pod", {"spec": {"activeDeadlineSeconds": 60}})


@check(f"{DOCS}concepts/workloads/controllers/job/#mutable-scheduling-directives")
async def jobs_can_be_directed_only_while_suspended(on: Ground) -> None:
    path = f"{on.jobs}/job"
    answer = await on.call("POST", on.jobs, job(activeDeadlineSeconds=-1))
    answer.refused(422, "Invalid", "spec.activeDeadlineSeconds: Invalid value: -1")
    await on.create(on.jobs, job(activeDeadlineSeconds=0))  # taken, although a Pod's must be above
    await on.change(path, {"spec": {"template": {"spec": {"nodeSelector": {"zone": "none-such"}}}}})
    for patch, words in (
        ({"spec": {"template": {"spec": {"hostname": "x"}}}}, "spec.template: Invalid value"),
        ({"spec": {"selector": {"matchLabels": {"a": "b"}}}}, "spec.selector: Invalid value"),
        ({"spec": {"completions": 5}}, "spec.completions: Invalid value"),
    ):
        (await on.patch(path, patch)).refused(422, "Invalid", words)
    await on.change(path, {"spec": {"suspend": False}})
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"zone": "other"}}}}}
    (await on.patch(path, patch)).refused(422, "Invalid", "field is immutable")


@check(f"{DOCS}concepts/configuration/secret/")
async def secrets_are_base64(on: Ground) -> None:
    path = on.path("secrets")
    bad = {"metadata": {"name": "bad"}, "data": {"a": "not base64!"}}
    (await on.call("POST", path, bad)).refused(400, "BadRequest", "illegal base64 data")
    found = await on.create(path, {"metadata": {"name": "good"}, "stringData": {"a": "text"}})
    assert found["data"] == {"a": base64.b64encode(b"text").decode()} and found["type"] == "Opaque"
    keys = {"metadata": {"name": "keys"}, "type": "kubernetes.io/ssh-auth", "data": {}}
    (await on.call("POST", path, keys)).refused(422, "Invalid", "data[ssh-privatekey]: Required value")


# Custom resources


@check(f"{CUSTOM}: served once Established; a definition takes its objects along")
async def definitions_are_served(on: Ground) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object"}}}
    names = {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "conformance.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    wrong = {"metadata": {"name": "wrong.conformance.example.com"}, "spec": spec}
    (await on.call("POST", CRDS, wrong)).refused(422, "Invalid", "metadata.name: Invalid value")
    things, path = on.path("things", f"{spec['group']}/v1"), f"{CRDS}/things.conformance.example.com"
    await on.create(CRDS, {**wrong, "metadata": {"name": "things.conformance.example.com"}})
    try:

        async def is_served() -> bool:
            # Read at once, a new definition has no conditions yet, or null in their place.
            found = ((await on.get(path)).get("status") or {}).get("conditions") or ()
            is_established = ("Established", "True") in [(one["type"], one["status"]) for one in found]
            return is_established and await on.exists(things)

        await on.until("the kind is served", is_served)
        body = {"apiVersion": "conformance.example.com/v1", "kind": "Thing", "metadata": {"name": "one"}}
        await on.create(things, body)
    finally:
        (await on.delete(path)).ok(200)
    await on.gone(f"{things}/one")


@check(f"{CUSTOM}#defaulting, #field-pruning: also of status")
async def custom_resources_are_defaulted_and_pruned(on: Ground) -> None:
    made = await on.create(on.mpijobs, mpijob(cleanPodPolicy="All", runPolicy={}))
    spec = made["spec"]
    assert (spec["slotsPerWorker"], spec["mpiImplementation"]) == (1, "OpenMPI")
    assert spec["sshAuthMountPath"] == "/root/.ssh" and "cleanPodPolicy" not in spec
    assert spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["image"]
    status = {"startTime": "2026-01-01T00:00:00Z"}
    found = await on.change(f"{on.mpijobs}/train/status", {"status": {**status, "observedGeneration": 1}})
    assert found["status"] == status, found["status"]


@check(f"{CUSTOM}#validation, #validation-rules: 422 with the field; transition rules on change only")
async def bad_custom_resources_are_refused(on: Ground) -> None:
    without: Document = mpijob()
    del without["spec"]["mpiReplicaSpecs"]
    cases: dict[str, Document] = {
        "spec.slotsPerWorker: Invalid value": mpijob(slotsPerWorker="two"),
        "should be greater than or equal to 0": mpijob(slotsPerWorker=-1),
        "spec.mpiImplementation: Unsupported value": mpijob(mpiImplementation="LAM"),
        "spec.mpiReplicaSpecs: Required value": without,
        "metadata.name is too long": mpijob("x" * 60),
    }
    for words, document in cases.items():
        found = (await on.call("POST", on.mpijobs, document)).refused(422, "Invalid", words)
        assert found["details"]["kind"] == "MPIJob" and found["details"]["causes"]
    await on.create(on.mpijobs, mpijob(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    one, path = {"type": "Created", "status": "True"}, f"{on.mpijobs}/train"
    for conditions, words in (
        ([{**one, "status": "Maybe"}], "status.conditions[0].status: Unsupported value"),
        ([one, one], "status.conditions[1]: Duplicate value"),
    ):
        answer = await on.patch(f"{path}/status", {"status": {"conditions": conditions}})
        answer.refused(422, "Invalid", words)
    answer = await on.patch(path, {"spec": {"runPolicy": {"managedBy": "kubeflow.org/mpi-operator"}}})
    answer.refused(422, "Invalid", "runPolicy.managedBy cannot be changed")


@check(f"{CUSTOM}#scale-subresource; {API}#resource-uris")
async def custom_resources_are_discovered_and_scale(on: Ground) -> None:
    path, made = f"{on.mpijobs}/train", await on.create(on.mpijobs, mpijob())
    listed = (await on.get("/apis/kubeflow.org/v2beta1"))["resources"]
    assert {"mpijobs", "mpijobs/status", "mpijobs/scale"} <= {one["name"] for one in listed}
    assert {"batch", "kubeflow.org", RBAC} <= {one["name"] for one in (await on.get("/apis"))["groups"]}
    found = await on.get(f"{path}/scale")
    assert (found["kind"], found["apiVersion"], found["spec"]["replicas"]) == ("Scale", "autoscaling/v1", 2)
    (await on.call("PUT", f"{path}/scale", {**found, "spec": {"replicas": 5}})).ok(200)
    changed = await on.get(path)
    assert changed["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 5
    assert changed["metadata"]["generation"] == made["metadata"]["generation"] + 1


# Rights


async def _allowed(on: Ground, eve: Any, method: str, path: str, body: Any = None) -> Answer:
    """The first answer that is not a refusal: a cluster's authorizers learn of a Role in time."""
    found: list[Any] = []

    async def is_allowed() -> bool:
        found[:] = [await on.call(method, path, body, headers=eve)]
        return found[0].status != 403

    await on.until(f"{method} {path} is allowed", is_allowed)
    return found[0]


@check(f"{RIGHTS}#referring-to-resources; {DOCS}reference/access-authn-authz/authentication/: 401")
async def what_no_rule_allows_is_forbidden(on: Ground) -> None:
    await on.map("mine")
    await on.map("other")
    if on.fake is not None:  # others may let in whoever is unknown
        wrong = {"Authorization": "Bearer wrong"}
        (await on.call("GET", on.maps, headers=wrong)).refused(401, "Unauthorized", "Unauthorized")
    await on.create(on.pods, pod(schedulerName="nobody"))
    whole = {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}
    watch = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}
    eve = await on.eve({**READ, "verbs": ["get"], "resourceNames": ["mine"]}, whole, watch)
    (await _allowed(on, eve, "GET", f"{on.maps}/mine")).ok(200)
    who, where = 'User "eve" cannot', f'in API group "" in the namespace "{on.namespace}"'
    for method, path, words in (
        (
            "GET",
            f"{on.maps}/other",
            f'configmaps "other" is forbidden: {who} get resource "configmaps" {where}',
        ),
        ("DELETE", f"{on.maps}/mine", "cannot delete"),
        ("GET", "/api/v1/configmaps", f'configmaps is forbidden: {who} list resource "configmaps"'),
        ("GET", f"{on.pods}/pod/log", 'cannot get resource "pods/log"'),
        ("PATCH", f"{on.pods}/pod/status", 'cannot patch resource "pods/status"'),
    ):
        (await on.call(method, path, headers=eve)).refused(403, "Forbidden", words)
    if on.fake is not None:  # clusters before 1.35 want the right to get alone
        answer = await on.call("GET", f"{on.pods}/pod/exec", headers=eve, command="true")
        answer.refused(403, "Forbidden", 'cannot create resource "pods/exec"')


@check(f"{DOCS}reference/access-authn-authz/authorization/#checking-api-access")
async def users_may_ask_what_they_may(on: Ground) -> None:
    eve = await on.eve(READ)
    (await _allowed(on, eve, "GET", on.maps)).ok(200)
    for verb, resource, subresource, allowed in (
        ("list", "configmaps", "", True),
        ("delete", "configmaps", "", False),
        ("create", "pods", "exec", False),
    ):
        wanted = {"namespace": on.namespace, "verb": verb, "resource": resource, "subresource": subresource}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": wanted},
        }
        answer = await on.call("POST", REVIEWS, body, headers=eve)
        assert answer.ok(201)["status"]["allowed"] is allowed, verb


@check(f"{RIGHTS}#privilege-escalation-prevention-and-bootstrapping")
async def nobody_grants_more_than_they_have(on: Ground) -> None:
    eve = await on.eve(
        READ, {"apiGroups": [RBAC], "resources": ["roles", "rolebindings"], "verbs": ["create"]}
    )
    roles, bindings = (on.path(plural, f"{RBAC}/v1") for plural in ("roles", "rolebindings"))
    fine = {"metadata": {"generateName": "fine-"}, "rules": [READ]}
    (await _allowed(on, eve, "POST", roles, fine)).ok(201)
    more = {"metadata": {"name": "more"}, "rules": [{**READ, "verbs": ["delete"]}]}
    answer = await on.call("POST", roles, more, headers=eve)
    answer.refused(403, "Forbidden", "attempting to grant RBAC permissions not currently held")
    reference = {"apiGroup": RBAC, "kind": "Role", "name": "not-yet"}
    bound = {"metadata": {"name": "bound"}, "roleRef": reference, "subjects": []}
    (await _allowed(on, eve, "POST", bindings, bound)).refused(404, "NotFound", '"not-yet" not found')


@check(f"{DOCS}reference/access-authn-authz/admission-controllers/#serviceaccount")
async def pods_run_as_accounts_that_exist(on: Ground) -> None:
    words = f'error looking up service account {on.namespace}/nobody: serviceaccount "nobody" not found'
    answer = await on.call("POST", on.pods, pod("ghost", serviceAccountName="nobody"))
    answer.refused(403, "Forbidden", words)


# Containers


@check(f"{POD}#get-read-log-of-the-specified-pod: tailLines, limitBytes, follow, previous")
async def logs_are_read(on: Ground) -> None:
    path = f"{await on.run_pod('talker', 'one', 'two', 'three')}/log"
    for query, text in (
        ({"tailLines": "2"}, "two\nthree\n"),
        ({"tailLines": "0"}, ""),
        ({"limitBytes": "5"}, "one\nt"),
    ):
        assert (await on.call("GET", path, **query)).text == text
    answer = await on.call("GET", path, container="none")
    answer.refused(400, "BadRequest", "container none is not valid for pod talker")
    answer = await on.call("GET", path, previous="true")
    answer.refused(400, "BadRequest", 'previous terminated container "main" in pod "talker" not found')
    if (fake := on.fake) is None:  # what follows takes a container that speaks, and fails, when it is told
        return
    params = {"follow": "true", "tailLines": "0"}
    async with on.session.get(f"{on.server.url}{path}", params=params) as response, asyncio.timeout(60):
        await on.on_fake(lambda fake: fake.write_log("talker", "four\n", namespace=on.namespace))
        assert await response.content.readline() == b"four\n"
    await asyncio.to_thread(lambda: fake.kubelet.restart("talker", namespace=on.namespace))
    assert (await on.call("GET", path, previous="true", tailLines="1")).text == "four\n"
    assert (await on.call("GET", path)).text == ""


@check(f"{POD}: exec over WebSocket; v5 ends standard input with channel 255")
async def commands_run_in_containers(on: Ground) -> None:
    url = f"{on.server.url}{await on.run_pod('shell')}/exec".replace("http", "ws", 1)

    async def execute(*command: str, send: bytes = b"") -> tuple[bytes, Document]:
        """Run a command; return its output and how it ended."""
        query = [("command", word) for word in command]
        query += [(word, "true") for word in ("stdin", "stdout", "stderr")] + [("container", "main")]
        out = {1: b"", 2: b"", 3: b""}
        protocols = ("v5.channel.k8s.io",)
        async with (
            asyncio.timeout(60),
            on.session.ws_connect(url, params=query, protocols=protocols, ssl=on.server.ssl) as socket,
        ):
            await socket.send_bytes(b"\0" + send)
            await socket.send_bytes(bytes([255, 0]))
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY and message.data:
                    out[message.data[0]] += message.data[1:]
        return out[1], json.loads(out[3])

    out, end = await execute("cat", send=b"some text\n")
    assert out == b"some text\n" and end["status"] == "Success"
    command = ("exit", "3") if on.fake is not None else ("sh", "-c", "exit 3")
    _, end = await execute(*command)
    assert (end["status"], end["reason"]) == ("Failure", "NonZeroExitCode"), end
    assert end["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


# Running them


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Server, FakeCluster | None]]:
    """The server to judge, and the handles of the fake if it is one."""
    if not REAL:
        with FakeCluster(stand_in=StandInOptions(kubelet="driven", jobs=False)) as fake:
            fake.create(crd())
            yield Server(url=fake.url, token=ADMIN_TOKEN), fake
        return
    server = server_of(Path(REAL))

    async def call(method: str, path: str, body: Any = None) -> int:
        async with ground(server, None) as found:
            return (await found.call(method, path, body)).status

    status = asyncio.run(call("POST", CRDS, crd()))
    assert status in (201, 409), status
    yield server, None
    if status == 201:
        asyncio.run(call("DELETE", f"{CRDS}/{crd()['metadata']['name']}"))


@pytest.mark.long
@pytest.mark.parametrize(("run", "cites", "fake_only"), CHECKS, ids=[run.__name__ for run, _, _ in CHECKS])
async def test_check(run: Run, cites: str, fake_only: bool, place: tuple[Server, FakeCluster | None]) -> None:
    server, fake = place
    if fake_only and fake is None:
        pytest.skip("a real cluster forgets after five minutes")

    async with ground(server, fake) as found:
        await run(found)

"""Deletion: finalizers, grace, owners, namespaces."""

from __future__ import annotations

from tests.kube.conformance.ground import API, DOCS, Document, Ground, check, job, pod

OWNERS = f"{DOCS}concepts/architecture/garbage-collection/#owners-dependents"
LIFECYCLE = f"{DOCS}reference/access-authn-authz/admission-controllers/#namespacelifecycle"
CASCADE = f"{DOCS}concepts/architecture/garbage-collection/#cascading-deletion"
FINALIZERS = f"{DOCS}concepts/overview/working-with-objects/finalizers/"
HOLD = "example.com/hold"


def _owner(owner: Document, kind: str = "ConfigMap", *, blocks: bool = True) -> list[Document]:
    return [
        {
            "apiVersion": "batch/v1" if kind == "Job" else "v1",
            "kind": kind,
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": blocks,
        }
    ]


async def _exists(ground: Ground, path: str) -> bool:
    return (await ground.http.call("GET", path)).status == 200


async def _release(ground: Ground, path: str) -> None:
    await ground.change(path, {"metadata": {"finalizers": None}})


@check("finalizers", cites=f"{FINALIZERS}: a deleted object stays, marked, until the last has gone")
async def finalizers_hold_objects(ground: Ground) -> None:
    path = f"{ground.maps}/map"
    await ground.map(finalizers=[HOLD])
    answer = (await ground.http.call("DELETE", path)).ok(200)
    assert answer["kind"] == "ConfigMap" and answer["metadata"]["deletionTimestamp"]
    found = await ground.get(path)
    assert found["metadata"]["deletionTimestamp"], "the object is not marked"
    await _release(ground, path)
    await ground.gone(path)


@check(
    "grace",
    cites=f"{DOCS}concepts/workloads/pods/pod-lifecycle/#pod-termination",
)
async def pods_on_nodes_are_given_time(ground: Ground) -> None:
    await ground.create(ground.pods, pod("placed", nodeName="no-such-node", terminationGracePeriodSeconds=45))
    await ground.create(ground.pods, pod("waiting", schedulerName="nobody"))
    (await ground.http.call("DELETE", f"{ground.pods}/placed")).ok(200)
    metadata = (await ground.get(f"{ground.pods}/placed"))["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 45 and metadata["deletionTimestamp"]
    (await ground.http.call("DELETE", f"{ground.pods}/waiting")).ok(200)
    assert not await _exists(ground, f"{ground.pods}/waiting"), "a Pod without a node goes at once"
    (await ground.http.call("DELETE", f"{ground.pods}/placed", {"gracePeriodSeconds": 0})).ok(200)
    await ground.gone(f"{ground.pods}/placed")


@check("background_deletion", cites=f"{CASCADE}: background: dependents go after their owner")
async def dependents_go_after_their_owner(ground: Ground) -> None:
    owner = await ground.map("owner")
    await ground.map("below", ownerReferences=_owner(owner))
    (await ground.http.call("DELETE", f"{ground.maps}/owner", propagationPolicy="Background")).ok(200)
    assert not await _exists(ground, f"{ground.maps}/owner")
    await ground.gone(f"{ground.maps}/below")


@check("foreground_deletion", cites=f"{CASCADE}: foreground: the owner goes last")
async def dependents_go_before_their_owner(ground: Ground) -> None:
    owner = await ground.map("owner")
    await ground.map("below", ownerReferences=_owner(owner), finalizers=[HOLD])
    (await ground.http.call("DELETE", f"{ground.maps}/owner", propagationPolicy="Foreground")).ok(200)
    found = await ground.http.call("GET", f"{ground.maps}/owner")
    assert found.status == 200, "the owner has gone before its dependent"
    assert found.document["metadata"]["finalizers"] == ["foregroundDeletion"]

    async def is_marked() -> bool:
        return "deletionTimestamp" in (await ground.get(f"{ground.maps}/below"))["metadata"]

    await ground.until("the dependent is being deleted", is_marked)
    await _release(ground, f"{ground.maps}/below")
    await ground.gone(f"{ground.maps}/below")
    await ground.gone(f"{ground.maps}/owner")


@check("orphan_deletion", cites=f"{DOCS}concepts/architecture/garbage-collection/#orphaned-dependents")
async def orphans_stay(ground: Ground) -> None:
    owner = await ground.map("owner")
    await ground.map("below", ownerReferences=_owner(owner))
    (await ground.http.call("DELETE", f"{ground.maps}/owner", propagationPolicy="Orphan")).ok(200)
    await ground.gone(f"{ground.maps}/owner")
    found = await ground.get(f"{ground.maps}/below")
    assert "ownerReferences" not in found["metadata"], found


@check("jobs_orphan_by_default", cites=f"{API}: propagationPolicy: the default of batch/v1 Jobs is to orphan")
async def jobs_leave_their_pods(ground: Ground) -> None:
    owner = await ground.create(ground.jobs, job())
    await ground.map("below", ownerReferences=_owner(owner, "Job"))
    (await ground.http.call("DELETE", f"{ground.jobs}/job")).ok(200)
    await ground.gone(f"{ground.jobs}/job")
    found = await ground.http.call("GET", f"{ground.maps}/below")
    assert found.status == 200 and "ownerReferences" not in found.document["metadata"]


@check("absent_owner", cites=f"{OWNERS}: an object whose owner does not exist is collected")
async def objects_without_their_owner_go(ground: Ground) -> None:
    nobody = {"metadata": {"name": "nobody", "uid": "00000000-1111-2222-3333-444444444444"}}
    await ground.map("below", ownerReferences=_owner(nobody))
    await ground.gone(f"{ground.maps}/below")


@check(cites=f"{OWNERS}: of two owners, one is enough")
async def one_owner_is_enough(ground: Ground) -> None:
    first, second = await ground.map("first"), await ground.map("second")
    owners = [*_owner(first), {**_owner(second)[0], "controller": False}]
    await ground.map("below", ownerReferences=owners)
    await ground.map("other", ownerReferences=_owner(first))
    (await ground.http.call("DELETE", f"{ground.maps}/first", propagationPolicy="Background")).ok(200)
    await ground.gone(f"{ground.maps}/other")
    assert await _exists(ground, f"{ground.maps}/below")


@check("delete_collection", cites=f"{API}#collections: deletecollection with selectors")
async def collections_are_deleted(ground: Ground) -> None:
    await ground.map("one", labels={"app": "a"})
    await ground.map("two", labels={"app": "b"})
    (await ground.http.call("DELETE", ground.maps, labelSelector="app=a")).ok(200)
    await ground.gone(f"{ground.maps}/one")
    assert await _exists(ground, f"{ground.maps}/two")


@check(
    "namespace_must_exist",
    cites=LIFECYCLE,
)
async def nothing_is_made_outside_of_namespaces(ground: Ground) -> None:
    answer = await ground.http.call(
        "POST", "/api/v1/namespaces/no-such-namespace/configmaps", {"metadata": {"name": "map"}}
    )
    answer.refused(404, "NotFound", 'namespaces "no-such-namespace" not found')


@check(
    "namespace_terminating",
    cites=LIFECYCLE,
)
async def nothing_is_made_in_a_namespace_that_goes(ground: Ground) -> None:
    await ground.map(finalizers=[HOLD])
    (await ground.http.call("DELETE", f"/api/v1/namespaces/{ground.namespace}")).ok(200, 202)
    answer = await ground.http.call("POST", ground.maps, {"metadata": {"name": "late"}})
    words = f"unable to create new content in namespace {ground.namespace} because it is being terminated"
    found = answer.refused(403, "Forbidden", words)
    assert found["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await _release(ground, f"{ground.maps}/map")


@check("namespace_deletion", cites=f"{DOCS}tasks/administer-cluster/namespaces/#deleting-a-namespace")
async def namespaces_take_everything_along(ground: Ground) -> None:
    await ground.map(finalizers=[HOLD])
    await ground.create(ground.jobs, job())
    path = f"/api/v1/namespaces/{ground.namespace}"
    (await ground.http.call("DELETE", path)).ok(200, 202)
    assert (await ground.get(path))["status"]["phase"] == "Terminating"
    await ground.gone(f"{ground.jobs}/job")
    assert await _exists(ground, path), "the namespace has gone before what is in it"
    await _release(ground, f"{ground.maps}/map")
    await ground.gone(path)

"""The four ways to change part of an object."""

from __future__ import annotations

from tests.kube.conformance.ground import API, DOCS, IMAGE, Ground, check, mpijob, pod
from tests.kube.conformance.http import APPLY, JSON_PATCH, MERGE, STRATEGIC

PATCHES = f"{API}#patch-and-apply"
APPLYING = f"{DOCS}reference/using-api/server-side-apply/"


@check("merge_patch", cites=f"{PATCHES} (RFC 7396): null removes, lists are replaced")
async def merge_patches(ground: Ground) -> None:
    path = f"{ground.maps}/map"
    await ground.map(labels={"a": "1", "b": "2"})
    body = {"metadata": {"labels": {"a": None}}, "data": {"x": "y"}}
    found = (await ground.http.call("PATCH", path, body, content_type=MERGE)).ok(200)
    assert found["metadata"]["labels"] == {"b": "2"} and found["data"] == {"a": "1", "x": "y"}


@check("json_patch", cites=f"{PATCHES} (RFC 6902): operations in order, all or none; a failed test is 422")
async def json_patches(ground: Ground) -> None:
    path = f"{ground.maps}/map"
    await ground.map(labels={})
    body = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "add", "path": "/metadata/labels", "value": {"example.com/b": "3", "c": "4"}},
        {"op": "remove", "path": "/metadata/labels/example.com~1b"},
    ]
    answer = await ground.http.call("PATCH", path, body, content_type=JSON_PATCH)
    found = answer.ok(200)
    assert (found["data"], found["metadata"]["labels"]) == ({"a": "2"}, {"c": "4"})
    (await ground.http.call("PATCH", path, body, content_type=JSON_PATCH)).refused(422)
    missing = [{"op": "remove", "path": "/data/none"}]
    (await ground.http.call("PATCH", path, missing, content_type=JSON_PATCH)).refused(422)


@check(
    "strategic_merge_patch",
    cites=f"{PATCHES}: lists with a merge key merge by it; custom resources refuse it",
)
async def strategic_merge_patches(ground: Ground) -> None:
    path = f"{ground.pods}/pod"
    document = pod()
    document["spec"]["containers"].append({"name": "other", "image": IMAGE})
    await ground.create(ground.pods, document)
    body = {"spec": {"containers": [{"name": "other", "image": "changed"}]}}
    found = (await ground.http.call("PATCH", path, body, content_type=STRATEGIC)).ok(200)
    images = {one["name"]: one["image"] for one in found["spec"]["containers"]}
    assert images == {"main": IMAGE, "other": "changed"}
    await ground.create(ground.mpijobs, mpijob())
    answer = await ground.http.call("PATCH", f"{ground.mpijobs}/train", {}, content_type=STRATEGIC)
    answer.refused(415, "UnsupportedMediaType")


@check("apply_patch", cites=f"{APPLYING}: makes what is missing; what a manager no longer applies goes")
async def applies(ground: Ground) -> None:
    path = f"{ground.maps}/map"

    async def apply(data: dict[str, str], manager: str = "me") -> dict[str, object]:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": data}
        answer = await ground.http.call("PATCH", path, body, content_type=APPLY, fieldManager=manager)
        return answer.ok(200, 201)

    await apply({"a": "1", "b": "2"})
    await apply({"c": "3"}, "other")
    found = await apply({"a": "4"})
    assert found["data"] == {"a": "4", "c": "3"}, found
    managers = {one["manager"] for one in found["metadata"]["managedFields"]}  # type: ignore[index]
    assert managers == {"me", "other"}


@check("apply_conflicts", cites=f"{APPLYING}#conflicts: another's field is 409 unless forced")
async def applying_anothers_field_conflicts(ground: Ground) -> None:
    path = f"{ground.maps}/map"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"a": "1"}}
    (await ground.http.call("PATCH", path, body, content_type=APPLY, fieldManager="me")).ok(201)
    mine = {**body, "data": {"a": "2"}}
    answer = await ground.http.call("PATCH", path, mine, content_type=APPLY, fieldManager="other")
    found = answer.refused(409, "Conflict", 'conflict with "me"')
    assert found["details"]["causes"][0]["field"] == ".data.a"
    forced = await ground.http.call(
        "PATCH", path, mine, content_type=APPLY, fieldManager="other", force="true"
    )
    assert forced.ok(200)["data"] == {"a": "2"}


@check(cites=f"{PATCHES}: an unknown kind of patch is 415")
async def unknown_patches_are_refused(ground: Ground) -> None:
    await ground.map()
    answer = await ground.http.call(
        "PATCH", f"{ground.maps}/map", {"data": {}}, content_type="application/json"
    )
    answer.refused(415, "UnsupportedMediaType")

"""Identity, versions, conflicts, status and generation."""

from __future__ import annotations

import asyncio

from tests.kube.conformance.ground import API, CONVENTIONS, DOCS, Ground, check, job, mpijob, pod
from tests.kube.conformance.http import JSON_PATCH, MERGE

CONCURRENCY = f"{CONVENTIONS}#concurrency-control-and-consistency"
NAMES = f"{DOCS}concepts/overview/working-with-objects/names/"


@check("uid", cites=f"{NAMES}#uids: every object has a uid that is never used again")
async def uids_are_unique(ground: Ground) -> None:
    first = await ground.map()
    assert first["metadata"]["uid"], first
    (await ground.http.call("DELETE", f"{ground.maps}/map")).ok()
    again = await ground.map()
    assert again["metadata"]["uid"] and again["metadata"]["uid"] != first["metadata"]["uid"]


@check("generate_name", cites=f"{API}#generated-values: generateName is a prefix of a unique name")
async def names_are_generated(ground: Ground) -> None:
    made = [await ground.create(ground.maps, {"metadata": {"generateName": "some-"}}) for _ in range(3)]
    names = {one["metadata"]["name"] for one in made}
    assert len(names) == 3 and all(name.startswith("some-") and len(name) > 5 for name in names), names


@check("already_exists", cites=f"{CONVENTIONS}#http-status-codes: 409, reason AlreadyExists")
async def a_second_of_the_same_name_is_refused(ground: Ground) -> None:
    await ground.map()
    answer = await ground.http.call("POST", ground.maps, {"metadata": {"name": "map"}})
    found = answer.refused(409, "AlreadyExists", 'configmaps "map" already exists')
    assert found["details"] == {"name": "map", "kind": "configmaps"}, found


@check(
    "monotonic_version", cites=f"{API}#resource-versions: versions change with each change and can be ordered"
)
async def versions_grow(ground: Ground) -> None:
    versions = [int((await ground.map())["metadata"]["resourceVersion"])]
    for value in ("2", "3"):
        changed = await ground.change(f"{ground.maps}/map", {"data": {"a": value}})
        versions.append(int(changed["metadata"]["resourceVersion"]))
    assert versions == sorted(set(versions)), versions


@check("stale_put", cites=f"{CONCURRENCY}: a stale PUT gets 409 Conflict")
async def a_stale_put_is_refused(ground: Ground) -> None:
    stale = await ground.map()
    await ground.change(f"{ground.maps}/map", {"data": {"a": "2"}})
    answer = await ground.http.call("PUT", f"{ground.maps}/map", {**stale, "data": {"a": "3"}})
    words = 'Operation cannot be fulfilled on configmaps "map": the object has been modified'
    answer.refused(409, "Conflict", words)
    assert (await ground.get(f"{ground.maps}/map"))["data"] == {"a": "2"}


@check("stale_patch", cites=f"{CONCURRENCY}: so does a PATCH that names one")
async def a_stale_patch_is_refused(ground: Ground) -> None:
    stale = (await ground.map())["metadata"]["resourceVersion"]
    await ground.change(f"{ground.maps}/map", {"data": {"a": "2"}})
    body = {"metadata": {"resourceVersion": stale}, "data": {"a": "3"}}
    answer = await ground.http.call("PATCH", f"{ground.maps}/map", body, content_type=MERGE)
    answer.refused(409, "Conflict")


@check(
    "put_needs_version",
    cites=f"{CONCURRENCY}: custom resources have no blind PUT",
)
async def a_custom_resource_is_not_replaced_blindly(ground: Ground) -> None:
    made = await ground.create(ground.mpijobs, mpijob())
    del made["metadata"]["resourceVersion"]
    answer = await ground.http.call("PUT", f"{ground.mpijobs}/train", made)
    answer.refused(422, "Invalid", "metadata.resourceVersion: Invalid value")


@check("uid_precondition", cites=f"{API}: DeleteOptions.preconditions.uid must match, else 409")
async def only_the_very_one_is_deleted(ground: Ground) -> None:
    made = await ground.map()
    body = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    answer = await ground.http.call("DELETE", f"{ground.maps}/map", body)
    # A deletion says it in other words than an update does, and names the kind, not the resource.
    words = 'Operation cannot be fulfilled on ConfigMap "map": the UID in the precondition (00000000-'
    answer.refused(409, "Conflict", words)
    body = {"preconditions": {"uid": made["metadata"]["uid"]}}
    (await ground.http.call("DELETE", f"{ground.maps}/map", body)).ok(200)


@check("no_op_update", cites=f"{API}#resource-versions: a write that changes nothing makes no new version")
async def a_change_of_nothing_is_none(ground: Ground) -> None:
    made = await ground.map()
    same = (await ground.http.call("PUT", f"{ground.maps}/map", made)).ok(200)
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


@check(
    "status_isolation",
    cites=f"{CONVENTIONS}#spec-and-status: /status changes status alone",
)
async def status_is_apart(ground: Ground) -> None:
    path = f"{ground.mpijobs}/train"
    made = await ground.create(ground.mpijobs, {**mpijob(), "status": {"startTime": "2026-01-01T00:00:00Z"}})
    assert "status" not in made, made
    assert "status" not in await ground.change(path, {"status": {"startTime": "2026-01-01T00:00:00Z"}})
    both = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"slotsPerWorker": 7},
        "status": {"startTime": "2026-01-01T00:00:00Z"},
    }
    found = await ground.change(f"{path}/status", both)
    assert found["status"] == {"startTime": "2026-01-01T00:00:00Z"}, found["status"]
    assert found["spec"]["slotsPerWorker"] == 1 and "labels" not in found["metadata"]
    put = {**found, "spec": {**found["spec"], "slotsPerWorker": 3}, "status": {}}
    found = (await ground.http.call("PUT", path, put)).ok(200)
    assert found["status"] and found["spec"]["slotsPerWorker"] == 3


@check("generation", cites=f"{CONVENTIONS}#metadata: generation counts changes of the desired state")
async def generation_counts_changes_of_the_spec(ground: Ground) -> None:
    path = f"{ground.mpijobs}/train"
    found = [await ground.create(ground.mpijobs, mpijob())]
    found.append(await ground.change(path, {"metadata": {"labels": {"a": "b"}}}))
    found.append(await ground.change(f"{path}/status", {"status": {"startTime": "2026-01-01T00:00:00Z"}}))
    found.append(await ground.change(path, {"spec": {"slotsPerWorker": 2}}))
    assert [one["metadata"].get("generation") for one in found] == [1, 1, 1, 2]


@check("dry_run", cites=f"{API}#dry-run: every stage runs but the last: nothing is stored")
async def a_dry_run_stores_nothing(ground: Ground) -> None:
    made = await ground.create(ground.maps, {"metadata": {"name": "map"}, "data": {"a": "1"}}, dryRun="All")
    assert made["metadata"]["uid"]
    assert await ground.names(ground.maps, fieldSelector="metadata.name=map") == []
    await ground.map()
    answer = await ground.http.call("POST", ground.maps, {"metadata": {"name": "map"}}, dryRun="All")
    answer.refused(409, "AlreadyExists")
    patch = {"data": {"a": "2"}}
    path = f"{ground.maps}/map"
    (await ground.http.call("PATCH", path, patch, content_type=MERGE, dryRun="All")).ok(200)
    (await ground.http.call("DELETE", path, dryRun="All")).ok(200)
    assert (await ground.get(path))["data"] == {"a": "1"}


@check("names_validated", cites=f"{NAMES}#names: DNS subdomains, labels for Services")
async def names_are_of_dns(ground: Ground) -> None:
    for name in ("Upper", "under_score", "-front", "x" * 254):
        answer = await ground.http.call("POST", ground.pods, pod(name))
        found = answer.refused(422, "Invalid", "metadata.name: Invalid value")
        assert found["details"]["causes"][0]["field"] == "metadata.name"
    service = {"metadata": {"name": "1st"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    (await ground.http.call("POST", ground.path("services"), service)).refused(422, "Invalid", "DNS-1035")


@check("labels_validated", cites=f"{DOCS}concepts/overview/working-with-objects/labels/#syntax")
async def labels_are_short_words(ground: Ground) -> None:
    for labels in ({"a": "x" * 64}, {"a": "with space"}, {"a/b/c": "x"}):
        answer = await ground.http.call("POST", ground.maps, {"metadata": {"name": "m", "labels": labels}})
        answer.refused(422, "Invalid", "metadata.labels: Invalid value")


@check(cites=f"{CONVENTIONS}#http-status-codes: 404 NotFound with details; facts: 409 decides races")
async def what_is_not_there_is_not_found(ground: Ground) -> None:
    found = (await ground.http.call("GET", f"{ground.jobs}/none")).refused(404, "NotFound")
    assert found["message"] == 'jobs.batch "none" not found'
    assert found["details"] == {"name": "none", "group": "batch", "kind": "jobs"}, found
    (await ground.http.call("DELETE", f"{ground.pods}/none")).refused(404, "NotFound")
    (await ground.http.call("PUT", f"{ground.maps}/none", {"metadata": {"name": "none"}}))
    body = [{"op": "add", "path": "/data", "value": {}}]
    answer = await ground.http.call("PATCH", f"{ground.maps}/none", body, content_type=JSON_PATCH)
    answer.refused(404, "NotFound")


@check(cites=f"{CONCURRENCY}: of many writers of one version, one wins")
async def of_many_writers_one_wins(ground: Ground) -> None:
    made = await ground.create(ground.jobs, job())
    bodies = [{**made, "metadata": {**made["metadata"], "labels": {"by": str(one)}}} for one in range(8)]
    answers = await asyncio.gather(*(ground.http.call("PUT", f"{ground.jobs}/job", one) for one in bodies))
    # The Job controller of a real cluster may write in between: then none may win.
    assert sum(answer.status == 200 for answer in answers) <= 1, [answer.status for answer in answers]
    assert {answer.status for answer in answers} <= {200, 409}

"""Custom resources: definition, defaults, pruning, validation, CEL, scale, columns."""

from __future__ import annotations

import uuid
from typing import Any

from tests.kube.conformance.ground import API, DOCS, FACTS, Document, Ground, check, mpijob

CUSTOM = f"{DOCS}tasks/extend-kubernetes/custom-resources/custom-resource-definitions/"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def _definition(plural: str) -> Document:
    kind = plural.capitalize()
    schema = {"type": "object", "properties": {"spec": {"type": "object"}}}
    return {
        "metadata": {"name": f"{plural}.conformance.example.com"},
        "spec": {
            "group": "conformance.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": plural, "listKind": f"{kind}List"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


@check(
    "crd_install",
    cites=f"{CUSTOM}: served once Established; it takes its objects along",
)
async def definitions_are_served(ground: Ground) -> None:
    plural = f"things{uuid.uuid4().hex[:8]}"
    definition = await ground.create(CRDS, _definition(plural))
    path = f"{CRDS}/{definition['metadata']['name']}"
    ground.extra.append(path)

    async def is_established() -> bool:
        # Read at once, a new definition has no conditions yet, or null in their place.
        conditions = ((await ground.get(path)).get("status") or {}).get("conditions")
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions or ())

    await ground.until("the definition is established", is_established)
    things = ground.path(plural, "conformance.example.com/v1")

    async def is_served() -> bool:
        return (await ground.http.call("GET", things)).status == 200

    await ground.until("the kind is served", is_served)
    body = {"apiVersion": "conformance.example.com/v1", "kind": plural.capitalize()}
    await ground.create(things, {**body, "metadata": {"name": "one"}})
    (await ground.http.call("DELETE", path)).ok(200)
    await ground.gone(f"{things}/one")
    wrong = _definition(plural)
    wrong["metadata"]["name"] = "wrong.conformance.example.com"
    (await ground.http.call("POST", CRDS, wrong)).refused(422, "Invalid", "metadata.name: Invalid value")


@check("crd_defaulting", cites=f"{CUSTOM}#defaulting: also on reading what has been stored")
async def custom_defaults_are_filled_in(ground: Ground) -> None:
    spec = (await ground.create(ground.mpijobs, mpijob(runPolicy={})))["spec"]
    assert (spec.get("slotsPerWorker"), spec.get("mpiImplementation")) == (1, "OpenMPI"), spec
    assert spec["sshAuthMountPath"] == "/root/.ssh"


@check("crd_pruning", cites=f"{CUSTOM}#field-pruning; {FACTS}: also of status")
async def undeclared_fields_are_pruned(ground: Ground) -> None:
    made = await ground.create(ground.mpijobs, mpijob(cleanPodPolicy="All"))
    assert "cleanPodPolicy" not in made["spec"]
    status = {"status": {"startTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}}
    found = await ground.change(f"{ground.mpijobs}/train/status", status)
    assert found["status"] == {"startTime": "2026-01-01T00:00:00Z"}, found["status"]
    kept = made["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert kept["image"], "a template keeps what it says"


@check("crd_validation", cites=f"{CUSTOM}#validation: 422 with the field and what is wrong with it")
async def bad_custom_resources_are_refused(ground: Ground) -> None:
    without: Document = mpijob()
    del without["spec"]["mpiReplicaSpecs"]
    cases: dict[str, Document] = {
        "spec.slotsPerWorker: Invalid value": mpijob(slotsPerWorker="two"),
        "should be greater than or equal to 0": mpijob(slotsPerWorker=-1),
        "spec.mpiImplementation: Unsupported value": mpijob(mpiImplementation="LAM"),
        "spec.mpiReplicaSpecs: Required value": without,
    }
    for words, document in cases.items():
        answer = await ground.http.call("POST", ground.mpijobs, document)
        found = answer.refused(422, "Invalid", words)
        assert found["message"].startswith('MPIJob.kubeflow.org "train" is invalid: ')
        assert found["details"]["kind"] == "MPIJob" and found["details"]["causes"]
    await ground.create(ground.mpijobs, mpijob())
    bad = {"status": {"conditions": [{"type": "Created", "status": "Maybe"}]}}
    path = f"{ground.mpijobs}/train/status"
    answer = await ground.http.call("PATCH", path, bad, content_type="application/merge-patch+json")
    answer.refused(422, "Invalid", "status.conditions[0].status: Unsupported value")


@check(
    "crd_list_maps",
    cites=f"{DOCS}reference/using-api/server-side-apply/#merge-strategy: unique keys",
)
async def keys_of_lists_are_unique(ground: Ground) -> None:
    await ground.create(ground.mpijobs, mpijob())
    one = {"type": "Created", "status": "True"}
    answer = await ground.http.call(
        "PATCH",
        f"{ground.mpijobs}/train/status",
        {"status": {"conditions": [one, one]}},
        content_type="application/merge-patch+json",
    )
    answer.refused(422, "Invalid", "status.conditions[1]: Duplicate value")


@check("crd_cel", cites=f"{CUSTOM}#validation-rules: rules in CEL, transition rules on change only")
async def rules_are_judged(ground: Ground) -> None:
    answer = await ground.http.call("POST", ground.mpijobs, mpijob("x" * 60))
    answer.refused(422, "Invalid", "metadata.name is too long")
    managed = mpijob(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
    await ground.create(ground.mpijobs, managed)
    answer = await ground.http.call(
        "PATCH",
        f"{ground.mpijobs}/train",
        {"spec": {"runPolicy": {"managedBy": "kubeflow.org/mpi-operator"}}},
        content_type="application/merge-patch+json",
    )
    answer.refused(422, "Invalid", "runPolicy.managedBy cannot be changed")


@check("scale", cites=f"{CUSTOM}#scale-subresource")
async def custom_resources_scale(ground: Ground) -> None:
    path = f"{ground.mpijobs}/train"
    made = await ground.create(ground.mpijobs, mpijob())
    found = await ground.get(f"{path}/scale")
    assert (found["kind"], found["apiVersion"], found["spec"]["replicas"]) == ("Scale", "autoscaling/v1", 2)
    (await ground.http.call("PUT", f"{path}/scale", {**found, "spec": {"replicas": 5}})).ok(200)
    changed = await ground.get(path)
    assert changed["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 5
    assert changed["metadata"]["generation"] == made["metadata"]["generation"] + 1


async def _table(ground: Ground, path: str) -> Document:
    answer = await ground.http.call("GET", path, accept=f"{TABLE},application/json")
    return answer.ok(200)


@check("tables", cites=f"{API}#receiving-resources-as-tables")
async def lists_come_as_tables(ground: Ground) -> None:
    await ground.map()
    found = await _table(ground, ground.maps)
    assert (found["kind"], found["apiVersion"]) == ("Table", "meta.k8s.io/v1"), found["kind"]
    assert found["columnDefinitions"][0]["name"] == "Name"
    row: dict[str, Any] = next(one for one in found["rows"] if one["cells"][0] == "map")
    assert row["object"]["kind"] == "PartialObjectMetadata"


@check("printer_columns", cites=f"{CUSTOM}#additional-printer-columns")
async def declared_columns_are_shown(ground: Ground) -> None:
    await ground.create(ground.mpijobs, mpijob())
    status = {"status": {"conditions": [{"type": "Created", "status": "True"}]}}
    await ground.change(f"{ground.mpijobs}/train/status", status)
    found = await _table(ground, ground.mpijobs)
    names = [one["name"] for one in found["columnDefinitions"]]
    cells = dict(zip(names, found["rows"][0]["cells"], strict=True))
    assert (cells.get("State"), cells.get("Workers")) == ("Created", 2), cells


@check("partial_metadata", cites=f"{API}#alternate-representations-of-resources: metadata alone")
async def lists_come_as_metadata(ground: Ground) -> None:
    await ground.map(labels={"a": "b"})
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    found = (await ground.http.call("GET", ground.maps, accept=accept, labelSelector="a=b")).ok(200)
    assert found["kind"] == "PartialObjectMetadataList", found["kind"]
    assert found["items"][0]["metadata"]["name"] == "map" and "data" not in found["items"][0]


@check("discovery", cites=f"{API}#resource-uris; {DOCS}concepts/overview/kubernetes-api/#discovery-api")
async def kinds_are_discovered(ground: Ground) -> None:
    version = await ground.get("/version")
    assert version["major"] == "1" and version["gitVersion"].startswith("v1.")
    assert "v1" in (await ground.get("/api"))["versions"]
    groups = {one["name"] for one in (await ground.get("/apis"))["groups"]}
    assert {"batch", "kubeflow.org", "rbac.authorization.k8s.io"} <= groups
    found = {one["name"]: one for one in (await ground.get("/apis/kubeflow.org/v2beta1"))["resources"]}
    assert found["mpijobs"]["kind"] == "MPIJob" and found["mpijobs"]["namespaced"]
    assert {"mpijobs/status", "mpijobs/scale"} <= found.keys()
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    answer = (await ground.http.call("GET", "/apis", accept=accept)).ok(200)
    assert answer["kind"] == "APIGroupDiscoveryList"

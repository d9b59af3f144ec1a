"""What the server refuses of the built-in kinds, and what it fills in."""

from __future__ import annotations

import base64

from tests.kube.conformance.ground import API, CONVENTIONS, DOCS, Ground, check, job, pod
from tests.kube.conformance.http import MERGE

VALIDATION = f"{API}#field-validation"
REFERENCE = f"{DOCS}reference/kubernetes-api/"


@check("unknown_resource", cites=f"{CONVENTIONS}#http-status-codes: 404 for what is not served")
async def unknown_resources_are_not_found(ground: Ground) -> None:
    for path in ("/apis/example.com/v1/things", "/api/v1/things", "/apis/batch/v9/jobs"):
        answer = await ground.http.call("GET", path)
        assert answer.status == 404, f"{path}: {answer.status}"


@check("built_in_types", cites=f"{CONVENTIONS}#http-status-codes: 400 where the body cannot be decoded")
async def wrong_types_cannot_be_decoded(ground: Ground) -> None:
    answer = await ground.http.call("POST", ground.jobs, job(parallelism="two"))
    answer.refused(400, "BadRequest", "json: cannot unmarshal string into Go struct field")
    answer = await ground.http.call("POST", ground.maps, {"metadata": {"name": "m"}, "data": {"a": 1}})
    answer.refused(400, "BadRequest")
    answer = await ground.http.call("POST", ground.maps, b"{not json")
    answer.refused(400, "BadRequest")
    other = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "m"}}
    (await ground.http.call("POST", ground.maps, other)).refused(400, "BadRequest", "Secret")


@check("unknown_fields", cites=f"{VALIDATION}: unknown fields are dropped with a warning")
async def unknown_fields_are_dropped(ground: Ground) -> None:
    document = pod()
    document["spec"]["replicas"] = 3
    answer = await ground.http.call("POST", ground.pods, document)
    assert "replicas" not in answer.ok(201)["spec"]
    assert r"unknown field \"spec.replicas\"" in answer.headers.get("Warning", ""), answer.headers


@check("field_warnings", cites=f"{API}#warnings: what is taken although it is hardly meant is warned of")
async def what_is_hardly_meant_is_warned_of(ground: Ground) -> None:
    document = pod(schedulerName="nobody")
    document["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    answer = await ground.http.call("POST", ground.pods, document, fieldValidation="Strict")
    answer.ok(201)
    words = r'299 - "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped'
    assert words in answer.headers.get("Warning", ""), answer.headers


@check("strict_fields", cites=f"{VALIDATION}: fieldValidation=Strict refuses them")
async def unknown_fields_are_refused_on_request(ground: Ground) -> None:
    document = job(workers=3)
    answer = await ground.http.call("POST", ground.jobs, document, fieldValidation="Strict")
    answer.refused(400, "BadRequest", 'strict decoding error: unknown field "spec.workers"')


@check("built_in_defaults", cites=f"{API}: defaults are stored and sent back; {REFERENCE}")
async def defaults_are_filled_in(ground: Ground) -> None:
    found = (await ground.create(ground.pods, pod(schedulerName="nobody")))["spec"]
    assert found.get("restartPolicy") == "Always" and found["terminationGracePeriodSeconds"] == 30
    assert found["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    made = await ground.create(ground.jobs, job())
    spec, uid = made["spec"], made["metadata"]["uid"]
    assert (spec["backoffLimit"], spec["completions"], spec["parallelism"]) == (6, 1, 1)
    assert spec["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": uid}
    assert spec["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "job"
    service = {"metadata": {"name": "svc"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    found = (await ground.create(ground.path("services"), service))["spec"]
    assert found["type"] == "ClusterIP" and found["clusterIPs"] == ["None"]


@check("pod_validation", cites=f"{REFERENCE}workload-resources/pod-v1/: what a Pod needs")
async def bad_pods_are_refused(ground: Ground) -> None:
    image = pod()["spec"]["containers"][0]
    mount = {"name": "nowhere", "mountPath": "/x"}
    cases = {
        "spec.containers: Required value": {"containers": []},
        "spec.containers[0].image: Required value": {"containers": [{"name": "main"}]},
        "spec.containers[1].name: Duplicate value": {"containers": [image, image]},
        'spec.containers[0].volumeMounts[0].name: Not found: "nowhere"': {
            "containers": [{**image, "volumeMounts": [mount]}]
        },
        "spec.restartPolicy: Unsupported value": {"containers": [image], "restartPolicy": "Sometimes"},
        "spec.volumes[0].name: Invalid value": {
            "containers": [image],
            "volumes": [{"name": "Bad_Name", "emptyDir": {}}],
        },
        "spec.hostname: Invalid value": {"containers": [image], "hostname": "a.b"},
    }
    for words, spec in cases.items():
        answer = await ground.http.call("POST", ground.pods, {"metadata": {"name": "p"}, "spec": spec})
        answer.refused(422, "Invalid", words)


@check("pod_immutable", cites=f"{DOCS}concepts/workloads/pods/#pod-update-and-replacement")
async def pods_cannot_be_changed(ground: Ground) -> None:
    await ground.create(ground.pods, pod(schedulerName="nobody"))
    path = f"{ground.pods}/pod"
    answer = await ground.http.call("PATCH", path, {"spec": {"hostname": "other"}}, content_type=MERGE)
    answer.refused(422, "Invalid", "pod updates may not change fields other than")
    await ground.change(path, {"metadata": {"labels": {"a": "b"}}})
    await ground.change(path, {"spec": {"activeDeadlineSeconds": 60}})


@check(
    "job_validation",
    cites=f"{REFERENCE}workload-resources/job-v1/: what a Job needs",
)
async def bad_jobs_are_refused(ground: Ground) -> None:
    always = job()
    always["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    cases = {
        # 0 is taken: such a Job fails at once. Of a Pod it is refused.
        "spec.activeDeadlineSeconds: Invalid value: -1": job(activeDeadlineSeconds=-1),
        "spec.backoffLimit: Invalid value: -1": job(backoffLimit=-1),
        "spec.template.spec.restartPolicy: Unsupported value": always,
        "spec.template.spec.containers: Required value": job(
            template={"spec": {"restartPolicy": "Never", "containers": []}}
        ),
    }
    for words, document in cases.items():
        (await ground.http.call("POST", ground.jobs, document)).refused(422, "Invalid", words)
    await ground.create(ground.jobs, job(activeDeadlineSeconds=0))


@check("job_immutable", cites=f"{DOCS}concepts/workloads/controllers/job/#mutable-scheduling-directives")
async def jobs_can_be_directed_only_while_suspended(ground: Ground) -> None:
    path = f"{ground.jobs}/job"
    await ground.create(ground.jobs, job())
    directed = {"spec": {"template": {"spec": {"nodeSelector": {"zone": "none-such"}}}}}
    found = await ground.change(path, directed)
    assert found["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "none-such"}
    for patch, words in (
        ({"spec": {"template": {"spec": {"hostname": "x"}}}}, "spec.template: Invalid value"),
        ({"spec": {"selector": {"matchLabels": {"a": "b"}}}}, "spec.selector: Invalid value"),
        ({"spec": {"completions": 5}}, "spec.completions: Invalid value"),
    ):
        answer = await ground.http.call("PATCH", path, patch, content_type=MERGE)
        answer.refused(422, "Invalid", words)
    await ground.change(path, {"spec": {"suspend": False}})
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"zone": "other"}}}}}
    answer = await ground.http.call("PATCH", path, patch, content_type=MERGE)
    answer.refused(422, "Invalid", "field is immutable")


@check("object_size", cites=f"{DOCS}concepts/configuration/configmap/: no more than 1 MiB")
async def large_maps_are_refused(ground: Ground) -> None:
    body = {"metadata": {"name": "large"}, "data": {"a": "x" * (1024 * 1024 + 1)}}
    answer = await ground.http.call("POST", ground.maps, body)
    assert answer.status in (413, 422), answer.status
    body["data"] = {"a": "x" * (1024 * 1024 - 1000)}
    (await ground.http.call("POST", ground.maps, body)).ok(201)


@check(
    "secret_base64", cites=f"{DOCS}concepts/configuration/secret/#restriction-names-data: values are base64"
)
async def secrets_are_base64(ground: Ground) -> None:
    path = ground.path("secrets")
    bad = {"metadata": {"name": "bad"}, "data": {"a": "not base64!"}}
    (await ground.http.call("POST", path, bad)).refused(400, "BadRequest", "illegal base64 data")
    plain = {"metadata": {"name": "good"}, "stringData": {"a": "text"}}
    found = await ground.create(path, plain)
    assert found["data"] == {"a": base64.b64encode(b"text").decode()} and "stringData" not in found
    assert found["type"] == "Opaque"
    keys = {"metadata": {"name": "keys"}, "type": "kubernetes.io/ssh-auth", "data": {}}
    (await ground.http.call("POST", path, keys)).refused(
        422, "Invalid", "data[ssh-privatekey]: Required value"
    )


@check("quota", cites=f"{DOCS}concepts/policy/resource-quotas/: 403 with what was asked, used and allowed")
async def quotas_refuse(ground: Ground) -> None:
    path = ground.path("resourcequotas")
    await ground.create(path, {"metadata": {"name": "few"}, "spec": {"hard": {"count/jobs.batch": "1"}}})

    async def is_counted() -> bool:
        found = await ground.get(f"{path}/few")
        return ground.fake is not None or bool((found.get("status") or {}).get("hard"))

    await ground.until("the quota is counted", is_counted)
    await ground.create(ground.jobs, job("one"))
    answer = await ground.http.call("POST", ground.jobs, job("two"))
    answer.refused(
        403,
        "Forbidden",
        'jobs.batch "two" is forbidden: exceeded quota: few, requested: count/jobs.batch=1, '
        "used: count/jobs.batch=1, limited: count/jobs.batch=1",
    )

"""What Kubeflow Trainer makes of a TrainJob: its definitions, its plug-ins ``mpi`` and ``jobset``.

It follows kubeflow/trainer 8c0f505 (2.3): ``pkg/apis/trainer/v1alpha1/*_types.go`` for the definitions,
``pkg/runtime/core/trainingruntime.go`` for the number of Pods, resources and patches,
``pkg/runtime/framework/plugins/{mpi,jobset}`` for what is added and refused; and kubernetes-sigs/jobset
08dfbdf, ``pkg/webhooks/jobset_webhook.go`` and ``pkg/util/placement``, for names. Never compared with a
Trainer that runs; PodGroups, initializers and the variables of the other plug-ins are not here.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

Document = dict[str, Any]
API = "trainer.kubeflow.org/v1alpha1"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
RESERVED = {
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_plm_rsh_args",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
}
_FREE: Document = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _texts() -> Document:
    return {"type": "object", "additionalProperties": {"type": "string"}}


def _object(*required: str, **properties: Document) -> Document:
    found: Document = {"type": "object", "properties": properties}
    return found | ({"required": list(required)} if required else {})


def _list(item: Document, key: str = "") -> Document:
    by_key = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]} if key else {}
    return {"type": "array", "items": item, **by_key}


def _named() -> Document:
    return _list({**_FREE, "properties": {"name": {"type": "string"}}, "required": ["name"]}, "name")


_TEXT, _WHOLE = {"type": "string"}, {"type": "integer"}
_CONTAINER = _object("name", name=_TEXT, env=_named(), volumeMounts=_list(_FREE), securityContext=_FREE)
_ABOUT = _object(labels=_texts(), annotations=_texts())
_POD_PATCH = _object(
    serviceAccountName=_TEXT,
    volumes=_named(),
    initContainers=_list(_CONTAINER, "name"),
    containers=_list(_CONTAINER, "name"),
    imagePullSecrets=_named(),
    securityContext=_FREE,
    nodeSelector=_texts(),
    affinity=_FREE,
    tolerations=_list(_FREE),
    schedulingGates=_named(),
    terminationGracePeriodSeconds=_WHOLE,
)
_JOB_PATCH = _object(metadata=_ABOUT, spec=_object(template=_object(metadata=_ABOUT, spec=_POD_PATCH)))
_JOBSET_PATCH = _object(
    metadata=_ABOUT,
    spec=_object(replicatedJobs=_list(_object("name", name=_TEXT, template=_JOB_PATCH), "name")),
)
_SPEC = _object(
    "runtimeRef",
    runtimeRef=_object(
        "name",
        name=_TEXT,
        apiGroup={**_TEXT, "default": "trainer.kubeflow.org"},
        kind={**_TEXT, "default": "ClusterTrainingRuntime"},
    ),
    initializer=_FREE,
    trainer=_object(
        image=_TEXT,
        command=_list(_TEXT),
        args=_list(_TEXT),
        env=_named(),
        numNodes={**_WHOLE, "minimum": 0},
        resourcesPerNode=_FREE,
        numProcPerNode={**_WHOLE, "minimum": 1},
    ),
    runtimePatches=_list(
        _object("manager", manager=_TEXT, time=_TEXT, trainingRuntimeSpec=_object(template=_JOBSET_PATCH)),
        "manager",
    ),
    suspend={"type": "boolean", "default": False},
    activeDeadlineSeconds={**_WHOLE, "minimum": 1},
    managedBy={
        **_TEXT,
        "default": "trainer.kubeflow.org/trainjob-controller",
        "enum": ["trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue"],
    },
)
_TRAINJOB = _object(
    "spec", apiVersion=_TEXT, kind=_TEXT, metadata={"type": "object"}, spec=_SPEC, status=_FREE
)
_TRAINJOB["x-kubernetes-validations"] = [
    {
        "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "message": "metadata.name must match RFC 1035 DNS label format",
    }
]
_MPI = _object(
    numProcPerNode={**_WHOLE, "minimum": 1, "default": 1},
    mpiImplementation={**_TEXT, "default": "OpenMPI", "enum": ["OpenMPI", ""]},
    sshAuthMountPath={**_TEXT, "default": "/root/.ssh"},
    runLauncherAsNode={"type": "boolean", "default": False},
)
_RUNTIME = _object(
    apiVersion=_TEXT,
    kind=_TEXT,
    metadata={"type": "object"},
    spec=_object(
        mlPolicy=_object(numNodes=_WHOLE, torch=_FREE, mpi=_MPI, flux=_FREE, jax=_FREE, xgboost=_FREE),
        podGroupPolicy=_object(
            coscheduling=_object(scheduleTimeoutSeconds={**_WHOLE, "default": 60}), volcano=_FREE
        ),
        template=_object(metadata=_FREE, spec=_FREE),
    ),
)


def definitions() -> Iterator[Document]:
    """Yield the definitions of TrainJobs and runtimes, as far as they decide what is kept and refused."""
    for plural, kind, scope, schema in (
        ("trainjobs", "TrainJob", "Namespaced", _TRAINJOB),
        ("trainingruntimes", "TrainingRuntime", "Namespaced", _RUNTIME),
        ("clustertrainingruntimes", "ClusterTrainingRuntime", "Cluster", _RUNTIME),
    ):
        version = {
            "name": "v1alpha1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": copy.deepcopy(schema)},
            "subresources": {"status": {}},
        }
        names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.trainer.kubeflow.org"},
            "spec": {"group": "trainer.kubeflow.org", "names": names, "scope": scope, "versions": [version]},
        }


# The JobSet of a job


def jobset_of(job: Document, runtime: Document) -> Document:
    """Return the JobSet that Trainer makes of a job by its runtime. AssertionError for what it refuses."""
    spec, template = runtime["spec"], copy.deepcopy(runtime["spec"]["template"])
    policy = spec.get("mlPolicy") or {}
    trainer = job["spec"].get("trainer") or {}
    jobs = template["spec"]["replicatedJobs"]
    for patch in job["spec"].get("runtimePatches") or ():
        _patch(jobs, patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"])
    mpi = policy.get("mpi")
    counts = _counts(jobs, policy, trainer)
    leaders = [one for one in jobs if _leads(one)]
    as_node = [one for one in jobs if mpi and mpi.get("runLauncherAsNode") and one["name"] == "node"]
    for one in {id(one): one for one in (*leaders, *as_node)}.values():
        for container in _pod(one)["containers"]:
            if container["name"] == "node" and trainer.get("resourcesPerNode"):
                container["resources"] = copy.deepcopy(trainer["resourcesPerNode"])
            if container["name"] == "node":
                _upsert(container, "env", trainer.get("env") or ())
    for one in leaders:
        for container in _pod(one)["containers"]:
            if container["name"] == "node":
                given = ("image", "command", "args")
                container |= {key: trainer[key] for key in given if trainer.get(key) is not None}
    if mpi:
        _add_mpi(job, jobs, mpi, trainer)
    for one in jobs:
        one["template"]["spec"] |= dict.fromkeys(("parallelism", "completions"), counts[one["name"]])
    meta = {"name": job["metadata"]["name"], "namespace": job["metadata"].get("namespace", "default")}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta,
        "spec": {**template["spec"], "suspend": job["spec"].get("suspend", False)},
    }


def _leads(one: Document) -> bool:
    labels = one["template"].get("metadata", {}).get("labels", {})
    return bool(labels.get(ANCESTOR) == "trainer")


def _counts(jobs: list[Document], policy: Document, trainer: Document) -> dict[str, int]:
    """Return how many Pods each replicated Job has."""
    counts, mpi, nodes = {}, policy.get("mpi"), trainer.get("numNodes")
    for one in jobs:
        counts[one["name"]] = one["template"]["spec"].get("parallelism", 1)
        if _leads(one) and policy:
            assert one.get("replicas", 1) == 1, "always must be 1"
            assert "node" in [c["name"] for c in _pod(one)["containers"]], "must contain the container node"
            counts[one["name"]] = policy.get("numNodes", 1)
            if mpi is None and nodes is not None:
                counts[one["name"]] = nodes
    if mpi is None or nodes is None:
        return counts
    as_node = mpi.get("runLauncherAsNode")
    if "node" in counts:
        return counts | {"node": max(nodes - 1, 1) if as_node else nodes}
    assert nodes == 1 or not as_node, "must have 1"
    return counts


def _pod(one: Document) -> Document:
    found = one["template"]["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def _upsert(holder: Document, key: str, items: Any, by: str = "name") -> None:
    found = {one[by]: one for one in holder.get(key) or ()}
    found |= {one[by]: copy.deepcopy(one) for one in items}
    if found:
        holder[key] = list(found.values())


def _patch(jobs: list[Document], patches: list[Document]) -> None:
    """Merge as a strategic merge patch does, as far as patches may say anything."""
    for patch in patches:
        (one,) = [one for one in jobs if one["name"] == patch["name"]]
        inner = patch["template"]["spec"]["template"]
        pod, spec = one["template"]["spec"]["template"], _pod(one)
        for key, texts in (inner.get("metadata") or {}).items():
            pod.setdefault("metadata", {}).setdefault(key, {}).update(texts)
        for key, value in (inner.get("spec") or {}).items():
            if key == "containers":
                for given in value:
                    (container,) = [c for c in spec["containers"] if c["name"] == given["name"]]
                    assert not given.get("env"), "must not have envs for the node container"
                    _upsert(container, "volumeMounts", given.get("volumeMounts") or (), "mountPath")
                    if given.get("securityContext"):
                        container.setdefault("securityContext", {}).update(given["securityContext"])
            elif key in ("volumes", "imagePullSecrets", "schedulingGates"):
                _upsert(spec, key, value)
            elif isinstance(value, Mapping):
                spec.setdefault(key, {}).update(value)
            else:
                spec[key] = value


def _add_mpi(job: Document, jobs: list[Document], mpi: Document, trainer: Document) -> None:
    bad = {one["name"] for one in trainer.get("env") or ()} & RESERVED
    assert not bad, f"must not have reserved envs, invalid envs configured: {sorted(bad)}"
    name = job["metadata"]["name"]
    slots = trainer.get("numProcPerNode", mpi.get("numProcPerNode", 1))
    for one in jobs:
        if one["name"] not in ("node", "launcher"):
            continue
        spec = _pod(one)
        files = [("ssh-privatekey", "id_rsa", 0o640), ("ssh-publickey", "id_rsa.pub", 0o644)]
        files.append(("ssh-publickey", "authorized_keys", 0o644))
        items = [{"key": key, "path": path, "mode": mode} for key, path, mode in files]
        secret = {"secretName": f"{name}-mpi-ssh-auth", "defaultMode": 0o400, "items": items}
        volumes = [{"name": "mpi-ssh-auth", "secret": secret}]
        if one["name"] == "launcher":
            item = {"key": "hostfile", "path": "hostfile", "mode": 0o444}
            volumes.append(
                {"name": "mpi-hostfile", "configMap": {"name": f"{name}-mpi-hostfile", "items": [item]}}
            )
        _upsert(spec, "volumes", volumes)
        for container in spec["containers"]:
            if container["name"] != "node":
                continue
            path = mpi.get("sshAuthMountPath", "/root/.ssh")
            _upsert(container, "volumeMounts", [{"name": "mpi-ssh-auth", "mountPath": path}])
            if one["name"] == "launcher":
                _upsert(container, "volumeMounts", [{"name": "mpi-hostfile", "mountPath": "/etc/mpi"}])
                values = ("/etc/mpi/hostfile", "-o ConnectionAttempts=10", "true", str(slots))
                keys = ("orte_default_hostfile", "plm_rsh_args", "orte_keep_fqdn_hostnames")
                names = (*keys, "orte_set_default_slots")
                pairs = zip(names, values, strict=True)
                env = [{"name": f"OMPI_MCA_{key}", "value": value} for key, value in pairs]
                _upsert(container, "env", env)


def hostfile_of(job: Document, runtime: Document) -> str:
    """Return the hostfile that the plug-in writes for Open MPI."""
    mpi, name = runtime["spec"]["mlPolicy"]["mpi"], job["metadata"]["name"]
    slots = (job["spec"].get("trainer") or {}).get("numProcPerNode", mpi.get("numProcPerNode", 1))
    lines = []
    for one in jobset_of(job, runtime)["spec"]["replicatedJobs"]:
        if one["name"] == "node" or (one["name"] == "launcher" and mpi.get("runLauncherAsNode")):
            for index in range(one["template"]["spec"]["parallelism"]):
                lines.append(f"{name}-{one['name']}-0-{index}.{name} slots={slots}\n")
    return "".join(lines)


def pods_of(jobset: Document) -> dict[str, Document]:
    """Return the Pods of a JobSet by name; AssertionError for what JobSet or the API server refuses."""
    jobs, name, seen = jobset["spec"]["replicatedJobs"], jobset["metadata"]["name"], set()
    found = {}
    assert "dependsOn" not in jobs[0], "DependsOn can't be set for the first ReplicatedJob"
    for one in jobs:
        for other in one.get("dependsOn") or ():
            assert other["name"] in seen, f"{one['name']} cannot depend on {other['name']}"
        seen.add(one["name"])
        template, spec = one["template"]["spec"]["template"], _pod(one)
        volumes = [volume["name"] for volume in spec.get("volumes") or ()]
        assert len(set(volumes)) == len(volumes), volumes
        for container in (*spec["containers"], *(spec.get("initContainers") or ())):
            for key, by in (("env", "name"), ("volumeMounts", "mountPath")):
                names = [item[by] for item in container.get(key) or ()]
                assert len(set(names)) == len(names), (container["name"], key, names)
            mounts = {mount["name"] for mount in container.get("volumeMounts") or ()}
            assert mounts <= set(volumes), mounts - set(volumes)
        for index in range(one["template"]["spec"]["parallelism"]):
            host = f"{name}-{one['name']}-0-{index}"
            assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", host) and len(host) + 6 <= 63, host
            labels = {
                **(template.get("metadata") or {}).get("labels", {}),
                "jobset.sigs.k8s.io/jobset-name": name,
                "jobset.sigs.k8s.io/replicatedjob-name": one["name"],
                "batch.kubernetes.io/job-completion-index": str(index),
            }
            found[f"{host}-abcde"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{host}-abcde",
                    "labels": labels,
                    "annotations": (template.get("metadata") or {}).get("annotations", {}),
                },
                "spec": {**copy.deepcopy(spec), "hostname": host, "subdomain": name},
            }
    return found

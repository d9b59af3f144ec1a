"""An MPIJob becomes a TrainJob of Kubeflow Trainer v2: its runtime, and what is different there. Pure.

Trainer's plug-in ``mpi`` draws one key pair and writes a hostfile; JobSet makes the Pods. Pods are made of
the templates that our operator would make (`launcher_and_workers`), with Trainer's names. Facts that decide
what is written (kubeflow/trainer 8c0f505: pkg/runtime/framework/plugins/{mpi,jobset,volcano,coscheduling}):

* The launcher has the label ``trainjob-ancestor-step: trainer``: as many Pods as ``mlPolicy.numNodes`` are
  made of it, so that is 1 and the TrainJob has the number of nodes.
* The plug-in sets variables of Open MPI 4 alone; Open MPI 5 would start every rank in the launcher.
* Its mount of the private key is readable for a group, which ssh of root refuses; we mount the Secret again.
* PodGroups count the launcher: one that waits by ``dependsOn`` until the nodes are ready would never start.
* Containers are kept by name and their variables too: the last of two with one name counts, as in a Pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ringleader.errors import Fault, refuse
from ringleader.kubernetes.mpijob import annotations as notes
from ringleader.kubernetes.mpijob import train_job
from ringleader.kubernetes.mpijob.conversion import Change
from ringleader.kubernetes.mpijob.field_schema import fields_of
from ringleader.kubernetes.mpijob.model import (
    CleanPodPolicy,
    ManagedBy,
    MpiImplementation,
    MPIJob,
    SchedulingPolicy,
    Spec,
)
from ringleader.kubernetes.mpijob.object_metadata import (
    JOB_NAME,
    JOB_ROLE,
    JOBSET_NAME,
    JOBSET_ROLE,
    LAUNCHER,
    OPERATOR_NAME,
    REPLICA_INDEX,
    WORKER,
    WORKERS,
    Document,
)
from ringleader.kubernetes.mpijob.train_job import NODE, TrainJob
from ringleader.kubernetes.objects import init_containers, service_and_config_map, ssh_secret
from ringleader.kubernetes.objects.exec_spawn import is_exec
from ringleader.kubernetes.objects.gang_scheduling import KUBERNETES, VOLCANO, VOLCANO_QUEUE, gang_of
from ringleader.kubernetes.objects.launcher_and_workers import failure_policy, launcher_template, worker_pod
from ringleader.kubernetes.objects.operator_settings import OperatorSettings

KEYS_PATH = "/etc/trainer-ssh"
"""Where the plug-in mounts the keys; ours are where ssh looks for them."""
HOSTFILE_VOLUME = "mpi-hostfile"
"""Volume that the plug-in adds to the launcher."""
LISTENS = ("grep", "-qs", " 0A ", "/proc/net/tcp", "/proc/net/tcp6")
"""Says whether anything in a Pod listens: only the image knows at which port its sshd does."""
KEYS_SECRET = "{}-mpi-ssh-auth"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
MANAGER = "ringleader/submit"
"""Manager of our patches of a runtime that exists."""
_OURS = (OPERATOR_NAME, JOB_NAME, JOB_ROLE, REPLICA_INDEX)
"""Labels by which an operator of MPIJobs takes a Pod for its own."""
_THEIRS = {JOB_NAME: JOBSET_NAME, JOB_ROLE: JOBSET_ROLE}
"""Labels in selectors → what JobSet calls them."""
_WITH_HOSTS = ("command", "args", "value", "hostnames")
"""Fields of a Pod in which host names are."""
_PATCHED = (
    *("serviceAccountName", "imagePullSecrets", "nodeSelector", "affinity", "tolerations"),
    *("securityContext", "volumes", "terminationGracePeriodSeconds"),
)
"""Fields of a Pod that a TrainJob may patch in a runtime."""
_GIVEN = ("name", "image", "command", "args", "env", "resources", "volumeMounts", "securityContext")
"""Fields of a container that a TrainJob may give or patch."""
_ON_ALL_NODES = ("command", "args", "env")
"""Of these, what workers cannot have otherwise than the launcher."""
_OF_GROUPS = {"minAvailable", "minResources", "priorityClass"}
"""Fields of a scheduling policy that Trainer's groups have not."""


def train_job_of(
    job: MPIJob, settings: OperatorSettings, *, runtime: str = ""
) -> tuple[TrainJob, tuple[Change, ...]]:
    """Return the TrainJob of an MPIJob, and what is different there. RequestError with what cannot be.

    ``runtime``: a ClusterTrainingRuntime that exists and decides what is not the TrainJob's to say; without
    one, a TrainingRuntime of the job's name is made that says all of it. With the operator's image in
    ``settings`` the launcher waits in an init container, else by JobSet's ``dependsOn``.
    """
    refuse([Fault(where=one, what=what, hint=to) for one, what, to in _impossible(job, settings, runtime)])
    name, policy = job.metadata.name, job.spec.run_policy
    kept = {key: text for key, text in job.metadata.annotations.items() if not key.startswith(notes.PREFIX)}
    nodes = job.workers + (job.spec.run_launcher_as_worker or not job.workers)
    trainer: Document = {"numNodes": nodes, "numProcPerNode": job.spec.slots_per_worker}
    reference = {"apiGroup": train_job.GROUP, "kind": train_job.RUNTIME, "name": name}
    patches: list[Document] = []
    own = None
    if runtime:
        reference |= {"kind": train_job.CLUSTER_RUNTIME, "name": runtime}
        trainer |= _trained(job)
        patches = _patches(job)
    else:
        template = launcher_pod(job, settings)
        first = template["spec"]["containers"][0]
        trainer["image"] = first["image"]
        trainer |= {key: first.pop(key) for key in ("command", "args") if first.get(key)}
        worker = None if job.spec.mpi_replica_specs.worker is None else node_pod(job, settings)
        if gang := gang_of(job, settings):
            for pod in (template, worker) if worker else (template,):
                pod["spec"]["schedulerName"] = gang
        own = runtime_spec(job, settings, launcher=template, worker=worker)
    spec = {
        "runtimeRef": reference,
        "trainer": trainer,
        "runtimePatches": patches,
        "suspend": policy.suspend,
        "activeDeadlineSeconds": policy.active_deadline_seconds,
        "managedBy": str(ManagedBy.MULTIKUEUE) if policy.managed_by is ManagedBy.MULTIKUEUE else None,
    }
    made = TrainJob(
        metadata=replace(job.metadata, annotations={**kept, WORKERS: str(job.workers)}),
        spec={key: value for key, value in spec.items() if value},
        runtime=own,
    )
    return made, tuple(
        Change(where=one, what=what, is_lost=lost) for one, what, lost in _changes(job, settings, runtime)
    )


def runtime_spec(
    job: MPIJob, settings: OperatorSettings, *, launcher: Document, worker: Document | None
) -> Document:
    """Return the spec of a job's TrainingRuntime, of the Pod templates of its two kinds of Pods."""
    policy, gang = job.spec.run_policy, gang_of(job, settings)
    scheduling = policy.scheduling_policy or SchedulingPolicy()
    mpi = {
        "numProcPerNode": job.spec.slots_per_worker,
        "mpiImplementation": str(job.spec.mpi_implementation),
        "sshAuthMountPath": KEYS_PATH,
        "runLauncherAsNode": job.spec.run_launcher_as_worker or worker is None,
    }
    jobs: list[Document] = []
    if worker is not None:
        # Any node's end ends the job: the ranks on the others cannot continue without it.
        tries = {"backoffLimit": 0, "parallelism": job.workers, "completions": job.workers}
        jobs.append({"name": NODE, "replicas": 1, "template": {"spec": {**tries, "template": worker}}})
    waits = worker is not None and not settings.image and not gang
    limit = {} if policy.backoff_limit is None else {"backoffLimit": policy.backoff_limit}
    jobs.append(
        {
            "name": LAUNCHER,
            "replicas": 1,
            **({"dependsOn": [{"name": NODE, "status": "Ready"}]} if waits else {}),
            "template": {
                "metadata": {"labels": {ANCESTOR: "trainer"}},
                "spec": {**limit, **failure_policy(launcher), "template": launcher},
            },
        }
    )
    queue = scheduling.queue or job.metadata.annotations.get(VOLCANO_QUEUE, "")
    ttl, timeout = policy.ttl_seconds_after_finished, scheduling.schedule_timeout_seconds
    plugin = {} if gang == VOLCANO or timeout is None else {"scheduleTimeoutSeconds": timeout}
    groups = {VOLCANO if gang == VOLCANO else "coscheduling": plugin}
    return {
        "mlPolicy": {"numNodes": 1, "mpi": mpi},
        **({"podGroupPolicy": groups} if gang else {}),
        "template": {
            **({"metadata": {"annotations": {VOLCANO_QUEUE: queue}}} if gang == VOLCANO and queue else {}),
            "spec": {
                "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                "successPolicy": {"operator": "All", "targetReplicatedJobs": [LAUNCHER]},
                "failurePolicy": {"maxRestarts": 0},
                **({} if ttl is None else {"ttlSecondsAfterFinished": ttl}),
                "replicatedJobs": jobs,
            },
        },
    }


def launcher_pod(job: MPIJob, settings: OperatorSettings) -> Document:
    """Return the template of the launcher's Pods, with Trainer's names."""
    pod = launcher_template(_as_built(job), settings)
    return _as_trainer_makes_it(pod, job, LAUNCHER)


def node_pod(job: MPIJob, settings: OperatorSettings) -> Document:
    """Return the template of the nodes' Pods, with Trainer's names; ready once sshd answers."""
    built = _as_built(job)
    pod = worker_pod(built, 0, settings)
    given = job.spec.mpi_replica_specs.worker
    assert given is not None, "a job without workers has no node"
    spec, first, ports = pod["spec"], pod["spec"]["containers"][0], init_containers.ssh_ports(built)[:1]
    dns = given.template["spec"].get("dnsConfig")  # the search domain that Hydra needs is not Open MPI's
    spec.pop("dnsConfig")
    if dns:
        spec["dnsConfig"] = dns
    theirs = given.template["spec"]["containers"][0]
    if not theirs.get("command") and not theirs.get("args"):
        # One key pair is in all Pods: with it as host key the image needs none of its own.
        words = [*ssh_secret.sshd_args(job), *(word for port in ports for word in ("-p", str(port)))]
        first |= {"command": list(ssh_secret.SSHD), "args": words}
    if not first.get("readinessProbe"):
        asked = {"tcpSocket": {"port": ports[0]}} if ports else {"exec": {"command": list(LISTENS)}}
        first["readinessProbe"] = {**asked, "periodSeconds": 2}
    return _as_trainer_makes_it(pod, job, WORKER)


def _as_built(job: MPIJob) -> MPIJob:
    """Return the job whose Pods our operator would make: one key pair for all, in no gang of its own."""
    own = {notes.SSH_LAYOUT: notes.SSH_LAYOUT_REFERENCE, notes.GANG: "none", notes.SPAWN: notes.SPAWN_SSH}
    return replace(job, metadata=replace(job.metadata, annotations={**job.metadata.annotations, **own}))


def _as_trainer_makes_it(pod: Document, job: MPIJob, role: str) -> Document:
    """Return a Pod of ours as a template of a runtime: JobSet gives names, the plug-in hostfile and keys."""
    spec, metadata = pod["spec"], pod["metadata"]
    for name in ("hostname", "subdomain"):
        spec.pop(name, None)
    keys, hosts = ssh_secret.files(_as_built(job), role), service_and_config_map.VOLUME
    keys["secret"]["secretName"] = KEYS_SECRET.format(job.metadata.name)
    spec["volumes"] = [one for one in spec["volumes"] if one["name"] not in (ssh_secret.VOLUME, hosts)]
    spec["volumes"].append({"name": ssh_secret.VOLUME, **keys})
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for mount in container.get("volumeMounts") or ():
            mount["name"] = HOSTFILE_VOLUME if mount["name"] == hosts else mount["name"]
        if container.get("env"):
            container["env"] = list({one["name"]: one for one in container["env"]}.values())
    first = spec["containers"][0]
    first["name"] = NODE
    if role == LAUNCHER:  # the plug-in mounts it there by itself
        first["volumeMounts"] = [one for one in first["volumeMounts"] if one["name"] != HOSTFILE_VOLUME]
    labels = {name: text for name, text in metadata["labels"].items() if name not in _OURS}
    found = {"metadata": {"labels": labels}, "spec": spec}
    found["metadata"] |= {key: metadata[key] for key in ("annotations",) if metadata.get(key)}
    return dict(_renamed(found, job))


def _renamed(value: Any, job: MPIJob, field: str = "") -> Any:
    """Return JSON in which an MPIJob's host names, and labels in selectors, are those of a TrainJob.

    Only what is run or told has host names: an image, a volume or a path may be called alike.
    Ranks meet on the host of rank 0, which is node 0 where there are nodes: they come before the launcher.
    """
    name = job.metadata.name
    if isinstance(value, Mapping):
        is_key = "value" in value and "name" not in value  # a toleration
        found = {
            _THEIRS.get(key, key): one if is_key else _renamed(one, job, key) for key, one in value.items()
        }
        found |= {JOBSET_ROLE: NODE} if value.get(JOB_ROLE) == WORKER else {}
        if found.get("name") == "MASTER_ADDR" and job.workers and isinstance(found.get("value"), str):
            found["value"] = found["value"].replace(f"{name}-{LAUNCHER}-0-0", f"{name}-{NODE}-0-0")
        return found
    if isinstance(value, list | tuple):
        return [_renamed(one, job, field) for one in value]
    if not isinstance(value, str) or field not in _WITH_HOSTS:
        return value
    here = rf"(?<![\w-]){re.escape(name)}"
    value = re.sub(rf"{here}-worker-(\d+)(?![\w-])", rf"{name}-{NODE}-0-\1", value)
    return re.sub(rf"{here}-launcher(?![\w-])", f"{name}-{LAUNCHER}-0-0", value)


# In a runtime that exists


def _trained(job: MPIJob) -> Document:
    """Return what a job trains in a runtime that exists, as ``spec.trainer`` says it."""
    (first,) = job.spec.mpi_replica_specs.launcher.template["spec"]["containers"]
    found = {key: first[key] for key in ("image", "command", "args") if first.get(key)}
    for key, called in (("env", "env"), ("resources", "resourcesPerNode")):
        found |= {called: first[key]} if first.get(key) else {}
    return dict(_renamed(found, job))


def _patches(job: MPIJob) -> list[Document]:
    """Return our patch of a runtime's Pods, where there is one; what it cannot say, `_impossible` refuses."""
    specs = job.spec.mpi_replica_specs
    assert specs.worker is not None, "such a job has nodes"
    jobs = []
    for name, template in ((NODE, specs.worker.template), (LAUNCHER, specs.launcher.template)):
        spec, metadata = template["spec"], template.get("metadata") or {}
        pod: Document = {key: spec[key] for key in _PATCHED if spec.get(key)}
        first = spec["containers"][0]
        inside = {key: first[key] for key in ("volumeMounts", "securityContext") if first.get(key)}
        pod |= {"containers": [{"name": NODE, **inside}]} if inside else {}
        about = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
        given = {key: value for key, value in (("metadata", about), ("spec", _renamed(pod, job))) if value}
        if given:
            jobs.append({"name": name, "template": {"spec": {"template": given}}})
    template = {"spec": {"replicatedJobs": jobs}}
    return [{"manager": MANAGER, "trainingRuntimeSpec": {"template": template}}] if jobs else []


# What cannot be, and what becomes different

Found = Iterator[tuple[str, str, str]]
"""Faults: field path, what is wrong, what to do."""


def _impossible(job: MPIJob, settings: OperatorSettings, runtime: str) -> Found:
    """Yield what Trainer cannot do of a job."""
    name, spec = job.metadata.name, job.spec
    if not name:
        yield "metadata.name", "missing: a runtime needs a name that is known", "--job-name, or edit the file"
    elif (fault := train_job.fault_of_name(name, job.workers)) is not None:
        yield ("metadata.name", *fault)
    if spec.mpi_implementation is not MpiImplementation.OPENMPI:
        what = f"{spec.mpi_implementation}: Kubeflow Trainer starts Open MPI alone"
        yield "spec.mpiImplementation", what, "--as mpijob"
    if job.elastic:
        what = "a TrainJob keeps its number of nodes: it cannot be elastic"
        yield f"metadata.annotations[{notes.MIN_WORKERS}]", what, "--as mpijob"
    if spec.slots_per_worker < 1:
        yield "spec.slotsPerWorker", "0: a TrainJob's numProcPerNode is at least 1", ""
    if spec.run_policy.active_deadline_seconds == 0:
        yield "spec.runPolicy.activeDeadlineSeconds", "0: a TrainJob's is at least 1", ""
    gang = gang_of(job, settings)
    if gang == KUBERNETES:
        what = "kubernetes: Kubeflow Trainer makes groups of Volcano and of coscheduling alone"
        yield f"metadata.annotations[{notes.GANG}]", what, "--gang volcano"
    elif gang and job.workers and not settings.image and not runtime:
        what = f"{gang} starts all Pods together, so the launcher cannot be made when the nodes are ready"
        yield f"metadata.annotations[{notes.GANG}]", what, "--operator-image: it waits in its Pod"
    if runtime:
        if settings.image:
            yield "--operator-image", "the runtime makes the launcher's Pod", "leave it out"
        yield from _impossible_in_a_runtime(job, gang)


def _impossible_in_a_runtime(job: MPIJob, gang: str) -> Found:
    """Yield what a TrainJob cannot say where the runtime exists."""
    specs, alone = job.spec.mpi_replica_specs, "leave out --runtime: then a runtime is made for the job"
    if specs.worker is None:
        what = "a runtime of MPI makes a node beside the launcher: a job of one node would be two Pods"
        yield "spec.mpiReplicaSpecs[Worker]", what, alone
        return
    if not job.spec.run_launcher_as_worker:
        what = "false: resources and variables reach the nodes only where the launcher is one of them"
        yield "spec.runLauncherAsWorker", what, "true; the runtime has mlPolicy.mpi.runLauncherAsNode: true"
    if gang:
        what = "the runtime's podGroupPolicy decides about gangs"
        yield f"metadata.annotations[{notes.GANG}]", what, alone
    policy = job.spec.run_policy
    odd = [
        f"metadata.annotations[{name}]"
        for name in job.metadata.annotations
        if name.startswith((notes.RDMA, notes.CHECK))
    ]
    odd += ["spec.runPolicy.backoffLimit (--backoff-limit)"] if policy.backoff_limit else []
    ttl = policy.ttl_seconds_after_finished
    odd += [] if ttl is None else ["spec.runPolicy.ttlSecondsAfterFinished (--ttl)"]
    odd += ["spec.sshAuthMountPath"] if job.spec.ssh_auth_mount_path != Spec.ssh_auth_mount_path else []
    pods = {"Launcher": specs.launcher.template["spec"], "Worker": specs.worker.template["spec"]}
    for kind, spec in pods.items():
        where, first = f"spec.mpiReplicaSpecs[{kind}].template.spec", spec["containers"][0]
        own = () if kind == "Launcher" else _ON_ALL_NODES
        odd += [f"{where}.{key}" for key in spec if key not in (*_PATCHED, "containers", "restartPolicy")]
        odd += [f"{where}.containers[{index}]" for index in range(1, len(spec["containers"]))]
        odd += [f"{where}.containers[0].{key}" for key in first if key not in _GIVEN or key in own]
        mounted = [one.get("name") for one in first.get("volumeMounts") or ()]
        for one in {one for one in mounted if mounted.count(one) > 1}:
            what = f"a second mount of the volume {one}: a TrainJob's patch has one for each"
            yield f"{where}.containers[0].volumeMounts", what, alone
    yield from ((one, "the runtime decides it", alone) for one in odd)
    first, second = (spec["containers"][0] for spec in pods.values())
    for key in ("image", "resources"):
        if first.get(key) != second.get(key):
            what = f"not that of the launcher, {first.get(key)}: a TrainJob has one {key} for all nodes"
            yield f"spec.mpiReplicaSpecs[Worker].template.spec.containers[0].{key}", what, alone


def _changes(job: MPIJob, settings: OperatorSettings, runtime: str) -> Iterator[tuple[str, str, bool]]:
    """Yield what is different in the TrainJob: field path, what became of it, whether it is lost."""
    name, policy, said = job.metadata.name, job.spec.run_policy, job.metadata.annotations
    yield "apiVersion", f"is now {train_job.API_VERSION}", False
    what = f"are now {name}-{LAUNCHER}-0-0 and {name}-{NODE}-0-0 … in host names, commands and variables"
    yield "names of Pods", what, False
    what = "jobset.sigs.k8s.io/jobset-name and replicatedjob-name are in place of training.kubeflow.org/*"
    yield "labels of Pods", what, False
    if job.spec.run_launcher_as_worker and job.workers:
        what = "is mlPolicy.mpi.runLauncherAsNode; the launcher is the last host, so rank 0 is on node 0"
        yield "spec.runLauncherAsWorker", what, False
    if policy.clean_pod_policy is CleanPodPolicy.NONE:
        what = "None: JobSet ends and removes the nodes' Pods once the launcher has succeeded"
        yield "spec.runPolicy.cleanPodPolicy", what, True
    if policy.ttl_seconds_after_finished is not None:
        what = "deletes only the JobSet and its Pods; the TrainJob and its runtime are kept"
        yield "spec.runPolicy.ttlSecondsAfterFinished", what, True
    for field in set(fields_of(policy.scheduling_policy or SchedulingPolicy())) & _OF_GROUPS:
        what = "dropped: Trainer counts all Pods, and takes the priority class of their templates"
        yield f"spec.runPolicy.schedulingPolicy.{field}", what, True
    if is_exec(job):
        what = "exec: Trainer has ssh alone, so the image needs sshd and ssh"
        yield f"metadata.annotations[{notes.SPAWN}]", what, True
    what = "dropped: Trainer draws one ECDSA key pair for all Pods of a job"
    for one in (notes.SSH_KEY_TYPE, notes.SSH_LAYOUT):
        if one in said:
            yield f"metadata.annotations[{one}]", what, True
    what = "dropped: if a node fails, the job fails and isn't restarted"
    for one in (notes.ON_WORKER_FAILURE, notes.RESTART_LIMIT):
        if said.get(one, notes.FAIL) != notes.FAIL:
            yield f"metadata.annotations[{one}]", what, True
    waits = [one for one in (notes.WAIT_FOR_WORKERS, notes.WAIT_LIMIT) if one in said]
    for one in () if settings.image else waits:
        what = "dropped: JobSet makes the launcher when all nodes are ready (dependsOn)"
        what = "dropped: the runtime decides it" if runtime else what
        yield f"metadata.annotations[{one}]", what, True

"""Every object that an MPIJob becomes: whole documents as goldens, each rule as a row."""

import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mpijobs import mpijob

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.parser import read, write
from ringleader.kubernetes.mpijob.quantities import total
from ringleader.kubernetes.mpijob.yaml_text import text_of
from ringleader.kubernetes.objects import exec_spawn, init_containers, job_validation, ssh_secret
from ringleader.kubernetes.objects.gang_scheduling import gang_of, min_member, min_resources, pod_group
from ringleader.kubernetes.objects.init_containers import ssh_ports
from ringleader.kubernetes.objects.launcher_and_workers import launcher_job, worker_pod
from ringleader.kubernetes.objects.operator_settings import OperatorSettings, domain_of_search
from ringleader.kubernetes.objects.service_and_config_map import (
    config_map,
    discover_hosts_text,
    hostfile_text,
    service,
)
from ringleader.plan.host_list import parse_hostfile

GOLDEN = Path(__file__).parent.parent / "golden" / "kubernetes"
SETTINGS = OperatorSettings(image="ringleader-operator:1", has_exec_spawn=True)
PLAIN = OperatorSettings()
EXEC = {"ringleader/spawn": "exec"}
REFERENCE = {"ringleader/ssh-layout": "reference"}
COMMAND = ["mpirun", "-n", "4", "python", "train.py"]


def job_of(
    annotations: Mapping[str, str] | None = None, *, launcher: Mapping[str, Any] | None = None, **more: Any
) -> MPIJob:
    """A job of two slots a worker; containers and Pods with what is given besides."""
    meta = {"namespace": "team", "uid": "7c2a", "annotations": dict(annotations or {})}
    command = {"command": COMMAND, **(launcher or {})}
    return read(mpijob(image="train:1", launcher=command, metadata=meta, **{"slotsPerWorker": 2, **more}))


def documents(job: MPIJob, settings: OperatorSettings = SETTINGS) -> list[dict[str, Any]]:
    """All objects of a job with its last worker."""
    group = pod_group(job, gang_of(job, settings), {})
    found = [service(job), config_map(job, range(job.workers), settings), *([group] if group else [])]
    if exec_spawn.is_exec(job):
        pods = [f"{job.metadata.name}-worker-{index}" for index in range(job.workers)]
        found += [exec_spawn.service_account(job), exec_spawn.role(job, pods), exec_spawn.role_binding(job)]
    else:
        found.append(ssh_secret.secret(job))
    if job.workers:
        found.append(worker_pod(job, job.workers - 1, settings))
    return [*found, launcher_job(job, settings, suspend=False)]


GPU = {"resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "3500m", "memory": "1536Mi"}}}
JOBS = {
    "openmpi": job_of(worker=GPU, runPolicy={"ttlSecondsAfterFinished": 60, "backoffLimit": 2}),
    "intel": job_of(mpiImplementation="Intel"),
    "mpich": job_of(mpiImplementation="MPICH"),
    "exec": job_of(EXEC),
    "reference-layout": job_of(REFERENCE, sshAuthMountPath="/home/mpiuser/.ssh"),
    "volcano": job_of({"ringleader/gang": "volcano"}, worker=GPU,
     runPolicy={"schedulingPolicy": {"queue": "research", "priorityClass": "high"}}),
    "gang-of-kubernetes": job_of({"ringleader/gang": "kubernetes"}, worker=GPU,
     runPolicy={"schedulingPolicy": {"priorityClass": "high"}}),
    "coscheduling": job_of({"ringleader/gang": "gangs"}, worker=GPU),
    "elastic": job_of({"ringleader/min-workers": "1", "ringleader/gang": "gangs"}),
    "launcher-as-worker": job_of(runLauncherAsWorker=True),
    "check": job_of({"ringleader/check": "quick", "ringleader/rdma-profile": "shared"}, worker=GPU,
     worker_pod={"initContainers": [{"name": "data", "image": "fetch:1"}]}, runLauncherAsWorker=True),
    "host-network": job_of(worker_pod={"hostNetwork": True, "dnsConfig": {"searches": ["example.com"]}},
     launcher_pod={"hostNetwork": True}, worker={"command": ["/usr/sbin/sshd", "-De", "-p", "2345"]},
     launcherCreationPolicy="WaitForWorkersReady"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(JOBS))
def test_whole_documents(name: str) -> None:
    text = text_of(documents(JOBS[name]))
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("RINGLEADER_RENEW_GOLDENS") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("version", ["1.29", pytest.param("1.33", marks=pytest.mark.long), "1.36"])
def test_kubernetes_takes_every_object(version: str) -> None:
    known = {"PodGroup"}  # not Kubernetes' own
    for job in JOBS.values():
        for chosen in (SETTINGS, PLAIN):
            if exec_spawn.is_exec(job) and chosen is PLAIN:
                continue
            for one in documents(job, chosen):
                if one["kind"] not in known and not _needs(one, "1.36", version):
                    kubernetes_validate.validate(one, version, strict=True)


def _needs(document: Any, since: str, version: str) -> bool:
    """Say whether a Pod belongs to a group of Kubernetes' own, which this version does not know yet."""
    pod = document["spec"]["template"] if document["kind"] == "Job" else document
    return version < since and "schedulingGroup" in pod.get("spec", {})


def test_kubernetes_takes_its_own_groups() -> None:
    for one in documents(JOBS["gang-of-kubernetes"]):
        kubernetes_validate.validate(one, "1.37", strict=True)


@pytest.mark.parametrize("name", list(JOBS))
def test_a_job_stays_what_it_was(name: str) -> None:
    before = deepcopy(write(JOBS[name]))
    for one in documents(JOBS[name]):
        one.clear()
    assert write(JOBS[name]) == before


def env_of(job: MPIJob, settings: OperatorSettings = SETTINGS) -> list[tuple[str, str]]:
    first = launcher_job(job, settings, suspend=False)["spec"]["template"]["spec"]["containers"][0]
    return [(one["name"], one["value"]) for one in first["env"]]


@pytest.mark.parametrize("mpi", ["OpenMPI", "Intel", "MPICH"])
def test_exec_needs_no_words_for_ssh(mpi: str) -> None:
    found = env_of(job_of(EXEC, mpiImplementation=mpi))
    assert "-o ConnectionAttempts=10" not in [value for _, value in found]
    assert any(value.startswith("/opt/ringleader/kubexec.sh") for _, value in found)


@pytest.mark.parametrize("mpi", ["OpenMPI", "Intel", "MPICH"])
def test_without_an_image_ssh_itself_is_called(mpi: str) -> None:
    job = job_of(mpiImplementation=mpi)
    assert not [value for _, value in env_of(job, PLAIN) if "ringleader" in value]
    pod = launcher_job(job, PLAIN, suspend=False)["spec"]["template"]["spec"]
    assert "initContainers" not in pod
    assert pod["containers"][0]["command"] == COMMAND


def test_one_key_everywhere_lets_daemons_start_each_other() -> None:
    assert not [name for name, _ in env_of(job_of(REFERENCE)) if "tree_spawn" in name]
    assert not [name for name, _ in env_of(job_of(REFERENCE, mpiImplementation="Intel")) if "BRANCH" in name]


def test_what_the_user_set_stands_first_and_ours_gives_way() -> None:
    mine = [
        {"name": "PRTE_MCA_plm_ssh_agent", "value": "/my/agent"},
        {"name": "OMPI_MCA_orte_set_default_slots", "value": "7"},
    ]
    found = env_of(job_of(launcher={"env": mine}))
    assert found[:2] == [("PRTE_MCA_plm_ssh_agent", "/my/agent"), ("OMPI_MCA_orte_set_default_slots", "7")]
    assert [value for name, value in found if name == "PRTE_MCA_plm_ssh_agent"] == ["/my/agent"]
    # Kubernetes takes the last one: the reference's variables win, as under the reference.
    assert [value for name, value in found if name.endswith("orte_set_default_slots")] == ["7", "2"]


@pytest.mark.parametrize("layout", [{}, REFERENCE])
def test_every_key_that_is_mounted_is_in_the_secret(layout: Mapping[str, str]) -> None:
    for role in ("launcher", "worker"):
        items = ssh_secret.files(job_of(layout), role)["secret"]["items"]
        assert {one["key"] for one in items} <= ssh_secret.keys(job_of(layout))


def test_a_private_key_that_opens_workers_is_in_no_worker() -> None:
    for job in (job_of(), job_of(worker={"command": ["sshd"]})):
        assert "ssh-privatekey" not in str(worker_pod(job, 0, SETTINGS))


@pytest.mark.parametrize(
    ("path", "mode"), [("/root/.ssh", 0o600), ("/home/mpiuser/.ssh", None), ("/root/.ssh/", None)]
)
def test_modes_of_keys(path: str, mode: int | None) -> None:
    job = job_of(sshAuthMountPath=path)
    assert ssh_secret.files(job, "worker")["secret"].get("defaultMode") == mode
    mounts = worker_pod(job, 0, SETTINGS)["spec"]["containers"][0]["volumeMounts"]
    assert path in [one["mountPath"] for one in mounts]


def test_the_workers_own_sshd_is_not_held_to_our_key() -> None:
    job = job_of(worker={"args": ["-De"]})
    items = ssh_secret.files(job, "launcher")["secret"]["items"]
    assert "known_hosts" not in [one["path"] for one in items]


@pytest.mark.parametrize(
    ("annotations", "worker", "command", "args"),
    [
        ({}, {}, ["/usr/sbin/sshd", "-De"], ["-h", "/root/.ssh/id_rsa", "-o", "StrictModes=no"]),
        (REFERENCE, {}, ["/usr/sbin/sshd", "-De"], None),
        (EXEC, {}, list(exec_spawn.SLEEP), None),
        (EXEC, {"args": ["x"]}, None, ["x"]),
        ({}, {"command": ["a"]}, ["a"], None),
        ({}, {"args": ["b"]}, None, ["b"]),
    ],
)
def test_what_a_worker_runs(
    annotations: Mapping[str, str], worker: Mapping[str, Any], command: Any, args: Any
) -> None:
    first = worker_pod(job_of(annotations, worker=worker), 0, SETTINGS)["spec"]["containers"][0]
    assert (first.get("command"), first.get("args")) == (command, args)
    assert first["env"] == [{"name": "K_MPI_JOB_ROLE", "value": "worker"}]


def test_a_workers_pod() -> None:
    template = {"restartPolicy": "Always", "subdomain": "x"}
    job = job_of(worker_pod=template)
    pod = worker_pod(job, 1, OperatorSettings(dns_domain="k8s.example"))
    assert pod["metadata"]["name"] == pod["spec"]["hostname"] == "train-worker-1"
    assert pod["spec"]["subdomain"] == "train"
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["dnsConfig"] == {"searches": ["train.team.svc.k8s.example"]}
    assert "dnsPolicy" not in pod["spec"]
    labels = pod["metadata"]["labels"]
    assert labels["training.kubeflow.org/replica-index"] == "1"
    assert labels["training.kubeflow.org/job-role"] == "worker"
    owner = pod["metadata"]["ownerReferences"]
    assert [(one["kind"], one["uid"], one["controller"]) for one in owner] == [("MPIJob", "7c2a", True)]


def test_the_launchers_job() -> None:
    policy = {"ttlSecondsAfterFinished": 0, "activeDeadlineSeconds": 9, "backoffLimit": 0}
    spec = launcher_job(job_of(runPolicy=policy), SETTINGS, suspend=True)["spec"]
    template = spec.pop("template")
    limits = {"activeDeadlineSeconds": 9, "backoffLimit": 0}
    assert spec == {**limits, "podReplacementPolicy": "Failed", "suspend": True}, "no time to live of its own"
    assert template["spec"]["restartPolicy"] == "OnFailure"
    assert template["spec"]["hostname"] == "train-launcher"
    assert [one["name"] for one in template["spec"]["volumes"]] == [
        "ssh-auth",
        "mpi-job-config",
        "ringleader-agent",
    ]
    spec = launcher_job(job_of(), SETTINGS, suspend=False)["spec"]
    assert set(spec) == {"podReplacementPolicy", "template"}


def test_ours_waits_after_the_users_init_containers() -> None:
    job = job_of(launcher_pod={"initContainers": [{"name": "fetch", "image": "x"}]})
    pod = launcher_job(job, SETTINGS, suspend=False)["spec"]["template"]["spec"]
    names = [one["name"] for one in pod["initContainers"]]
    assert names == ["fetch", "ringleader-ssh-port", "ringleader-wait"]


@pytest.mark.parametrize(
    ("given", "requests", "limits"),
    [
        ({}, {"cpu": "100m"}, {}),
        ({"limits": {"cpu": "2", "memory": "4Gi"}}, {}, {"cpu": "2"}),
        ({"requests": {"cpu": "1"}}, {"cpu": "1"}, {}),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}, {"cpu": "1"}, {"cpu": "1"}),
    ],
)
def test_what_waits_has_the_cpu_of_the_launcher(
    given: dict[str, Any], requests: dict[str, str], limits: dict[str, str]
) -> None:
    """A separate limit would slow Python down, or cost the Pod its class of service."""
    job = job_of(launcher={"resources": given})
    pod = launcher_job(job, SETTINGS, suspend=False)["spec"]["template"]["spec"]
    memory = {"memory": "256Mi"}
    for container in pod["initContainers"]:
        assert container["resources"] == {"requests": requests | memory, "limits": limits | memory}


def test_an_entrypoint_is_not_put_under_the_check() -> None:
    job = job_of(launcher={"command": None, "args": ["-n", "4"]})
    first = launcher_job(job, SETTINGS, suspend=False)["spec"]["template"]["spec"]["containers"][0]
    assert first.get("command") is None
    assert first["args"] == ["-n", "4"]


def test_the_waiting_container_is_no_root_where_the_pod_is() -> None:
    for context, user in ({"runAsUser": 0}, init_containers.USER), ({"runAsUser": 1000}, None), ({}, None):
        job = job_of(launcher_pod={"securityContext": context})
        pod = launcher_job(job, SETTINGS, suspend=False)["spec"]["template"]["spec"]
        assert pod["initContainers"][-1]["securityContext"].get("runAsUser") == user


@pytest.mark.parametrize(
    ("worker", "ports"),
    [
        ({}, ()),
        ({"ports": [{"containerPort": 9}, {"name": "ssh", "containerPort": 2022}]}, (2022,)),
        ({"command": ["/usr/sbin/sshd", "-De", "-p", "2345"]}, (2345,)),
        ({"command": ["/usr/sbin/sshd", "-De", "-oPort=2346"]}, (2346,)),
        ({"command": ["sh", "-c", "mkdir x && /usr/sbin/sshd -De -p 77"]}, (77,)),
        ({"command": ["/usr/sbin/sshd"], "args": ["-o", "Port=2347"]}, (2347,)),
        ({"command": ["server", "-p", "80"]}, ()),
        ({"command": ["/usr/sbin/sshd", "-p", "99999"]}, ()),
    ],
)
def test_ports_that_the_manifest_tells(worker: Mapping[str, Any], ports: tuple[int, ...]) -> None:
    job = job_of(worker=worker)
    assert ssh_ports(job) == ports
    names = [
        one["name"] for one in init_containers.init_containers(job, SETTINGS, {"containers": [{"name": "x"}]})
    ]
    assert ("ringleader-ssh-port" in names) == (not ports), "else the image's own ssh is asked"


OPEN_MPI_HOSTS = "train-worker-0.train.team.svc slots=2\ntrain-worker-1.train.team.svc slots=2\n"


@pytest.mark.parametrize(
    ("spec", "settings", "text"),
    [
        ({}, PLAIN, OPEN_MPI_HOSTS),
        ({"mpiImplementation": "Intel"}, PLAIN, OPEN_MPI_HOSTS.replace(" slots=", ":")),
        ({"mpiImplementation": "MPICH"}, PLAIN, OPEN_MPI_HOSTS.replace(" slots=", ":")),
        ({"runLauncherAsWorker": True}, PLAIN, "train-launcher.train.team.svc slots=2\n" + OPEN_MPI_HOSTS),
        ({}, OperatorSettings(cluster_domain="k8s.example"),
         OPEN_MPI_HOSTS.replace(".svc", ".svc.k8s.example")),
        ({"slotsPerWorker": 0}, PLAIN, OPEN_MPI_HOSTS.replace("=2", "=0")),
    ],
)  # fmt: skip
def test_hostfiles(spec: Mapping[str, Any], settings: OperatorSettings, text: str) -> None:
    assert hostfile_text(job_of(**spec), settings) == text


def test_a_hostfile_without_workers() -> None:
    assert hostfile_text(job_of(workers=0), PLAIN) == ""
    assert discover_hosts_text(job_of(workers=0), (), PLAIN) == "#!/bin/sh\n"


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 64), st.data())
def test_hosts_are_in_numeric_order_and_read_back(workers: int, slots: int, data: st.DataObject) -> None:
    job = job_of(workers=workers, slotsPerWorker=slots)
    names = [f"train-worker-{index}.train.team.svc" for index in range(workers)]
    hosts = parse_hostfile(hostfile_text(job, PLAIN), "hostfile").hosts
    assert [(host.name, host.slots) for host in hosts] == [(name, slots) for name in names]
    ready = data.draw(st.sets(st.integers(0, workers - 1)))
    lines = discover_hosts_text(job, ready, PLAIN).splitlines()
    assert lines == ["#!/bin/sh", *(f"echo {names[index]}:{slots}" for index in sorted(ready))]


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("search team.svc.k8s.example svc.k8s.example k8s.example\nnameserver 10.0.0.10\n", "k8s.example"),
        ("nameserver 10.0.0.10\n", "cluster.local"),
        ("search svc. corp.example\n", "cluster.local"),
    ],
)
def test_the_clusters_domain_is_read_not_assumed(text: str, domain: str) -> None:
    assert domain_of_search(text) == domain
    pod = worker_pod(job_of(), 0, OperatorSettings(dns_domain=domain_of_search(text)))
    assert pod["spec"]["dnsConfig"]["searches"] == [f"train.team.svc.{domain}"]
    named = worker_pod(job_of(), 0, OperatorSettings(cluster_domain="other", dns_domain=domain))
    assert named["spec"]["dnsConfig"]["searches"] == ["train.team.svc.other"]


def test_exec_may_reach_the_jobs_own_workers_and_nothing_else() -> None:
    workers = ["train-worker-0", "train-worker-1"]
    assert exec_spawn.role(job_of(EXEC), workers)["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": workers},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"], "resourceNames": workers},
    ]
    assert exec_spawn.role(job_of(EXEC), [])["rules"] == [], "a rule without names holds for every Pod"


def test_exec_runs_as_the_users_account_where_there_is_one() -> None:
    own = job_of(EXEC, launcher_pod={"serviceAccountName": "mine", "automountServiceAccountToken": False})
    pod = launcher_job(own, SETTINGS, suspend=False)["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("mine", True)
    assert [one["name"] for one in exec_spawn.role_binding(own)["subjects"]] == ["mine"]
    pod = launcher_job(job_of(EXEC), SETTINGS, suspend=False)["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "train-launcher"
    assert "ssh-auth" not in [one["name"] for one in pod["volumes"]]


@pytest.mark.parametrize(
    ("annotation", "default", "gang"),
    [
        (None, "", ""),
        (None, "volcano", "volcano"),
        ("kubernetes", "volcano", "kubernetes"),
        ("none", "volcano", ""),
        ("gangs", "", "gangs"),
        (None, "none", ""),
    ],
)
def test_which_gang_scheduler(annotation: str | None, default: str, gang: str) -> None:
    job = job_of({} if annotation is None else {"ringleader/gang": annotation})
    settings = OperatorSettings(gang=default)
    assert gang_of(job, settings) == gang
    pod = worker_pod(job, 0, settings)
    assert pod["spec"].get("schedulerName", "") == ("" if gang == "kubernetes" else gang)
    assert ("schedulingGroup" in pod["spec"]) == (gang == "kubernetes")
    assert (pod_group(job, gang, {}) is None) == (gang == "")


@pytest.mark.parametrize(
    ("policy", "creation", "workers", "members"),
    [
        (None, "AtStartup", 4, 5),
        (3, "AtStartup", 4, 3),
        (9, "AtStartup", 4, 9),
        (None, "WaitForWorkersReady", 4, 4),
        (5, "WaitForWorkersReady", 4, 4),
        (2, "WaitForWorkersReady", 4, 2),
        (None, "WaitForWorkersReady", 0, 1),
    ],
)
def test_a_gang_never_waits_for_a_launcher_that_comes_later(
    policy: int | None, creation: str, workers: int, members: int
) -> None:
    scheduling = {} if policy is None else {"schedulingPolicy": {"minAvailable": policy}}
    job = job_of(workers=workers, launcherCreationPolicy=creation, runPolicy=scheduling)
    assert min_member(job) == members


ONE_CPU = {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "9"}}}
MANY = {"resources": {"limits": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": 8}}}


@pytest.mark.parametrize(
    ("minimum", "creation", "high", "resources"),
    [
        (None, "AtStartup", "", {"cpu": "3", "memory": "4Gi", "nvidia.com/gpu": "32"}),
        (3, "AtStartup", "", {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "16"}),
        (3, "AtStartup", "launcher", {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "16"}),
        (3, "AtStartup", "worker", {"cpu": "1500m", "memory": "3Gi", "nvidia.com/gpu": "24"}),
        (None, "WaitForWorkersReady", "", {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "32"}),
    ],
)
def test_resources_of_a_gang(
    minimum: int | None, creation: str, high: str, resources: Mapping[str, str]
) -> None:
    policy = {} if minimum is None else {"schedulingPolicy": {"minAvailable": minimum}}
    job = job_of(
        workers=4,
        launcher=ONE_CPU,
        worker=MANY,
        launcher_pod={"priorityClassName": "of-launcher"},
        worker_pod={"priorityClassName": "of-worker"},
        launcherCreationPolicy=creation,
        runPolicy=policy,
    )
    assert min_resources(job, {f"of-{high}": 10, "other": 99}) == resources


def test_what_a_podgroup_is_told() -> None:
    policy = {"minResources": {"cpu": 3}, "scheduleTimeoutSeconds": 7}
    job = job_of({"scheduling.volcano.sh/queue-name": "q"}, runPolicy={"schedulingPolicy": policy})
    volcano, plugins = pod_group(job, "volcano", {}), pod_group(job, "gangs", {})
    assert volcano is not None and plugins is not None
    assert volcano["spec"] == {"minMember": 3, "queue": "q", "minResources": {"cpu": "3"}}
    assert plugins["spec"] == {"minMember": 3, "scheduleTimeoutSeconds": 7, "minResources": {"cpu": "3"}}


@pytest.mark.parametrize(
    ("parts", "sums"),
    [
        ([({"cpu": "250m"}, 3)], {"cpu": "750m"}),
        ([({"cpu": "0.5"}, 2)], {"cpu": "1"}),
        ([({"memory": "1536Mi"}, 2), ({"memory": "1Gi"}, 1)], {"memory": "4Gi"}),
        ([({"memory": "1G"}, 2)], {"memory": "2000000000"}),
        ([({"cpu": 2}, 0)], {}),
        ([({"a": "1e3"}, 1), ({"a": "1k"}, 1)], {"a": "2000"}),
        ([({"a": "1n"}, 3)], {"a": "3n"}),
    ],
)
def test_sums_of_quantities(parts: Any, sums: Mapping[str, str]) -> None:
    assert total(parts) == sums


@pytest.mark.parametrize(
    ("annotations", "added", "containers"),
    [
        ({}, [], 2),
        ({"ringleader/wait-limit": "3600"}, ["--limit=3600"], 2),
        ({"ringleader/wait-for-workers": "address"}, ["--wait-for=address"], 1),
        ({"ringleader/wait-for-workers": "off"}, ["--wait-for=off"], 1),
    ],
)
def test_a_job_says_how_its_launcher_waits(
    annotations: dict[str, str], added: list[str], containers: int
) -> None:
    found = launcher_job(job_of(annotations=annotations), SETTINGS, suspend=False)
    ours = found["spec"]["template"]["spec"]["initContainers"]
    assert len(ours) == containers
    usual = launcher_job(job_of(), SETTINGS, suspend=False)["spec"]["template"]["spec"]["initContainers"]
    assert [word for word in ours[-1]["args"] if word not in usual[-1]["args"]] == added


def test_what_an_operator_cannot_do_is_said_at_once() -> None:
    job = job_of(
        {**EXEC, "ringleader/rdma-profile": "fast"},
        launcher={"volumeMounts": [{"name": "v", "mountPath": "/etc/mpi/"}]},
        launcher_pod={"volumes": [{"name": "v", "emptyDir": {}}]},
    )
    with pytest.raises(RequestError) as raised:
        job_validation.check(job, PLAIN)
    places = [fault.where for fault in raised.value.faults]
    assert places == [
        "metadata.annotations[ringleader/rdma-profile]",
        "metadata.annotations[ringleader/spawn]",
        "spec.mpiReplicaSpecs[Launcher].template.spec.containers[0].volumeMounts[0].mountPath",
    ]
    for name in JOBS:
        job_validation.check(JOBS[name], SETTINGS)


@pytest.mark.parametrize(
    "extra",
    [
        {"launcher_pod": {"volumes": [{"name": "ringleader-agent", "emptyDir": {}}]}},
        {"launcher_pod": {"initContainers": [{"name": "ringleader-wait", "image": "x"}]}},
        {"launcher": {"volumeMounts": [{"name": "v", "mountPath": "/opt/ringleader"}]}},
        {"worker": {"volumeMounts": [{"name": "v", "mountPath": "/root/.ssh"}]}},
        {"worker_pod": {"initContainers": [{"name": "ringleader-check", "image": "x"}]}},
        {"launcher_pod": {"initContainers": [{"name": "ringleader-check", "image": "x"}]}},
    ],
)
def test_names_and_paths_that_are_taken(extra: Mapping[str, Any]) -> None:
    with pytest.raises(RequestError):
        job_validation.check(job_of({"ringleader/check": "quick"}, **extra), SETTINGS)


def test_a_worker_is_kept_off_nodes_in_each_alternative_of_its_own_affinity() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    pool = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [one]}]} for one in "ab"]
    own = {"podAffinity": {}, "nodeAffinity": {required: {"nodeSelectorTerms": pool}}}
    off = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in ("n1", "n2")]
    pod = worker_pod(job_of(worker_pod={"affinity": own}), 0, PLAIN, left_out=("n1", "n2"))
    kept = {"nodeSelectorTerms": [{**term, "matchFields": off} for term in pool]}
    assert pod["spec"]["affinity"] == {"podAffinity": {}, "nodeAffinity": {required: kept}}
    pod = worker_pod(job_of(), 0, PLAIN, left_out=("n1", "n2"))
    alone = {"nodeSelectorTerms": [{"matchFields": off}]}
    assert pod["spec"]["affinity"] == {"nodeAffinity": {required: alone}}
    kubernetes_validate.validate(pod, "1.36", strict=True)
    assert "affinity" not in worker_pod(job_of(), 0, PLAIN)["spec"]

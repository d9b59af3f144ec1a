"""Words for a job on Kubernetes become a manifest, or faults, all of them at once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.option_words import options_from

from ringleader.cli.kubernetes.job_from_options import job_of, readable_secrets, request_of
from ringleader.cli.options.kubernetes_options import JobOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.errors import RequestError
from ringleader.kubernetes.jobs.pod_template import unexpanded
from ringleader.kubernetes.mpijob.annotations import MAX_WORKERS, MIN_WORKERS
from ringleader.kubernetes.mpijob.parser import read, write
from ringleader.kubernetes.mpijob.yaml_text import text_of

TRAIN = ("python", "train.py", "--lr", "0.1")


def asked(environ=None, **words):
    faults = Faults()
    named = {"command": TRAIN, "image": "example.org/train:1", "job_name": "train"}
    given = options_from(JobOptions, **(named | words))
    request = request_of(
        given, faults=faults, namespace="team", suffix="x7k2p", environ=environ or {}, read=no_file
    )
    return request, faults


def job(**words):
    return job_of(*asked(**words))


def no_file(path):
    raise FileNotFoundError(2, "No such file or directory")


def faults_of(**words):
    with pytest.raises(RequestError) as caught:
        job(**words)
    return [f"{fault.where}: {fault.what}" for fault in caught.value.faults]


GOLDENS = {
    "plain": {},
    "gpus": {"np": "16", "gpus": "8", "cpu": "64", "memory": "512Gi", "resource": ("rdma/hca=1",),
     "claim": ("data:/data:ro",),
     "mount": ("secret:keys:/keys", "nfs:nas:/export/a:/nas", "scratch:100Gi:/scratch"), "shm_size": "64Gi",
     "image_pull_secret": ("registry",), "image_pull_policy": "Always", "node_selector": ("gpu=h200",),
     "toleration": ("nvidia.com/gpu", "team=a:NoSchedule"), "priority_class": "high",
     "x": ("NCCL_DEBUG=INFO", "A=a $(B) $$ 'c'"), "secret_env": ("WANDB_API_KEY=wandb/key",),
     "label": ("cost-center=42",),
     "annotation": ("ringleader/on-worker-failure=restart", "sidecar.istio.io/inject=false")},
    "mpich": {"mpi_implementation": "MPICH", "np": "4", "slots_per_worker": "2", "map_by": "node"},
    "intel": {"mpi_implementation": "Intel", "np": "4", "mpirun": "/opt/mpi/bin/mpirun"},
    "launcher-as-worker": {"np": "3", "run_launcher_as_worker": True, "gpus": "1", "spawn": "exec",
     "ttl": "600", "timeout": "3600", "backoff_limit": "2", "clean_pod_policy": "All",
     "service_account": "trainer", "ssh_auth_mount_path": "/home/mpiuser/.ssh", "workdir": "/workspace"},
    "elastic": {"np": "8", "gpus": "2", "cpu": "16", "min_np": "3", "max_np": "16", "min_hosts": "2",
     "reset_limit": "100", "blacklist_cooldown_range": ("10", "60.5"), "elastic_timeout": "3600",
     "checkpoint_dir": "/ckpt", "exclude_hosts": True, "claim": ("ckpt:/ckpt",), "x": ("A=a $(B)",),
     "secret_env": ("WANDB_API_KEY=wandb/key",)},
    "ringleader": {"np": "4", "gpus": "2", "cpu": "16", "launch_with": "ringleader", "map_by": "node",
     "x": ("A=a $(B)",), "secret_env": ("WANDB_API_KEY=wandb/key",)},
    "bench": {"np": "2", "command": ("ringleader", "bench", "p2p", "-b", "1M")},
    "kueue": {"queue": "team-queue"},
    "kueue-topology": {"np": "4", "queue": "team-queue", "queue_priority": "high", "priority_class": "pods",
     "topology": "preferred:cloud.provider.com/topology-rack"},
    "compute-domain": {"np": "8", "gpus": "4", "compute_domain": "train-nvlink", "rdma": "dra",
     "rdma_claim_template": "team-pairs"},
    "volcano": {"queue": "team-queue", "gang": "volcano"},
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(golden, name):
    import kubernetes_validate

    made = job(**GOLDENS[name])
    golden(f"../kubernetes_client/{name}.yaml", text_of([write(made)]))
    assert read(write(made)) == made
    specs = made.spec.mpi_replica_specs
    for spec in (specs.launcher, specs.worker):
        if spec is not None:
            template = spec.template | {"metadata": {"name": "p", **dict(spec.template.get("metadata", {}))}}
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            kubernetes_validate.validate(pod, "1.33", strict=True)


def test_workers_follow_from_ranks_and_slots():
    for words, workers, slots, np in (
        ({}, 1, 1, 1),
        ({"np": "8", "slots_per_worker": "4"}, 2, 4, 8),
        ({"np": "9", "slots_per_worker": "4"}, 3, 4, 9),
        ({"gpus": "8", "np": "16"}, 2, 8, 16),
        ({"gpus": "8", "np": "16", "slots_per_worker": "4"}, 4, 4, 16),
        ({"np": "4", "run_launcher_as_worker": True}, 3, 1, 4),
        ({"np": "1", "run_launcher_as_worker": True}, 0, 1, 1),
    ):
        made = job(**words)
        assert (made.workers, made.spec.slots_per_worker) == (workers, slots)
        args = made.spec.mpi_replica_specs.launcher.template["spec"]["containers"][0]["args"]
        assert args[args.index("-n") + 1] == str(np)


def test_an_elastic_jobs_ranks_become_workers():
    for words, more, workers, notes in (
        ({}, {"min_np": "2"}, 2, ("2", None)),
        ({}, {"max_np": "4"}, 4, ("1", "4")),
        ({}, {"min_np": "2", "max_np": "4"}, 4, ("2", "4")),
        ({"np": "3"}, {"min_np": "2", "max_np": "4"}, 3, ("2", "4")),
        ({"gpus": "8"}, {"min_np": "9", "max_np": "30", "min_hosts": "3", "max_hosts": "5"}, 4, ("3", "4")),
        ({"gpus": "8"}, {"min_hosts": "2", "max_hosts": "3"}, 3, ("2", "3")),
    ):
        made = job(**words, **more)
        found = made.metadata.annotations
        assert (made.workers, (found[MIN_WORKERS], found.get(MAX_WORKERS))) == (workers, notes)
        container = made.spec.mpi_replica_specs.launcher.template["spec"]["containers"][0]
        argv = [*container["command"], *container["args"]]
        assert argv[-len(TRAIN) - 1 :] == ["--", *TRAIN]
        at = argv.index("--blacklist-cooldown-range")
        assert argv[at + 1 : at + 3] == ["5", "60"], "a Pod that is replaced comes back soon"
        assert [argv[argv.index("-n") + 1]] == [words["np"]] if "np" in words else "-n" not in argv


@pytest.mark.parametrize(
    ("words", "given", "fault"),
    [
        ({}, {"min_np": "4", "max_np": "2"}, "--min-np, --max-np: at least 4, but at most 2"),
        ({"np": "5"}, {"min_np": "1", "max_np": "4"}, "-n: 5 ranks asked for, from 1 to 4 allowed"),
        ({"np": "2"}, {"min_hosts": "3"}, "--min-hosts, --max-hosts: 2 workers of 1 slots are asked for"),
        ({}, {"reset_limit": "3"}, "--reset-limit: is for elastic jobs"),
        ({"run_launcher_as_worker": True, "np": "2"}, {"min_np": "1"},
         "--run-launcher-as-worker: not for an elastic job: no ranks are started in the launcher's Pod"),
        ({"spawn": "exec"}, {"min_np": "1"},
         "--spawn exec: not for an elastic job: workers are reached over ssh"),
        ({"mpirun": "mpiexec"}, {"min_np": "1"}, "--mpirun: 'mpiexec' is not a path"),
        (
            {"annotation": ("ringleader/on-worker-failure=restart",)},
            {"min_np": "1"},
            "metadata.annotations[ringleader/on-worker-failure]: restart starts the whole job from its "
            "beginning, an elastic job continues",
        ),
    ],
)  # fmt: skip
def test_each_fault_of_an_elastic_job_has_its_option(words, given, fault):
    assert faults_of(**words, **given) == [fault]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ({"image": None}, "--image: missing"),
        ({"image": "a b"}, "--image: 'a b' is not an image"),
        ({"command": ()}, "COMMAND: nothing to run"),
        ({"command": ("a\0b",)}, "COMMAND: an argument holds a NUL byte, which no program can be given"),
        ({"np": "0"}, "-n: 0 ranks asked for"),
        ({"slots_per_worker": "0"}, "--slots-per-worker: 0, must be at least 1 and at most 2^63-1"),
        ({"cpu": "four"}, "--cpu: 'four' is not a quantity"),
        ({"memory": "8GB"}, "--memory: '8GB' is not a quantity"),
        ({"cpu": "1e400"}, "--cpu: '1e400' is not a finite amount: 2^63-1 is the largest"),
        ({"launcher_memory": "16Ei"},
         "--launcher-memory: '16Ei' is not a finite amount: 2^63-1 is the largest"),
        ({"resource": ("rdma/hca=1e400",)},
         "--resource rdma/hca: '1e400' is not a finite amount: 2^63-1 is the largest"),
        ({"mount": ("scratch:1e400:/a",)}, "--mount scratch:1e400:/a: cannot be read"),
        ({"gpus": "9" *30, "slots_per_worker": "1"},
         f"--gpus: {'9' * 30}, must be at least 0 and at most 2^63-1"),
        ({"resource": ("rdma/hca",)}, "--resource rdma/hca: is not a resource"),
        ({"cpu": "1", "resource": ("cpu=2",)}, "--resource: cpu is asked for twice"),
        ({"mpi_implementation": "openmpi"}, "--mpi-implementation: 'openmpi' is unknown"),
        ({"claim": ("data",)}, "--claim data: cannot be read"),
        ({"mount": ("disk:a:/a",)}, "--mount disk:a:/a: 'disk' is not a kind of volume"),
        ({"mount": ("nfs:/a:/b",)}, "--mount nfs:/a:/b: cannot be read"),
        ({"claim": ("a:/x",), "mount": ("config:b:/x",)}, "--mount: two volumes are mounted at /x"),
        ({"shm_size": "big"}, "--shm-size: 'big' is not a quantity"),
        ({"secret_env": ("A=b",)}, "--secret-env A=b: cannot be read"),
        ({"toleration": ("a:Never",)}, "--toleration a:Never: 'Never' is not an effect"),
        ({"node_selector": ("gpu",)}, "--node-selector gpu: there is no value"),
        ({"label": ("a b=c",)}, "--label a b=c: is not a label"),
        ({"annotation": ("a",)}, "--annotation a: is not an annotation"),
        ({"image_pull_policy": "never"}, "--image-pull-policy: 'never' is unknown"),
        ({"ttl": "-1"}, "--ttl: -1, must be at least 0 and at most 2^63-1"),
        ({"timeout": "0"}, "--timeout: 0 seconds"),
        ({"workdir": "here"}, "--workdir: 'here' is not absolute"),
        ({"job_name": ""}, "--job-name: is empty"),
        ({"master_port": "70000"}, "--master-port: 70000 is not a port number"),
        ({"map_by": "socket"}, "--map-by: 'socket' is unknown"),
        ({"x": ("RANK=1",)}, "-x RANK: RANK follows from a rank's place and cannot be set"),
        ({"env_file": ("none",)}, "--env-file: none cannot be read: No such file or directory"),
        ({"queue": "q", "topology": "rack"}, "--topology rack: cannot be read"),
        ({"topology": "required:rack"}, "--topology: is for Kueue, and there is no queue of it"),
        ({"queue_priority": "p", "queue": "q", "gang": "volcano"},
         "--queue-priority: is for Kueue, and there is no queue of it"),
        ({"priority_class": "High!"}, "--priority-class: 'High!' cannot be a name"),
        ({"annotation": ("ringleader/spam=1",)}, "metadata.annotations[ringleader/spam]: unknown field"),
        ({"job_name": "Train"},
         "metadata.name: 'Train' makes the Pod name 'Train-worker-0', which is not a DNS label"),
    ],
)  # fmt: skip
def test_each_fault_has_its_option(words, fault):
    assert faults_of(**words) == [fault]


def test_all_faults_at_once():
    found = faults_of(np="0", image=None, memory="8GB", toleration=("a:b",), job_name="-")
    assert [one.partition(":")[0] for one in found] == [
        "-n",
        "--memory",
        "--toleration a",
        "--image",
        "metadata.name",
    ]


def test_a_name_is_made_of_the_command():
    for command, name in (
        (("python", "train.py"), "train-x7k2p"),
        (("python", "-u", "/app/My_Train.py", "a.sh"), "my-train-x7k2p"),
        (("/usr/bin/env",), "env-x7k2p"),
        (("***",), "job-x7k2p"),
        (("a" * 90,), "a" * 40 + "-x7k2p"),
    ):
        request, faults = asked(command=command, job_name=None)
        assert request.name == name
        assert job_of(request, faults).metadata.name == name


def test_a_secret_in_the_manifest_is_noticed():
    request, _ = asked({"HF_TOKEN": "s"}, x=("HF_TOKEN", "A=1"), secret_env=("API_KEY=s/k",))
    assert readable_secrets(request) == ("HF_TOKEN",)


def test_threads_are_a_ranks_share_of_limited_cpus():
    def threads(**words):
        made = job(**words)
        env = made.spec.mpi_replica_specs.launcher.template["spec"]["containers"][0]["env"]
        return {one["name"]: one["value"] for one in env}.get("OMP_NUM_THREADS")

    assert threads() is None
    assert threads(cpu="8", slots_per_worker="4") == "2"
    assert threads(cpu="1500m", slots_per_worker="4") == "1"
    assert threads(cpu="8", slots_per_worker="4", threads="3") == "3"
    assert threads(cpu="8", x=("OMP_NUM_THREADS=5",)) == "5"
    assert threads(cpu="0.5") is None


def expanded(text):
    """What the kubelet makes of a text, by the rules of its expansion; every variable exists."""
    return re.sub(r"\$\$|\$\([^)]*\)", lambda m: "$" if m.group() == "$$" else "EXPANDED", text)


@given(st.text(alphabet="$()ab{}", max_size=12))
def test_what_was_typed_arrives(text):
    assert expanded(unexpanded(text)) == text

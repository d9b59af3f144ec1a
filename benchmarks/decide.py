"""How long the operator thinks: ``decide`` on one large job, in the states that a job goes through.

    python benchmarks/decide.py [--workers 3000] [--repeat 15] [--limit MS] [--json]

Prints the median and the worst of some runs in milliseconds, and beside it what building the documents of all
workers costs: that is done while they are sent, not while deciding. With ``--limit`` the exit code is 1
where a median is above it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.objects.launcher_and_workers import worker_pod
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.objects.ssh_secret import keys
from ringleader.kubernetes.operator.decide.decision import Create, CreateKeys, Observed
from ringleader.kubernetes.operator.decide.policy_order import decide
from ringleader.kubernetes.operator.decide.status import status_of
from ringleader.kubernetes.pod_view import ContainerView, PodView

NOW = 1767225600.0
SETTINGS = OperatorSettings(image="registry.example/ringleader:1")
FIELDS = {"Service": "service", "ConfigMap": "config_map", "Secret": "secret", "Job": "launcher"}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One state."""

    state: str
    median_ms: float
    worst_ms: float


def make_job(workers: int) -> MPIJob:
    """A job with templates of the usual size."""
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "command": ["mpirun", "python", "train.py"],
        "env": [{"name": f"NAME_{n}", "value": "value"} for n in range(10)],
        "resources": {"limits": {"nvidia.com/gpu": 8, "memory": "512Gi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    template = {"metadata": {"labels": {"team": "vision"}}, "spec": spec}
    document = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {
            "name": "big",
            "namespace": "lab",
            "uid": "job",
            "creationTimestamp": rfc3339.text_of(NOW),
        },
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {"template": template},
                "Worker": {"replicas": workers, "template": template},
            }
        },
    }
    return read(document, strict=False)


def made(job: MPIJob) -> tuple[MPIJob, Observed]:
    """The state after a first pass has been applied: everything is there, the workers are pending."""
    decision = decide(job, Observed(), NOW, SETTINGS)
    found = {}
    for stage in decision.stages:
        for action in stage:
            if isinstance(action, Create):
                document = action.document
            elif isinstance(action, CreateKeys):
                document = {**action.document, "data": dict.fromkeys(keys(job), "")}
            else:
                continue
            document = {**document, "metadata": {**document["metadata"], "uid": f"uid-{document['kind']}"}}
            found[FIELDS[document["kind"]]] = document
    pods = tuple(
        PodView(
            name=f"big-worker-{index}",
            uid=f"{index:08x}-0000-4000-8000-000000000000",
            role="worker",
            index=index,
            owner_uid="job",
            created_at=rfc3339.text_of(NOW),
        )
        for index in range(job.workers)
    )
    job = replace(job, status=status_of({"status": decision.status}))
    return job, Observed(pods=pods, **found)


def running(observed: Observed) -> Observed:
    """All workers and the launcher run."""
    main = (ContainerView(name="main", state="running"),)
    workers = (replace(pod, phase="Running", is_ready=True, containers=main) for pod in observed.pods)
    launcher = PodView(
        name="big-launcher-x",
        uid="launcher",
        role="launcher",
        owner_uid="uid-Job",
        phase="Running",
        containers=main,
    )
    return replace(observed, pods=(*workers, launcher))


def measure(state: str, repeat: int, call: Callable[[], object]) -> Result:
    """Time some calls, after one that is not counted."""
    call()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1000)
    return Result(state=state, median_ms=statistics.median(times), worst_ms=max(times))


def results(workers: int, repeat: int) -> list[Result]:
    """Measure every state."""
    new = make_job(workers)
    job, there = made(new)
    up = running(there)
    half = replace(there, pods=(*up.pods[: workers // 2], *there.pods[workers // 2 :]))
    first = replace(up.pods[0], phase="Failed")
    failed = replace(up, pods=(first, *up.pods[1:]))
    states = {
        "new, nothing there": (new, Observed()),
        "all workers pending": (job, there),
        "half of them run": (job, half),
        "all run, status to write": (job, up),
        "one worker failed": (job, failed),
    }
    found = [
        measure(state, repeat, lambda one=one: decide(*one, NOW + 1, SETTINGS))
        for state, one in states.items()
    ]
    documents = measure(
        "(documents of all workers)", 3, lambda: [worker_pod(new, i, SETTINGS) for i in range(workers)]
    )
    return [*found, documents]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=3000)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--limit", type=float, help="milliseconds that a median may take")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = results(options.workers, options.repeat)
    if options.json:
        print(json.dumps({"workers": options.workers, "results": [asdict(one) for one in found]}, indent=2))
    else:
        print(f"decide on a job of {options.workers} workers, {options.repeat} runs each\n")
        for one in found:
            print(f"{one.state:30} median {one.median_ms:7.1f} ms   worst {one.worst_ms:7.1f} ms")
    slow = [one for one in found[:-1] if options.limit is not None and one.median_ms > options.limit]
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())

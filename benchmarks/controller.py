"""How fast the operator is, and how much memory it takes, on the fake API server or on any other.

    python benchmarks/controller.py                        # starts a fake server in its own process
    python benchmarks/controller.py --kubeconfig ~/.kube/config --namespace bench

Each scenario posts MPIJobs and measures, from the first POST: until every worker Pod and every launcher Job
exists; then Pods are set Running by this script (there is no kubelet), and from the last of them until every
MPIJob's status is right; then, from the loss of a worker's Pod with its node, until it is replaced. The
column "server" is what the server can do at all: the same requests, sent by a bare client without a
controller, in the same run, with the same watches open.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    MPIJOBS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    Resource,
)
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.credentials import Credentials
from ringleader.kubernetes.client.kubeconfig import credentials

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "controller.json"
PARALLEL = 64
PATIENCE = 300.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """This many jobs with this many workers each."""

    jobs: int
    workers: int
    runs: int
    created: float
    """Seconds that creating everything may take."""
    status: float
    """Seconds from the last Pod's start until the status is right."""

    @property
    def name(self) -> str:
        return f"{self.jobs} x {self.workers}"


SCENARIOS = (
    Scenario(jobs=1, workers=1000, runs=3, created=3.3, status=0.5),
    Scenario(jobs=100, workers=2, runs=3, created=3.4, status=0.8),
    Scenario(jobs=500, workers=2, runs=3, created=7.0, status=1.8),
    Scenario(jobs=1, workers=3000, runs=10, created=15.0, status=0.5),
)


@dataclass(kw_only=True)
class Result:
    """What was measured of a scenario: one value per run."""

    name: str
    created: list[float] = field(default_factory=list)
    status: list[float] = field(default_factory=list)
    replaced: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)
    bar: float = 0.0
    status_bar: float = 0.0


def job(name: str, namespace: str, workers: int) -> dict[str, Any]:
    container = {"name": "main", "image": "example.org/train:1"}
    launcher = {**container, "command": ["mpirun", "-n", str(workers), "python", "train.py"]}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": {"containers": [launcher]}}},
                "Worker": {"replicas": workers, "template": {"spec": {"containers": [container]}}},
            }
        },
    }


# The server and the controller, each its own process


def serve(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a fake server that knows MPIJobs; return its process and a kubeconfig."""
    from ringleader.kubernetes.mpijob.crd import crd

    documents = folder / "documents.json"
    documents.write_text(json.dumps(crd()) + "\n")
    command = [sys.executable, "-m", "tests.kube.fake", "--window", "100000", "--documents", str(documents)]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=HERE.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    where = json.loads(process.stdout.readline())
    kubeconfig = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "clusters": [{"name": "fake", "cluster": {"server": where["url"]}}],
        "users": [{"name": "fake", "user": {"token": where["token"]}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
    }
    kubeconfig.write_text(json.dumps(config))
    return process, kubeconfig


def start(command: list[str], log: Path) -> subprocess.Popen[str]:
    with log.open("a") as stream:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True)


def stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()


def rss(pid: int, word: str = "VmRSS") -> float:
    """Return the resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(word):
            return int(line.split()[1]) / 1024
    return 0.0


@asynccontextmanager
async def controller(kubeconfig: Path, folder: Path, namespace: str = "") -> AsyncIterator[int]:
    """Run the operator and yield its process id once it works."""
    ringleader = Path(sys.executable).with_name("ringleader")
    command = [str(ringleader), "operator", "run", "--kubeconfig", str(kubeconfig), "--no-leader-election"]
    command += ["--port", "0", "--log-format", "text"]
    command += ["--namespace", namespace] if namespace else []
    log = folder / "controller.log"
    log.write_text("")
    process = start(command, log)
    try:
        until = time.monotonic() + 30
        while "looks after" not in log.read_text():
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the operator did not start:\n{log.read_text()}")
            await asyncio.sleep(0.02)
        yield process.pid
    finally:
        stop(process)


# Watching what happens


class Watch:
    """Counts what exists, as the server tells it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.pods: dict[str, str] = {}
        self.jobs: set[str] = set()
        self.active: dict[str, int] = {}
        self.changed = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Watch:
        for resource, take in ((PODS, self._pod), (JOBS, self._job), (MPIJOBS, self._mpijob)):
            version = (
                await self.cluster.list(resource, self.namespace, fields="metadata.name=none")
            ).resource_version
            self.tasks.append(asyncio.create_task(self._follow(resource, version, take)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _follow(self, resource: Any, version: str, take: Any) -> None:
        async for change in self.cluster.watch(
            resource, self.namespace, resource_version=version, timeout=3000
        ):
            take(change.object, change.type)
            self.changed.set()

    def _pod(self, document: dict[str, Any], kind: str) -> None:
        name = document["metadata"].get("name", "")
        if "-worker-" in name and kind == "ADDED":
            self.pods[name] = document["metadata"]["uid"]

    def _job(self, document: dict[str, Any], kind: str) -> None:
        if kind == "ADDED":
            self.jobs.add(document["metadata"]["name"])

    def _mpijob(self, document: dict[str, Any], kind: str) -> None:
        if kind != "BOOKMARK":
            worker = (document.get("status", {}).get("replicaStatuses") or {}).get("Worker") or {}
            self.active[document["metadata"]["name"]] = worker.get("active", 0)

    async def until(self, holds: Any, what: str) -> float:
        """Wait and return the moment at which something held."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            raise SystemExit(
                f"not within {PATIENCE:.0f} s: {what}; {len(self.pods)} Pods, {len(self.jobs)} Jobs"
            )
        return time.monotonic()


async def side_by_side(calls: list[Any], parallel: int = PARALLEL) -> None:
    """Await calls (functions without arguments), this many at a time."""
    iterator = iter(calls)

    async def some() -> None:
        for call in iterator:
            await call()

    await asyncio.gather(*(some() for _ in range(parallel)))


async def set_running(cluster: Cluster, namespace: str, names: list[str]) -> None:
    status = {
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True"},
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "example.org/train:1",
                    "imageID": "example.org/train@sha256:0",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        }
    }
    await side_by_side(
        [
            lambda name=name: cluster.patch(PODS, name, status, namespace, subresource="status")
            for name in names
        ]
    )


async def with_controller(
    cluster: Cluster, kubeconfig: Path, folder: Path, scenario: Scenario, space: str
) -> tuple[float, float, float, float]:
    """Return seconds until all is created, until the status is right and until a lost Pod is replaced, and
    the memory in MiB."""
    wanted = scenario.jobs * scenario.workers
    names = [f"b{number}" for number in range(scenario.jobs)]
    async with controller(kubeconfig, folder) as pid, Watch(cluster, space) as watch:
        documents = [job(name, space, scenario.workers) for name in names]
        began = time.monotonic()
        await side_by_side([lambda one=one: cluster.create(MPIJOBS, one) for one in documents], 16)
        created = await watch.until(
            lambda: len(watch.pods) >= wanted and len(watch.jobs) >= scenario.jobs, "all Pods and launchers"
        )
        await set_running(cluster, space, sorted(watch.pods))
        ran = time.monotonic()
        right = await watch.until(
            lambda: all(watch.active.get(name) == scenario.workers for name in names), "the right status"
        )
        lost = f"b0-worker-{scenario.workers // 2}"
        uid, gone = watch.pods[lost], time.monotonic()
        await cluster.delete(PODS, lost, space, uid=uid, grace=0)
        replaced = await watch.until(lambda: watch.pods[lost] != uid, "another Pod for the lost one")
        return created - began, max(0.0, right - ran), replaced - gone, rss(pid)


async def made(cluster: Cluster, space: str) -> list[tuple[str, dict[str, Any]]]:
    """Return what the controller has made: path and document of each object, as they were sent."""
    found = []
    for resource in (SERVICES, CONFIG_MAPS, SECRETS, PODS, JOBS, EVENTS):
        for item in (await cluster.list(resource, space)).items:
            if resource == CONFIG_MAPS and "ownerReferences" not in item["metadata"]:
                continue
            found.append((resource.path(space), as_sent(item, resource)))
    return found


def as_sent(item: dict[str, Any], resource: Resource) -> dict[str, Any]:
    """Return an object without what the server added to it."""
    added = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
    meta = {key: value for key, value in item["metadata"].items() if key not in added}
    found = {key: value for key, value in item.items() if key != "status"}
    if resource == JOBS:
        template = item["spec"]["template"]
        labels = {
            key: one
            for key, one in template["metadata"].get("labels", {}).items()
            if "job-name" not in key or "training" in key
        }
        labels = {key: one for key, one in labels.items() if "controller-uid" not in key}
        template = {**template, "metadata": {**template["metadata"], "labels": labels}}
        spec = {key: value for key, value in item["spec"].items() if key != "selector"}
        found["spec"] = {**spec, "template": template}
    return {**found, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}


async def without_controller(
    cluster: Cluster,
    server: Credentials,
    scenario: Scenario,
    space: str,
    objects: list[tuple[str, dict[str, Any]]],
) -> float:
    """Send the controller's requests from a bare client; return the seconds until all exists."""
    import aiohttp

    names = [f"b{number}" for number in range(scenario.jobs)]
    headers = {**await server.headers(), "Content-Type": "application/json"}
    async with Watch(cluster, space) as watch, aiohttp.ClientSession(headers=headers) as session:
        began = time.monotonic()
        uids: dict[str, str] = {}

        async def post(name: str) -> None:
            uids[name] = (await cluster.create(MPIJOBS, job(name, space, scenario.workers)))["metadata"][
                "uid"
            ]

        await side_by_side([lambda name=name: post(name) for name in names], 16)
        bodies = []
        for path, document in objects:
            owners = document["metadata"].get("ownerReferences")
            if owners:
                owners[0]["uid"] = uids[owners[0]["name"]]
            bodies.append((path, json.dumps(document).encode()))

        async def send(path: str, body: bytes) -> None:
            async with session.post(server.server + path, data=body) as answer:
                await answer.read()
                if answer.status >= 300:
                    raise SystemExit(f"{path}: {answer.status} {await answer.text()}")

        await side_by_side([lambda one=one: send(*one) for one in bodies])
        wanted = scenario.jobs * scenario.workers
        done = await watch.until(
            lambda: len(watch.pods) >= wanted and len(watch.jobs) >= scenario.jobs, "all"
        )
        return done - began


# Memory and deciding


async def memory(cluster: Cluster, kubeconfig: Path, folder: Path, space: str) -> dict[str, float]:
    """Return the operator's memory in MiB: idle, beside large ConfigMaps of others, at 10,000 Pods."""
    found = {}
    async with controller(kubeconfig, folder) as pid:
        await asyncio.sleep(1)
        found["idle"] = rss(pid)
    big = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "x" * 200_000}}
    documents = [
        {**big, "metadata": {"name": f"other-{number}", "namespace": space}} for number in range(700)
    ]
    async with controller(kubeconfig, folder) as pid:
        await side_by_side([lambda one=one: cluster.create(CONFIG_MAPS, one) for one in documents], 8)
        await asyncio.sleep(1)
        found["beside 700 ConfigMaps of 200 kB"] = rss(pid)
    for made in (await cluster.list(CONFIG_MAPS, space)).items:
        await cluster.delete(CONFIG_MAPS, made["metadata"]["name"], space, uid=made["metadata"]["uid"])
    async with controller(kubeconfig, folder) as pid, Watch(cluster, space) as watch:
        for number in range(10):
            await cluster.create(MPIJOBS, job(f"m{number}", space, 1000))
        await watch.until(lambda: len(watch.pods) >= 10_000 and len(watch.jobs) >= 10, "10,000 Pods")
        await set_running(cluster, space, sorted(watch.pods))
        await watch.until(lambda: all(watch.active.get(f"m{n}") == 1000 for n in range(10)), "the status")
        found["at 10,000 Pods"] = rss(pid)
        found["at 10,000 Pods, highest"] = rss(pid, "VmHWM")
    async with controller(kubeconfig, folder) as pid:
        await asyncio.sleep(3)
        found["at 10,000 Pods, started anew"] = rss(pid)
    return found


def deciding(workers: int = 3000) -> dict[str, float]:
    """Return the milliseconds that one decision on a large job takes, at its beginning and while it runs."""
    from dataclasses import replace

    from ringleader.kubernetes.mpijob.model import Metadata
    from ringleader.kubernetes.mpijob.parser import read
    from ringleader.kubernetes.objects.operator_settings import OperatorSettings
    from ringleader.kubernetes.operator.decide.decision import Observed
    from ringleader.kubernetes.operator.decide.policy_order import decide
    from ringleader.kubernetes.pod_view import ContainerView, PodView

    found = read(job("d", "bench", workers))
    meta: Metadata = replace(found.metadata, uid="u", creation_timestamp="2026-01-01T00:00:00Z")
    found = replace(found, metadata=meta)
    pods = tuple(
        PodView(
            name=f"d-worker-{index}",
            uid=f"u{index}",
            role="worker",
            index=index,
            owner_uid="u",
            phase="Running",
            is_ready=True,
            node="n",
            containers=(ContainerView(name="main", state="running"),),
        )
        for index in range(workers)
    )
    result = {}
    for name, observed in (("nothing there", Observed()), ("all Pods run", Observed(pods=pods))):
        times = []
        for _ in range(15):
            began = time.perf_counter()
            decide(found, observed, 1.8e9, OperatorSettings())
            times.append((time.perf_counter() - began) * 1e3)
        result[name] = statistics.median(times)
    return result


# The table


async def measure(
    kubeconfig: Path, folder: Path, scenarios: list[Scenario], words: argparse.Namespace
) -> dict[str, Any]:
    found = await credentials(kubeconfig=str(kubeconfig))
    cluster = Cluster(found, qps=0, connections=PARALLEL)
    results = []
    try:
        for scenario in scenarios:
            result = Result(name=scenario.name, bar=scenario.created, status_bar=scenario.status)
            for run in range(words.runs or scenario.runs):
                name = f"bench-{os.getpid()}-{len(results)}-{run}"
                async with namespace(cluster, name) as space:
                    created, status, replaced, memory_ = await with_controller(
                        cluster, kubeconfig, folder, scenario, space
                    )
                    objects = await made(cluster, space)
                async with namespace(cluster, f"{name}-bare") as space:
                    moved = json.loads(json.dumps(objects).replace(name, space))
                    server = await without_controller(cluster, found, scenario, space, moved)
                result.created.append(created)
                result.status.append(status)
                result.replaced.append(replaced)
                result.rss_mib.append(memory_)
                result.server.append(server)
                print(
                    f"  {scenario.name}: created {created:.2f} s, status {status:.2f} s, "
                    f"server {server:.2f} s",
                    file=sys.stderr,
                )
            results.append(result)
        memories = {}
        if not words.no_memory:
            async with namespace(cluster, f"bench-{os.getpid()}-memory") as space:
                memories = await memory(cluster, kubeconfig, folder, space)
    finally:
        await cluster.close()
    return {"scenarios": [asdict(one) for one in results], "memory_mib": memories, "decide_ms": deciding()}


@asynccontextmanager
async def namespace(cluster: Cluster, name: str) -> AsyncIterator[str]:
    """Make a namespace and delete it, with all that is in it, in the end."""
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    made = await cluster.create(NAMESPACES, document)
    try:
        yield name
    finally:
        await cluster.delete(NAMESPACES, name, uid=made["metadata"]["uid"])
        async with asyncio.timeout(PATIENCE):
            while await _is_there(cluster, name):
                await asyncio.sleep(0.2)


async def _is_there(cluster: Cluster, name: str) -> bool:
    try:
        await cluster.get(NAMESPACES, name)
    except ApiError as error:
        if error.is_missing:
            return False
        raise
    return True


def table(values: dict[str, Any]) -> str:
    """Return what was measured as text."""
    rows = [
        f"{'jobs x workers':>14} {'created s':>16} {'bar':>5} {'server s':>9} {'ratio':>6} "
        f"{'status s':>14} {'bar':>5} {'replaced s':>10} {'MiB':>5}"
    ]
    for one in values["scenarios"]:
        created, server = statistics.median(one["created"]), statistics.median(one["server"])
        ratio = statistics.median(a / b for a, b in zip(one["created"], one["server"], strict=True))
        spread = f"{created:.2f} (<= {max(one['created']):.2f})"
        lag = f"{statistics.median(one['status']):.2f} (<= {max(one['status']):.2f})"
        rows.append(
            f"{one['name']:>14} {spread:>16} {one['bar']:>5} {server:>9.2f} {ratio:>6.2f} {lag:>14} "
            f"{one['status_bar']:>5} {statistics.median(one['replaced']):>10.2f} {max(one['rss_mib']):>5.0f}"
        )
    rows += [f"memory {name}: {value:.0f} MiB" for name, value in values["memory_mib"].items()]
    rows += [
        f"decide on 3,000 workers, {name}: {value:.1f} ms" for name, value in values["decide_ms"].items()
    ]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kubeconfig", type=Path, help="your own server instead of the fake one")
    parser.add_argument("--scenario", action="append", help="only this one, such as '1 x 1000'")
    parser.add_argument("--runs", type=int, help="runs of each scenario")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    words = parser.parse_args()
    scenarios = [one for one in SCENARIOS if not words.scenario or one.name in words.scenario]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        server = None
        kubeconfig = words.kubeconfig
        if kubeconfig is None:
            server, kubeconfig = serve(folder)
        try:
            values = asyncio.run(measure(kubeconfig, folder, scenarios, words))
        finally:
            if server is not None:
                stop(server)
    values["machine"] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_at_start": round(load, 2),
        "server": "the user's own" if words.kubeconfig else "tests/kube/fake in its own process",
    }
    print(table(values))
    print(f"load when it began: {load:.2f} on {os.cpu_count()} cores")
    words.output.write_text(json.dumps(values, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""Whatever happens on the way, a job ends in the state of a run that nothing disturbed.

Faults of the API server, broken and silent watches, operators that are killed in mid-pass, Pods that vanish
or fail, edits of the job: in any order. In the end the faults cease, and what the cluster holds must be what
it holds where the job was made in its last form at once.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.controller.running import BRISK, Running, job, wait
from tests.kube.fake import FakeCluster, StandInOptions

from ringleader.kubernetes.mpijob.crd import crd
from ringleader.kubernetes.operator.runtime.process import ProcessOptions

EXAMPLES = 200
QUICK = {**BRISK, "watch_silence": 0.4}
Step = tuple[Any, ...]
_spaces = itertools.count()

VERBS = ("create", "patch", "get", "delete", "list", "watch", "")
RESOURCES = ("pods", "jobs", "services", "configmaps", "secrets", "mpijobs/status", "mpijobs", "events", "")

LOST = ("train-worker-0", "train-worker-1", "train-config", "train")
"""Objects that somebody deletes: two Pods, the ConfigMap, the Service."""
DONE = {"running": "Running", "suspended": "Suspended", "succeeded": "Succeeded", "failed": "Failed"}
"""How a job ends → the condition that says so."""

what = (st.sampled_from(VERBS), st.sampled_from(RESOURCES))
disturbances = st.one_of(
    st.tuples(st.just("refuse"), st.sampled_from([429, 500, 503, 504, 409]), *what, st.integers(1, 4)),
    st.tuples(st.just("drop"), st.booleans(), *what, st.integers(1, 3)),
    st.tuples(st.just("slow"), *what),
    st.sampled_from([("drop watches",), ("stale watches",), ("compact",), ("away",)]),
    st.sampled_from([("kill",), ("kill",), ("restart",)]),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.002, 0.01, 0.03])),
)
changes = st.one_of(
    st.tuples(st.just("workers"), st.integers(1, 4)),
    st.tuples(st.just("suspend"), st.booleans()),
    st.tuples(st.just("lose"), st.sampled_from(LOST)),
    st.tuples(st.just("fail"), st.integers(0, 1)),
)
scripts = st.lists(st.one_of(disturbances, disturbances, changes), min_size=2, max_size=8)
ends = st.sampled_from(sorted(DONE))


class Stage:
    """One job in its own namespace, an operator that looks after it, and what is done to both."""

    def __init__(self, cluster: FakeCluster, folder: Path) -> None:
        self.cluster = cluster
        self.space = f"space-{next(_spaces)}"
        self.kubeconfig = cluster.write_kubeconfig(folder / self.space)
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.space}})
        self.operator = self.begin()
        self.has_failed = False

    def begin(self) -> Running:
        terms = ProcessOptions(**{**QUICK, "namespace": self.space})
        return Running(self.kubeconfig, terms=terms).__enter__()

    def play(self, step: Step) -> None:
        """Do one step of a script."""
        if not self.trouble(step):
            self.meddle(step)

    def trouble(self, step: Step) -> bool:
        """Trouble with the server."""
        faults = self.cluster.faults
        match step:
            case ("refuse", code, verb, resource, times):
                faults.refuse(code, verb=verb, resource=resource, times=times, retry_after=0)
            case ("drop", is_done, verb, resource, times):
                faults.drop(verb=verb, resource=resource, times=times, is_done=is_done)
            case ("slow", verb, resource):
                faults.slow(0.02, verb=verb, resource=resource)
            case ("drop watches",):
                faults.drop_watches()
            case ("stale watches",):
                faults.stale_watches()
            case ("compact",):
                self.cluster.compact()
                faults.drop_watches()
            case ("away",):
                faults.go_away()
                time.sleep(0.03)
                faults.come_back()
            case _:
                return False
        return True

    def meddle(self, step: Step) -> None:
        """The operator's own fate, time that goes by, what people and nodes do to the job."""
        match step:
            case ("kill" | "restart" as how,):
                (self.operator.kill if how == "kill" else self.operator.stop)()
                self.operator = self.begin()
            case ("wait", seconds):
                time.sleep(seconds)
            case ("workers", count):
                self.edit(lambda spec: spec["mpiReplicaSpecs"]["Worker"].update(replicas=count))
            case ("suspend", value):
                self.edit(lambda spec: spec.setdefault("runPolicy", {}).update(suspend=value))
            case ("lose", name):
                plural = {"train-config": "configmaps", "train": "services"}.get(name, "pods")
                if self.cluster.get(plural, name, self.space):
                    self.cluster.delete(plural, name, self.space)
            case ("fail", index):
                self.fail(f"train-worker-{index}")

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        def work(document: dict[str, Any]) -> None:
            before = repr(document["spec"])
            change(document["spec"])
            document["metadata"]["generation"] += repr(document["spec"]) != before

        self.cluster.change("mpijobs", "train", work, self.space)

    def fail(self, pod: str) -> None:
        """A second failure would be made good only after its own pause."""
        found = self.cluster.get("pods", pod, self.space)
        if not self.has_failed and found and found["status"].get("phase") == "Running":
            self.has_failed = True
            self.cluster.kubelet.finish(pod, 1, namespace=self.space)

    def end(self, workers: int, how: str) -> None:
        """End the trouble and bring the job into its last form."""
        self.cluster.faults.clear()
        self.play(("workers", workers))
        self.play(("suspend", how == "suspended"))
        if how in ("succeeded", "failed"):
            wait(lambda: "Running" in self.true() and self.launcher(), f"it runs before it has {how}")
            all_run = ["Running"] * (workers + 1)
            wait(lambda: [phase for _, phase in self.pods()] == all_run, "all Pods run, and no others")
            wait(lambda: self.hosts() == workers, "the hosts are written: nothing more is when it has ended")
            self.cluster.kubelet.finish(self.launcher(), 0 if how == "succeeded" else 3, namespace=self.space)

    def true(self) -> list[str]:
        found = self.cluster.get("mpijobs", "train", self.space) or {}
        conditions = (found.get("status") or {}).get("conditions") or ()
        return sorted(one["type"] for one in conditions if one["status"] == "True")

    def launcher(self) -> str:
        found = [name for name, phase in self.pods() if "launcher" in name and phase == "Running"]
        return found[0] if found else ""

    def hosts(self) -> int:
        found = self.cluster.get("configmaps", "train-config", self.space) or {"data": {}}
        return found["data"].get("discover_hosts.sh", "").count("echo ")

    def pods(self) -> list[tuple[str, str]]:
        return [
            (pod["metadata"]["name"], pod["status"]["phase"])
            for pod in self.cluster.list("pods", self.space)
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def state(self) -> dict[str, Any]:
        """What counts of the cluster: not times, uids, or how often something was tried."""
        status = (self.cluster.get("mpijobs", "train", self.space) or {}).get("status") or {}
        hosts = self.cluster.get("configmaps", "train-config", self.space) or {}
        secret = self.cluster.get("secrets", "train-ssh", self.space) or {}
        launcher = self.cluster.get("jobs", "train-launcher", self.space) or {"spec": {}}
        return {
            "conditions": self.true(),
            "replicas": status.get("replicaStatuses"),
            "has_ended": "completionTime" in status,
            "pods": sorted(("launcher" if "launcher" in name else name, at) for name, at in self.pods()),
            "hosts": {key: text.replace(self.space, "SPACE") for key, text in hosts.get("data", {}).items()},
            "keys": sorted(secret.get("data", {})),
            "suspend": launcher["spec"].get("suspend"),
            "service": self.cluster.get("services", "train", self.space) is not None,
        }


@pytest.fixture(scope="module")
def ground() -> Iterator[FakeCluster]:
    with FakeCluster(stand_in=StandInOptions(), bookmark_every=0.1) as made:
        made.create(crd())
        yield made


@pytest.fixture(scope="module")
def calm(ground: FakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """The state in which an undisturbed run ends, by the job's last form."""
    known: dict[tuple[int, str], dict[str, Any]] = {}
    folder = tmp_path_factory.mktemp("calm")

    def find(workers: int, how: str) -> dict[str, Any]:
        if (workers, how) not in known:
            stage = Stage(ground, folder)
            ground.create(_job(workers, suspend=how == "suspended"), stage.space)
            stage.end(workers, how)
            wait(lambda: DONE[how] in stage.true(), f"the calm job is {how}")
            state = stage.state()
            time.sleep(0.5)
            while (again := stage.state()) != state:
                state = again
                time.sleep(0.5)
            stage.operator.stop()
            known[workers, how] = state
        return known[workers, how]

    return find


def _job(workers: int, **policy: Any) -> dict[str, Any]:
    wish = job(workers=workers, cleanPodPolicy="Running", backoffLimit=0, **policy)
    wish["metadata"].pop("namespace")
    wish["metadata"]["annotations"] = {"ringleader/restart-limit": "3"}
    return wish


def tried(examples):
    """Return what draws this many scripts, the same ones each time."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


drawn = given(first=st.integers(1, 3), script=scripts, last=st.integers(1, 3), how=ends)


@tried(max(1, EXAMPLES // 50))
@drawn
@pytest.mark.timeout(900)
def test_some_interleavings_end_as_an_undisturbed_run(ground, calm, tmp_path, first, script, last, how):
    interleave(ground, calm, tmp_path, first, script, last, how)


@pytest.mark.long
@tried(EXAMPLES)
@drawn
@pytest.mark.timeout(900)
def test_any_interleaving_ends_as_an_undisturbed_run(ground, calm, tmp_path, first, script, last, how):
    interleave(ground, calm, tmp_path, first, script, last, how)


def interleave(ground, calm, tmp_path, first, script, last, how):
    expected = calm(last, how)
    stage = Stage(ground, tmp_path)
    try:
        ground.create(_job(first), stage.space)
        for step in script:
            stage.play(step)
        stage.end(last, how)
        with suppress(AssertionError):
            wait(lambda: stage.state() == expected or not stage.operator.is_alive, "the calm state")
        assert stage.operator.is_alive, stage.operator.error
        assert stage.state() == expected
        events = Counter(one["reason"] for one in ground.list("events", stage.space))
        assert events["MPIJobCreated"] <= 1 and events["MPIJobSucceeded"] <= 1, "sent more than once"
    finally:
        ground.faults.clear()
        stage.operator.stop()

"""An operator that runs in a thread of the test, against the fake cluster; it can be stopped or killed."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.kube.fake import FakeCluster
from tests.mpijobs import mpijob

from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.kubeconfig import credentials
from ringleader.kubernetes.client.retry import Backoff
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.runtime.process import Operator, ProcessOptions
from ringleader.kubernetes.operator.runtime.work_queue import RequeueBackoff

PATIENCE = 60.0
"""Seconds that a test waits for anything: only one that fails takes this long."""
BRISK: dict[str, Any] = {
    "port": None,
    "pauses": RequeueBackoff(first=0.01, longest=0.2, brisk=0.05),
    "event_pause": 0.02,
    "watch_backoff": Backoff(first=0.01, longest=0.1),
    "watch_silence": 3.0,
    "stop_within": 10.0,
}
"""Terms of an operator whose pauses are short enough for tests."""
SETTINGS = OperatorSettings(image="example.org/operator:1", has_exec_spawn=True, has_log_tails=True)


class Running:
    """One operator. Use it as a context manager; leaving it stops it as SIGTERM does."""

    def __init__(self, kubeconfig: Path, *, terms: ProcessOptions | None = None) -> None:
        self.error: BaseException | None = None
        self._kubeconfig, self._terms = kubeconfig, terms or ProcessOptions(**BRISK)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operator", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(PATIENCE)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._thread.is_alive():
            self.stop()
        if kind is None and self.error is not None:
            raise self.error

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop as SIGTERM does."""
        self.begin_to_stop()
        self._join()

    def kill(self) -> None:
        """Break off at once, wherever it is."""
        self._call(self._main.cancel)
        self._join()

    def wait_for_end(self) -> BaseException | None:
        """Wait until it ends by itself; return why."""
        self._join()
        error, self.error = self.error, None
        return error

    def begin_to_stop(self) -> None:
        """Tell it to stop and do not wait."""
        self._call(self._stop.set)

    def keep_busy(self, until: threading.Event) -> None:
        """Let its loop do nothing else until an event is set."""
        self._call(lambda: until.wait(10 * PATIENCE))

    def _call(self, work: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            return  # its loop has ended

    def _join(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"the operator did not end within {PATIENCE:.0f} s"

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self._started.set()

    async def _live(self) -> None:
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        self._stop = asyncio.Event()
        cluster = Cluster(await credentials(kubeconfig=str(self._kubeconfig)), qps=0, timeout=10.0)
        lease = None
        if self._terms.lease is not None:
            lease = Cluster(await credentials(kubeconfig=str(self._kubeconfig)), timeout=5.0)
        operator = Operator(cluster, SETTINGS, self._terms, lease_cluster=lease)
        self._started.set()
        await operator.run(self._stop)


def wait(holds: Callable[[], Any], what: str) -> Any:
    """Wait until something holds and return it."""
    ends = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < ends, f"not within {PATIENCE:.0f} s: {what}"
        time.sleep(0.01)
    return found


# What a test asks of the fake cluster


def job(name: str = "train", workers: int = 2, namespace: str = "default", **policy: Any) -> dict[str, Any]:
    """An MPIJob whose worker Pods run until somebody stops them and whose launcher does too."""
    command = {"command": ["mpirun", "-n", "2", "true"]}
    return mpijob(
        name, workers=workers, launcher=command, metadata={"namespace": namespace}, runPolicy=policy
    )


def change(fake: FakeCluster, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the job's spec, as a user does."""

    def work(document: dict[str, Any]) -> None:
        edit(document["spec"])
        document["metadata"]["generation"] += 1

    fake.change("mpijobs", "train", work)


def condition(fake: FakeCluster, type_: str, name: str = "train") -> dict[str, Any] | None:
    """A condition of a job; ``None`` where it has none of this type."""
    found = status(fake, name).get("conditions") or ()
    return next((one for one in found if one["type"] == type_), None)


def holds(fake: FakeCluster, type_: str, name: str = "train") -> bool:
    found = condition(fake, type_, name)
    return found is not None and found["status"] == "True"


def status(fake: FakeCluster, name: str = "train") -> dict[str, Any]:
    return (fake.get("mpijobs", name) or {}).get("status") or {}


def pods(fake: FakeCluster, role: str = "worker") -> list[dict[str, Any]]:
    """The job's Pods of a role that are not being deleted."""
    wanted = {"training.kubeflow.org/job-role": role, "training.kubeflow.org/job-name": "train"}
    return [
        pod
        for pod in fake.list("pods", "default")
        if wanted.items() <= (pod["metadata"].get("labels") or {}).items()
        and "deletionTimestamp" not in pod["metadata"]
    ]


def names(found: list[dict[str, Any]]) -> list[str]:
    return [one["metadata"]["name"] for one in found]


def reasons(fake: FakeCluster) -> list[str]:
    """Reasons of the events of a job, in the order in which they were made."""
    found = [one for one in fake.list("events", "default") if one["involvedObject"]["name"] == "train"]
    found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
    return [one["reason"] for one in found]

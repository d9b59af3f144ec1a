"""Reads the facts of nodes: a Pod on each prints them, its log is read, and all Pods are removed.

A Pod has the NICs that a job's workers would get.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ringleader.dataclass_json import from_document
from ringleader.doctor.hosts_reading import HostsReading
from ringleader.errors import Fault
from ringleader.fabric.cluster_facts import NodeFacts
from ringleader.fabric.facts import HostFacts
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import PODS
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.object_fields import metadata_of, uid_of
from ringleader.kubernetes.client.retry import Outage, with_retries
from ringleader.kubernetes.mpijob.object_metadata import MANAGED_BY
from ringleader.kubernetes.pod_view import PodView, failure_of, pod_view
from ringleader.kubernetes.rdma.pod_nics import add_environment, add_nics
from ringleader.kubernetes.rdma.request import NicAllocation
from ringleader.kubernetes.why_not_running import refused
from ringleader.text_files import whole_number

MANAGER = "ringleader-client"
RUN = "ringleader/doctor"
"""Label of the Pods of one call: its random word."""
CONTAINER = "facts"
COMMAND = ("python3", "-P", "-m", "ringleader", "doctor", "--facts")
END_GRACE = 5
PATIENCE = 30.0
"""Seconds for which a server that is away is asked again."""
AT_ONCE = 16
LOOK_AGAIN = 1.0
LONGEST_LOG = 8 << 20
HOPELESS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError")
"""Reasons of a container that waits for what will not come."""


def facts_pod(
    node: NodeFacts,
    *,
    index: int,
    run: str,
    namespace: str,
    image: str,
    allocation: NicAllocation,
    seconds: float,
) -> dict[str, Any]:
    """Return the Pod for a node.

    It has no account's token, is never started again, tolerates that node's own taints, and the cluster ends
    it after ``seconds`` whatever becomes of us.
    """
    own = re.sub(r"[^a-z0-9-]+", "-", node.name.lower())[:30].strip("-")
    container: dict[str, Any] = {"name": CONTAINER, "image": image, "command": list(COMMAND)}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"ringleader-doctor-{run}-{index}-{own}".rstrip("-"),
            "namespace": namespace,
            "labels": {MANAGED_BY: MANAGER, RUN: run},
        },
        "spec": {
            "affinity": {"nodeAffinity": _only_on(node.name)},
            "tolerations": [
                {
                    "key": taint.key,
                    "operator": "Equal" if taint.value else "Exists",
                    **({"value": taint.value} if taint.value else {}),
                    "effect": taint.effect,
                }
                for taint in node.taints
            ],
            "restartPolicy": "Never",
            "activeDeadlineSeconds": max(1, int(seconds)),
            "terminationGracePeriodSeconds": END_GRACE,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
        },
    }
    add_nics(pod, allocation, job=run, role="")
    pod["spec"].pop("topologySpreadConstraints", None)  # each Pod has its node
    pod["spec"]["affinity"].pop("podAntiAffinity", None)
    add_environment(container, allocation.env)
    if not allocation.profile.ipc_lock and not allocation.privileged:
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return pod


def _only_on(name: str) -> dict[str, Any]:
    """Return an affinity to one node: the scheduler, and so the device plugin, still has its say."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


class PodReading:
    """The Pods of one call."""

    def __init__(self, cluster: Cluster, *, namespace: str, run: str, tell: Callable[[str], None]) -> None:
        """``run``: the word that marks the Pods; ``tell`` shows how far it has come."""
        self._cluster, self._namespace, self._run, self._tell = cluster, namespace, run, tell
        self._outage = Outage(tell)
        self._nodes: dict[str, str] = {}
        self._facts: dict[str, HostFacts] = {}
        self._faults: dict[str, Fault] = {}

    async def read(self, pods: Mapping[str, Object], seconds: float) -> HostsReading:
        """Start the Pods (by node), wait ``seconds`` at most, and remove them in any case."""
        self._nodes = {str(metadata_of(pod).get("name")): node for node, pod in pods.items()}
        try:
            async with asyncio.timeout(seconds):
                await self._start(pods)
                await self._wait()
        except TimeoutError:
            await self._explain_missing(seconds)
        finally:
            try:
                await self._remove()
            except asyncio.CancelledError:  # a signal came just now: what was begun is finished
                await self._remove()
                raise
        order = {node: self._facts[node] for node in pods if node in self._facts}
        return HostsReading(
            facts=order, faults=tuple(self._faults[node] for node in pods if node in self._faults)
        )

    async def _start(self, pods: Mapping[str, Object]) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def start(node: str, pod: Object) -> None:
            async with turns:
                try:
                    await self._cluster.create(PODS, pod)
                except (ApiError, UnreachableError) as error:
                    self._fail(node, _said(error, str(metadata_of(pod).get("name")), self._namespace))

        await asyncio.gather(*(start(node, pod) for node, pod in pods.items()))

    async def _wait(self) -> None:
        """Look at the Pods until each has told its facts, or cannot."""
        while len(self._facts) + len(self._faults) < len(self._nodes):
            for pod in await self._pods():
                node = self._nodes.get(str(metadata_of(pod).get("name")))
                if node is not None and node not in self._facts and node not in self._faults:
                    await self._look_at(node, pod_view(pod))
            self._tell(f"{len(self._facts)} of {len(self._nodes)} nodes read")
            await asyncio.sleep(LOOK_AGAIN)

    async def _pods(self) -> Sequence[Object]:
        listing = await with_retries(
            lambda: self._cluster.list(PODS, self._namespace, labels=f"{RUN}={self._run}"),
            within=PATIENCE,
            outage=self._outage,
        )
        return listing.items

    async def _look_at(self, node: str, pod: PodView) -> None:
        waiting = next((one for one in pod.containers if one.reason in HOPELESS), None)
        if pod.has_ended:
            await self._take_log(node, pod)
        elif waiting is not None:
            what = f"its Pod cannot start: {waiting.reason}: {waiting.message}".rstrip(": ")
            self._fail(
                node, Fault(where="", what=what, hint="--pod-image names an image with Ringleader in it")
            )

    async def _take_log(self, node: str, pod: PodView) -> None:
        parts = [
            part
            async for part in self._cluster.logs(
                pod.name, self._namespace, container=CONTAINER, limit_bytes=LONGEST_LOG
            )
        ]
        text = b"".join(parts).decode("utf-8", "replace")
        try:
            self._facts[node] = facts_in(text)
        except ValueError as error:
            failure = failure_of(pod)
            last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
            how = failure.sentence if failure is not None else f"its Pod printed no facts: {error}"
            what = f"{how}; its last words: {last[:200]}" if last else how
            hint = "the image needs Python 3 with Ringleader of this version: python3 -m ringleader"
            self._fail(node, Fault(where="", what=what, hint=hint))

    async def _explain_missing(self, seconds: float) -> None:
        """Say of each node without facts what its Pod waits for."""
        views = {view.name: view for view in map(pod_view, await self._pods())}
        for name, node in self._nodes.items():
            if node not in self._facts and node not in self._faults:
                view = views.get(name)
                why = (
                    (view.unschedulable or f"its Pod is {view.phase}")
                    if view is not None
                    else "it has no Pod"
                )
                hint = "a NIC that another Pod holds is not free; --timeout allows more time"
                self._fail(node, Fault(where="", what=f"not read within {seconds:g} s: {why}", hint=hint))

    def _fail(self, node: str, fault: Fault) -> None:
        self._faults[node] = Fault(where=f"host {node}", what=fault.what, hint=fault.hint)

    async def _remove(self) -> None:
        """Delete every Pod of this call by its uid, also one whose creation was never answered."""
        for pod in await self._pods():
            name, uid = str(metadata_of(pod).get("name")), uid_of(pod)
            try:
                await with_retries(
                    lambda name=name, uid=uid: self._cluster.delete(  # type: ignore[misc]
                        PODS, name, self._namespace, grace=END_GRACE, uid=uid
                    ),
                    within=PATIENCE,
                    outage=self._outage,
                )
            except ApiError as error:
                if not error.is_missing and error.status != 409:  # 409: another Pod has that name by now
                    self._tell(f"{name} is left: {error}")


def facts_in(text: str) -> HostFacts:
    """Return the facts that a Pod has printed, whatever its other words. Raises ValueError."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.strip() == "{"]
    for start in starts:
        try:
            found: Any = json.JSONDecoder(parse_int=whole_number).raw_decode("\n".join(lines[start:]))[0]
            return from_document(HostFacts, found)
        except (ValueError, RecursionError):
            continue
    raise ValueError("no JSON object of facts is in its log")


def _said(error: ApiError | UnreachableError, name: str, namespace: str) -> Fault:
    if isinstance(error, ApiError):
        return refused(error, doing="create", resource=PODS, name=name, namespace=namespace).faults[0]
    return error.faults[0]

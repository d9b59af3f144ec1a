"""When the ConfigMap with the hosts is written. Pure.

``discover_hosts.sh`` lists the workers that run. While a job starts they come up one by one, and a write for
each would be as many writes as workers, each as long as their number. So it is written when every worker
runs, and else not more often than every few seconds.
"""

from __future__ import annotations

from hashlib import blake2b

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.api_resources import PODS
from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import annotations_of, metadata_of
from ringleader.kubernetes.mpijob.elastic_range import is_elastic
from ringleader.kubernetes.objects.config_map import config_map
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.decide.decision import Create, Patch
from ringleader.kubernetes.operator.decide.decision_builder import DecisionBuilder
from ringleader.kubernetes.operator.decide.ownership import JobPods

WRITTEN = "ringleader/hosts-written-at"
"""Annotation of the ConfigMap: when its data was last written."""
HOSTS = "ringleader/hosts"
"""Annotation of an elastic job's ConfigMap and of its launcher's Pod: another value for other hosts."""
SETTLING = 5.0
"""Seconds between two writes while not every worker runs."""
DISCOVERY = "discover_hosts.sh"


def write_hosts(
    builder: DecisionBuilder, present: Object | None, pods: JobPods, settings: OperatorSettings
) -> list[Create | Patch]:
    """Return what makes the ConfigMap what it is to be, with the annotations that the builder changes."""
    running = pods.ready_workers if is_elastic(builder.job) else pods.running_workers
    wanted = config_map(builder.job, running, settings)
    if present is None:
        return [_creation(builder, wanted)]
    patch: Object = {}
    if wanted["data"] != present.get("data") and _is_due(builder, present, wanted, len(running)):
        gone: Object = dict.fromkeys(set(present.get("data") or {}) - set(wanted["data"]))
        patch["data"] = {**gone, **wanted["data"]}
        builder.annotations[WRITTEN] = builder.at
        if is_elastic(builder.job):
            text = wanted["data"][DISCOVERY].encode()
            builder.annotations[HOSTS] = blake2b(text, digest_size=8).hexdigest()
    if builder.annotations:
        patch["metadata"] = {"annotations": dict(builder.annotations)}
    if not patch:
        return []
    return [Patch.of(present, patch)]


def renew_in_launcher(builder: DecisionBuilder, pods: JobPods) -> list[Patch]:
    """Return what lets an elastic job's launcher see hosts that are written in this decision.

    By itself a kubelet renews mounted ConfigMaps about once a minute, and at once where an annotation of
    their Pod changes
    (https://kubernetes.io/docs/tasks/configure-pod-container/configure-pod-configmap/#mounted-configmaps-are-updated-automatically).
    """
    hosts = builder.annotations.get(HOSTS)
    if hosts is None:
        return []
    patch = {"metadata": {"annotations": {HOSTS: hosts}}}
    return [
        Patch(resource=PODS, name=pod.name, uid=pod.uid, patch=patch)
        for pod in pods.launchers
        if not pod.has_ended and not pod.is_deleting
    ]


def _creation(builder: DecisionBuilder, wanted: Object) -> Create:
    kept = {name: text for name, text in builder.annotations.items() if text is not None}
    kept[WRITTEN] = builder.at
    meta = wanted["metadata"]
    notes = {**(meta.get("annotations") or {}), **kept}
    return Create.of({**wanted, "metadata": {**meta, "annotations": notes}})


def _is_due(builder: DecisionBuilder, present: Object, wanted: Object, running: int) -> bool:
    """Say whether data that differs is to be written now; if not, when to look again is noted."""
    data = present.get("data") or {}
    others = {key: text for key, text in wanted["data"].items() if key != DISCOVERY}
    if running == builder.job.workers or {key: data.get(key) for key in others} != others:
        return True
    made = metadata_of(present).get("creationTimestamp") or ""
    written = rfc3339.seconds_of(annotations_of(present).get(WRITTEN) or made)
    left = 0.0 if written is None else written + SETTLING - builder.now
    if left > 0:
        builder.look_again(left)
    return left <= 0

"""When the ConfigMap with the hosts is written. Pure.

``discover_hosts.sh`` lists the workers that run. While a job starts they come up one by one, and a write for
each would be as many writes as workers, each as long as their number. So it is written when every worker
runs, and else not more often than every few seconds.
"""

from __future__ import annotations

from ringleader.controller.decide.decision import Create, Patch
from ringleader.controller.decide.decision_builder import Draft
from ringleader.controller.decide.failure_policy import annotations_of
from ringleader.controller.decide.replicas import Pods, uid_of
from ringleader.kube import rfc3339
from ringleader.kube.api_resources import CONFIG_MAPS
from ringleader.kube.cluster import Object
from ringleader.render.kubernetes.config_map import config_map
from ringleader.render.kubernetes.operator_settings import OperatorSettings

WRITTEN = "ringleader/hosts-written-at"
"""Annotation of the ConfigMap: when its data was last written."""
SETTLING = 5.0
"""Seconds between two writes while not every worker runs."""
DISCOVERY = "discover_hosts.sh"


def write_hosts(
    draft: Draft, present: Object | None, pods: Pods, settings: OperatorSettings
) -> list[Create | Patch]:
    """Return what makes the ConfigMap what it is to be, with the annotations that the draft changes."""
    running = pods.running_workers
    wanted = config_map(draft.job, running, settings)
    if present is None:
        return [_creation(draft, wanted)]
    patch: Object = {}
    if wanted["data"] != present.get("data") and _is_due(draft, present, wanted, len(running)):
        gone: Object = dict.fromkeys(set(present.get("data") or {}) - set(wanted["data"]))
        patch["data"] = {**gone, **wanted["data"]}
        draft.annotations[WRITTEN] = draft.at
    if draft.annotations:
        patch["metadata"] = {"annotations": dict(draft.annotations)}
    if not patch:
        return []
    name = wanted["metadata"]["name"]
    return [Patch(resource=CONFIG_MAPS, name=name, patch=patch, uid=uid_of(present))]


def _creation(draft: Draft, wanted: Object) -> Create:
    kept = {name: text for name, text in draft.annotations.items() if text is not None}
    kept[WRITTEN] = draft.at
    meta = wanted["metadata"]
    notes = {**(meta.get("annotations") or {}), **kept}
    return Create(resource=CONFIG_MAPS, document={**wanted, "metadata": {**meta, "annotations": notes}})


def _is_due(draft: Draft, present: Object, wanted: Object, running: int) -> bool:
    """Say whether data that differs is to be written now; if not, when to look again is noted."""
    data = present.get("data") or {}
    others = {key: text for key, text in wanted["data"].items() if key != DISCOVERY}
    if running == draft.job.workers or {key: data.get(key) for key in others} != others:
        return True
    meta = present.get("metadata", {})
    written = rfc3339.seconds_of(annotations_of(present).get(WRITTEN) or meta.get("creationTimestamp") or "")
    left = 0.0 if written is None else written + SETTLING - draft.now
    if left > 0:
        draft.look_again(left)
    return left <= 0

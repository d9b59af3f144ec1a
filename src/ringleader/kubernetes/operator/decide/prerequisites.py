"""What Pods need before there are any: Service, hosts, ssh keys or rights to exec, PodGroup. Pure.

``discover_hosts.sh`` in the ConfigMap lists the workers that run. While a job starts they come up one by one,
and a write for each would be as many writes as workers, each as long as their number. So it is written when
every worker runs, and else not more often than every few seconds.

A role knows Pods by their names only. So it names none before the Pod is there and is the job's, and none
that is being deleted: what somebody else makes in its place is not let in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Any

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.api_resources import PODS
from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import annotations_of, is_deleting, metadata_of, uid_of
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.objects import exec_spawn, ssh_secret
from ringleader.kubernetes.objects.gang_scheduling import gang_of
from ringleader.kubernetes.objects.gang_scheduling import pod_group as group_document
from ringleader.kubernetes.objects.service_and_config_map import config_map, service
from ringleader.kubernetes.operator.decide.decision import (
    Action,
    Create,
    CreateKeys,
    DecisionBuilder,
    Delete,
    JobPods,
    Patch,
)

SERVICE_FIELDS = ("selector", "publishNotReadyAddresses")
"""Fields of a Service that are brought back when somebody changes them."""


def prerequisites(builder: DecisionBuilder) -> list[Action]:
    """Return what makes a job's Service, Secret and rights what they are to be."""
    found = [*_service(builder, builder.observed.service), *_without_ttl(builder.launcher)]
    if exec_spawn.is_exec(builder.job):  # there is no ssh: neither Pod mounts keys
        return [*found, *grant_exec(builder)]
    return [*found, *_keys(builder, builder.observed.secret), *withdraw_exec(builder)]


def pod_group(builder: DecisionBuilder) -> list[Action]:
    """Return what makes the PodGroup what it is to be; none where the job is in no gang."""
    wanted = group_document(builder.job, gang_of(builder.job, builder.settings), builder.observed.priorities)
    if wanted is None:
        return [*Delete.of(builder.observed.pod_group)]
    return _with_fields(builder.observed.pod_group, wanted, wanted["spec"])


def _service(builder: DecisionBuilder, present: Object | None) -> list[Action]:
    wanted = service(builder.job)
    return _with_fields(present, wanted, {name: wanted["spec"].get(name) for name in SERVICE_FIELDS})


def _with_fields(present: Object | None, wanted: Object, fields: Object) -> list[Action]:
    """Return what makes an object that is missing, or brings these fields of its spec back."""
    if present is None:
        return [Create.of(wanted)]
    changed = difference(present.get("spec", {}), fields)
    return [Patch.of(present, {"spec": changed})] if changed else []


def difference(present: Object, wanted: Object) -> dict[str, Any]:
    """Return the merge patch that gives fields their wanted values; what the server added is left alone."""
    found: dict[str, Any] = {}
    for name, value in wanted.items():
        held = present.get(name)
        if (held or None) == (value or None):
            continue
        is_map = isinstance(value, dict) and isinstance(held, dict)
        found[name] = {**dict.fromkeys(held or ()), **value} if is_map else value
    return found


def _keys(builder: DecisionBuilder, present: Object | None) -> list[Action]:
    """Keys are drawn once; later only what is missing, as beside the one pair of the reference controller."""
    job, held = builder.job, set((present or {}).get("data") or {})
    if ssh_secret.keys(job) <= held:
        return []
    document, hosts = ssh_secret.secret(job), ssh_secret.known_as(job)
    kept = frozenset(name for names in ssh_secret.DRAWN_TOGETHER if held.issuperset(names) for name in names)
    kind = ssh_secret.key_type(job)
    return [CreateKeys(document=document, key_type=kind, hosts=hosts, uid=uid_of(present), kept=kept)]


def _without_ttl(launcher: Object | None) -> list[Action]:
    """A launcher's Job that another controller made is not to vanish before we know how it ended."""
    if launcher is None or is_deleting(launcher):
        return []
    if launcher.get("spec", {}).get("ttlSecondsAfterFinished") is None:
        return []
    return [Patch.of(launcher, {"spec": {"ttlSecondsAfterFinished": None}})]


EXEC_RIGHTS = "ringleader/exec-rights"
"""Annotation of the ConfigMap: the launcher was given rights to exec, to be withdrawn in the end."""


def grant_exec(builder: DecisionBuilder) -> list[Action]:
    """Return what lets the launcher run commands in the job's workers, and in no other Pod."""
    job, role = builder.job, builder.observed.role
    wanted = exec_spawn.role(job, _named(job, role, builder.pods))
    if wanted["rules"] and EXEC_RIGHTS not in annotations_of(builder.observed.config_map):
        builder.annotations[EXEC_RIGHTS] = "given"
    found: list[Action] = []
    is_own = exec_spawn.account_name(job) == object_names.launcher(job.metadata.name)
    if is_own and builder.observed.service_account is None:
        found.append(Create.of(exec_spawn.service_account(job)))
    if role is None:
        found.append(Create.of(wanted))
    elif (role.get("rules") or []) != wanted["rules"]:
        found.append(Patch.of(role, {"rules": wanted["rules"]}))
    return found


def bind_exec(builder: DecisionBuilder) -> list[Action]:
    """Return what gives the launcher's account its rights: only once the role is there.

    Whoever may not grant everything may only bind a role that the server can look up.
    """
    if not exec_spawn.is_exec(builder.job) or builder.observed.role_binding is not None:
        return []
    return [Create.of(exec_spawn.role_binding(builder.job))]


def withdraw_exec(builder: DecisionBuilder, kept: Collection[str] = ()) -> list[Action]:
    """Return what takes away the rights to exec into all Pods but these."""
    role = builder.observed.role
    if role is None or not role.get("rules"):
        return []
    left = narrowed(role["rules"], kept)
    return [] if left == role["rules"] else [Patch.of(role, {"rules": left})]


def narrowed(rules: Iterable[Object], there: Collection[str]) -> list[Object]:
    """Return rules for no other Pods than these."""
    return [
        {**rule, "resourceNames": left}
        for rule in rules
        if (left := [name for name in rule.get("resourceNames") or () if name in there])
    ]


def _named(job: MPIJob, role: Object | None, pods: JobPods) -> list[str]:
    """Return the Pods that the role is to name.

    Names are added when no worker is missing: a launcher waits for all of them, and one write for each would
    be as many as workers.
    """
    present = there(pods)
    if pods.missing:
        present &= {
            name for rule in (role or {}).get("rules") or () for name in rule.get("resourceNames") or ()
        }
    wanted = (object_names.worker(job.metadata.name, index) for index in range(job.workers))
    return [name for name in wanted if name in present]


def there(pods: JobPods) -> set[str]:
    """Return the names of wanted workers that are there and are to stay."""
    return {pod.name for pod in pods.workers.values() if not pod.is_deleting}


WRITTEN = "ringleader/hosts-written-at"
"""Annotation of the ConfigMap: when its data was last written."""
HOSTS = "ringleader/hosts"
"""Annotation of an elastic job's ConfigMap and of its launcher's Pod: another value for other hosts."""
SETTLING = 5.0
"""Seconds between two writes while not every worker runs."""
DISCOVERY = "discover_hosts.sh"


def write_hosts(builder: DecisionBuilder) -> list[Create | Patch]:
    """Return what makes the ConfigMap what it is to be, with the annotations that the builder changes."""
    present = builder.observed.config_map
    running = builder.pods.ready_workers if builder.job.elastic else builder.pods.running_workers
    wanted = config_map(builder.job, running, builder.settings)
    if present is None:
        return [_creation(builder, wanted)]
    patch: Object = {}
    if wanted["data"] != present.get("data") and _is_due(builder, present, wanted, len(running)):
        gone: Object = dict.fromkeys(set(present.get("data") or {}) - set(wanted["data"]))
        patch["data"] = {**gone, **wanted["data"]}
        builder.annotations[WRITTEN] = builder.at
        if builder.job.elastic:
            text = wanted["data"][DISCOVERY].encode()
            builder.annotations[HOSTS] = blake2b(text, digest_size=8).hexdigest()
    if builder.annotations:
        patch["metadata"] = {"annotations": dict(builder.annotations)}
    if not patch:
        return []
    return [Patch.of(present, patch)]


def renew_in_launcher(builder: DecisionBuilder) -> list[Patch]:
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
        for pod in builder.pods.launchers
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

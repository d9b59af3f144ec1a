"""What Pods need before there are any: Service, ssh keys or rights to exec, PodGroup. Pure."""

from __future__ import annotations

from typing import Any

from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import is_deleting, uid_of
from ringleader.kubernetes.objects import exec_spawn, ssh_secret
from ringleader.kubernetes.objects.gang_scheduling import gang_of
from ringleader.kubernetes.objects.gang_scheduling import pod_group as group_document
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.objects.service import service
from ringleader.kubernetes.operator.decide import exec_rights
from ringleader.kubernetes.operator.decide.decision import Action, Create, CreateKeys, Delete, Observed, Patch
from ringleader.kubernetes.operator.decide.decision_builder import DecisionBuilder
from ringleader.kubernetes.operator.decide.ownership import JobPods

SERVICE_FIELDS = ("selector", "publishNotReadyAddresses")
"""Fields of a Service that are brought back when somebody changes them."""


def prerequisites(builder: DecisionBuilder, observed: Observed, pods: JobPods) -> list[Action]:
    """Return what makes a job's Service, Secret and rights what they are to be."""
    found = [*_service(builder, observed.service), *_without_ttl(observed.launcher)]
    if exec_spawn.is_exec(builder.job):  # there is no ssh: neither Pod mounts keys
        return [*found, *exec_rights.grant(builder, observed, pods)]
    return [*found, *_keys(builder, observed.secret), *exec_rights.withdraw(observed)]


def pod_group(builder: DecisionBuilder, observed: Observed, settings: OperatorSettings) -> list[Action]:
    """Return what makes the PodGroup what it is to be; none where the job is in no gang."""
    wanted = group_document(builder.job, gang_of(builder.job, settings), observed.priorities)
    if wanted is None:
        return [*Delete.of(observed.pod_group)]
    return _with_fields(observed.pod_group, wanted, wanted["spec"])


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

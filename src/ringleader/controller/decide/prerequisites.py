"""What Pods need before there are any: Service, Secret, rights to exec, PodGroup. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from ringleader.controller.decide.cleanup_policy import delete
from ringleader.controller.decide.decision import Action, Create, CreateKeys, Observed, Patch
from ringleader.controller.decide.decision_builder import Draft
from ringleader.controller.decide.ownership import is_going
from ringleader.controller.decide.replicas import Pods, uid_of
from ringleader.kube.api_resources import of_document
from ringleader.kube.cluster import Object
from ringleader.mpijob import object_names
from ringleader.mpijob.model import MPIJob
from ringleader.render.kubernetes import exec_spawn, ssh_secret
from ringleader.render.kubernetes.gang_scheduling import gang_of
from ringleader.render.kubernetes.gang_scheduling import pod_group as group_document
from ringleader.render.kubernetes.operator_settings import OperatorSettings
from ringleader.render.kubernetes.service import service

SERVICE_FIELDS = ("selector", "publishNotReadyAddresses")
"""Fields of a Service that are brought back when somebody changes them."""


EXEC_RIGHTS = "ringleader/exec-rights"
"""Annotation of the ConfigMap: the launcher was given rights to exec, to be withdrawn in the end."""


def support(draft: Draft, observed: Observed, pods: Pods) -> list[Action]:
    """Return what makes a job's Service, Secret and rights what they are to be."""
    found = list(_service(draft, observed.service))
    if observed.launcher is not None:
        found += _without_ttl(observed.launcher)
    # With exec there is no ssh: neither Pod mounts keys.
    if exec_spawn.is_exec(draft.job):
        return [*found, *_rights(draft, observed, pods)]
    return [*found, *_keys(draft, observed.secret), *withdrawn(observed)]


def role_binding(draft: Draft, observed: Observed) -> list[Action]:
    """Return what gives the launcher's account its rights: only once the role is there.

    Whoever may not grant everything may only bind a role that the server can look up.
    """
    if not exec_spawn.is_exec(draft.job) or observed.role_binding is not None:
        return []
    return [_creation(exec_spawn.role_binding(draft.job))]


def withdrawn(observed: Observed, pods: Pods | None = None) -> list[Action]:
    """Return what takes away the rights to exec into all but those of these Pods that are there."""
    role = observed.role
    if role is None or not role.get("rules"):
        return []
    left = narrowed(role["rules"], set() if pods is None else _there(pods))
    return [] if left == role["rules"] else [_patch(role, {"rules": left})]


def narrowed(rules: Iterable[Object], there: Collection[str]) -> list[Object]:
    """Return rules for no other Pods than these."""
    return [
        {**rule, "resourceNames": left}
        for rule in rules
        if (left := [name for name in rule.get("resourceNames") or () if name in there])
    ]


def pod_group(draft: Draft, observed: Observed, settings: OperatorSettings) -> list[Action]:
    """Return what makes the PodGroup what it is to be; none where the job is in no gang."""
    wanted = group_document(draft.job, gang_of(draft.job, settings), observed.priorities)
    present = observed.pod_group
    if wanted is None:
        return [] if present is None else list(delete(present))
    if present is None:
        return [_creation(wanted)]
    changed = difference(present.get("spec", {}), wanted["spec"])
    return [_patch(present, {"spec": changed})] if changed else []


def difference(present: Object, wanted: Object) -> dict[str, Any]:
    """Return the merge patch that gives fields their wanted values; what the server added is left alone."""
    found: dict[str, Any] = {}
    for name, value in wanted.items():
        held = present.get(name)
        if (held or None) == (value or None):
            continue
        if isinstance(value, dict) and isinstance(held, dict):
            found[name] = {**dict.fromkeys(held), **value}
        else:
            found[name] = value
    return found


def _service(draft: Draft, present: Object | None) -> Iterator[Action]:
    wanted = service(draft.job)
    if present is None:
        yield _creation(wanted)
        return
    fields = {name: wanted["spec"].get(name) for name in SERVICE_FIELDS}
    changed = difference(present.get("spec", {}), fields)
    if changed:
        yield _patch(present, {"spec": changed})


def _keys(draft: Draft, present: Object | None) -> Iterator[Action]:
    """Keys are drawn once. Again only where some are missing, as after a change of the layout."""
    job = draft.job
    has = set((present or {}).get("data") or {})
    if present is None or not ssh_secret.keys(job) <= has:
        yield CreateKeys(
            document=ssh_secret.secret(job),
            key_type=ssh_secret.key_type(job),
            hosts=ssh_secret.known_as(job),
            replace=present is not None,
        )


def _rights(draft: Draft, observed: Observed, pods: Pods) -> Iterator[Action]:
    """The launcher's right to run commands in the job's workers, and in no other Pod.

    A role knows Pods by their names only. So it names none before the Pod is there and is the job's, and none
    that is on its way out: what somebody else makes in its place is not let in. Names are added when no
    worker is missing: a launcher waits for all of them, and one write for each would be as many as workers.
    """
    job = draft.job
    role = exec_spawn.role(job, _named(job, observed.role, pods))
    if role["rules"]:
        draft.annotations.update(_noted(observed.config_map))
    is_own = exec_spawn.account_name(job) == object_names.launcher(job.metadata.name)
    if is_own and observed.service_account is None:
        yield _creation(exec_spawn.service_account(job))
    if observed.role is None:
        yield _creation(role)
    elif (observed.role.get("rules") or []) != role["rules"]:
        yield _patch(observed.role, {"rules": role["rules"]})


def _noted(config_map: Object | None) -> dict[str, str]:
    known = (config_map or {}).get("metadata", {}).get("annotations") or {}
    return {} if EXEC_RIGHTS in known else {EXEC_RIGHTS: "given"}


def _named(job: MPIJob, role: Object | None, pods: Pods) -> list[str]:
    there = _there(pods)
    if pods.missing:
        there &= {
            name for rule in (role or {}).get("rules") or () for name in rule.get("resourceNames") or ()
        }
    wanted = (object_names.worker(job.metadata.name, index) for index in range(job.workers))
    return [name for name in wanted if name in there]


def _there(pods: Pods) -> set[str]:
    return {pod.name for pod in pods.workers.values() if not pod.is_deleting}


def _without_ttl(launcher: Object) -> Iterator[Action]:
    """A launcher's Job that another controller made is not to vanish before we know how it ended."""
    if launcher.get("spec", {}).get("ttlSecondsAfterFinished") is not None and not is_going(launcher):
        yield _patch(launcher, {"spec": {"ttlSecondsAfterFinished": None}})


def _creation(document: Object) -> Create:
    return Create(resource=of_document(document), document=document)


def _patch(present: Object, patch: Object) -> Patch:
    return Patch(
        resource=of_document(present), name=present["metadata"]["name"], patch=patch, uid=uid_of(present)
    )

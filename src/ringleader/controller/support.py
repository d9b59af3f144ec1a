"""What Pods need before there are any: Service, Secret, rights to exec, PodGroup. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ringleader.controller.cleaning import delete
from ringleader.controller.draft import Draft
from ringleader.controller.model import Action, Create, CreateKeys, Observed, Patch
from ringleader.kube.port import Object
from ringleader.kube.resources import of_document
from ringleader.mpijob import names
from ringleader.render.kubernetes import secret, spawn
from ringleader.render.kubernetes.gang import gang_of
from ringleader.render.kubernetes.pod_group import pod_group as group_document
from ringleader.render.kubernetes.service import service
from ringleader.render.kubernetes.settings import OperatorSettings

SERVICE_FIELDS = ("selector", "publishNotReadyAddresses")
"""Fields of a Service that are brought back when somebody changes them."""


def support(draft: Draft, observed: Observed) -> list[Action]:
    """Return what makes a job's Service, Secret and rights what they are to be."""
    found = list(_service(draft, observed.service))
    # With exec there is no ssh: neither Pod mounts keys.
    found += _rights(draft, observed) if spawn.is_exec(draft.job) else _keys(draft, observed.secret)
    return found


def pod_group(draft: Draft, observed: Observed, settings: OperatorSettings) -> list[Action]:
    """Return what makes the PodGroup what it is to be; none where the job is in no gang."""
    wanted = group_document(draft.job, gang_of(draft.job, settings), observed.priorities)
    present = observed.pod_group
    if wanted is None:
        return [] if present is None else list(delete(present))
    if present is None:
        return [_creation(wanted)]
    changed = difference(present.get("spec", {}), wanted["spec"])
    return [_patch(wanted, {"spec": changed})] if changed else []


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
        yield _patch(wanted, {"spec": changed})


def _keys(draft: Draft, present: Object | None) -> Iterator[Action]:
    """Keys are drawn once. Again only where some are missing, as after a change of the layout."""
    job = draft.job
    has = set((present or {}).get("data") or {})
    if present is None or not secret.keys(job) <= has:
        yield CreateKeys(
            document=secret.secret(job),
            key_type=secret.key_type(job),
            hosts=secret.known_as(job),
            replace=present is not None,
        )


def _rights(draft: Draft, observed: Observed) -> Iterator[Action]:
    """The launcher's right to run commands in the job's workers, and in no other Pod."""
    job = draft.job
    role = spawn.role(job)
    is_own = spawn.account_name(job) == names.launcher(job.metadata.name)
    if is_own and observed.service_account is None:
        yield _creation(spawn.service_account(job))
    if observed.role is None:
        yield _creation(role)
    elif (observed.role.get("rules") or []) != role["rules"]:
        yield _patch(role, {"rules": role["rules"]})
    if observed.role_binding is None:
        yield _creation(spawn.role_binding(job))


def _creation(document: Object) -> Create:
    return Create(resource=of_document(document), document=document)


def _patch(wanted: Object, patch: Object) -> Patch:
    return Patch(resource=of_document(wanted), name=wanted["metadata"]["name"], patch=patch)

"""Who may exec: the account, Role and RoleBinding of a launcher that spawns ranks by exec. Pure.

A role knows Pods by their names only. So it names none before the Pod is there and is the job's, and none
that is on its way out: what somebody else makes in its place is not let in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import annotations_of
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.objects import exec_spawn
from ringleader.kubernetes.operator.decide.decision import Action, Create, Observed, Patch
from ringleader.kubernetes.operator.decide.decision_builder import DecisionBuilder
from ringleader.kubernetes.operator.decide.ownership import JobPods

EXEC_RIGHTS = "ringleader/exec-rights"
"""Annotation of the ConfigMap: the launcher was given rights to exec, to be withdrawn in the end."""


def grant(builder: DecisionBuilder, observed: Observed, pods: JobPods) -> list[Action]:
    """Return what lets the launcher run commands in the job's workers, and in no other Pod."""
    job, role = builder.job, observed.role
    wanted = exec_spawn.role(job, _named(job, role, pods))
    if wanted["rules"] and EXEC_RIGHTS not in annotations_of(observed.config_map):
        builder.annotations[EXEC_RIGHTS] = "given"
    found: list[Action] = []
    is_own = exec_spawn.account_name(job) == object_names.launcher(job.metadata.name)
    if is_own and observed.service_account is None:
        found.append(Create.of(exec_spawn.service_account(job)))
    if role is None:
        found.append(Create.of(wanted))
    elif (role.get("rules") or []) != wanted["rules"]:
        found.append(Patch.of(role, {"rules": wanted["rules"]}))
    return found


def bind(builder: DecisionBuilder, observed: Observed) -> list[Action]:
    """Return what gives the launcher's account its rights: only once the role is there.

    Whoever may not grant everything may only bind a role that the server can look up.
    """
    if not exec_spawn.is_exec(builder.job) or observed.role_binding is not None:
        return []
    return [Create.of(exec_spawn.role_binding(builder.job))]


def withdraw(observed: Observed, pods: JobPods | None = None) -> list[Action]:
    """Return what takes away the rights to exec into all but those of these Pods that are there."""
    role = observed.role
    if role is None or not role.get("rules"):
        return []
    left = narrowed(role["rules"], set() if pods is None else _there(pods))
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
    there = _there(pods)
    if pods.missing:
        there &= {
            name for rule in (role or {}).get("rules") or () for name in rule.get("resourceNames") or ()
        }
    wanted = (object_names.worker(job.metadata.name, index) for index in range(job.workers))
    return [name for name in wanted if name in there]


def _there(pods: JobPods) -> set[str]:
    return {pod.name for pod in pods.workers.values() if not pod.is_deleting}

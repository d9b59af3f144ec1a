"""Doing what was decided: stage after stage, the actions of one stage side by side.

Each answer of the server goes into the caches at once, so that the next decision knows of it. Nothing here is
tried twice: what failed in passing is decided anew, from what the cluster holds then.
"""

from __future__ import annotations

import asyncio
import itertools
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import assert_never

from ringleader.errors import Fault, RefusedError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import JOBS, PODS, ROLES, SECRETS, SERVICES, Resource
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.object_fields import controller_of
from ringleader.kubernetes.client.retry import create_or_find
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.object_metadata import KIND, MANAGED_BY, MANAGER
from ringleader.kubernetes.objects.launcher_and_workers import worker_pod
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.objects.ssh_secret import generate
from ringleader.kubernetes.operator.decide.decision import (
    Action,
    Create,
    CreateKeys,
    CreateWorker,
    Delete,
    Patch,
    Rejection,
    target,
)
from ringleader.kubernetes.operator.decide.prerequisites import narrowed
from ringleader.kubernetes.operator.runtime.caches import Caches

REFUSALS = (400, 403, 404, 405, 409, 413, 415, 422)
"""Answers that the same request gets again until somebody changes something."""
_MANY = 8
"""Errors in passing after which the rest of a stage is left for later."""


class InTheWayError(RefusedError):
    """An object of the same name is about to go: the remains of an earlier job."""


@dataclass
class Outcome:
    """What became of the actions of one decision."""

    done: int = 0
    """Actions that changed something."""
    attempted: set[tuple[Resource, str]] = field(default_factory=set)
    rejections: list[Rejection] = field(default_factory=list)
    held: list[Rejection] = field(default_factory=list)
    """Creations that were not sent after one of their kind had been refused: most likely by a quota."""
    failures: list[tuple[Resource, str, RefusedError]] = field(default_factory=list)
    """What may go better next time: on which object, and why it failed."""
    warnings: list[tuple[Resource, str, str]] = field(default_factory=list)
    """What the server said of objects that it took: resource, name, text."""
    has_found: bool = False
    """Something is there that the decision did not know of: look again at once."""

    @property
    def must_stop(self) -> bool:
        """The rest of the stage would meet the same fate."""
        return (
            bool(self.rejections)
            or len(self.failures) >= _MANY
            or any(isinstance(error, UnreachableError) for _, _, error in self.failures)
        )


class Applier:
    """Carries decisions out."""

    def __init__(
        self,
        cluster: Cluster,
        caches: Caches,
        settings: OperatorSettings,
        *,
        clock: Callable[[], float],
        parallel: int = 64,
    ) -> None:
        """``parallel``: requests of one job under way at once; ``clock``: seconds since the epoch."""
        self._cluster, self._caches, self._settings = cluster, caches, settings
        self._clock, self._parallel = clock, parallel

    async def apply(
        self,
        job: MPIJob,
        stages: tuple[tuple[Action, ...], ...],
        refused: Mapping[tuple[Resource, str], int] = MappingProxyType({}),
    ) -> Outcome:
        """Run the stages until one does not succeed. What the server says is in the outcome.

        ``refused``: how often what was refused so far has been tried. Where there is any, one action goes
        ahead of the others, one of those that were tried least: a full quota costs one request.
        """
        outcome = Outcome()
        for stage in stages:
            actions = iter(stage)
            if refused:
                actions = iter(sorted(stage, key=lambda one: refused.get(target(one), 0)))
                await self._some(job, itertools.islice(actions, 1), outcome)
            if not outcome.must_stop:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self._parallel, len(stage))):
                        group.create_task(self._some(job, actions, outcome))
            if outcome.rejections or outcome.failures:
                outcome.held += _held(actions, outcome.rejections)
                break
        return outcome

    async def _some(self, job: MPIJob, actions: Iterator[Action], outcome: Outcome) -> None:
        for action in actions:
            resource, name = target(action)
            outcome.attempted.add((resource, name))
            try:
                await self._one(job, action, outcome)
                outcome.done += 1
            except ApiError as error:
                if error.status in REFUSALS and not error.is_stale:
                    outcome.rejections.append(rejection(resource, name, error, self._clock()))
                else:
                    outcome.failures.append((resource, name, error))
            except (UnreachableError, InTheWayError) as error:
                outcome.failures.append((resource, name, error))
            if outcome.must_stop:
                return

    async def _one(self, job: MPIJob, action: Action, outcome: Outcome) -> None:
        match action:
            case Create(resource=resource, document=document):
                await self._create(job, resource, document, outcome)
            case CreateWorker(index=index, left_out=left_out):
                document = worker_pod(job, index, self._settings, left_out=left_out)
                await self._create(job, PODS, document, outcome)
            case CreateKeys():
                await self._create_keys(job, action, outcome)
            case Patch():
                await self._patch(job, action)
            case Delete():
                await self._delete(job, action)
            case _:
                assert_never(action)

    async def _create(self, job: MPIJob, resource: Resource, document: Object, outcome: Outcome) -> None:
        """Make an object, or take over the one that holds its name, if it is the job's.

        It is the job's where our request got through and the answer did not, or where another controller has
        made it before us. InTheWayError where it is about to go.
        """
        name, title = document["metadata"]["name"], job.metadata.name

        def is_ours(found: Object) -> bool:
            owner = controller_of(found)
            if owner.get("uid") == job.metadata.uid:
                outcome.has_found = True
                return True
            if resource != PODS:  # a foreign Pod is in no view: the refusal reports it
                self._caches.wrote(resource, found, title)
            is_namesake = owner.get("kind") == KIND and owner.get("name") == title
            if is_namesake or found["metadata"].get("deletionTimestamp"):
                what = f"{resource.kind} {name} of an earlier job of this name is not cleared away yet"
                raise InTheWayError(Fault(where=f"{job.metadata.namespace}/{name}", what=what))
            return False

        stored = await create_or_find(
            self._cluster,
            resource,
            document,
            is_ours=is_ours,
            warn=lambda text: outcome.warnings.append((resource, name, text)),
        )
        self._caches.wrote(resource, await self._adopted(resource, stored), title)

    async def find_launcher(self, job: MPIJob) -> None:
        """Look by name for a launcher that the status names and no watch shows.

        One that another controller made has no label of ours. Raises ApiError and UnreachableError.
        """
        name = job.metadata.name
        space, launcher = job.metadata.namespace, object_names.launcher(name)
        if job.status.replica_statuses.launcher is None or self._caches.launchers.get(space, launcher):
            return
        found = await self._caches.by_name.get(JOBS, space, launcher, name)
        if found is not None and controller_of(found).get("uid") == job.metadata.uid:
            self._caches.wrote(JOBS, await self._adopted(JOBS, found), name)

    async def narrow_rights(self, document: Object) -> None:
        """Leave a job that cannot be read no rights to exec but into its own workers that are there.

        Nothing else is done about such a job, and yet others may make Pods of its workers' names meanwhile.
        Raises ApiError and UnreachableError.
        """
        meta = document["metadata"]
        space, name, uid = meta["namespace"], meta["name"], meta["uid"]
        if not self._settings.has_exec_spawn:
            return
        role = await self._caches.by_name.get(ROLES, space, object_names.launcher(name), name)
        if role is None or controller_of(role).get("uid") != uid:
            return
        pods = (kept.value for kept in self._caches.pods.of_group(space, name))
        own = {pod.name for pod in pods if pod.owner_uid == uid and not pod.is_deleting}
        left = narrowed(role.get("rules") or (), own)
        if left != (role.get("rules") or []):
            patch = {"metadata": {"uid": role["metadata"]["uid"]}, "rules": left}
            stored = await self._cluster.patch(ROLES, role["metadata"]["name"], patch, space)
            self._caches.wrote(ROLES, stored, name)

    async def _adopted(self, resource: Resource, found: Object) -> Object:
        """Label an object that another controller has made for this job, so that our watch shows it."""
        meta = found["metadata"]
        if resource not in (SERVICES, JOBS) or (meta.get("labels") or {}).get(MANAGED_BY) == MANAGER:
            return found
        label = {"metadata": {"uid": meta["uid"], "labels": {MANAGED_BY: MANAGER}}}
        return await self._cluster.patch(resource, meta["name"], label, meta["namespace"])

    async def _create_keys(self, job: MPIJob, action: CreateKeys, outcome: Outcome) -> None:
        keys = await asyncio.to_thread(generate, action.key_type, action.hosts)
        data = {name: b64encode(keys[name]).decode() for name in keys.keys() - action.kept}
        if action.uid:
            name = action.document["metadata"]["name"]
            await self._patch(job, Patch(resource=SECRETS, name=name, patch={"data": data}, uid=action.uid))
        else:
            await self._create(job, SECRETS, {**action.document, "data": data}, outcome)

    async def _patch(self, job: MPIJob, action: Patch) -> None:
        space = job.metadata.namespace
        patch = action.patch

        def lost() -> None:
            self._caches.missing(action.resource, space, action.name, "", job.metadata.name)

        if action.uid:
            patch = {**patch, "metadata": {**patch.get("metadata", {}), "uid": action.uid}}
        try:
            stored = await self._cluster.patch(
                action.resource, action.name, patch, space, subresource=action.subresource
            )
        except ApiError as error:
            if error.is_stale and action.uid:  # another object has the name by now: look anew whose it is
                lost()
            if error.is_missing and not action.subresource:
                lost()
                what = f"{action.resource.kind} {action.name} is gone"
                raise InTheWayError(Fault(where=f"{space}/{action.name}", what=what)) from None
            raise
        self._caches.wrote(action.resource, stored, job.metadata.name)

    async def _delete(self, job: MPIJob, action: Delete) -> None:
        space, name = job.metadata.namespace, action.name
        try:
            await self._cluster.delete(action.resource, name, space, grace=action.grace, uid=action.uid)
        except ApiError as error:
            if not error.is_missing and error.status != 409:
                raise
            self._caches.missing(action.resource, space, name, action.uid, job.metadata.name)
        else:
            self._caches.deleted(action.resource, space, name, action.uid, job.metadata.name)


def _held(left: Iterable[Action], rejections: list[Rejection]) -> Iterator[Rejection]:
    """Yield what follows for creations that were left out: they share the fate of one of their kind.

    But not where a name is taken: that says nothing of other names.
    """
    by_kind = {one.resource: one for one in rejections if one.status != 409}
    for action in left:
        resource, name = target(action)
        if isinstance(action, Create | CreateWorker) and resource in by_kind:
            yield replace(by_kind[resource], name=name)


def rejection(resource: Resource, name: str, error: ApiError, now: float) -> Rejection:
    """Return what decisions hear of a refusal."""
    return Rejection(
        resource=resource,
        name=name,
        status=error.status,
        reason=error.reason,
        message=error.message,
        at=now,
    )

"""A job is brought onto a cluster and taken away: an MPIJob, or the objects of one without an operator."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from ringleader.errors import Fault, RefusedError, RingleaderError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import (
    JOBS,
    MPIJOBS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
    of_document,
)
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.object_fields import annotations_of, metadata_of
from ringleader.kubernetes.client.retry import Outage, create_or_find, with_retries
from ringleader.kubernetes.jobs.job_lookup import KINDS
from ringleader.kubernetes.jobs.job_state import JobView, mpijob_view, pods_job_view, train_job_view
from ringleader.kubernetes.jobs.operatorless_objects import RUN, Document, owned, plan
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.parser import request, write
from ringleader.kubernetes.mpijob.train_job import TrainJob
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.objects.ssh_secret import generate, key_type, known_as
from ringleader.kubernetes.why_not_running import refused

OneJob = TypeVar("OneJob", bound=MPIJob | TrainJob)
AT_ONCE = 32
"""Objects that are created side by side."""
PATIENCE = 60.0
"""Seconds for which callers that clean up after themselves try again."""
LOOK_AGAIN = 0.5
"""Seconds between looks at what is left."""


class _Submission(Generic[OneJob]):
    """A job on its way to a cluster where a controller looks after it."""

    cleans_up = False

    def __init__(self, cluster: Cluster, job: OneJob, *, tell: Callable[[str], None]) -> None:
        """``tell`` takes a sentence about a server that is away."""
        self._cluster, self._job, self._tell = cluster, job, tell
        self._sent: JobView | None = None

    async def remove(self) -> None:
        """Delete it, if it was created."""
        if self._sent is not None:
            await remove(self._cluster, self._sent, within=PATIENCE, tell=self._tell)

    async def _create(self, resource: Resource, document: Object) -> Object:
        """Raise RequestError where the server finds an object invalid, RefusedError where it takes none."""
        try:
            return await self._cluster.create(resource, document)
        except ApiError as error:
            metadata = self._job.metadata
            name, space = metadata.name or metadata.generate_name, metadata.namespace
            raise refused(error, doing="create", resource=resource, name=name, namespace=space) from error


class MpiJobSubmission(_Submission[MPIJob]):
    """An MPIJob, which an operator looks after."""

    async def send(self) -> JobView:
        """Create the job and return it as the cluster stored it."""
        self._sent = mpijob_view(await self._create(MPIJOBS, write(request(self._job))))
        return self._sent


class TrainJobSubmission(_Submission[TrainJob]):
    """A TrainJob, which Kubeflow Trainer looks after, with the runtime that belongs to it alone."""

    async def send(self) -> JobView:
        """Create the runtime, then the job, which owns it from then on; nothing stays if one is refused."""
        *runtimes, document = self._job.documents()
        name, space, uid = self._job.metadata.name, self._job.metadata.namespace, ""
        try:
            for one in runtimes:
                uid = str((await self._create(TRAINING_RUNTIMES, one))["metadata"]["uid"])
            self._sent = train_job_view(await self._create(TRAIN_JOBS, document))
        except BaseException as error:
            is_unknown = isinstance(error, UnreachableError) or not isinstance(error, RingleaderError)
            if runtimes and is_unknown:  # the job may have been made
                remove = f"kubectl delete trainingruntime {name} -n {space}"
                self._tell(
                    f"the TrainingRuntime {name} may have been made; if there is no such job: {remove}"
                )
            elif uid:
                with contextlib.suppress(ApiError, UnreachableError):
                    await self._cluster.delete(TRAINING_RUNTIMES, name, space, uid=uid)
            raise
        if runtimes:
            # Trainer keeps a copy of the runtime's spec: its end with the job is all that this is for.
            kind = {"apiVersion": TRAIN_JOBS.api_version, "kind": TRAIN_JOBS.kind}
            owner = {**kind, "name": name, "uid": self._sent.uid, "controller": True}
            try:
                patch = {"metadata": {"ownerReferences": [owner]}}
                await self._cluster.patch(TRAINING_RUNTIMES, name, patch, space)
            except (ApiError, UnreachableError) as error:
                self._tell(f"the TrainingRuntime {name} will stay when the job is deleted: {error}")
        return self._sent


class OperatorlessSubmission:
    """The objects of a job without an operator; nothing half done is left."""

    cleans_up = True

    def __init__(
        self, cluster: Cluster, job: MPIJob, settings: OperatorSettings, *, tell: Callable[[str], None]
    ) -> None:
        """``tell`` takes a sentence about a server that is away."""
        self._cluster, self._job, self._settings, self._tell = cluster, job, settings, tell
        self._outage = Outage(tell)
        self._name, self._space = object_names.launcher(job.metadata.name), job.metadata.namespace
        self._run = uuid.uuid4().hex
        self._has_begun = False

    async def send(self) -> JobView:
        """Create everything. Raises what the server refuses; then ``remove`` takes away what was made."""
        made = plan(self._job, self._settings, run=self._run)
        self._has_begun = True
        launcher = await self._create(made.launcher)
        uid, parts = str(launcher["metadata"]["uid"]), made.parts
        if made.secret is not None:
            parts += ({**made.secret, "data": self._keys()},)
        await self._create_all(parts, uid)
        start = {"spec": {"suspend": False}}
        await self._answered(
            lambda: self._cluster.patch(JOBS, self._name, start, self._space), made.launcher, "patch"
        )
        await self._create_all(made.workers, uid)
        return pods_job_view({**launcher, "spec": {**launcher["spec"], "suspend": False}})

    async def remove(self) -> None:
        """Delete the launcher's Job if this call made it; all else goes with it."""
        if not self._has_begun:
            return
        try:
            found = await with_retries(
                lambda: self._cluster.get(JOBS, self._name, self._space),
                within=PATIENCE,
                outage=self._outage,
            )
        except ApiError as error:
            if error.is_missing:
                return
            raise
        if annotations_of(found).get(RUN) == self._run:
            await remove(self._cluster, pods_job_view(found), within=PATIENCE, tell=self._tell)

    def _keys(self) -> dict[str, str]:
        keys = generate(key_type(self._job), known_as(self._job))
        return {name: base64.b64encode(content).decode() for name, content in keys.items()}

    async def _create_all(self, documents: Sequence[Document], uid: str) -> None:
        """Create objects side by side; the first that is refused ends the others."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def create(document: Document) -> None:
            async with turns:
                await self._create(owned(document, name=self._name, uid=uid))

        try:
            async with asyncio.TaskGroup() as group:
                for document in documents:
                    group.create_task(create(document))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _create(self, document: Document) -> Object:
        """Create an object, or find that a request whose answer was lost has done so."""
        owners = metadata_of(document).get("ownerReferences")

        def is_ours(found: Object) -> bool:
            if owners:
                return bool(metadata_of(found).get("ownerReferences") == owners)
            return annotations_of(found).get(RUN) == self._run

        attempts = itertools.count()

        def create() -> Awaitable[Object]:
            resource = of_document(document)
            if not next(attempts):
                return self._cluster.create(resource, document)
            return create_or_find(self._cluster, resource, document, is_ours=is_ours)

        return await self._answered(create, document, "create")

    async def _answered(
        self, call: Callable[[], Awaitable[Object]], document: Document, doing: str
    ) -> Object:
        """Call until the server answers, for a minute. Raises RefusedError where it says no."""
        try:
            return await with_retries(call, within=PATIENCE, outage=self._outage)
        except ApiError as error:
            raise self._refused(error, document, doing) from error

    def _refused(self, error: ApiError, document: Document, doing: str) -> RingleaderError:
        resource = of_document(document)
        name, space = document["metadata"]["name"], document["metadata"]["namespace"]
        if error.is_there_already:
            hint = f"--job-name another, or ringleader k8s delete {self._job.metadata.name}"
            what = f"a {resource.kind} of this name exists and belongs to somebody else"
            return RefusedError(Fault(where=f"{resource.kind} {space}/{name}", what=what, hint=hint))
        return refused(error, doing=doing, resource=resource, name=name, namespace=space)


async def remove(
    cluster: Cluster, job: JobView, *, within: float = 0.0, tell: Callable[[str], None] = lambda text: None
) -> None:
    """Delete a job; the cluster's garbage collector takes what it owned. One that is gone is not an error.

    ``within``: seconds that it is tried again while the server does not answer, of which ``tell`` hears.
    """
    resource, name = KINDS[job.on].resource, KINDS[job.on].object_name(job.name)
    try:
        await with_retries(
            lambda: cluster.delete(resource, name, job.namespace, uid=job.uid),
            within=within,
            outage=Outage(tell),
        )
    except ApiError as error:
        if error.status not in (404, 409):  # 409: another job of this name took its place
            space = job.namespace
            raise refused(error, doing="delete", resource=resource, name=name, namespace=space) from error


async def until_gone(cluster: Cluster, job: JobView, *, seconds: float, tell: Callable[[str], None]) -> None:
    """Wait until no Pod of a deleted job is left. Raises RefusedError, naming some, after this time."""
    loop = asyncio.get_running_loop()
    end, told = loop.time() + seconds, -1
    while left := await _pods(cluster, job):
        if len(left) != told:
            told = len(left)
            tell(f"{job.name}: {told} {'Pod ends' if told == 1 else 'Pods end'}")
        if loop.time() >= end:
            some = ", ".join(left[:3]) + (" …" if len(left) > 3 else "")
            what = f"is deleted, but after {seconds:g} seconds {len(left)} of its Pods are there: {some}"
            hint = f"kubectl get pods -n {job.namespace} -l {job.selector}"
            raise RefusedError(what, where=f"job {job.name}", hint=hint)
        await asyncio.sleep(LOOK_AGAIN)


async def _pods(cluster: Cluster, job: JobView) -> list[str]:
    """Return the job's Pods that are there; what cannot be asked now is there."""
    try:
        listing = await cluster.list(PODS, job.namespace, labels=job.selector)
    except (ApiError, UnreachableError) as error:
        if isinstance(error, ApiError) and error.status == 403:
            return []
        if isinstance(error, UnreachableError) or error.is_passing:
            return ["(the API server does not answer)"]
        raise refused(error, doing="list", resource=PODS, name="", namespace=job.namespace) from error
    return [str(one["metadata"]["name"]) for one in listing.items]

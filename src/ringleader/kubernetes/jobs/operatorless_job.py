"""A job without an operator is brought onto a cluster and taken away again; nothing half done is left."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Awaitable, Callable, Sequence

from ringleader.errors import Fault, RefusedError, RingleaderError
from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import JOBS, of_document
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.retry import Outage, with_retries
from ringleader.kubernetes.jobs.job_deletion import PATIENCE, remove
from ringleader.kubernetes.jobs.job_snapshot import JobView
from ringleader.kubernetes.jobs.job_view import pods_job_view
from ringleader.kubernetes.jobs.operatorless_objects import RUN, Document, OperatorlessPlan, owned, plan
from ringleader.kubernetes.jobs.refusal_messages import refused
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.objects.ssh_secret import key_type, known_as

AT_ONCE = 32
"""Objects that are created side by side."""


class OperatorlessSubmission:
    """The objects of one job."""

    cleans_up = True

    def __init__(
        self, cluster: Cluster, job: MPIJob, settings: OperatorSettings, *, tell: Callable[[str], None]
    ) -> None:
        """``tell`` takes a sentence about a server that is away."""
        self._cluster, self._job, self._settings, self._tell = cluster, job, settings, tell
        self._outage = Outage(tell)
        self._run = uuid.uuid4().hex
        self._has_begun = False

    async def send(self) -> JobView:
        """Create everything. Raises what the server refuses; then ``remove`` takes away what was made."""
        made = plan(self._job, self._settings, run=self._run)
        self._has_begun = True
        launcher = await self._create(made.launcher, owner="")
        uid = str(launcher["metadata"]["uid"])
        await self._create_all(self._parts(made), uid)
        await self._answered(
            lambda: self._cluster.patch(
                JOBS, self._name, {"spec": {"suspend": False}}, self._job.metadata.namespace
            ),
            made.launcher,
            "patch",
        )
        await self._create_all(made.workers, uid)
        return pods_job_view({**launcher, "spec": {**launcher["spec"], "suspend": False}})

    async def remove(self) -> None:
        """Delete the launcher's Job if this call made it; all else goes with it."""
        if not self._has_begun:
            return
        try:
            found = await with_retries(
                lambda: self._cluster.get(JOBS, self._name, self._job.metadata.namespace),
                within=PATIENCE,
                outage=self._outage,
            )
        except ApiError as error:
            if error.is_missing:
                return
            raise
        if self._is_ours(found):
            await remove(self._cluster, pods_job_view(found), within=PATIENCE, tell=self._tell)

    @property
    def _name(self) -> str:
        return object_names.launcher(self._job.metadata.name)

    def _is_ours(self, document: Object) -> bool:
        return (document["metadata"].get("annotations") or {}).get(RUN) == self._run

    def _parts(self, made: OperatorlessPlan) -> Sequence[Document]:
        if made.secret is None:
            return made.parts
        from ringleader.kubernetes.client.ssh_keys import generate

        keys = generate(key_type(self._job), known_as(self._job))
        data = {name: base64.b64encode(content).decode() for name, content in keys.items()}
        return (*made.parts, {**made.secret, "data": data})

    async def _create_all(self, documents: Sequence[Document], uid: str) -> None:
        """Create objects side by side; the first that is refused ends the others."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def create(document: Document) -> None:
            async with turns:
                await self._create(document, owner=uid)

        try:
            async with asyncio.TaskGroup() as group:
                for document in documents:
                    group.create_task(create(document))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _create(self, document: Document, *, owner: str) -> Object:
        """Create an object, or find that a request whose answer was lost has done so."""
        whole = owned(document, name=self._name, uid=owner) if owner else document
        attempts = 0

        async def create() -> Object:
            nonlocal attempts
            attempts += 1
            try:
                return await self._cluster.create(of_document(whole), whole)
            except ApiError as error:
                if error.is_there_already and attempts > 1:
                    mine = await self._made_before(whole)
                    if mine is not None:
                        return mine
                raise

        return await self._answered(create, whole, "create")

    async def _answered(
        self, call: Callable[[], Awaitable[Object]], document: Document, doing: str
    ) -> Object:
        """Call until the server answers, for a minute. Raises RefusedError where it says no."""
        try:
            return await with_retries(call, within=PATIENCE, outage=self._outage)
        except ApiError as error:
            raise self._refused(error, document, doing) from error

    async def _made_before(self, document: Document) -> Object | None:
        """Return the object of this name if an earlier attempt of ours made it."""
        metadata = document["metadata"]
        found = await self._cluster.get(of_document(document), metadata["name"], metadata["namespace"])
        owners = metadata.get("ownerReferences")
        is_ours = found["metadata"].get("ownerReferences") == owners if owners else self._is_ours(found)
        return found if is_ours else None

    def _refused(self, error: ApiError, document: Document, doing: str) -> RingleaderError:
        resource = of_document(document)
        name, space = document["metadata"]["name"], document["metadata"]["namespace"]
        if error.is_there_already:
            hint = f"--name another, or ringleader delete {self._job.metadata.name}"
            what = f"a {resource.kind} of this name exists and belongs to somebody else"
            return RefusedError(Fault(where=f"{resource.kind} {space}/{name}", what=what, hint=hint))
        return refused(error, doing=doing, resource=resource, name=name, namespace=space)

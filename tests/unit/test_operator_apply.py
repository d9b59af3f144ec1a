"""Doing what was decided: what a request says beyond the decision."""

import asyncio
import time
from typing import Any

import pytest
from tests.unit.decide_world import make_job

from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import JOBS, SERVICES
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.decide.decision import Create
from ringleader.kubernetes.operator.runtime.apply import Applier, Outcome
from ringleader.kubernetes.operator.runtime.caches import Caches

TAKEN = ApiError(status=409, reason="AlreadyExists", message="there already")
GONE = ApiError(status=404, reason="NotFound", message="not found")


class Server:
    """Holds one object that another controller has made for the job; or one that is gone when it is read."""

    def __init__(self, held: dict[str, Any] | None) -> None:
        self.held, self.patches = held, []

    async def create(self, *given: Any, **more: Any) -> dict[str, Any]:
        raise TAKEN

    async def get(self, *given: Any, **more: Any) -> dict[str, Any]:
        if self.held is None:
            raise GONE
        return self.held

    async def patch(self, resource: Any, name: str, patch: dict[str, Any], *more: Any) -> dict[str, Any]:
        self.patches.append(patch)
        return {**self.held, "metadata": {**self.held["metadata"], **patch["metadata"]}}


def applied(server: Server, document: dict[str, Any]) -> Outcome:
    caches = Caches(server, clock=time.monotonic, changed=lambda *_: None)  # type: ignore[arg-type]
    applier = Applier(server, caches, OperatorSettings(image="x"), clock=time.time)  # type: ignore[arg-type]
    return asyncio.run(applier.apply(make_job(), ((Create.of(document),),)))


@pytest.mark.parametrize(("resource", "kind"), [(SERVICES, "Service"), (JOBS, "Job")])
def test_the_label_is_set_on_the_very_object_that_was_looked_at(resource: Any, kind: str) -> None:
    job = make_job()
    owner = {"kind": "MPIJob", "name": job.metadata.name, "uid": job.metadata.uid, "controller": True}
    space = job.metadata.namespace
    metadata = {"name": "x", "namespace": space, "uid": "seen", "ownerReferences": [owner]}
    held = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata}
    server = Server(held)
    outcome = applied(server, held)
    assert outcome.has_found and not outcome.failures and not outcome.rejections
    label = {"app.kubernetes.io/managed-by": "ringleader"}
    assert server.patches == [{"metadata": {"uid": "seen", "labels": label}}]


def test_a_name_that_comes_and_goes_is_tried_again_and_not_called_taken() -> None:
    document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x", "namespace": "lab"}}
    outcome = applied(Server(None), document)
    assert not outcome.rejections
    ((resource, name, error),) = outcome.failures
    assert (resource, name) == (SERVICES, "x") and "gone each time it is read" in str(error)

"""ServiceAccounts: every namespace gets ``default``, and a Pod may only run as one that is there."""

from __future__ import annotations

import asyncio

from tests.kube.fake import kinds
from tests.kube.fake.kinds import Kind
from tests.kube.fake.objects import Objects
from tests.kube.fake.refusals import Refusal, forbidden
from tests.kube.fake.store import Collection, Document, Event


class Accounts:
    """The ServiceAccount controller and its admission."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        objects.store.observers.append(self._observe)
        objects.admit.append(self.admit)

    def _observe(self, collection: Collection, event: Event) -> None:
        if collection.kind is kinds.NAMESPACE and event.old is None:
            asyncio.get_running_loop().call_soon(self._add_default, event.last.key[1])

    def _add_default(self, namespace: str) -> None:
        try:
            self._objects.create(kinds.SERVICE_ACCOUNT, namespace, {"metadata": {"name": "default"}})
        except Refusal:
            return  # the namespace is going already, or somebody was quicker

    def admit(self, kind: Kind, document: Document) -> None:
        """Refuse a Pod whose ServiceAccount is not there."""
        if kind is not kinds.POD or not self._objects.features.service_accounts:
            return
        metadata = document["metadata"]
        namespace, name = metadata["namespace"], document["spec"].get("serviceAccountName") or "default"
        if (namespace, name) not in self._objects.store.collection(kinds.SERVICE_ACCOUNT).entries:
            words = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
            raise forbidden(kind, metadata.get("name") or metadata.get("generateName", ""), words)

"""The garbage collector and the namespace controller: what goes when something else has gone."""

from __future__ import annotations

import asyncio
from collections import deque

from tests.kube.fake import kinds
from tests.kube.fake.kinds import Kind
from tests.kube.fake.objects import Objects
from tests.kube.fake.options import DeleteOptions
from tests.kube.fake.store import Collection, Document, Entry, Event, Key

BACKGROUND = DeleteOptions(propagation="Background")
FOREGROUND = DeleteOptions(propagation="Foreground")


class Garbage:
    """Works through a queue on the server's loop, always a moment after what causes it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._queue: deque[tuple[Kind, Key, str]] = deque()
        self._is_scheduled = False
        objects.store.observers.append(self._observe)

    def _observe(self, collection: Collection, event: Event) -> None:
        kind = collection.kind
        if event.new is None:
            for below, key in list(self._objects.store.dependents.get(event.last.uid, {}).values()):
                self._look_at(below.kind, key)
            for owner in event.last.owners:  # one that waits for its dependents may go now
                place = self._objects.store.by_uid.get(owner)
                if place is not None and place[0].entries[place[1]].is_deleting:
                    self._look_at(place[0].kind, place[1])
            if event.last.key[0]:
                self._look_at(kinds.NAMESPACE, ("", event.last.key[0]))
        elif event.new.is_deleting or (event.new.owners and event.old is None):
            self._look_at(kind, event.new.key)

    def _look_at(self, kind: Kind, key: Key) -> None:
        self._queue.append((kind, key, ""))
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._is_scheduled = False
        for _ in range(len(self._queue)):
            kind, key, _uid = self._queue.popleft()
            entry = self._objects.store.collection(kind).entries.get(key)
            if entry is not None:
                self._visit(kind, entry)

    def _visit(self, kind: Kind, entry: Entry) -> None:
        if not entry.is_deleting:
            self._collect(kind, entry)
        elif kind is kinds.NAMESPACE:
            self._empty_namespace(entry)
        else:
            document = entry.document()
            finalizers = document["metadata"].get("finalizers") or []
            if "orphan" in finalizers:
                self._orphan(kind, entry, document)
            elif "foregroundDeletion" in finalizers:
                self._delete_dependents(kind, entry, document)

    def _collect(self, kind: Kind, entry: Entry) -> None:
        """Delete an object whose owners have all gone."""
        store = self._objects.store
        if not entry.owners or any(owner in store.by_uid for owner in entry.owners):
            return
        on = self._objects.features
        if on.background_deletion and (on.absent_owner or self._had_owner(entry)):
            self._objects.delete(kind, entry, BACKGROUND)

    def _had_owner(self, entry: Entry) -> bool:
        """Whether an owner was there once: a history that has its end shows it."""
        return any(
            event.new is None and event.last.uid in entry.owners
            for collection in self._objects.store.collections()
            for event in collection.history
        )

    def _orphan(self, kind: Kind, entry: Entry, document: Document) -> None:
        """Take the owner out of its dependents, then let it go."""
        for below, key in list(self._objects.store.dependents.get(entry.uid, {}).values()):
            dependent = below.entries[key]
            changed = dependent.document()
            owners = changed["metadata"]["ownerReferences"]
            changed["metadata"]["ownerReferences"] = [one for one in owners if one["uid"] != entry.uid]
            if not changed["metadata"]["ownerReferences"]:
                del changed["metadata"]["ownerReferences"]
            self._objects.update(below.kind, dependent, changed)
        self._drop_finalizer(kind, entry, document, "orphan")

    def _delete_dependents(self, kind: Kind, entry: Entry, document: Document) -> None:
        """Delete the dependents, and the owner once none is left that blocks it."""
        blocked = False
        for below, key in list(self._objects.store.dependents.get(entry.uid, {}).values()):
            dependent = below.entries[key]
            owners = dependent.document()["metadata"]["ownerReferences"]
            blocked |= any(one["uid"] == entry.uid and one.get("blockOwnerDeletion") for one in owners)
            if not dependent.is_deleting:
                self._objects.delete(below.kind, dependent, FOREGROUND)
        if not blocked:
            self._drop_finalizer(kind, entry, document, "foregroundDeletion")

    def _drop_finalizer(self, kind: Kind, entry: Entry, document: Document, word: str) -> None:
        left = [one for one in document["metadata"]["finalizers"] if one != word]
        document["metadata"]["finalizers"] = left
        if not left:
            del document["metadata"]["finalizers"]
        self._objects.update(kind, entry, document)

    def _empty_namespace(self, entry: Entry) -> None:
        """Delete everything in a namespace, and the namespace once it is empty."""
        left = False
        for collection in self._objects.store.collections():
            for below in list(collection.select(entry.key[1]).values()):
                if below.key[0] != entry.key[1]:
                    continue
                left = True
                if not below.is_deleting:
                    self._objects.delete(collection.kind, below, BACKGROUND)
        if not left:
            document = entry.document()
            document["spec"]["finalizers"] = []
            self._objects.update(kinds.NAMESPACE, entry, document, subresource="finalize")

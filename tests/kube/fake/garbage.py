"""The garbage collector and the namespace controller: what goes when something else has gone."""

import asyncio
from collections import deque

from tests.kube.fake import kinds
from tests.kube.fake.kinds import Kind
from tests.kube.fake.objects import Objects
from tests.kube.fake.store import Collection, Entry, Event, Key


class Garbage:
    """Works through a queue on the server's loop, always a moment after what causes it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._queue: deque[tuple[Kind, Key]] = deque()
        objects.store.observers.append(self._observe)

    def _observe(self, collection: Collection, event: Event) -> None:
        if event.new is None:
            for below, key in list(self._objects.store.dependents.get(event.last.uid, {})):
                self._look_at(below.kind, key)
            if event.last.key[0]:
                self._look_at(kinds.NAMESPACE, ("", event.last.key[0]))
        elif event.new.is_deleting or (event.new.owners and event.old is None):
            self._look_at(collection.kind, event.new.key)

    def _look_at(self, kind: Kind, key: Key) -> None:
        self._queue.append((kind, key))
        if len(self._queue) == 1:
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        due, self._queue = self._queue, deque()
        for kind, key in due:
            entry = self._objects.store.collection(kind).entries.get(key)
            if entry is None:
                continue
            if kind is kinds.NAMESPACE and entry.is_deleting:
                self._empty_namespace(entry)
            elif entry.owners and not (entry.is_deleting or self._has_owner(entry)):
                self._objects.delete(kind, entry)

    def _has_owner(self, entry: Entry) -> bool:
        return any(owner in self._objects.store.by_uid for owner in entry.owners)

    def _empty_namespace(self, entry: Entry) -> None:
        """Delete everything in a namespace, and the namespace once it is empty."""
        left = False
        for collection in self._objects.store.collections():
            for below in list(collection.select(entry.key[1]).values()):
                left = True
                if not below.is_deleting:
                    self._objects.delete(collection.kind, below)
        if not left:
            self._objects.remove(kinds.NAMESPACE, entry)

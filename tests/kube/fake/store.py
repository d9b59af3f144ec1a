"""Objects, their versions, their history, and who watches them.

An object is kept as the bytes that are sent: reading it as a document decodes them anew, so nothing that a
caller does to a document changes what is stored, and a watch event is encoded once for all its watchers.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.kube.fake.kinds import Kind

Document = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""


@dataclass(slots=True, eq=False)
class Entry:
    """One version of one object; never changed."""

    key: Key
    uid: str
    version: int
    labels: dict[str, str]
    owners: tuple[str, ...]
    """uids of its owners."""
    is_deleting: bool
    encoded: bytes

    def document(self) -> Document:
        """The object, as a copy of the caller's own."""
        return orjson.loads(self.encoded)


@dataclass(slots=True, eq=False)
class Event:
    """One change of one object."""

    version: int
    new: Entry | None
    old: Entry | None
    last: Entry
    """What to show: the new version, or the last one of a deleted object with the version of its end."""
    frames: dict[str, bytes] = field(default_factory=dict)

    def frame(self, type_: str) -> bytes:
        """The line of a watch, encoded once."""
        found = self.frames.get(type_)
        if found is None:
            found = self.frames[type_] = framed(type_, self.last.encoded)
        return found


def framed(type_: str, encoded: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), encoded)


class Collection:
    """All objects of one kind."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.entries: dict[Key, Entry] = {}
        self.by_namespace: dict[str, dict[Key, Entry]] = {}
        self.history: deque[Event] = deque()
        self.compacted = 0
        """Versions up to this one have left the history."""
        self.pages: dict[str, tuple[int, list[Entry]]] = {}
        """Token → the version that a list shows and what is left of it."""
        self.listeners: list[Callable[[Event], None]] = []
        self.head = len(orjson.dumps({"kind": kind.kind, "apiVersion": kind.api_version}))
        """Bytes that every object begins with: its kind and apiVersion."""

    def select(self, namespace: str) -> dict[Key, Entry]:
        """Present objects of one namespace, or of all."""
        return self.by_namespace.get(namespace, {}) if namespace else self.entries

    def since(self, version: int) -> list[Event]:
        """Events after a version, oldest first."""
        found = []
        for event in reversed(self.history):
            if event.version <= version:
                break
            found.append(event)
        return found[::-1]


Place = tuple[Collection, Key]


class Store:
    """Every object of the cluster."""

    def __init__(self, *, window: int) -> None:
        self.version = 1
        self.window = window
        """Events that a collection remembers."""
        self.by_uid: dict[str, Place] = {}
        self.dependents: dict[str, dict[Place, None]] = {}
        """uid of an owner → where its dependents are."""
        self.observers: list[Callable[[Collection, Event], None]] = []
        """Told of every change in any collection, after it has happened."""
        self._collections: dict[tuple[str, str], Collection] = {}

    def collection(self, kind: Kind) -> Collection:
        found = self._collections.get((kind.group, kind.plural))
        if found is None:
            found = self._collections[kind.group, kind.plural] = Collection(kind)
        return found

    def drop(self, kind: Kind) -> None:
        """Forget a kind and its objects, as when its definition goes."""
        collection = self.collection(kind)
        for entry in list(collection.entries.values()):
            self.remove(collection, entry)
        del self._collections[kind.group, kind.plural]

    def collections(self) -> Iterator[Collection]:
        yield from tuple(self._collections.values())

    def write(self, collection: Collection, document: Document, old: Entry | None) -> Entry:
        """Store an object's new version and tell everybody."""
        self.version += 1
        entry = self._entry(collection, document)
        key = entry.key
        collection.entries[key] = entry
        collection.by_namespace.setdefault(key[0], {})[key] = entry
        if old is None:
            self.by_uid[entry.uid] = (collection, key)
        if old is None or old.owners != entry.owners:
            self._unlink((collection, key), old.owners if old else ())
            for owner in entry.owners:
                self.dependents.setdefault(owner, {})[collection, key] = None
        self._happened(collection, Event(self.version, entry, old, entry))
        return entry

    def remove(self, collection: Collection, old: Entry) -> None:
        """Take an object out for good and tell everybody."""
        self.version += 1
        last = self._entry(collection, old.document())
        del collection.entries[old.key]
        del collection.by_namespace[old.key[0]][old.key]
        self.by_uid.pop(old.uid, None)
        self._unlink((collection, old.key), old.owners)
        self._happened(collection, Event(self.version, None, old, last))

    def compact(self) -> None:
        """Forget history, as etcd's compaction does: who is behind must list anew."""
        for collection in self._collections.values():
            collection.history.clear()
            collection.pages.clear()
            collection.compacted = self.version

    def _unlink(self, place: Place, owners: tuple[str, ...]) -> None:
        for owner in owners:
            below = self.dependents.get(owner, {})
            below.pop(place, None)
            if not below:
                self.dependents.pop(owner, None)

    def _entry(self, collection: Collection, document: Document) -> Entry:
        """A document as it is stored at the present version."""
        metadata, kind = document["metadata"], collection.kind
        metadata["resourceVersion"] = str(self.version)
        # Kind and apiVersion stand first: a list of built-in objects cuts them off.
        ordered = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return Entry(
            key=(metadata.get("namespace", ""), metadata["name"]),
            uid=metadata.get("uid", ""),
            version=self.version,
            labels=metadata.get("labels") or {},
            owners=tuple(one["uid"] for one in metadata.get("ownerReferences") or ()),
            is_deleting="deletionTimestamp" in metadata,
            encoded=orjson.dumps({**ordered, **{k: v for k, v in document.items() if k not in ordered}}),
        )

    def _happened(self, collection: Collection, event: Event) -> None:
        collection.history.append(event)
        if len(collection.history) > self.window:
            collection.compacted = collection.history.popleft().version
        for listener in tuple(collection.listeners):
            listener(event)
        event.frames.clear()  # history would hold every object twice
        for observer in self.observers:
            observer(collection, event)

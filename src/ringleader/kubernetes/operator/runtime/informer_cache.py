"""One kind of object as last seen, with what we wrote ourselves laid over it until the watch has caught up.

A decision must not rest on a cache that has not yet seen the Pods that the pass before made. So whatever a
write returns is entered here at once; what the watch brings later replaces it only if it is newer.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import controller_of, labels_of, metadata_of
from ringleader.kubernetes.mpijob.model import KIND
from ringleader.kubernetes.mpijob.object_metadata import JOB_NAME, MANAGED_BY

T = TypeVar("T")
Key = tuple[str, str]
"""Namespace and name."""
_REMEMBERED = 20_000
"""Objects that are gone whose uid is remembered, for answers to writes that come later than the watch."""


@dataclass(frozen=True, kw_only=True)
class CachedObject(Generic[T]):
    """An object as it is kept, with what tells its versions apart."""

    uid: str
    resource_version: str
    job: str
    """Name of the MPIJob it belongs to; empty where it says nothing of one."""
    is_labelled: bool
    """It has the label by which informers find it."""
    value: T


def cached(document: Object, value: T) -> CachedObject[T]:
    """Return what is kept of an object beside its value."""
    meta, labels, owner = metadata_of(document), labels_of(document), controller_of(document)
    owner_job = owner.get("name", "") if owner.get("kind") == KIND else ""
    return CachedObject(
        uid=meta.get("uid", ""),
        resource_version=meta.get("resourceVersion", ""),
        job=owner_job or labels.get(JOB_NAME) or "",
        is_labelled=MANAGED_BY in labels,
        value=value,
    )


@dataclass
class _Entry(Generic[T]):
    kept: CachedObject[T]
    is_seen: bool
    """The watch has told of this very object; until then only our own write has."""
    written_at: float


class InformerCache(Generic[T]):
    """Objects by namespace and name, and by the job they belong to."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        mark_deleting: Callable[[T], T],
        changed: Callable[[str, str], None] = lambda namespace, job: None,
        patience: float = 60.0,
    ) -> None:
        """Start empty. ``changed`` hears the namespace and the job of whatever the watch brings.

        ``patience``: seconds until an object that we made and that no watch ever showed is taken for gone.
        """
        self._clock, self._mark, self._changed, self._patience = clock, mark_deleting, changed, patience
        self._entries: dict[Key, _Entry[T]] = {}
        self._by_job: defaultdict[Key, set[str]] = defaultdict(set)
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._deleting: set[str] = set()

    def __len__(self) -> int:
        """Objects that are kept."""
        return len(self._entries)

    def get(self, namespace: str, name: str) -> CachedObject[T] | None:
        """Return one object."""
        entry = self._entries.get((namespace, name))
        return None if entry is None or self._is_doubtful(entry) else entry.kept

    def of_job(self, namespace: str, job: str) -> Iterator[CachedObject[T]]:
        """Yield the objects of a job."""
        for name in self._by_job.get((namespace, job), ()):
            entry = self._entries[namespace, name]
            if not self._is_doubtful(entry):
                yield entry.kept

    def from_watch(self, namespace: str, name: str, kept: CachedObject[T] | None) -> None:
        """Take over what the watch says of a name: an object, or that it is gone."""
        before = self._entries.get((namespace, name))
        if kept is not None:
            if before is not None and before.kept.uid == kept.uid:
                before.is_seen = True
                if before.kept.resource_version == kept.resource_version:
                    return  # the echo of our own write
            if before is None or not is_newer(before.kept.resource_version, kept.resource_version):
                self._put(namespace, name, _Entry(self._marked(kept), True, 0.0))
                self._changed(namespace, kept.job)
        elif before is not None and before.is_seen:
            self._remove(namespace, name, before)
            self._changed(namespace, before.kept.job)

    def from_write(self, namespace: str, name: str, kept: CachedObject[T]) -> None:
        """Take over what a write of ours returned."""
        before = self._entries.get((namespace, name))
        if kept.uid in self._gone:
            return
        if before is None or not is_newer(before.kept.resource_version, kept.resource_version):
            is_seen = before is not None and before.is_seen and before.kept.uid == kept.uid
            self._put(namespace, name, _Entry(self._marked(kept), is_seen, self._clock()))

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """Note that the server took our request to delete an object: it goes away, whatever is seen of it."""
        entry = self._entries.get((namespace, name))
        if entry is None or entry.kept.uid != uid:
            return
        if not entry.is_seen:
            self._remove(namespace, name, entry)
            return
        self._deleting.add(uid)
        entry.kept = self._marked(entry.kept)

    def missing(self, namespace: str, name: str, uid: str) -> None:
        """Note that the server said this object is not there."""
        entry = self._entries.get((namespace, name))
        if entry is not None and entry.kept.uid == uid:
            self._remove(namespace, name, entry)

    def _put(self, namespace: str, name: str, entry: _Entry[T]) -> None:
        before = self._entries.get((namespace, name))
        if before is not None:
            if before.kept.uid != entry.kept.uid:
                self._remember_gone(before.kept.uid)
            if before.kept.job != entry.kept.job:
                self._leave(namespace, name, before.kept.job)
        self._entries[namespace, name] = entry
        if entry.kept.job:
            self._by_job[namespace, entry.kept.job].add(name)

    def _remove(self, namespace: str, name: str, entry: _Entry[T]) -> None:
        del self._entries[namespace, name]
        self._leave(namespace, name, entry.kept.job)
        self._remember_gone(entry.kept.uid)

    def _leave(self, namespace: str, name: str, job: str) -> None:
        names = self._by_job.get((namespace, job))
        if names is not None:
            names.discard(name)
            if not names:
                del self._by_job[namespace, job]

    def _remember_gone(self, uid: str) -> None:
        self._deleting.discard(uid)
        self._gone[uid] = None
        while len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)

    def _marked(self, kept: CachedObject[T]) -> CachedObject[T]:
        return replace(kept, value=self._mark(kept.value)) if kept.uid in self._deleting else kept

    def _is_doubtful(self, entry: _Entry[T]) -> bool:
        return not entry.is_seen and self._clock() - entry.written_at > self._patience


def is_newer(one: str, other: str) -> bool:
    """Say whether one resource version is newer than the other.

    Servers of Kubernetes count them up and document that they compare as numbers; of any that are no numbers
    the one that came last (``other``) counts as the newer.
    """
    return one.isdecimal() and other.isdecimal() and int(one) > int(other)

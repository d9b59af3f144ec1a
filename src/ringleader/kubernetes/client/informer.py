"""One kind of object, kept up to date in memory: listed, watched from then on, our own writes laid over it.

Of each object only what ``project`` makes of it is kept. Watches that end, break off, go silent or become too
old are opened anew: from the last version where the server still knows it, else with a new list, whose
difference to what was known is reported like any other change.

A decision must not rest on memory that has not seen yet what was written before it: whoever writes hands on
what the server answered (``wrote``, ``deleted``, ``missing``), which counts until the watch knows better.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ringleader.errors import Fault, RefusedError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import Resource
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.retry import Backoff, Outage, may_pass

T = TypeVar("T")
Key = tuple[str, str]
"""Namespace and name."""

_PAGE = 250
"""Objects per page: what parsing one takes up stays for good."""
_STABLE_S = 5.0
"""A watch that lived for this time was sound: the next pause is a short one again."""
_DOUBTS = 3
"""After as many answers in a row that are errors the version itself is doubted: list anew."""
_REMEMBERED = 20_000
"""Objects that are gone whose uid is remembered, for answers to writes that come later than the watch."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept(Generic[T]):
    """One object as it is kept."""

    namespace: str
    name: str
    uid: str
    version: str
    """``resourceVersion``."""
    group: str
    """What it is looked up by besides its name, such as its job; empty for nothing."""
    value: T
    is_seen: bool = True
    """The watch has shown this very object; until then only our own write has."""
    written_at: float | None = None
    """When this version was written by us; ``None``: the watch showed it."""


class Informer(Generic[T]):
    """Objects of one kind that fit the selectors, as they are now."""

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        project: Callable[[Object], T],
        group: Callable[[Object], str] = lambda document: "",
        mark_deleting: Callable[[T], T] = lambda value: value,
        changed: Callable[[Kept[T] | None, Kept[T] | None], None] = lambda before, now: None,
        news: asyncio.Event | None = None,
        patience: float = 60.0,
        outage: Outage | None = None,
        watch_timeout: float = 300.0,
        silence: float = 90.0,
        backoff: Backoff = Backoff(),  # noqa: B008 - a frozen value
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Nothing is asked before ``run``.

        ``changed`` hears an object before and now (``None``: there was none, it is gone) whenever the watch
        shows another value than is kept; the echo of our own write is not a change. ``news`` is set with each
        change and once all is listed. ``mark_deleting`` makes of a value that of an object whose deletion the
        server has taken. ``patience``: seconds until an object that we made and that no watch ever showed is
        taken for gone.

        A watch is opened anew after ``watch_timeout`` seconds, or once it has told nothing for ``silence``
        seconds: servers tell at least the version about once a minute.

        ``outage``: for somebody who looks on. It is informed when the server is unreachable and when it is
        back, which a new list finds out at once; a refusal ends ``run`` as it is, whenever it comes.
        """
        self.resource = resource
        self.synced = asyncio.Event()
        """Set once everything that there was at the start is known."""
        self._cluster, self._namespace, self._labels, self._fields = cluster, namespace, labels, fields
        self._project, self._group, self._mark = project, group, mark_deleting
        self._on_change, self._news, self._outage, self._patience = changed, news, outage, patience
        self._watch_timeout, self._silence = watch_timeout, silence
        self._backoff, self._clock, self._sleep = backoff, clock, sleep
        self._kept: dict[Key, Kept[T]] = {}
        self._groups: defaultdict[Key, set[str]] = defaultdict(set)
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._deleting: set[str] = set()
        self._version = ""
        self._failures, self._doubts = 0, 0
        self._opened: float | None = None
        self._has_worked = False
        """A watch has told something, or has come to an orderly end."""

    def __len__(self) -> int:
        """Objects that are known."""
        return len(self._kept)

    def kept(self, namespace: str, name: str) -> Kept[T] | None:
        """Return an object; ``None`` where there is none."""
        found = self._kept.get((namespace, name))
        return None if found is None or self._is_doubtful(found) else found

    def get(self, namespace: str, name: str) -> T | None:
        """Return what is kept of an object; ``None`` where there is none."""
        found = self.kept(namespace, name)
        return None if found is None else found.value

    def items(self) -> Iterator[Kept[T]]:
        """Yield everything known."""
        return (one for one in self._kept.values() if not self._is_doubtful(one))

    def of_group(self, namespace: str, group: str) -> Iterator[Kept[T]]:
        """Yield the objects of a group."""
        every = (self.kept(namespace, name) for name in self._groups.get((namespace, group), ()))
        return (one for one in every if one is not None)

    def wrote(self, document: Object) -> None:
        """Take over what a write of ours returned."""
        now = self._read(document, written_at=self._clock())
        before = self._kept.get((now.namespace, now.name))
        if now.uid not in self._gone and (before is None or not is_newer(before.version, now.version)):
            is_seen = before is not None and before.is_seen and before.uid == now.uid
            self._put(before, replace(now, is_seen=is_seen))

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """Note that the server accepted to delete an object, whatever is seen of it."""
        found = self._kept.get((namespace, name))
        if found is None or found.uid != uid:
            return
        if not found.is_seen:
            self._drop(found)
            return
        self._deleting.add(uid)
        self._kept[namespace, name] = replace(found, value=self._mark(found.value))

    def missing(self, namespace: str, name: str, uid: str) -> None:
        """Note that the server said that there is no such object."""
        found = self._kept.get((namespace, name))
        if found is not None and found.uid == uid:
            self._drop(found)

    async def run(self) -> None:
        """Keep up to date until cancelled.

        RefusedError where we may not list or watch this kind, or there is no such kind; once a watch has
        worked such answers are waited out like all else, except with an ``outage``: then ApiError as it came.
        """
        while True:
            self._opened = None
            try:
                if not self._version:
                    await self._list()
                    self.synced.set()
                    if self._news is not None:
                        self._news.set()
                    if self._outage is not None:
                        self._outage.over()
                self._opened = self._clock()
                was_quiet = await self._watch()
                pause = 0.0 if was_quiet or self._is_sound() else self._failed("it ended at once", 0.0)
            except ApiError as error:
                self._note_outage(error)
                pause = self._refused(error)
            except UnreachableError as error:
                self._note_outage(error)
                self._is_sound()
                pause = self._failed(str(error), 0.0)
            if pause:
                await self._sleep(pause)

    def _note_outage(self, error: ApiError | UnreachableError) -> None:
        """Tell whoever looks on. Raises what does not pass by itself."""
        if self._outage is None:
            return
        self._version = ""
        if isinstance(error, ApiError) and error.is_gone:
            return
        if not may_pass(error):
            raise error
        self._outage.began(error)

    async def _list(self) -> None:
        """Take over everything that there is, and tell what is gone."""
        try:
            await self._take_pages(_PAGE)
        except ApiError as error:
            if not error.is_gone:
                raise
            # The pages expired under way: all in one piece cannot.
            await self._take_pages(0)

    async def _take_pages(self, limit: int) -> None:
        listed: set[Key] = set()
        version = ""
        pages = self._cluster.pages(
            self.resource, self._namespace, labels=self._labels, fields=self._fields, limit=limit
        )
        async with aclosing(pages):
            async for page in pages:
                version = page.resource_version
                for document in page.items:
                    listed.add(self._see(document))
        for found in [one for key, one in self._kept.items() if key not in listed]:
            if found.is_seen or self._is_doubtful(found):
                self._drop(found, is_told=True)
        self._version = version

    async def _watch(self) -> bool:
        """Follow the changes of one watch until it ends: True where it was we who had heard nothing."""
        changes = self._cluster.watch(
            self.resource,
            self._namespace,
            resource_version=self._version,
            labels=self._labels,
            fields=self._fields,
            timeout=self._watch_timeout,
        )
        async with aclosing(changes):
            while True:
                try:
                    async with asyncio.timeout(self._silence):
                        change = await anext(changes, None)
                except TimeoutError:
                    return True
                self._has_worked = True
                if change is None:
                    return False
                if change.type == "DELETED":
                    self._see_end(change.object)
                elif change.type != "BOOKMARK":
                    self._see(change.object)
                # Whatever breaks next, this one got us on.
                self._failures = self._doubts = 0
                self._version = change.object["metadata"].get("resourceVersion") or self._version

    def _see(self, document: Object) -> Key:
        """Take over what the watch shows, unless what we wrote is newer."""
        now = self._read(document)
        key = (now.namespace, now.name)
        before = self._kept.get(key)
        if before is not None and before.written_at is not None:
            if before.uid == now.uid and before.version == now.version:  # the echo of our own write
                self._kept[key] = replace(before, is_seen=True, written_at=None)
                return key
            if is_newer(before.version, now.version):
                if before.uid == now.uid:
                    self._kept[key] = replace(before, is_seen=True)
                return key
        self._put(before, now)
        if before is None or (before.uid, before.value) != (now.uid, now.value):
            self._changed(before, now)
        return key

    def _changed(self, before: Kept[T] | None, now: Kept[T] | None) -> None:
        self._on_change(before, now)
        if self._news is not None:
            self._news.set()

    def _see_end(self, document: Object) -> None:
        """Take over that an object is gone, its last state first: a Pod's exit code may come with its end."""
        metadata = document["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if key in self._kept and self._kept[key].uid == metadata.get("uid", ""):
            self._see(document)
            self._drop(self._kept[key], is_told=True)

    def _read(self, document: Object, written_at: float | None = None) -> Kept[T]:
        metadata, value = document["metadata"], self._project(document)
        uid = metadata.get("uid", "")
        return Kept(
            namespace=sys.intern(metadata.get("namespace", "")),
            name=metadata["name"],
            uid=uid,
            version=metadata.get("resourceVersion", ""),
            group=sys.intern(self._group(document)),
            value=self._mark(value) if uid in self._deleting else value,
            written_at=written_at,
        )

    def _put(self, before: Kept[T] | None, now: Kept[T]) -> None:
        if before is not None and before.uid != now.uid:
            self._forget_uid(before.uid)
        if before is not None and before.group != now.group:
            self._leave(before)
        self._kept[now.namespace, now.name] = now
        if now.group:
            self._groups[now.namespace, now.group].add(now.name)

    def _drop(self, found: Kept[T], *, is_told: bool = False) -> None:
        del self._kept[found.namespace, found.name]
        self._leave(found)
        self._forget_uid(found.uid)
        if is_told:
            self._changed(found, None)

    def _leave(self, found: Kept[T]) -> None:
        names = self._groups.get((found.namespace, found.group))
        if names is not None:
            names.discard(found.name)
            if not names:
                del self._groups[found.namespace, found.group]

    def _forget_uid(self, uid: str) -> None:
        self._deleting.discard(uid)
        if uid:
            self._gone[uid] = None
        while len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)

    def _is_doubtful(self, found: Kept[T]) -> bool:
        if found.is_seen or found.written_at is None:
            return False
        return self._clock() - found.written_at > self._patience

    def _is_sound(self) -> bool:
        """Note a watch that worked for a while."""
        if self._opened is None or self._clock() - self._opened < _STABLE_S:
            return False
        self._failures = self._doubts = 0
        return True

    def _refused(self, error: ApiError) -> float:
        """Decide what an error that the server told means; return the pause before the next attempt."""
        if error.status in (401, 403, 404) and not self._has_worked:
            raise self._no_right(error)
        self._is_sound()
        self._doubts += 1
        if error.is_gone or error.status == 400 or self._doubts >= _DOUBTS:
            self._version, self._doubts = "", 0
        return self._failed(str(error), error.retry_after or 0.0)

    def _failed(self, what: str, at_least: float) -> float:
        self._failures += 1
        pause = max(at_least, self._backoff.after(self._failures))
        # A watch that breaks off once is everyday; that it does so again and again is not.
        level = logging.DEBUG if self._failures == 1 else logging.WARNING
        _log.log(level, "watching %s, again in %.1f s: %s", self.resource.plural, pause, what)
        return pause

    def _no_right(self, error: ApiError) -> RefusedError:
        plural = self.resource.plural
        if error.status == 404:
            hint = f"is the kind {self.resource.kind} of {self.resource.api_version} installed?"
        else:
            hint = f"the account needs the rights to list and watch {plural}"
        return RefusedError(Fault(where=f"watching {plural}", what=str(error), hint=hint))


def is_newer(one: str, other: str) -> bool:
    """Say whether one resource version is newer than the other.

    Servers of Kubernetes count them up and document that they compare as numbers; of any that are no numbers
    the one that came last (``other``) counts as the newer.
    """
    return one.isdecimal() and other.isdecimal() and int(one) > int(other)

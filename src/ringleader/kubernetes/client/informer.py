"""One kind of object, kept up to date in memory: listed once, watched from then on.

Of each object only what ``project`` makes of it is kept. Watches that end, break off, go silent or become too
old are opened anew: from the last version where the server still knows it, else with a new list, whose
difference to what was known is told like any other change.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
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
"""A watch that lived so long was sound: the next pause is a short one again."""
_DOUBTS = 3
"""After so many answers in a row that are errors the version itself is doubted: list anew."""

_log = logging.getLogger(__name__)


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
        changed: Callable[[str, str, T | None], None] = lambda namespace, name, value: None,
        outage: Outage | None = None,
        watch_timeout: float = 300.0,
        silence: float = 90.0,
        backoff: Backoff = Backoff(),  # noqa: B008 - a frozen value
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Nothing is asked before ``run``.

        ``changed`` hears namespace, name and the new value (``None``: it is gone) whenever the value differs
        from the one before. A watch is opened anew after ``watch_timeout`` seconds, or once it has told
        nothing for ``silence`` seconds: servers tell at least the version about once a minute.

        ``outage``: for somebody who looks on. It is told when the server is away and when it is back, which a
        new list finds out at once; a refusal ends ``run`` as it is, whenever it comes.
        """
        self.resource = resource
        self.synced = asyncio.Event()
        """Set once everything that there was at the start is known."""
        self._cluster, self._namespace, self._labels, self._fields = cluster, namespace, labels, fields
        self._project, self._changed, self._outage = project, changed, outage
        self._watch_timeout, self._silence = watch_timeout, silence
        self._backoff, self._clock, self._sleep = backoff, clock, sleep
        self._values: dict[Key, T] = {}
        self._version = ""
        self._failures, self._doubts = 0, 0
        self._opened: float | None = None
        self._has_worked = False
        """A watch has told something, or has come to an orderly end."""

    def __len__(self) -> int:
        """Objects that are known."""
        return len(self._values)

    def get(self, namespace: str, name: str) -> T | None:
        """Return what is kept of an object; ``None`` where there is none."""
        return self._values.get((namespace, name))

    def items(self) -> Iterator[tuple[str, str, T]]:
        """Yield namespace, name and value of everything known."""
        for (namespace, name), value in self._values.items():
            yield namespace, name, value

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
                    listed.add(self._put(document))
        for key in [key for key in self._values if key not in listed]:
            self._drop(key)
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
                    key = _key(change.object)
                    if key in self._values:  # its last state first: a Pod's exit code may come with its end
                        self._put(change.object)
                    self._drop(key)
                elif change.type != "BOOKMARK":
                    self._put(change.object)
                # Whatever breaks next, this one got us on.
                self._failures = self._doubts = 0
                self._version = change.object["metadata"].get("resourceVersion") or self._version

    def _put(self, document: Object) -> Key:
        key, value = _key(document), self._project(document)
        before = self._values.get(key)
        if before is not None and before == value:
            return key
        self._values[key] = value
        self._changed(*key, value)
        return key

    def _drop(self, key: Key) -> None:
        if self._values.pop(key, None) is not None:
            self._changed(*key, None)

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


def _key(document: Object) -> Key:
    metadata = document["metadata"]
    return sys.intern(metadata.get("namespace", "")), metadata["name"]

"""Lists in pages, and watches."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import orjson
from tests.kube.fake import selectors
from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import Refusal, bad_request, expired, too_old
from tests.kube.fake.store import Collection, Entry, Event, Key, Store, framed

Fits = Callable[[Entry], bool]


def fits(kind: Kind, query: Mapping[str, str]) -> Fits:
    """The test that the selectors of a request make."""
    by_label = selectors.labels(query.get("labelSelector", ""))
    tests = [_field(*one) for one in selectors.fields(query.get("fieldSelector", ""), kind)]
    return lambda entry: by_label(entry.labels) and all(test(entry) for test in tests)


def _field(path: str, value: str) -> Fits:
    places = {"metadata.namespace": 0, "metadata.name": 1}
    if path in places:
        return lambda entry: entry.key[places[path]] == value
    return lambda entry: selectors.field_value(entry.document(), path) == value


def number(text: str | None, what: str) -> int:
    """A number of the query; nothing is 0."""
    if not text:
        return 0
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'invalid {what}: strconv.ParseUint: parsing "{text}": invalid syntax')


@dataclass(frozen=True, kw_only=True)
class Page:
    """One answer to a list."""

    entries: list[Entry]
    version: int
    more: str = ""
    """The token that the rest is asked for with."""
    remaining: int = 0


def page(store: Store, collection: Collection, namespace: str, query: Mapping[str, str]) -> Page:
    """Select what a list asks for: all pages show the moment of the first."""
    version, start = _moment(store, collection, query)
    limit = number(query.get("limit"), "limit")
    is_now = version == store.version
    found = collection.select(namespace) if is_now else collection.at(version, namespace)
    test = fits(collection.kind, query)
    chosen = [found[key] for key in sorted(found) if key > start and test(found[key])]
    if not limit or len(chosen) <= limit:
        return Page(entries=chosen, version=version)
    token = base64.urlsafe_b64encode(orjson.dumps([version, *chosen[limit - 1].key])).decode()
    is_counted = not (query.get("labelSelector") or query.get("fieldSelector"))
    remaining = len(chosen) - limit if is_counted else 0
    return Page(entries=chosen[:limit], version=version, more=token, remaining=remaining)


def _moment(store: Store, collection: Collection, query: Mapping[str, str]) -> tuple[int, Key]:
    """As of which version to list, and after which key."""
    token = query.get("continue", "")
    if token:
        try:
            version, namespace, name = orjson.loads(base64.urlsafe_b64decode(token))
        except (binascii.Error, ValueError):
            raise bad_request("continue key is not valid")
        if version < collection.compacted:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. You can "
                "start a new list without the continue parameter, or use the continue token in this "
                "response to retrieve the remainder of the results."
            )
        return version, (namespace, name)
    if number(query.get("resourceVersion"), "resourceVersion") > store.version:
        details = {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1}
        raise Refusal(504, "Timeout", "Too large resource version", details=details)
    return store.version, ("", "")


def encoded_list(collection: Collection, found: Page) -> bytes:
    """A page as JSON. Items of built-in kinds leave out their kind and apiVersion."""
    kind = collection.kind
    metadata: dict[str, object] = {"resourceVersion": str(found.version)}
    if found.more:
        metadata["continue"] = found.more
        if found.remaining:
            metadata["remainingItemCount"] = found.remaining
    cut = collection.head if kind.custom is None else 0
    items = (b"{" + one.encoded[cut:] if cut else one.encoded for one in found.entries)
    head = orjson.dumps({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(items) + b"]}"


class Watcher:
    """One watch: lines wait here until its connection takes them."""

    def __init__(self, collection: Collection, namespace: str, test: Fits) -> None:
        self._collection, self._namespace, self._test = collection, namespace, test
        self._lines: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self.is_cut = False
        """It ends after the lines that wait."""
        self.is_dropped = False
        """The connection breaks."""
        self.is_silent = False
        """Events are swallowed: a watch that has gone stale."""

    def take(self, event: Event) -> None:
        """Keep the line of an event if the selectors let it through."""
        if self.is_silent or (self._namespace and event.last.key[0] != self._namespace):
            return
        # An object may come into the watch's view, or leave it.
        before = event.old is not None and self._test(event.old)
        after = event.new is not None and self._test(event.new)
        if before or after:
            self.push(event.frame(("MODIFIED" if before else "ADDED") if after else "DELETED"))

    def push(self, line: bytes) -> None:
        self._lines.append(line)
        self._wake.set()

    def cut(self) -> None:
        self.is_cut = True
        self._wake.set()

    def drop(self) -> None:
        self.is_dropped = True
        self.cut()

    async def lines(self, seconds: float) -> bytes:
        """Wait this long at most for lines; return all there are."""
        if not self._lines and not self.is_cut:
            self._wake.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                return b""
        found = b"".join(self._lines)
        self._lines.clear()
        return found

    def __enter__(self) -> Watcher:
        self._collection.listeners.append(self.take)
        return self

    def __exit__(self, *_: object) -> None:
        self._collection.listeners.remove(self.take)


def begin(collection: Collection, watcher: Watcher, query: Mapping[str, str], namespace: str) -> None:
    """Give a new watch what it has missed, or what there is."""
    asked = number(query.get("resourceVersion"), "resourceVersion")
    if asked == 0:
        for key in sorted(collection.select(namespace)):
            entry = collection.entries[key]
            watcher.take(Event(entry.version, entry, None, entry))
    elif asked < collection.compacted:
        refusal = too_old(asked, collection.compacted)
        watcher.push(framed("ERROR", orjson.dumps(refusal.document())))
        watcher.cut()
    else:
        for event in collection.since(asked):
            watcher.take(event)


def bookmark(kind: Kind, version: int) -> bytes:
    """A line that says how far a watch has come."""
    body = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {"resourceVersion": str(version)}}
    return framed("BOOKMARK", orjson.dumps(body))


async def stream(
    watcher: Watcher, *, seconds: float, every: float, bookmark_now: Callable[[], bytes] | None
) -> AsyncIterator[bytes]:
    """Yield lines until the time is up or the watch is cut; bookmarks in between and at the end."""
    loop = asyncio.get_running_loop()
    end, next_bookmark = loop.time() + seconds, loop.time() + every
    while True:
        now = loop.time()
        if now >= end:
            if bookmark_now is not None and not watcher.is_silent:
                yield bookmark_now()
            return
        found = await watcher.lines(min(end, next_bookmark) - now)
        if found:
            yield found
        if watcher.is_cut:
            return
        if loop.time() >= next_bookmark:
            next_bookmark = loop.time() + every
            if bookmark_now is not None and not watcher.is_silent:
                yield bookmark_now()

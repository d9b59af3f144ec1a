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
from tests.kube.fake.features import Features
from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import Refusal, bad_request, expired, too_old
from tests.kube.fake.store import Collection, Entry, Event, Key, Store, framed

Fits = Callable[[Entry], bool]


def fits(kind: Kind, query: Mapping[str, str], features: Features) -> Fits | None:
    """The test that the selectors of a request make; ``None``: everything fits."""
    tests: list[Fits] = []
    if query.get("labelSelector") and features.label_selectors:
        by_label = selectors.labels(query["labelSelector"], features)
        tests.append(lambda entry: by_label(entry.labels))
    if query.get("fieldSelector") and features.field_selectors:
        for path, equal, value in selectors.fields(query["fieldSelector"], kind):
            tests.append(_field(path, equal, value))
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else lambda entry: all(test(entry) for test in tests)


def _field(path: str, equal: bool, value: str) -> Fits:
    if path == "metadata.name":
        return lambda entry: (entry.key[1] == value) is equal
    if path == "metadata.namespace":
        return lambda entry: (entry.key[0] == value) is equal
    return lambda entry: (selectors.field_value(entry.document(), path) == value) is equal


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


def page(
    store: Store, collection: Collection, namespace: str, query: Mapping[str, str], features: Features
) -> Page:
    """Select what a list asks for."""
    test = fits(collection.kind, query, features)
    version, start = _moment(store, collection, query, features)
    limit = number(query.get("limit"), "limit") if features.limit_and_continue else 0
    if version == store.version or not features.consistent_pages:
        found = collection.select(namespace)
    else:
        found = collection.at(version, namespace)
    keys = sorted(key for key in found if key > start) if start else sorted(found)
    chosen = [found[key] for key in keys if test is None or test(found[key])]
    if not limit or len(chosen) <= limit:
        return Page(entries=chosen, version=version)
    remaining = 0 if test else len(chosen) - limit
    token = _token(version, chosen[limit - 1].key)
    return Page(entries=chosen[:limit], version=version, more=token, remaining=remaining)


def _moment(
    store: Store, collection: Collection, query: Mapping[str, str], features: Features
) -> tuple[int, Key | None]:
    """As of which version to list, and after which key."""
    token = query.get("continue", "")
    if token and features.limit_and_continue:
        version, start = _opened(token)
        if version < collection.compacted and features.expired_continue:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. You can "
                "start a new list without the continue parameter, or use the continue token in this "
                "response to retrieve the remainder of the results."
            )
        return max(version, collection.compacted), start
    asked = number(query.get("resourceVersion"), "resourceVersion")
    match = query.get("resourceVersionMatch", "")
    if match and match not in ("Exact", "NotOlderThan"):
        raise bad_request(f'resourceVersionMatch: Unsupported value: "{match}"')
    if asked > store.version:
        details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
        words = f"Too large resource version: {asked}, current: {store.version}"
        details["retryAfterSeconds"] = 1  # type: ignore[assignment]
        raise Refusal(504, "Timeout", words, details=details)
    if match == "Exact":
        if asked < collection.compacted and features.gone:
            raise too_old(asked, collection.compacted)
        return asked, None
    return store.version, None


def _token(version: int, key: Key) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([version, *key])).decode()


def _opened(token: str) -> tuple[int, Key]:
    try:
        version, namespace, name = orjson.loads(base64.urlsafe_b64decode(token))
    except (binascii.Error, ValueError):
        raise bad_request("continue key is not valid")
    return version, (namespace, name)


def encoded_list(collection: Collection, found: Page, features: Features) -> bytes:
    """A page as JSON. Items of built-in kinds leave out their kind and apiVersion."""
    kind = collection.kind
    metadata: dict[str, object] = {"resourceVersion": str(found.version)}
    if found.more:
        metadata["continue"] = found.more
        if found.remaining:
            metadata["remainingItemCount"] = found.remaining
    cut = collection.head if kind.custom is None and features.list_items_without_kind else 0
    items = (b"{" + one.encoded[cut:] if cut else one.encoded for one in found.entries)
    head = orjson.dumps({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(items) + b"]}"


class Watcher:
    """One watch: lines wait here until its connection takes them."""

    def __init__(self, collection: Collection, namespace: str, test: Fits | None, features: Features) -> None:
        self._collection = collection
        self._namespace = namespace
        self._test = test
        self._features = features
        self._lines: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self.show: Callable[[str, Event], bytes] = lambda type_, event: event.frame(type_)
        """How an event becomes a line."""
        self.is_cut = False
        """It ends after the lines that wait."""
        self.is_dropped = False
        """The connection breaks."""
        self.is_silent = False
        """Events are swallowed: a watch that has gone stale."""

    def take(self, event: Event) -> None:
        """Keep the line of an event if the selectors let it through."""
        if self._namespace and event.last.key[0] != self._namespace:
            return
        type_ = self._type(event)
        if type_ and not self.is_silent:
            self._lines.append(self.show(type_, event))
            self._wake.set()

    def _type(self, event: Event) -> str:
        """What the event is to this watch: an object may come into its view, or leave it."""
        test = self._test
        if test is None:
            before, after = event.old is not None, event.new is not None
        elif self._features.watch_selector_transitions:
            before = event.old is not None and test(event.old)
            after = event.new is not None and test(event.new)
        else:
            before, after = event.old is not None, event.new is not None
            if not test(event.last):
                return ""
        if after:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else ""

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
        """Wait so long at most for lines; return all there are."""
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


def begin(
    store: Store,
    collection: Collection,
    watcher: Watcher,
    query: Mapping[str, str],
    test: Fits | None,
    namespace: str,
    features: Features,
) -> None:
    """Give a new watch what it has missed, or what there is."""
    asked = number(query.get("resourceVersion"), "resourceVersion")
    if query.get("sendInitialEvents"):
        raise Refusal(
            422,
            "Invalid",
            'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is '
            "forbidden for watch unless the WatchList feature gate is enabled",
        )
    if asked == 0:
        for key in sorted(collection.select(namespace)):
            entry = collection.entries[key]
            if test is None or test(entry):
                watcher.take(Event(entry.version, entry, None, entry))
        return
    if asked < collection.compacted and features.gone:
        refusal = too_old(asked, collection.compacted)
        watcher.push(framed("ERROR", orjson.dumps(refusal.document())))
        watcher.cut()
        return
    if features.watch_resume:
        for event in collection.since(asked):
            watcher.take(event)


def bookmark(collection: Collection, version: int) -> bytes:
    """A line that says how far a watch has come."""
    kind = collection.kind
    return framed(
        "BOOKMARK",
        orjson.dumps(
            {
                "kind": kind.kind,
                "apiVersion": kind.api_version,
                "metadata": {"resourceVersion": str(version), "creationTimestamp": None},
            }
        ),
    )


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

"""Selectors, lists in pages, and watches."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import orjson
from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import bad_request, expired
from tests.kube.fake.store import Collection, Entry, Event, Store, framed

Fits = Callable[[Entry], bool]

# Selectors


def _requirements(text: str) -> Iterator[tuple[str, str]]:
    """Labels or paths and their values: a selector as the product writes it."""
    for part in filter(None, text.split(",")):
        key, is_there, value = part.replace("==", "=").partition("=")
        if not is_there or key.endswith("!"):
            raise bad_request(f"unable to parse requirement: {part!r} is not supported here")
        yield key.strip(), value.strip()


def fits(kind: Kind, query: Mapping[str, str]) -> Fits:
    """The test that the selectors of a request make."""
    labels = dict(_requirements(query.get("labelSelector", "")))
    fields = list(_requirements(query.get("fieldSelector", "")))
    for path, _ in fields:
        if path not in ("metadata.name", "metadata.namespace", *kind.fields):
            raise bad_request(f'field label not supported: "{path}"')

    def test(entry: Entry) -> bool:
        if not labels.items() <= entry.labels.items():
            return False
        key = {"metadata": dict(zip(("namespace", "name"), entry.key, strict=True))}
        seen = key if all(path.startswith("metadata.") for path, _ in fields) else entry.document()
        return all(_at(seen, path) == value for path, value in fields)

    return test


def _at(document: Any, path: str) -> str:
    """The value of a field as field selectors compare it: empty where it is missing."""
    for word in path.split("."):
        document = document.get(word) if isinstance(document, dict) else None
    return "" if document is None else str(document)


def matches_labels(selector: Mapping[str, Any], found: Mapping[str, str]) -> bool:
    """Whether labels fit a LabelSelector of a document."""
    if not (selector.get("matchLabels") or {}).items() <= found.items():
        return False
    for one in selector.get("matchExpressions") or ():
        value, word, values = found.get(one["key"]), one["operator"], one.get("values") or ()
        is_in = value in values if word in ("In", "NotIn") else value is not None
        if is_in == (word in ("NotIn", "DoesNotExist")):
            return False
    return True


# Lists


def number(text: str | None) -> int:
    """A number of the query; nothing is 0."""
    try:
        return int(text or 0)
    except ValueError:
        raise bad_request(f'strconv.ParseUint: parsing "{text}": invalid syntax')


def encoded_list(store: Store, collection: Collection, namespace: str, query: Mapping[str, str]) -> bytes:
    """What a list answers: all pages show the moment of the first."""
    version, limit, token = store.version, number(query.get("limit")), query.get("continue")
    if token:
        if token not in collection.pages:
            raise expired("The provided continue parameter is too old to display a consistent list result.")
        version, chosen = collection.pages.pop(token)
    else:
        test, found = fits(collection.kind, query), collection.select(namespace)
        chosen = [found[key] for key in sorted(found) if test(found[key])]
    metadata: dict[str, object] = {"resourceVersion": str(version)}
    if limit and len(chosen) > limit:
        metadata["continue"] = more = uuid.uuid4().hex
        collection.pages[more] = (version, chosen[limit:])
        chosen = chosen[:limit]
    kind = collection.kind
    # Items of built-in kinds leave out their kind and apiVersion.
    cut = collection.head if kind.custom is None else 0
    items = (b"{" + one.encoded[cut:] if cut else one.encoded for one in chosen)
    head = orjson.dumps({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(items) + b"]}"


# Watches


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

    def begin(self, asked: int) -> None:
        """Take what has happened since a version; 0: what there is."""
        collection = self._collection
        if asked == 0:
            found = collection.select(self._namespace)
            for key in sorted(found):
                self.take(Event(found[key].version, found[key], None, found[key]))
        elif asked < collection.compacted:
            refusal = expired(f"too old resource version: {asked} ({collection.compacted})")
            self._push(framed("ERROR", orjson.dumps(refusal.document())))
            self.cut()
        else:
            for event in collection.since(asked):
                self.take(event)

    def take(self, event: Event) -> None:
        """Keep the line of an event if the selectors let it through."""
        if self.is_silent or (self._namespace and event.last.key[0] != self._namespace):
            return
        # An object may come into the watch's view, or leave it.
        before = event.old is not None and self._test(event.old)
        after = event.new is not None and self._test(event.new)
        if before or after:
            self._push(event.frame(("MODIFIED" if before else "ADDED") if after else "DELETED"))

    def _push(self, line: bytes) -> None:
        self._lines.append(line)
        self._wake.set()

    def cut(self) -> None:
        self.is_cut = True
        self._wake.set()

    def drop(self) -> None:
        self.is_dropped = True
        self.cut()

    async def stream(
        self, seconds: float, every: float, bookmark: Callable[[], bytes] | None
    ) -> AsyncIterator[bytes]:
        """Yield lines until the time is up or the watch is cut; bookmarks in between and at the end."""
        loop = asyncio.get_running_loop()
        end, due = loop.time() + seconds, loop.time() + every
        while not self.is_cut and loop.time() < end:
            try:
                async with asyncio.timeout_at(min(end, due)):
                    await self._wake.wait()
            except TimeoutError:
                due = loop.time() + every
                if bookmark is not None and not self.is_silent:
                    yield bookmark()
            self._wake.clear()
            if found := self._taken():
                yield found
        if found := self._taken():
            yield found

    def _taken(self) -> bytes:
        found = b"".join(self._lines)
        self._lines.clear()
        return found


def bookmark_of(kind: Kind, version: int) -> bytes:
    """A line that says how far a watch has come."""
    body = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {"resourceVersion": str(version)}}
    return framed("BOOKMARK", orjson.dumps(body))

"""Objects as responses: JSON as it is, a Table for ``kubectl get``, or metadata alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web
from multidict import CIMultiDict
from tests.kube.fake.features import Features
from tests.kube.fake.kinds import Kind
from tests.kube.fake.lists_and_watches import Page, encoded_list
from tests.kube.fake.refusals import Refusal
from tests.kube.fake.store import Collection, Event, framed
from tests.kube.fake.tables import table

JSON = "application/json"


def view(accept: str, features: Features) -> str:
    """What the client wants to see: ``Table``, ``PartialObjectMetadata`` or nothing in particular."""
    first = accept.partition(",")[0]
    for word in ("Table", "PartialObjectMetadataList", "PartialObjectMetadata"):
        if f"as={word};" in f"{first};":
            on = features.tables if word == "Table" else features.partial_metadata
            return word.removesuffix("List") if on else ""
    return ""


def respond(body: bytes, status: int = 200, warnings: Sequence[str] = ()) -> web.Response:
    headers = [("Warning", f"299 - {_quoted(text)}") for text in warnings]
    return web.Response(body=body, status=status, content_type=JSON, headers=CIMultiDict(headers))


def _quoted(text: str) -> str:
    """A quoted string of RFC 9110, in one line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


def refuse(refusal: Refusal) -> web.Response:
    body = orjson.dumps(refusal.document())
    return web.Response(body=body, status=refusal.code, content_type=JSON, headers=refusal.headers)


def one(
    kind: Kind, encoded: bytes, how: str, query: Mapping[str, str], features: Features, now: float
) -> bytes:
    """One object as the client wants to see it."""
    if how == "Table":
        return orjson.dumps(table(kind, [encoded], query, features, now))
    return orjson.dumps(partial(encoded)) if how else encoded


def many(
    collection: Collection,
    found: Page,
    how: str,
    query: Mapping[str, str],
    features: Features,
    now: float,
) -> bytes:
    """A page as the client wants to see it."""
    if not how:
        return encoded_list(collection, found, features)
    metadata = {"resourceVersion": str(found.version), **({"continue": found.more} if found.more else {})}
    objects = [entry.encoded for entry in found.entries]
    if how == "Table":
        answer = table(collection.kind, objects, query, features, now)
        return orjson.dumps({**answer, "metadata": metadata})
    items = [partial(encoded) for encoded in objects]
    return orjson.dumps(
        {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": items,
        }
    )


def line(
    kind: Kind, how: str, query: Mapping[str, str], features: Features, now: Callable[[], float]
) -> Callable[[str, Event], bytes] | None:
    """How a watch shows an event."""
    if not how:
        return None

    def show(type_: str, event: Event) -> bytes:
        return framed(type_, one(kind, event.last.encoded, how, query, features, now()))

    return show


def partial(encoded: bytes) -> dict[str, Any]:
    """An object with nothing but its metadata."""
    metadata = orjson.loads(encoded)["metadata"]
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}

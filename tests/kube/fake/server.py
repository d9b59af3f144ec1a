"""The HTTP side: requests become calls, values and refusals become responses."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from aiohttp import web
from multidict import CIMultiDict
from tests.kube.fake import subresources
from tests.kube.fake.access import Access, User
from tests.kube.fake.containers import Containers
from tests.kube.fake.fault_injection import Fault, Faults
from tests.kube.fake.lists_and_watches import Watcher, bookmark_of, encoded_list, fits, number
from tests.kube.fake.objects import Objects
from tests.kube.fake.refusals import Refusal, bad_request, not_allowed
from tests.kube.fake.requests import Route, body_of, discovery, route

JSON = "application/json"
TRUE = ("true", "1")


def merge(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7396); neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merge(found.get(key), value)
    return found


def respond(body: bytes, status: int = 200, warnings: Sequence[str] = ()) -> web.Response:
    """JSON, with warnings as quoted strings of RFC 9110."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for text in warnings)
    headers = CIMultiDict(("Warning", f'299 - "{text}"') for text in quoted)
    return web.Response(body=body, status=status, content_type=JSON, headers=headers)


@dataclass(kw_only=True)
class Server:
    """Serves one cluster."""

    objects: Objects
    faults: Faults
    access: Access
    containers: Containers
    bookmark_every: float
    """Seconds between the bookmarks of a watch."""
    seen: list[tuple[str, str]] = field(default_factory=list)
    """Verb and resource of each request, where ``keeps_requests`` says so."""
    keeps_requests: bool = False

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        if self.faults.is_away:
            return _hang_up(request)
        try:
            return await self._answer(request)
        except Refusal as refusal:
            response = respond(orjson.dumps(refusal.document()), refusal.code)
            response.headers.update(refusal.headers)
            return response
        except ConnectionResetError:
            return web.Response()
        except orjson.JSONDecodeError as error:
            words = bad_request(f"couldn't get version/kind; json parse error: {error}")
            return respond(orjson.dumps(words.document()), words.code)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        user = self.access.user(request.headers.get("Authorization", ""))
        is_watch = request.query.get("watch") in TRUE
        found = route(self.objects.kinds, request.method, request.path, is_watch=is_watch)
        if found is None:
            return discovery(self.objects.kinds, request.path)
        if self.keeps_requests:
            self.seen.append((found.verb, found.resource))
        fault = await self.faults.strike(found) if self.faults.active else None
        if fault is not None and not fault.is_done:
            _strike(request, fault)
        self.access.check(found.kind, found, user)
        response = await self._serve(request, found, user)
        if fault is not None and fault.is_done:  # it was carried out and is to look as if it failed
            _strike(request, fault)
        return response

    async def _serve(self, request: web.BaseRequest, found: Route, user: User) -> web.StreamResponse:
        kind, objects = found.kind, self.objects
        if found.subresource not in ("", "status"):
            if found.subresource == "exec":
                self._judge_connection(found, user)
            return await subresources.answer(objects, self.containers, request, found)
        if found.verb == "create":
            return await self._create(request, found, user)
        if found.verb == "list":
            collection = objects.store.collection(kind)
            return respond(encoded_list(objects.store, collection, found.namespace, request.query))
        if found.verb == "watch":
            return await self._watch(request, found)
        if found.verb == "get":
            return respond(objects.find(kind, found.namespace, found.name).encoded)
        # Looked up after the body has been waited for: the object may have changed meanwhile.
        body = await body_of(request)
        entry = objects.find(kind, found.namespace, found.name)
        if found.verb == "delete":
            given = body or {}
            uid = (given.get("preconditions") or {}).get("uid") or ""
            left = objects.delete(kind, entry, grace=given.get("gracePeriodSeconds"), uid=uid, user=user.name)
            return respond(orjson.dumps(left))
        if found.verb == "patch":
            if request.content_type != "application/merge-patch+json":
                words = f"the body of the request was in an unknown format (got {request.content_type})"
                raise Refusal(415, "UnsupportedMediaType", words)
            body = merge(entry.document(), body)
        self.access.check_escalation(kind, found.namespace, body, user)
        encoded = objects.update(kind, entry, body, user=user.name, subresource=found.subresource)
        return respond(encoded, 200, objects.warnings)

    def _judge_connection(self, found: Route, user: User) -> None:
        """A WebSocket begins with GET; since 1.35 it takes the right to create as well."""
        self.access.check(found.kind, replace(found, verb="create"), user)
        place = {"namespace": found.namespace, "name": found.name}
        self.objects.admission.judge("CONNECT", found.kind, user.name, place, new={}, below="exec")

    async def _create(self, request: web.BaseRequest, found: Route, user: User) -> web.Response:
        document = await body_of(request)
        if found.kind.group == "authorization.k8s.io":
            return respond(self.access.review(found.kind, document, user), 201)
        if found.name or (found.kind.namespaced and not found.namespace):
            raise not_allowed()
        self.access.check_escalation(found.kind, found.namespace, document, user)
        strict = request.query.get("fieldValidation") == "Strict"
        encoded = self.objects.create(found.kind, found.namespace, document, user=user.name, strict=strict)
        return respond(encoded, 201, self.objects.warnings)

    async def _watch(self, request: web.BaseRequest, found: Route) -> web.StreamResponse:
        query, store = request.query, self.objects.store
        collection = store.collection(found.kind)
        watcher = Watcher(collection, found.namespace, fits(found.kind, query))
        watcher.begin(number(query.get("resourceVersion")))
        seconds = float(number(query.get("timeoutSeconds")) or 1800)
        bookmark = None
        if query.get("allowWatchBookmarks") in TRUE:
            bookmark = lambda: bookmark_of(found.kind, store.version)  # noqa: E731
        response = web.StreamResponse(headers={"Content-Type": JSON})
        self.faults.watchers.append(watcher)
        collection.listeners.append(watcher.take)
        try:
            await response.prepare(request)
            async for chunk in watcher.stream(seconds, self.bookmark_every, bookmark):
                await response.write(chunk)
            if watcher.is_dropped:
                return _hang_up(request, response)
            await response.write_eof()
        except ConnectionResetError:
            pass  # the client has gone
        finally:
            collection.listeners.remove(watcher.take)
            self.faults.watchers.remove(watcher)
        return response


def _strike(request: web.BaseRequest, fault: Fault) -> None:
    """Answer with the fault's refusal, or break the connection."""
    if fault.is_dropped:
        _hang_up(request)
        raise ConnectionResetError
    if fault.refusal is not None:
        raise fault.refusal


def _hang_up(request: web.BaseRequest, response: web.StreamResponse | None = None) -> web.StreamResponse:
    """Break the connection at once."""
    if request.transport is not None:
        request.transport.abort()
    return response or web.Response()

"""The HTTP side: requests become calls, values and refusals become responses."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web
from multidict import CIMultiDict
from tests.kube.fake import discovery, lists_and_watches, subresources
from tests.kube.fake.access import Access, User
from tests.kube.fake.admission import Attempt
from tests.kube.fake.containers import Containers
from tests.kube.fake.fault_injection import Fault, Faults
from tests.kube.fake.objects import DeleteOptions, Objects, WriteOptions
from tests.kube.fake.refusals import Refusal, bad_request, not_allowed
from tests.kube.fake.requests import Route, body_of, route

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"


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
        is_watch = request.query.get("watch") in ("true", "1")
        found = route(self.objects.kinds, request.method, request.path, is_watch=is_watch)
        if found is None:
            return discovery.answer(self.objects.kinds, request, user)
        if self.keeps_requests:
            self.seen.append((found.verb, found.resource))
        fault = await self.faults.strike(found) if self.faults.active else None
        if fault is not None and not fault.is_done:
            _strike(request, fault)
        self.access.check(found.kind, found.wish(), user)
        if found.subresource == "exec" and found.verb == "get":
            # A WebSocket begins with GET; since 1.35 it takes the right to create as well.
            self.access.check(found.kind, found.wish("create"), user)
        response = await self._serve(request, found, user)
        if fault is not None and fault.is_done:  # it was carried out and is to look as if it failed
            _strike(request, fault)
        return response

    async def _serve(self, request: web.BaseRequest, found: Route, user: User) -> web.StreamResponse:
        if found.subresource and found.subresource != "status":
            if found.subresource == "exec":
                self._judge_connection(found, user)
            return await subresources.answer(self.objects, self.containers, request, found)
        needs_name = found.verb in ("update", "patch", "delete")
        if found.verb not in found.kind.verbs or (needs_name and not found.name):
            raise not_allowed()
        if found.verb == "create":
            return await self._create(request, found, user)
        if found.verb == "list":
            collection = self.objects.store.collection(found.kind)
            page = lists_and_watches.page(self.objects.store, collection, found.namespace, request.query)
            return respond(lists_and_watches.encoded_list(collection, page))
        if found.verb == "watch":
            return await self._watch(request, found)
        if found.verb == "get":
            return respond(self.objects.find(found.kind, found.namespace, found.name).encoded)
        # Looked up after the body has been waited for: the object may have changed meanwhile.
        body = await body_of(request)
        entry = self.objects.find(found.kind, found.namespace, found.name)
        if found.verb == "delete":
            options = DeleteOptions.of(body or {}, user.name)
            return respond(orjson.dumps(self.objects.delete(found.kind, entry, options)))
        if found.verb == "patch":
            if request.content_type != MERGE_PATCH:
                words = f"the body of the request was in an unknown format (got {request.content_type})"
                raise Refusal(415, "UnsupportedMediaType", words)
            body = merge(entry.document(), body)
        self.access.check_escalation(found.kind, found.namespace, body, user)
        encoded = self.objects.update(
            found.kind,
            entry,
            body,
            WriteOptions.of(request.query, user.name),
            subresource=found.subresource,
            is_patch=found.verb == "patch",
        )
        return respond(encoded, 200, self.objects.warnings)

    def _judge_connection(self, found: Route, user: User) -> None:
        attempt = Attempt(
            operation="CONNECT",
            kind=found.kind,
            user=user.name,
            namespace=found.namespace,
            name=found.name,
            subresource=found.subresource,
            new={},
        )
        self.objects.admission.judge(attempt)

    async def _create(self, request: web.BaseRequest, found: Route, user: User) -> web.Response:
        document = await body_of(request)
        if found.kind.group == "authorization.k8s.io":
            return respond(self.access.review(found.kind, document, user), 201)
        if found.name or (found.kind.namespaced and not found.namespace):
            raise not_allowed()
        self.access.check_escalation(found.kind, found.namespace, document, user)
        options = WriteOptions.of(request.query, user.name)
        encoded = self.objects.create(found.kind, found.namespace, document, options)
        return respond(encoded, 201, self.objects.warnings)

    async def _watch(self, request: web.BaseRequest, found: Route) -> web.StreamResponse:
        query, store = request.query, self.objects.store
        collection = store.collection(found.kind)
        test = lists_and_watches.fits(found.kind, query)
        watcher = lists_and_watches.Watcher(collection, found.namespace, test)
        lists_and_watches.begin(collection, watcher, query, found.namespace)
        asked = lists_and_watches.number(query.get("timeoutSeconds"), "timeoutSeconds")
        bookmark = None
        if query.get("allowWatchBookmarks") in ("true", "1"):
            bookmark = lambda: lists_and_watches.bookmark(found.kind, store.version)  # noqa: E731
        response = web.StreamResponse(headers={"Content-Type": JSON})
        place = (found, watcher)
        self.faults.watchers.append(place)
        try:
            with watcher:
                await response.prepare(request)
                lines = lists_and_watches.stream(
                    watcher,
                    seconds=float(asked or 1800 + secrets.randbelow(1800)),
                    every=self.bookmark_every,
                    bookmark_now=bookmark,
                )
                async for chunk in lines:
                    await response.write(chunk)
            if watcher.is_dropped:
                return _hang_up(request, response)
            await response.write_eof()
        except ConnectionResetError:
            pass  # the client has gone
        finally:
            self.faults.watchers.remove(place)
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

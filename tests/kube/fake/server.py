"""The HTTP side: requests become calls, values and refusals become responses."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from aiohttp import web
from tests.kube.fake import discovery, lists_and_watches, response_formats, subresources
from tests.kube.fake.access import Access, User
from tests.kube.fake.admission import Attempt
from tests.kube.fake.apply import apply
from tests.kube.fake.containers import Containers
from tests.kube.fake.fault_injection import Fault, Faults
from tests.kube.fake.kind_schemas import shape_of
from tests.kube.fake.objects import Objects
from tests.kube.fake.options import DeleteOptions, WriteOptions
from tests.kube.fake.patches import json_patch, merge, strategic
from tests.kube.fake.refusals import Refusal, bad_request, not_allowed, unsupported_media
from tests.kube.fake.route import Route, route

_YAML = ("application/yaml", "application/apply-patch+yaml")
PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


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
            return response_formats.refuse(refusal)
        except orjson.JSONDecodeError as error:
            return response_formats.refuse(
                bad_request(f"couldn't get version/kind; json parse error: {error}")
            )

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        features = self.objects.features
        user = self.access.user(
            request.headers.get("Authorization", ""), features, request.headers.get("Impersonate-User", "")
        )
        query = request.query
        is_watch = query.get("watch") in ("true", "1")
        found = route(self.objects.kinds, request.method, request.path, is_watch=is_watch)
        if found is None:
            return discovery.answer(self.objects, request, user, self.access)
        if self.keeps_requests:
            self.seen.append((found.verb, found.resource))
        fault = await self.faults.strike(found) if self.faults.active else None
        if fault is not None and not fault.is_done:
            if fault.is_dropped:
                return _hang_up(request)
            if fault.refusal is not None:
                raise fault.refusal
        self.access.check(found, user, features)
        if found.subresource == "exec" and found.verb == "get" and features.exec_needs_create:
            # A WebSocket begins with GET; since 1.35 it takes the right to create as well.
            self.access.check(replace(found, verb="create"), user, features)
        self._check_verb(found)
        response = await self._serve(request, found, user)
        return _spoiled(request, fault, response)

    def _check_verb(self, found: Route) -> None:
        if found.subresource:
            return
        if not found.verb or found.verb not in found.kind.verbs:
            raise not_allowed()
        if found.verb in ("create",) and found.name:
            raise not_allowed()
        if found.verb in ("update", "patch") and not found.name:
            raise not_allowed()

    async def _serve(self, request: web.BaseRequest, found: Route, user: User) -> web.StreamResponse:
        if found.subresource == "exec":
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
        if found.subresource and found.subresource != "status":
            return await subresources.answer(self.objects, self.containers, request, found)
        if found.verb == "create":
            return await self._create(request, found, user)
        if found.verb == "list":
            return self._list(request, found)
        if found.verb == "watch" and self.objects.features.watch:
            return await self._watch(request, found)
        if found.verb == "deletecollection":
            return await self._delete_collection(request, found, user)
        if found.verb == "watch":
            raise not_allowed()
        if found.verb in ("update", "patch"):
            return await self._change(request, found, user)
        entry = self.objects.find(found.kind, found.namespace, found.name)
        if found.verb == "get":
            return self._respond(request, found, entry.encoded)
        options = DeleteOptions.of(request.query, await _body(request) or {}, user.name)
        entry = self.objects.find(found.kind, found.namespace, found.name)
        return response_formats.respond(orjson.dumps(self.objects.delete(found.kind, entry, options)))

    def _respond(
        self,
        request: web.BaseRequest,
        found: Route,
        encoded: bytes,
        status: int = 200,
        warnings: Sequence[str] = (),
    ) -> web.Response:
        features = self.objects.features
        how = response_formats.view(request.headers.get("Accept", ""), features)
        body = response_formats.one(found.kind, encoded, how, request.query, features, self.objects.now())
        return response_formats.respond(body, status, warnings)

    async def _create(self, request: web.BaseRequest, found: Route, user: User) -> web.Response:
        document = await _body(request)
        if found.kind.group == "authorization.k8s.io":
            return response_formats.respond(
                self.access.review(found.kind, document, user, self.objects.features), 201
            )
        self.access.check_escalation(found, document, user, self.objects.features)
        options = WriteOptions.of(request.query, request.headers.get("User-Agent", ""), user.name)
        if found.kind.namespaced and not found.namespace:
            raise not_allowed()
        encoded = self.objects.create(found.kind, found.namespace, document, options)
        return self._respond(request, found, encoded, 201, self.objects.warnings)

    def _list(self, request: web.BaseRequest, found: Route) -> web.Response:
        features, query = self.objects.features, request.query
        collection = self.objects.store.collection(found.kind)
        page = lists_and_watches.page(self.objects.store, collection, found.namespace, query, features)
        how = response_formats.view(request.headers.get("Accept", ""), features)
        return response_formats.respond(
            response_formats.many(collection, page, how, query, features, self.objects.now())
        )

    async def _change(self, request: web.BaseRequest, found: Route, user: User) -> web.Response:
        options = WriteOptions.of(request.query, request.headers.get("User-Agent", ""), user.name)
        document = await _body(request)
        if request.content_type == "application/apply-patch+yaml":
            encoded, status = apply(self.objects, found, document, options)
            return self._respond(request, found, encoded, status, self.objects.warnings)
        # Looked up after the body has been waited for: the object may have changed meanwhile.
        entry = self.objects.find(found.kind, found.namespace, found.name)
        if request.method == "PUT":
            self.access.check_escalation(found, document, user, self.objects.features)
            encoded = self.objects.update(found.kind, entry, document, options, subresource=found.subresource)
            return self._respond(request, found, encoded)
        new = self._patched(found, request.content_type, entry.document(), document)
        self.access.check_escalation(found, new, user, self.objects.features)
        encoded = self.objects.update(
            found.kind, entry, new, options, subresource=found.subresource, is_patch=True
        )
        return self._respond(request, found, encoded, 200, self.objects.warnings)

    def _patched(self, found: Route, content_type: str, target: Any, patch: Any) -> Any:
        on = self.objects.features
        if content_type == "application/merge-patch+json" and on.merge_patch:
            if not isinstance(patch, dict):
                raise bad_request(
                    "json: cannot unmarshal array into Go value of type map[string]interface {}"
                )
            return merge(target, patch)
        if content_type == "application/json-patch+json" and on.json_patch:
            return json_patch(target, patch)
        is_built_in = found.kind.custom is None
        if (
            content_type == "application/strategic-merge-patch+json"
            and on.strategic_merge_patch
            and is_built_in
        ):
            return strategic(target, patch, shape_of(found.kind.api_version, found.kind.kind))
        raise unsupported_media(content_type, PATCHES if is_built_in else PATCHES[:2] + PATCHES[3:])

    async def _delete_collection(self, request: web.BaseRequest, found: Route, user: User) -> web.Response:
        features = self.objects.features
        if not features.delete_collection or (found.kind.namespaced and not found.namespace):
            raise not_allowed()
        body = await _body(request) or {}
        collection = self.objects.store.collection(found.kind)
        page = lists_and_watches.page(
            self.objects.store, collection, found.namespace, request.query, features
        )
        options = DeleteOptions.of(request.query, body, user.name)
        for entry in page.entries:
            self.objects.delete(found.kind, entry, options)
        return response_formats.respond(lists_and_watches.encoded_list(collection, page, features))

    async def _watch(self, request: web.BaseRequest, found: Route) -> web.StreamResponse:
        features, query = self.objects.features, request.query
        collection = self.objects.store.collection(found.kind)
        test = lists_and_watches.fits(found.kind, query, features)
        watcher = lists_and_watches.Watcher(collection, found.namespace, test, features)
        how = response_formats.view(request.headers.get("Accept", ""), features)
        watcher.show = (
            response_formats.line(found.kind, how, query, features, self.objects.now) or watcher.show
        )
        lists_and_watches.begin(
            self.objects.store, collection, watcher, query, test, found.namespace, features
        )
        asked = lists_and_watches.number(query.get("timeoutSeconds"), "timeoutSeconds")
        seconds = float(asked or 1800 + secrets.randbelow(1800)) if features.watch_timeout else 3600.0
        bookmark = None
        if query.get("allowWatchBookmarks") in ("true", "1") and features.bookmarks:
            bookmark = lambda: lists_and_watches.bookmark(collection, self.objects.store.version)  # noqa: E731
        response = web.StreamResponse(headers={"Content-Type": response_formats.JSON})
        place = (found, watcher)
        self.faults.watchers.append(place)
        try:
            with watcher:
                await response.prepare(request)
                lines = lists_and_watches.stream(
                    watcher, seconds=seconds, every=self.bookmark_every, bookmark_now=bookmark
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


async def _body(request: web.BaseRequest) -> Any:
    data = await request.read()
    if not data:
        return None
    if request.content_type in _YAML and data.lstrip()[:1] not in (b"{", b"["):
        import yaml

        return yaml.safe_load(data)
    if "protobuf" in request.content_type:
        raise unsupported_media(request.content_type, ("application/json", "application/yaml"))
    return orjson.loads(data)


def _hang_up(request: web.BaseRequest, response: web.StreamResponse | None = None) -> web.StreamResponse:
    """Break the connection at once."""
    if request.transport is not None:
        request.transport.abort()
    return response or web.Response()


def _spoiled(
    request: web.BaseRequest, fault: Fault | None, response: web.StreamResponse
) -> web.StreamResponse:
    """The answer to a request that was carried out although it is to look as if it failed."""
    if fault is None or not fault.is_done:
        return response
    if fault.is_dropped:
        return _hang_up(request)
    if fault.refusal is not None:
        raise fault.refusal
    return response

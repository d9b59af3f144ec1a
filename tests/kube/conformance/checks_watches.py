"""Watches: what comes, from when on, and how they end."""

from __future__ import annotations

import asyncio

from tests.kube.conformance.ground import API, Document, Ground, check
from tests.kube.conformance.http import Watch

WATCHES = f"{API}#efficient-detection-of-changes"


async def _next(ground: Ground, watch: Watch) -> Document:
    """The next event of what the check itself has made.

    A bookmark may come at any time, also first after a watch is resumed, and a cluster's own controllers put
    a ConfigMap into every new namespace when they come to it.
    """
    while True:
        found = await watch.next(ground.patience)
        assert found is not None, "the watch ended"
        is_other = found["object"].get("metadata", {}).get("name") == "kube-root-ca.crt"
        if found["type"] != "BOOKMARK" and not is_other:
            return found


def _shown(event: Document) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


async def _version(ground: Ground) -> str:
    found: str = (await ground.get(ground.maps))["metadata"]["resourceVersion"]
    return found


@check("watch", cites=f"{WATCHES}: ADDED, MODIFIED and DELETED in order, each with the whole object")
async def watches_tell_of_changes(ground: Ground) -> None:
    async with ground.http.watch(ground.maps, resourceVersion=await _version(ground)) as watch:
        assert watch.status == 200
        made = await ground.map()
        added = await _next(ground, watch)
        assert _shown(added) == ("ADDED", "map") and added["object"]["kind"] == "ConfigMap"
        assert added["object"]["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        changed = await ground.change(f"{ground.maps}/map", {"data": {"a": "2"}})
        event = await _next(ground, watch)
        assert _shown(event) == ("MODIFIED", "map") and event["object"]["data"] == {"a": "2"}
        (await ground.http.call("DELETE", f"{ground.maps}/map")).ok()
        event = await _next(ground, watch)
        assert _shown(event) == ("DELETED", "map")
        last = int(event["object"]["metadata"]["resourceVersion"])
        assert last > int(changed["metadata"]["resourceVersion"]), "a deletion has a version of its own"


@check("watch_resume", cites=f"{WATCHES}: a watch from a version tells of everything after it")
async def watches_resume(ground: Ground) -> None:
    version = await _version(ground)
    await ground.map("one")
    await ground.map("two")
    (await ground.http.call("DELETE", f"{ground.maps}/one")).ok()
    async with ground.http.watch(ground.maps, resourceVersion=version) as watch:
        found = [_shown(await _next(ground, watch)) for _ in range(3)]
    assert found == [("ADDED", "one"), ("ADDED", "two"), ("DELETED", "one")]


@check(cites=f"{API}#semantics-for-watch: without a version, first what there is")
async def watches_begin_with_what_there_is(ground: Ground) -> None:
    await ground.map("one")
    async with ground.http.watch(ground.maps, fieldSelector="metadata.name=one") as watch:
        assert _shown(await _next(ground, watch)) == ("ADDED", "one")


@check("watch_timeout", cites=f"{WATCHES}: timeoutSeconds ends a watch in good order")
async def watches_end_in_time(ground: Ground) -> None:
    version = await _version(ground)
    async with ground.http.watch(ground.maps, resourceVersion=version, timeoutSeconds="1") as watch:
        assert await watch.next(max(ground.patience, 3.0)) is None


@check(
    "watch_selector_transitions",
    cites=f"{API}#semantics-for-watch: leaving a selector is DELETED",
)
async def objects_enter_and_leave_a_view(ground: Ground) -> None:
    version = await _version(ground)
    path = f"{ground.maps}/map"
    async with ground.http.watch(ground.maps, resourceVersion=version, labelSelector="in=yes") as watch:
        await ground.map()
        await ground.change(path, {"metadata": {"labels": {"in": "yes"}}})
        await ground.change(path, {"data": {"a": "2"}})
        await ground.change(path, {"metadata": {"labels": {"in": "no"}}})
        found = [_shown(await _next(ground, watch)) for _ in range(3)]
    assert found == [("ADDED", "map"), ("MODIFIED", "map"), ("DELETED", "map")], found


@check("bookmarks", cites=f"{API}#watch-bookmarks: on request, at the latest before a watch ends")
async def bookmarks_tell_how_far_a_watch_is(ground: Ground) -> None:
    version = await _version(ground)
    made = await ground.map()
    query = {"resourceVersion": version, "timeoutSeconds": "3", "allowWatchBookmarks": "true"}
    bookmark = None
    async with ground.http.watch(ground.maps, **query) as watch:
        while (event := await watch.next(30)) is not None:
            bookmark = event if event["type"] == "BOOKMARK" else bookmark
    assert bookmark is not None, "no bookmark"
    assert bookmark["object"]["kind"] == "ConfigMap"
    reached = int(bookmark["object"]["metadata"]["resourceVersion"])
    assert reached >= int(made["metadata"]["resourceVersion"])


@check("gone", cites=f"{API}#410-gone-responses: a version that has been forgotten: an ERROR event with 410")
async def a_forgotten_version_is_gone(ground: Ground) -> None:
    await ground.map()
    await ground.change(f"{ground.maps}/map", {"data": {"a": "2"}})
    await ground.on_fake(lambda fake: fake.compact())
    async with ground.http.watch(ground.maps, resourceVersion="1") as watch:
        event = await _next(ground, watch)
        assert event["type"] == "ERROR", event
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert "too old resource version" in event["object"]["message"]
        assert await watch.next(ground.patience) is None, "the watch goes on"


@check(cites=f"{WATCHES}: all watches of a collection tell the same story")
async def all_watches_tell_the_same(ground: Ground) -> None:
    version = await _version(ground)

    async def follow() -> list[tuple[str, str]]:
        async with ground.http.watch(ground.maps, resourceVersion=version) as watch:
            return [_shown(await _next(ground, watch)) for _ in range(6)]

    following = [asyncio.ensure_future(follow()) for _ in range(4)]
    for name in ("a", "b", "c"):
        await ground.map(name)
        await ground.change(f"{ground.maps}/{name}", {"data": {"a": "2"}})
    stories = await asyncio.gather(*following)
    assert all(story == stories[0] for story in stories)

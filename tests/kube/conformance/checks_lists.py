"""Lists: selectors and pages."""

from __future__ import annotations

from tests.kube.conformance.ground import API, DOCS, Ground, check, mpijob, pod

LABELS = f"{DOCS}concepts/overview/working-with-objects/labels/#label-selectors"
FIELDS = f"{DOCS}concepts/overview/working-with-objects/field-selectors/"
PAGES = f"{API}#retrieving-large-results-sets-in-chunks"


async def _three(ground: Ground) -> None:
    await ground.map("one", labels={"app": "a", "tier": "front"})
    await ground.map("two", labels={"app": "b"})
    await ground.map("three")


def _ours(names: list[str]) -> list[str]:
    """Without what the cluster itself puts into every namespace."""
    return [name for name in names if name != "kube-root-ca.crt"]


@check("label_selectors", cites=f"{LABELS}: equality-based")
async def labels_select(ground: Ground) -> None:
    await _three(ground)
    for selector, wanted in (
        ("app=a", ["one"]),
        ("app==b", ["two"]),
        ("app!=a", ["three", "two"]),
        ("app=a,tier=front", ["one"]),
        ("app=a,tier=back", []),
    ):
        found = _ours(await ground.names(ground.maps, labelSelector=selector))
        assert found == wanted, f"{selector}: {found}"


@check("set_selectors", cites=f"{LABELS}: set-based")
async def sets_of_labels_select(ground: Ground) -> None:
    await _three(ground)
    for selector, wanted in (
        ("app in (a,b)", ["one", "two"]),
        ("app notin (a)", ["three", "two"]),
        ("app", ["one", "two"]),
        ("!app", ["three"]),
        ("app in (a, b),!tier", ["two"]),
    ):
        found = _ours(await ground.names(ground.maps, labelSelector=selector))
        assert found == wanted, f"{selector}: {found}"
    (await ground.http.call("GET", ground.maps, labelSelector="app in a")).refused(400, "BadRequest")


@check("field_selectors", cites=f"{FIELDS}: names everywhere, some fields of some kinds, else 400")
async def fields_select(ground: Ground) -> None:
    await _three(ground)
    assert await ground.names(ground.maps, fieldSelector="metadata.name=two") == ["two"]
    assert _ours(await ground.names(ground.maps, fieldSelector="metadata.name!=two")) == ["one", "three"]
    await ground.create(ground.pods, pod("left", schedulerName="nobody"))
    await ground.create(ground.pods, pod("right", schedulerName="somebody"))
    assert await ground.names(ground.pods, fieldSelector="spec.schedulerName=nobody") == ["left"]
    found = await ground.names(ground.pods, fieldSelector="status.phase=Pending,spec.schedulerName=somebody")
    assert found == ["right"]
    answer = await ground.http.call("GET", ground.pods, fieldSelector="spec.subdomain=x")
    answer.refused(400, "BadRequest", "field label not supported")


@check("limit_and_continue", cites=f"{PAGES}: limit, continue, remainingItemCount")
async def lists_come_in_pages(ground: Ground) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await ground.create(ground.mpijobs, mpijob(name))
    names, token, sizes = [], "", []
    while True:
        more = {"continue": token} if token else {}
        page = (await ground.http.call("GET", ground.mpijobs, limit="2", **more)).ok(200)
        names += [one["metadata"]["name"] for one in page["items"]]
        sizes.append((len(page["items"]), page["metadata"].get("remainingItemCount")))
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert names == ["a", "b", "c", "d", "e"]
    assert sizes == [(2, 3), (2, 1), (1, None)], sizes


@check("consistent_pages", cites=f"{PAGES}: all pages show the moment of the first")
async def pages_show_one_moment(ground: Ground) -> None:
    for name in ("a", "b", "c"):
        await ground.create(ground.mpijobs, mpijob(name))
    first = (await ground.http.call("GET", ground.mpijobs, limit="1")).ok(200)
    (await ground.http.call("DELETE", f"{ground.mpijobs}/b")).ok(200)
    await ground.create(ground.mpijobs, mpijob("d"))
    await ground.change(f"{ground.mpijobs}/c", {"spec": {"slotsPerWorker": 5}})
    more = {"continue": first["metadata"]["continue"]}
    rest = (await ground.http.call("GET", ground.mpijobs, limit="9", **more)).ok(200)
    assert [one["metadata"]["name"] for one in rest["items"]] == ["b", "c"]
    assert rest["items"][1]["spec"]["slotsPerWorker"] == 1
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@check(
    "expired_continue",
    cites=f"{PAGES}: 410 when the token's moment has been forgotten",
    fake_only="a real cluster forgets after five minutes",
)
async def old_pages_are_gone(ground: Ground) -> None:
    for name in ("a", "b"):
        await ground.create(ground.mpijobs, mpijob(name))
    first = (await ground.http.call("GET", ground.mpijobs, limit="1")).ok(200)
    await ground.create(ground.mpijobs, mpijob("c"))
    await ground.on_fake(lambda fake: fake.compact())
    more = {"continue": first["metadata"]["continue"]}
    answer = await ground.http.call("GET", ground.mpijobs, limit="1", **more)
    answer.refused(410, "Expired", "continue parameter is too old")


@check("list_items_without_kind", cites=f"{API}#collections: items carry no kind of their own")
async def items_of_built_in_lists_have_no_kind(ground: Ground) -> None:
    await ground.map()
    await ground.create(ground.mpijobs, mpijob())
    found = await ground.get(ground.maps)
    assert found["kind"] == "ConfigMapList" and found["apiVersion"] == "v1"
    assert all("kind" not in one and "apiVersion" not in one for one in found["items"])
    custom = await ground.get(ground.mpijobs)
    assert custom["kind"] == "MPIJobList" and custom["items"][0]["kind"] == "MPIJob"


@check(cites=f"{API}#semantics-for-get-and-list: a version from the future is refused, 0 is any")
async def lists_know_versions(ground: Ground) -> None:
    await ground.map()
    assert "map" in await ground.names(ground.maps, resourceVersion="0")
    now = (await ground.get(ground.maps))["metadata"]["resourceVersion"]
    assert "map" in await ground.names(ground.maps, resourceVersion=now, resourceVersionMatch="Exact")
    (await ground.http.call("GET", ground.maps, resourceVersion="x")).refused(400)


@check(cites=f"{API}#collections: a list over all namespaces")
async def lists_span_namespaces(ground: Ground) -> None:
    await ground.map("map-of-ours", labels={"mark": ground.namespace})
    found = (
        await ground.http.call("GET", "/api/v1/configmaps", labelSelector=f"mark={ground.namespace}")
    ).ok()
    assert [one["metadata"]["namespace"] for one in found["items"]] == [ground.namespace]

"""Informers against a script of lists and watches: what is kept, what is told, when it asks again."""

import asyncio
import json
import re
import weakref
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from ringleader.errors import RefusedError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import PODS
from ringleader.kubernetes.client.cluster import Change, Listing
from ringleader.kubernetes.client.informer import Informer, Kept
from ringleader.kubernetes.client.retry import Backoff, Outage

GONE = ApiError(status=410, reason="Expired", message="too old")
FORBIDDEN = ApiError(status=403, reason="Forbidden", message='cannot list resource "pods"')
UNKNOWN = ApiError(status=401, reason="Unauthorized", message="who")
MISSING = ApiError(status=404, reason="NotFound", message="no such path")
BUSY = ApiError(status=429, reason="TooManyRequests", message="busy", retry_after=7)
BROKEN = ApiError(status=500, reason="InternalError", message="broken")
AWAY = UnreachableError("away")
STEP = 100.0
"""How many seconds a watch lasts that is said to last."""


def pod(name: str, version: int, namespace: str = "n", phase: str = "Pending") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "resourceVersion": str(version)}
    return {"metadata": metadata, "status": {"phase": phase}}


def listing(version: int, *items: dict[str, Any]) -> list[Listing | Exception]:
    return [Listing(items=items, resource_version=str(version))]


def put(name: str, version: int, phase: str = "Running") -> Change:
    return Change(type="MODIFIED", object=pod(name, version, phase=phase))


def gone(name: str, version: int) -> Change:
    return Change(type="DELETED", object=pod(name, version))


def bookmark(version: int) -> Change:
    return Change(type="BOOKMARK", object={"metadata": {"resourceVersion": str(version)}})


class Silence:
    """In the script of a watch: nothing comes any more."""


class Lasts:
    """In the script of a watch: it lasts for a while."""


@dataclass
class Script:
    """A cluster that answers as written; when all is told, watches last for good."""

    lists: list[list[Listing | Exception]]
    watches: list[list[Change | Exception | Silence | Lasts]]
    calls: list[str] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    now: float = 0.0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def pages(self, resource: Any, namespace: str = "", **query: Any) -> AsyncGenerator[Listing, None]:
        assert (resource, namespace, query["labels"], query["fields"]) == (PODS, "n", "a=b", "c=d")
        self.calls.append(f"list {query['limit']}")
        for page in self.lists.pop(0):
            if isinstance(page, Exception):
                raise page
            yield page

    async def watch(self, resource: Any, namespace: str = "", **query: Any) -> AsyncGenerator[Change, None]:
        assert (resource, namespace, query["labels"], query["fields"]) == (PODS, "n", "a=b", "c=d")
        self.calls.append(f"watch {query['resource_version']}")
        if not self.watches:
            self.ended.set()
            await asyncio.Event().wait()
        for step in self.watches.pop(0):
            if isinstance(step, Exception):
                raise step
            if isinstance(step, Silence):
                await asyncio.Event().wait()
            elif isinstance(step, Lasts):
                self.now += STEP
            else:
                yield step

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def news(before: Kept[str] | None, now: Kept[str] | None) -> tuple[str, str | None]:
    """What an informer tells: the name, and the value that is left."""
    shown = now or before
    return shown.name, None if now is None else now.value


def played(
    script: Script,
    *,
    check: Callable[[Informer[str]], None] = lambda informer: None,
    silence: float = 60.0,
    outage: Outage | None = None,
) -> list[tuple[str, str | None]]:
    """Play a script to its end; returns what was told."""
    told: list[tuple[str, str | None]] = []
    informer: Informer[str] = Informer(
        script,  # type: ignore[arg-type]
        PODS,
        namespace="n",
        labels="a=b",
        fields="c=d",
        project=lambda document: document["status"]["phase"],
        changed=lambda before, now: told.append(news(before, now)),
        backoff=Backoff(first=1, longest=8, dice=lambda: 0.0),
        clock=lambda: script.now,
        sleep=script.sleep,
        silence=silence,
        outage=outage,
    )

    async def play() -> None:
        running = asyncio.ensure_future(informer.run())
        ended = asyncio.ensure_future(script.ended.wait())
        async with asyncio.timeout(60):
            await asyncio.wait((running, ended), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        assert informer.synced.is_set()
        check(informer)
        running.cancel()

    asyncio.run(play())
    return told


def test_a_list_and_its_changes() -> None:
    script = Script(
        [[*listing(4, pod("a", 1)), *listing(4, pod("b", 2))]],
        [[put("a", 5), bookmark(9), gone("b", 10), put("c", 11), Lasts()]],
    )

    def check(informer: Informer[str]) -> None:
        assert informer.get("n", "a") == "Running" and informer.get("n", "b") is None
        kept = sorted((one.namespace, one.name, one.value) for one in informer.items())
        assert kept == [("n", "a", "Running"), ("n", "c", "Running")]
        assert len(informer) == 2

    told = played(script, check=check)
    assert told == [("a", "Pending"), ("b", "Pending"), ("a", "Running"), ("b", None), ("c", "Running")]
    assert script.calls == ["list 250", "watch 4", "watch 11"]
    assert script.slept == []


def test_what_does_not_differ_is_not_told() -> None:
    script = Script(
        [listing(1, pod("a", 1))], [[put("a", 2, phase="Pending"), put("a", 3), put("a", 4), Lasts()]]
    )
    assert played(script) == [("a", "Pending"), ("a", "Running")]
    assert script.calls[-1] == "watch 4"


def test_a_version_that_is_too_old_lists_anew_and_tells_the_difference() -> None:
    script = Script(
        [listing(1, pod("a", 1), pod("b", 1)), listing(8, pod("b", 1), pod("c", 7, phase="Failed"))],
        [[GONE]],
    )
    told = played(script)
    assert told == [("a", "Pending"), ("b", "Pending"), ("c", "Failed"), ("a", None)]
    assert script.calls == ["list 250", "watch 1", "list 250", "watch 8"]
    assert script.slept == [1]


def test_pages_that_expire_are_fetched_in_one() -> None:
    script = Script([[*listing(1, pod("a", 1)), GONE], listing(9, pod("b", 8))], [])
    assert played(script) == [("a", "Pending"), ("b", "Pending"), ("a", None)]
    assert script.calls == ["list 250", "list 0", "watch 9"]


@pytest.mark.parametrize("fault", [AWAY, BROKEN])
def test_a_watch_that_breaks_goes_on_where_it_was(fault: Exception) -> None:
    script = Script([listing(1)], [[put("a", 5), fault], [put("b", 6), fault]])
    assert played(script) == [("a", "Running"), ("b", "Running")]
    assert script.calls == ["list 250", "watch 1", "watch 5", "watch 6"]
    assert script.slept == [1, 1], "each got on: no reason for longer pauses"


def test_never_a_hot_loop() -> None:
    script = Script([listing(1)], [[] for _ in range(6)] + [[Lasts()], []])
    played(script)
    assert script.slept == [1, 2, 4, 8, 8, 8, 1]


def test_a_server_that_is_away_from_the_start() -> None:
    script = Script([[AWAY], [AWAY], [BROKEN], [BUSY], listing(1)], [])
    assert played(script) == []
    assert script.slept == [1, 2, 4, 8]


def test_the_server_says_when_to_come_back() -> None:
    script = Script([listing(1)], [[BUSY]])
    played(script)
    assert script.slept == [7]


def test_a_version_that_leads_nowhere_is_given_up() -> None:
    script = Script([listing(1), listing(5, pod("a", 5))], [[BROKEN], [BROKEN], [BROKEN]])
    assert played(script) == [("a", "Pending")]
    assert script.calls == ["list 250", *["watch 1"] * 3, "list 250", "watch 5"]


def test_silence_is_not_believed_for_long() -> None:
    script = Script([listing(1)], [[put("a", 3), Silence()], [Silence()]])
    assert played(script, silence=0.01) == [("a", "Running")]
    assert script.calls[:4] == ["list 250", "watch 1", "watch 3", "watch 3"]
    assert script.slept == []


@pytest.mark.parametrize(
    ("fault", "said", "hint"),
    [
        (FORBIDDEN, 'cannot list resource "pods"', "the account needs the rights to list and watch pods"),
        (UNKNOWN, "who", "the account needs the rights to list and watch pods"),
        (MISSING, "no such path", "is the kind Pod of v1 installed?"),
    ],
)
def test_what_no_waiting_cures_is_an_error_at_the_start(fault: Exception, said: str, hint: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(said)) as caught:
        played(Script([[fault]], []))
    assert caught.value.faults[0].hint == hint
    assert caught.value.faults[0].where == "watching pods"


def test_the_right_to_watch_is_asked_for_too() -> None:
    with pytest.raises(RefusedError, match="cannot list"):
        played(Script([listing(1)], [[FORBIDDEN]]))


def test_once_it_has_worked_a_lost_right_is_waited_out() -> None:
    script = Script([listing(1), listing(1)], [[bookmark(2)], [UNKNOWN], [FORBIDDEN], [MISSING]])
    played(script)
    assert script.slept == [1, 2, 4, 8]


def test_only_what_is_projected_is_kept() -> None:
    namespaces = ["".join(("n", "n")) for _ in range(2)]
    documents = [pod(name, 1, namespace=namespace) for name, namespace in zip("ab", namespaces, strict=True)]

    def check(informer: Informer[str]) -> None:
        one, two = (kept.namespace for kept in informer.items())
        assert one is two, "namespaces are shared"
        assert json.dumps(informer._kept.popitem()[1].value) == '"Pending"'

    played(Script([listing(1, *documents)], []), check=check)


class Document(dict[str, Any]):
    """A document whose end can be seen."""


def test_documents_go_page_by_page() -> None:
    seen: list[weakref.ref[Document]] = []
    most = 0

    def alive() -> int:
        return sum(one() is not None for one in seen)

    class Pages(Script):
        async def pages(self, *_: Any, **query: Any) -> AsyncGenerator[Listing, None]:
            nonlocal most
            for page in range(5):
                items = tuple(Document(pod(f"{page}-{number}", 1)) for number in range(20))
                seen.extend(weakref.ref(item) for item in items)
                most = max(most, alive())
                listing = Listing(items=items, resource_version="1")
                del items
                yield listing
                del listing

    played(Pages([], []), check=lambda informer: None)
    assert len(seen) == 100 and most <= 40 and alive() == 0


# --- any history ------------------------------------------------------------------------------------------

STEPS = some.lists(
    some.one_of(
        some.tuples(some.just("put"), some.sampled_from("abc"), some.sampled_from(["Pending", "Running"])),
        some.tuples(some.just("gone"), some.sampled_from("abc"), some.just("")),
        some.tuples(some.sampled_from(["drop", "old", "end", "busy"]), some.just(""), some.just("")),
    ),
    max_size=25,
)


class History:
    """A server that lives through steps; faults hit the client in between."""

    def __init__(self, steps: list[tuple[str, str, str]]) -> None:
        self.steps, self.at, self.oldest = steps, 0, 0
        self.ended = asyncio.Event()

    def state(self, at: int) -> dict[str, str]:
        held: dict[str, str] = {}
        for kind, name, phase in self.steps[:at]:
            if kind == "put":
                held[name] = phase
            elif kind == "gone":
                held.pop(name, None)
        return held

    async def pages(self, *_: Any, **__: Any) -> AsyncGenerator[Listing, None]:
        items = tuple(pod(name, self.at, phase=phase) for name, phase in self.state(self.at).items())
        yield Listing(items=items, resource_version=str(self.at))

    async def watch(self, *_: Any, resource_version: str, **__: Any) -> AsyncGenerator[Change, None]:
        known = int(resource_version)
        if known < self.oldest:
            raise GONE
        while True:
            if known == len(self.steps):
                self.ended.set()
                await asyncio.Event().wait()
            kind, name, phase = self.steps[known]
            held = self.state(known)
            known += 1
            is_new, self.at = known > self.at, max(known, self.at)
            if kind == "put":
                yield Change(
                    type="MODIFIED" if name in held else "ADDED", object=pod(name, known, phase=phase)
                )
            elif kind == "gone" and name in held:
                yield Change(type="DELETED", object=pod(name, known))
            elif is_new and kind == "drop":
                raise AWAY
            elif is_new and kind == "busy":
                raise BUSY
            elif is_new and kind == "end":
                return
            elif is_new and kind == "old":
                # Two more steps happen unseen, and the versions before them are forgotten.
                self.at = self.oldest = min(known + 2, len(self.steps))
                raise GONE


@settings(deadline=None)
@given(steps=STEPS)
def test_after_any_history_the_state_is_the_server_s(steps: list[tuple[str, str, str]]) -> None:
    told: dict[str, str] = {}

    def changed(before: Kept[str] | None, now: Kept[str] | None) -> None:
        name, value = news(before, now)
        if value is None:
            assert told.pop(name, None) is not None, "what was never told of cannot go"
        else:
            assert told.get(name) != value, "told twice"
            told[name] = value

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    async def live() -> None:
        history = History(steps)
        informer: Informer[str] = Informer(
            history,  # type: ignore[arg-type]
            PODS,
            project=lambda document: document["status"]["phase"],
            changed=changed,
            sleep=sleep,
        )
        running = asyncio.ensure_future(informer.run())
        async with asyncio.timeout(60):
            await history.ended.wait()
        running.cancel()
        state = history.state(len(steps))
        assert told == {kept.name: kept.value for kept in informer.items()} == state

    asyncio.run(live())


def test_who_looks_on_hears_once_that_the_server_is_away_and_once_that_it_is_back() -> None:
    said: list[str] = []
    script = Script(
        [listing(4, pod("a", 1)), [AWAY], [BUSY], listing(9, pod("a", 1, phase="Running"))],
        [[put("b", 5), AWAY]],
    )
    told = played(script, outage=Outage(said.append))
    assert told == [("a", "Pending"), ("b", "Running"), ("a", "Running"), ("b", None)]
    assert [text.split(" (")[0] for text in said] == [
        "the API server does not answer",
        "the API server answers again",
    ]
    assert script.calls == ["list 250", "watch 4", "list 250", "list 250", "list 250", "watch 9"]


@pytest.mark.parametrize("refusal", [FORBIDDEN, UNKNOWN, MISSING])
def test_who_looks_on_gets_a_refusal_as_it_came_also_after_the_watch_has_worked(refusal: ApiError) -> None:
    script = Script([listing(4, pod("a", 1))], [[put("b", 5), refusal]])
    with pytest.raises(ApiError) as caught:
        played(script, outage=Outage(lambda text: None))
    assert caught.value is refusal


def test_an_old_version_is_no_outage() -> None:
    said: list[str] = []
    script = Script([listing(4), listing(8)], [[GONE]])
    played(script, outage=Outage(said.append))
    assert said == []


def test_the_last_state_of_what_goes_is_told_before_its_end() -> None:
    last = Change(type="DELETED", object=pod("a", 7, phase="Failed"))
    script = Script([listing(4, pod("a", 1))], [[last, Lasts()]])
    assert played(script) == [("a", "Pending"), ("a", "Failed"), ("a", None)]

"""What comes from an API server: errors, and the changes of a watch however they are cut into pieces."""

import itertools
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ringleader.kubernetes.client.api_errors import ApiError, response_error
from ringleader.kubernetes.client.cluster import LineBuffer, parse_change
from ringleader.kubernetes.client.http_transport import warnings_of

STATUS = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "message": 'pods "x" not found',
    "reason": "NotFound",
    "code": 404,
}


MOVED = "sends us to https://login, which no API server does"


def body(**more: Any) -> bytes:
    return json.dumps({**STATUS, **more}).encode()


@pytest.mark.parametrize(
    ("status", "headers", "text", "expected"),
    [
        (404, {}, body(), (404, "NotFound", 'pods "x" not found', None)),
        (409, {}, body(reason="AlreadyExists", code=409), (409, "AlreadyExists", 'pods "x" not found', None)),
        (429, {"Retry-After": "7"}, body(reason="TooManyRequests"), (429, "TooManyRequests", None, 7.0)),
        (429, {}, body(reason="", details={"retryAfterSeconds": 2}), (429, "TooManyRequests", None, 2.0)),
        (429, {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, b"", (429, "TooManyRequests", "", None)),
        (404, {}, b"404 page not found\n", (404, "NotFound", "404 page not found", None)),
        (502, {}, b"<p>\n bad\tgateway </p>", (502, "InternalError", "<p> bad gateway </p>", None)),
        (500, {}, b"x" * 400, (500, "InternalError", "x" * 300 + "…", None)),
        (302, {"Location": "https://login"}, b"", (302, "Unknown", MOVED, None)),
        (418, {}, b"\xff\xfe", (418, "Unknown", "\ufffd\ufffd", None)),
        (500, {}, b'{"kind": "Pod"}', (500, "InternalError", '{"kind": "Pod"}', None)),
    ],
)  # fmt: skip
def test_errors(status: int, headers: dict[str, str], text: bytes, expected: tuple[Any, ...]) -> None:
    error = response_error(status, headers, text, "GET /x")
    assert (error.status, error.reason, error.retry_after) == (expected[0], expected[1], expected[3])
    if expected[2] is not None:
        assert error.message == expected[2]
    assert str(error).startswith("GET /x: ")
    again = pickle.loads(pickle.dumps(error))
    assert (again.status, again.reason, again.message, str(again)) == (
        error.status, error.reason, error.message, str(error)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (404, "NotFound", {"is_missing"}),
        (409, "AlreadyExists", {"is_there_already"}),
        (409, "Conflict", {"is_stale"}),
        (410, "Expired", {"is_gone"}),
        (429, "TooManyRequests", {"is_passing"}),
        (503, "ServiceUnavailable", {"is_passing"}),
        (422, "Invalid", set()),
    ],
)
def test_what_an_error_is(status: int, reason: str, words: set[str]) -> None:
    error = response_error(status, {}, body(reason=reason, code=status), "")
    asked = ("is_missing", "is_there_already", "is_stale", "is_gone", "is_passing")
    assert {word for word in asked if getattr(error, word)} == words


def pod(name: str, version: int) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "resourceVersion": str(version)}}


def line(kind: str, value: Any) -> bytes:
    return json.dumps({"type": kind, "object": value}, ensure_ascii=False).encode()


NAMES = some.text(some.characters(blacklist_categories=("Cs",)), max_size=12)
EVENTS = some.lists(
    some.tuples(some.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]), NAMES, some.integers()),
    max_size=8,
)


@given(
    events=EVENTS,
    cuts=some.lists(some.integers(0, 600), max_size=20),
    ends=some.sampled_from([b"\n", b"\r\n"]),
)
def test_events_are_the_same_however_they_are_cut(
    events: list[tuple[str, str, int]], cuts: list[int], ends: bytes
) -> None:
    stream = b"".join(line(kind, pod(name, version)) + ends for kind, name, version in events)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    lines = LineBuffer()
    found = [
        parse_change(one, "")
        for start, end in itertools.pairwise(edges)
        for one in lines.feed(stream[start:end])
    ]
    assert [(change.type, change.object) for change in found] == [
        (kind, pod(name, version)) for kind, name, version in events
    ]
    assert not lines.rest().strip()


def test_what_has_no_end_of_line_is_kept() -> None:
    lines = LineBuffer()
    assert lines.feed(b'{"a"') == [] and lines.feed(b": 1}") == []
    assert lines.rest() == b'{"a": 1}'
    assert lines.feed(b"\n\n \nx") == [b'{"a": 1}']
    assert lines.rest() == b"x"


def test_an_error_in_a_watch() -> None:
    status = {**STATUS, "code": 410, "reason": "Expired", "message": "too old resource version"}
    with pytest.raises(ApiError) as caught:
        parse_change(line("ERROR", status), "watch /x")
    assert caught.value.is_gone and str(caught.value).startswith("watch /x: too old resource version")


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"5", b'{"type": "ADDED"}', line("ADDED", 5), line("OTHER", {}), b"\xff"]
)
def test_what_is_no_event(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_change(text, "")


def test_warnings_are_read_as_servers_quote_them() -> None:
    headers = [
        r'299 - "unknown field \"spec.replicas\""',
        r'299 - "unknown field \"spec.replicas\""',
        r'299 kube "one", 299 - "back\\slash"',
        "nonsense",
    ]
    assert warnings_of(headers) == ['unknown field "spec.replicas"', "one", "back\\slash"]

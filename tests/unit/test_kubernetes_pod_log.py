"""A log that is read again after an interruption is shown once, and is not read from its beginning."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.retry import Outage
from ringleader.kubernetes.jobs.pod_log import LogPosition, follow_log


def stamp(milliseconds: int) -> bytes:
    seconds, rest = divmod(milliseconds, 1000)
    return b"2026-01-31T12:%02d:%02d.%03d000000Z " % (seconds // 60, seconds % 60, rest)


class NodeLog:
    """A log on a node, read as the kubelet reads it: Kubernetes 1.36, cri-client/pkg/logs/logs.go."""

    def __init__(self, lines: list[tuple[int, bytes]]) -> None:
        """``lines``: milliseconds, text; one without an end is continued by the next, as parts in CRI are."""
        self.lines = lines

    @property
    def text(self) -> bytes:
        return b"".join(text for _, text in self.lines)

    def read(self, since: str) -> bytes:
        found, is_start = b"", True
        for at, text in self.lines:
            if stamp(at)[:19] >= since[:19].encode():
                found += (stamp(at) if is_start else b"") + text
            is_start = text.endswith(b"\n")
        return found


def pieces(text: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(places)]


lines = st.lists(
    st.tuples(
        st.integers(0, 1500),
        st.binary(max_size=12).map(lambda text: text.replace(b"\n", b"")),
        st.sampled_from([b"\n", b"\n", b"\n", b""]),
    ),
    max_size=12,
)


@given(steps=lines, breaks=st.lists(st.integers(0, 700), max_size=4), cuts=st.lists(st.integers(0, 700)))
def test_each_byte_once_over_any_interruptions(
    steps: list[tuple[int, bytes, bytes]], breaks: list[int], cuts: list[int]
) -> None:
    at, entries = 0, []
    for later, text, end in steps:
        at += later
        entries.append((at, text + end))
    log, shown, out = NodeLog(entries), LogPosition(), b""
    for length in (*sorted(breaks), None):
        for piece in pieces(log.read(shown.restart())[:length], cuts):
            out += shown.new(piece)
    assert out == log.text
    assert not shown.is_cut


def test_lines_out_of_order_are_shown_in_the_order_of_the_log() -> None:
    log = NodeLog([(5000, b"a\n"), (4900, b"b\n"), (5100, b"c\n"), (5050, b"d\n")])
    shown = LogPosition()
    whole = log.read(shown.restart())
    assert shown.new(whole[: whole.index(b"c\n") + 2]) == b"a\nb\nc\n"
    assert shown.new(log.read(shown.restart())) == b"d\n"


def test_lines_of_one_moment_are_told_apart() -> None:
    log = NodeLog([(5000, b"a\n"), (5000, b"a\n"), (5000, b"a\n")])
    shown = LogPosition()
    whole = log.read(shown.restart())
    assert shown.new(whole[:-3]) == b"a\na\n"
    assert shown.new(log.read(shown.restart())) == b"a\n"


def test_only_the_end_is_read_again() -> None:
    log = NodeLog([(second * 1000, b"%d\n" % second) for second in range(600)])
    shown = LogPosition()
    assert shown.restart() == ""
    assert shown.new(log.read("")) == log.text
    assert shown.restart() == "2026-01-31T12:09:58Z"
    assert len(log.read(shown.restart()).splitlines()) == 2


def test_a_log_that_was_cut_on_its_node_is_noticed() -> None:
    shown = LogPosition()
    shown.restart()
    shown.new(NodeLog([(0, b"a\n"), (1000, b"b\n")]).read(""))
    after = NodeLog([(60_000, b"c\n"), (61_000, b"d\n")])
    assert shown.new(after.read(shown.restart())) == b"c\nd\n"
    assert shown.is_cut


@pytest.mark.parametrize(
    "text", [b"", b"an answer without any stamp, longer than one would be\n", b"short\n"]
)
def test_text_without_stamps_is_shown_as_it_is(text: bytes) -> None:
    shown = LogPosition()
    shown.restart()
    assert shown.new(text) == text


class Server:
    """Breaks the first connection in the middle of a line, and ends the container after the second."""

    def __init__(self, log: NodeLog) -> None:
        self.log, self.asked = log, []  # type: ignore[var-annotated]

    async def logs(self, pod: str, namespace: str, **options: Any) -> AsyncIterator[bytes]:
        self.asked.append(options["since"])
        assert options["timestamps"] and options["follow"]
        text = self.log.read(options["since"])
        if len(self.asked) == 1:
            yield text[:-4]
            raise ApiError(status=500, reason="InternalError", message="broken")
        yield text

    async def get(self, resource: Any, name: str, namespace: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "status": {"phase": "Succeeded"}}


def test_a_follower_asks_for_the_rest_only() -> None:
    server = Server(NodeLog([(second * 1000, b"line %d\n" % second) for second in range(60)]))

    async def text() -> bytes:
        following = follow_log(
            server,  # type: ignore[arg-type]
            "p",
            "n",
            container="c",
            outage=Outage(lambda _: None),
            warn=lambda text: pytest.fail(text),
        )
        return b"".join([data async for data in following])

    assert asyncio.run(text()) == server.log.text
    assert server.asked == ["", "2026-01-31T12:00:58Z"]

"""A log that is read again after an interruption is shown once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.launch.kubernetes.pod_log import REMEMBERED, LogPosition


def pieces(text: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(places)]


@given(
    text=st.binary(max_size=60),
    breaks=st.lists(st.integers(0, 60), max_size=4),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_each_byte_once_over_any_interruptions(text: bytes, breaks: list[int], cuts: list[int]) -> None:
    shown, out = LogPosition(), b""
    for end in (*sorted(breaks), len(text)):  # each attempt gets a little further
        shown.restart()
        for piece in pieces(text[:end], cuts):
            out += shown.new(piece)
    assert out == text
    assert not shown.is_cut


@pytest.mark.parametrize("size", [10, REMEMBERED, 3 * REMEMBERED])
def test_a_log_that_was_cut_on_its_node_is_noticed(size: int) -> None:
    shown = LogPosition()
    before = bytes(index % 251 for index in range(size))
    assert shown.new(before) == before
    shown.restart()
    after = bytes(index % 13 + 1 for index in range(2 * size))
    assert shown.new(after) == after[size:]
    assert shown.is_cut

"""Sizes as nccl-tests' options give them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringleader.bench.message_sizes import message_sizes, size_in_bytes

MOST = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("64K", 65536),
        ("64k", 65536),
        ("8MiB", 8 << 20),
        ("8mb", 8 << 20),
        ("1.5G", 3 << 29),
        (" 2 ", 2),
        ("0", 0),
        ("", None),
        ("-1", None),
        ("1e6", None),
        ("64 X", None),
        ("nan", None),
        ("٣", None),
    ],
)
def test_a_size_has_a_binary_unit(text, size):
    assert size_in_bytes(text) == size


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        (("1", "8", "2"), (1, 2, 4, 8)),
        (("1", "7", "2"), (1, 2, 4)),
        (("3", "3", "2"), (3,)),
        (("4K", "1M", "16"), (4096, 65536, 1 << 20)),
        (("1", "1", "100000000"), (1,)),
    ],
)
def test_each_size_is_a_multiple_of_the_one_before(words, sizes):
    faults = []
    assert message_sizes(*words, most=MOST, faults=faults) == sizes and not faults


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("x", "y", "z"), ["-b", "-e", "-f"]),
        (("0", "2G", "1"), ["-b", "-e", "-f"]),
        (("8", "4", "2"), ["-b and -e"]),
        (("8", "16", "-2"), ["-f"]),
        (("8", "16", "1.5"), ["-f"]),
        (("8", "4", "0"), ["-f", "-b and -e"]),
    ],
)
def test_all_faults_are_told_at_once(words, where):
    faults = []
    assert message_sizes(*words, most=MOST, faults=faults) == ()
    assert [fault.where for fault in faults] == where


@settings(max_examples=50, deadline=None)
@given(*(st.text("0123456789kKmMgG.ib- ", max_size=12) for _ in range(3)))
def test_any_words_give_sizes_or_faults(low, high, factor):
    faults = []
    sizes = message_sizes(low, high, factor, most=MOST, faults=faults)
    assert bool(sizes) != bool(faults)
    assert list(sizes) == sorted(set(sizes)) and all(1 <= size <= MOST for size in sizes)

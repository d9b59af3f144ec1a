"""Sizes as nccl-tests' options give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.bench.message_sizes import Size, message_sizes, size_up_to
from ringleader.option_fields import WrongValueError

MOST = 1 << 30
read = size_up_to(MOST, "1024M")


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
def test_a_size_has_a_binary_unit_and_is_shown_as_written(text, size):
    if size is None:
        with pytest.raises(WrongValueError, match="is not a size"):
            Size(text)
    else:
        assert int(Size(text)) == size and str(Size(text)) == text


@pytest.mark.parametrize(
    ("words", "factor", "sizes"),
    [
        (("1", "8"), 2, (1, 2, 4, 8)),
        (("1", "7"), 2, (1, 2, 4)),
        (("3", "3"), 2, (3,)),
        (("4K", "1M"), 16, (4096, 65536, 1 << 20)),
        (("1", "1"), 100000000, (1,)),
    ],
)
def test_each_size_is_a_multiple_of_the_one_before(words, factor, sizes):
    faults = []
    low, high = map(read, words)
    assert (
        message_sizes(low, high, factor=factor, options=("-b", "-e"), faults=faults) == sizes and not faults
    )


@pytest.mark.parametrize(
    ("text", "what"), [("0", "1 byte at least"), ("2G", "2G is 2147483648 bytes"), ("x", "'x' is not a size")]
)
def test_a_size_is_within_bounds(text, what):
    with pytest.raises(WrongValueError, match=what):
        read(text)


@given(*(st.text("0123456789kKmMgG.ib- ", max_size=12) for _ in range(2)), st.integers(2, 10**9))
def test_any_words_give_sizes_or_faults(low, high, factor):
    try:
        words = read(low), read(high)
    except WrongValueError:
        return
    faults = []
    sizes = message_sizes(*words, factor=factor, options=("-b", "-e"), faults=faults)
    assert bool(sizes) != bool(faults) and [fault.where for fault in faults] in ([], ["-b and -e"])
    assert list(sizes) == sorted(set(sizes)) and all(1 <= size <= MOST for size in sizes)

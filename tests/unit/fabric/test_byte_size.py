"""Sizes as people read them."""

import pytest

from ringleader.fabric.byte_size import byte_size


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (12800, "12.5 KiB"),
        (256 << 20, "256 MiB"),
        ((1 << 30) - 1, "1 GiB"),
        (5 << 28, "1.25 GiB"),
    ],
)
def test_byte_size(nbytes: int, text: str) -> None:
    assert byte_size(nbytes) == text

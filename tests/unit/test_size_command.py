"""What a size's words become, and batches that cannot be shared out."""

from __future__ import annotations

import pytest

from ringleader.bench.grid import parse_baseline, parse_grid, with_baseline
from ringleader.bench.size_command import batch_faults, command_of, placeholders
from ringleader.errors import RequestError

GRID = parse_grid("1x1,1x2,2x4")
TWO, EIGHT = GRID[1], GRID[2]


@pytest.mark.parametrize(
    ("word", "two", "eight"),
    [
        ("{batch}", "128", "32"),
        ("--batch={batch}", "--batch=128", "--batch=32"),
        ("out-{hosts}x{ranks}.txt", "out-1x2.txt", "out-2x8.txt"),
        ("{{batch}}", "{batch}", "{batch}"),
        ("{rank} {} {{}} {other}", "{rank} {} {{}} {other}", "{rank} {} {{}} {other}"),
    ],
)
def test_words_of_a_size(word: str, two: str, eight: str) -> None:
    assert command_of(("python", word), TWO, 256) == ("python", two)
    assert command_of(("python", word), EIGHT, 256) == ("python", eight)


def test_without_a_global_batch_its_word_stays() -> None:
    assert command_of(("{batch}", "{ranks}"), EIGHT, None) == ("{batch}", "8")
    assert placeholders(("a{batch}", "{{ranks}}")) == {"batch"}


@pytest.mark.parametrize(
    ("command", "strong", "batch", "faults"),
    [
        (("{batch}",), True, 256, []),
        (("{ranks}",), True, 256, []),
        (("train",), False, None, []),
        (("train",), True, None, []),
        (("{batch}",), True, None, ["{batch} is a rank's share of --global-batch"]),
        (("{batch}",), False, 256, ["is the batch of strong scaling"]),
        (("train",), True, 256, ["has no {batch}"]),
        (("{batch}",), True, 0, ["0 samples"]),
        (("{batch}",), True, -8, ["-8 samples"]),
        (
            ("{batch}",),
            True,
            255,
            ["255 samples do not divide by the 2 ranks of 1x2", "255 samples do not divide by the 8 ranks"],
        ),
        (("train",), True, 4, ["has no {batch}", "4 samples do not divide by the 8 ranks of 2x4"]),
    ],
)
def test_batch_faults(command: tuple[str, ...], strong: bool, batch: int | None, faults: list[str]) -> None:
    found = batch_faults(command, GRID, strong=strong, global_batch=batch)
    assert len(found) == len(faults)
    for fault, text in zip(found, faults, strict=True):
        assert text in fault.what


def test_a_baseline_is_one_size() -> None:
    host = parse_baseline("1x8")
    assert with_baseline(parse_grid("2x8,4x8"), host)[0] == host
    assert with_baseline(parse_grid("1x8,2x8"), host) == parse_grid("1x8,2x8")
    for text, said in (("1x8,2x8", "is 2 sizes"), ("eight", "is not a size"), ("0x8", "has no rank")):
        with pytest.raises(RequestError, match=said) as raised:
            parse_baseline(text)
        assert raised.value.faults[0].where == "--baseline"

"""What decides on checks of parameters, what they compare, and what they say."""

import math
from typing import Any

import numpy
import pytest

from ringleader.adapters.commit_layout import BLOCK
from ringleader.adapters.consistency import (
    FEWEST,
    MOST_COST,
    Difference,
    array_kind,
    checksum,
    difference,
    interval,
)
from ringleader.engine.engine_settings import read_settings


@pytest.mark.parametrize(
    ("check", "step", "every"),
    [
        (1e-6, 1.0, FEWEST),  # never more often, however cheap
        (0.008, 1.0, 16),
        (0.0081, 1.0, 32),
        (0.1, 0.1, 2048),
        (0.03, 0.004, 16384),
        (1.0, math.inf, FEWEST),  # nothing is known of steps yet
        (1.0, 0.0, 1 << 20),
    ],
)
def test_a_check_costs_at_most_a_thousandth_of_the_steps(check: float, step: float, every: int) -> None:
    assert interval(check, step) == every
    assert every in (FEWEST, 1 << 20) or check <= MOST_COST * step * every < 2 * check


def facts(*checksums: int, trained: bool = True) -> list[tuple[int, float, bool]]:
    return [(one, float(one), trained) for one in checksums]


@pytest.mark.parametrize(
    ("of_ranks", "numbers", "ranks", "usual", "parameters"),
    [
        ([(1, 2), (1, 3), (1, 2), (1, 2)], (0, 1, 2, 3), (1,), (0, 2, 3), ("b",)),
        ([(1, 2), (9, 2)], (0, 1), (1,), (0,), ("a",)),  # of two, rank 0 is taken for the usual one
        ([(9, 2), (1, 2), (1, 2)], (0, 1, 2), (0,), (1, 2), ("a",)),
        ([(1, 2), (3, 4), (5, 6)], (0, 1, 2), (1, 2), (0,), ("a", "b")),
        ([(1, 2), (1, 3)], (4, 7), (7,), (4,), ("b",)),  # a process set
    ],
)
def test_the_rarer_ranks_are_named(
    of_ranks: list[tuple[int, int]], numbers: Any, ranks: Any, usual: Any, parameters: Any
) -> None:
    found = difference("SGD", 7, ["a", "b"], [facts(*one) for one in of_ranks], numbers)
    assert (found.ranks, found.usual, found.parameters) == (ranks, usual, parameters)
    assert found.norms.endswith(f" on rank {usual[0]}") and f" on rank {ranks[0]}, " in found.norms


def test_what_is_frozen_everywhere_or_equal_does_not_count() -> None:
    assert difference("SGD", 7, ["a", "b"], [facts(1, 2), facts(1, 2)], (0, 1)) is None
    frozen = [facts(1, trained=False) + facts(2), facts(3, trained=False) + facts(2)]
    assert difference("SGD", 7, ["a", "b"], frozen, (0, 1)) is None
    one_trains = [facts(1, trained=False), facts(3)]
    assert difference("SGD", 7, ["a"], one_trains, (0, 1)) is not None


def test_the_warning() -> None:
    found = Difference(
        optimizer="SGD",
        step=7,
        ranks=(1,),
        usual=(0, 2, 3),
        parameters=tuple("abcdefg"),
        norms="2.5 on rank 1, 1 on rank 0",
    )
    text = found.text("hvd.broadcast(…)")
    assert text.startswith(
        "the parameters of SGD differ between ranks after step 7: rank 1 differs from ranks 0, 2, 3 in "
        "a (norm 2.5 on rank 1, 1 on rank 0), b, c, d, e and 2 more. "
    )
    assert "Call hvd.broadcast(…) after weights are made" in text
    assert "engine.md" in text and "RINGLEADER_CONSISTENCY_CHECK=off" in text


def test_any_bit_and_any_place_changes_the_checksum() -> None:
    values = numpy.random.default_rng(0).standard_normal(3 * BLOCK + 5, dtype=numpy.float32)
    parts = [values[:7], values[7:]]
    usual = checksum(parts)
    assert -(1 << 63) <= usual < 1 << 63
    words = values.view(numpy.uint32)
    for at in (0, 6, 7, 2 * BLOCK, 2 * BLOCK + 1, len(values) - 1):
        for bit in (0, 13, 31):
            words[at] ^= numpy.uint32(1 << bit)
            assert checksum(parts) != usual
            words[at] ^= numpy.uint32(1 << bit)
    for one, other in ((0, 1), (8, 8 + 2 * BLOCK), (5, len(values) - 1)):
        values[[one, other]] = values[[other, one]]
        assert checksum(parts) != usual
        values[[one, other]] = values[[other, one]]
    assert checksum(parts) == usual


def test_the_order_in_memory_does_not_count() -> None:
    values = numpy.arange(24.0).reshape(2, 3, 4)
    turned = numpy.asfortranarray(values)
    assert not turned.flags.c_contiguous
    assert checksum([values]) == checksum([turned]) != checksum([values.T])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "bool"])
def test_all_types_and_sizes(dtype: str) -> None:
    for count in (0, 1, 3, 8, 17):
        ones = numpy.ones(count, dtype)
        assert count == 0 or checksum([ones]) != checksum([numpy.zeros(count, dtype)])
        assert checksum([ones]) == checksum([ones.copy()])
    scalar = array_kind(numpy.asarray, "").facts(numpy.array(3, dtype))
    assert scalar[2] is True


def test_where_checksums_differ_one_nan_is_as_good_as_another() -> None:
    kind = array_kind(lambda array: array, "")
    nan, other = numpy.array([1, 0x7FC00000], "uint32"), numpy.array([1, 0xFFC00001], "uint32")
    mine, theirs = nan.view("float32"), other.view("float32")
    assert kind.checksum([mine]) != kind.checksum([theirs])
    assert kind.facts(mine)[0] == kind.facts(theirs)[0]
    assert numpy.array_equal(theirs.view("uint32"), other), "values were changed"


@pytest.mark.parametrize(
    ("word", "mode"), [(None, "warn"), ("", "warn"), ("warn", "warn"), ("ERROR", "error"), ("off", "off")]
)
def test_the_environment_says_what_is_done(word: str | None, mode: str) -> None:
    environ = {} if word is None else {"RINGLEADER_CONSISTENCY_CHECK": word}
    assert read_settings(environ).consistency == mode


def test_a_wrong_word_in_the_environment() -> None:
    with pytest.raises(ValueError, match="RINGLEADER_CONSISTENCY_CHECK is 'on': use one of warn, error, off"):
        read_settings({"RINGLEADER_CONSISTENCY_CHECK": "on"})


def test_a_device_packs_parameters_and_sees_any_bit() -> None:
    torch = pytest.importorskip("torch")
    from ringleader.torch.tensor_bytes import device_checksum

    sizes = (5, 0, 8 * BLOCK + 1000, 3, 64, 200)
    parts = [torch.randint(0, 256, (size,), dtype=torch.uint8) for size in sizes]
    usual = device_checksum(parts)
    for most in (8 * BLOCK, 32 * BLOCK):
        assert device_checksum(parts, most) == usual
        assert device_checksum([part.clone() for part in parts], most) == usual
        for part in parts:
            for at in {0, len(part) // 2, len(part) - 1} if len(part) else ():
                part[at] ^= 16
                assert device_checksum(parts, most) != usual
                part[at] ^= 16
        parts[2][[3, 700]] = parts[2][[700, 3]]
        assert device_checksum(parts, most) != usual or parts[2][3] == parts[2][700]
        parts[2][[3, 700]] = parts[2][[700, 3]]


def test_tensors_of_all_layouts_and_types() -> None:
    torch = pytest.importorskip("torch")
    from ringleader.torch.tensor_bytes import tensor_checksum, tensor_facts

    values = torch.randn(4, 3, 5, 5)
    assert tensor_checksum([values]) == tensor_checksum([values.to(memory_format=torch.channels_last)])
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool, torch.complex64):
        one, other = values.to(dtype), values.to(dtype)
        assert tensor_checksum([one]) == tensor_checksum([other])
        other.view(torch.uint8).view(-1)[7] ^= 1
        assert tensor_checksum([one]) != tensor_checksum([other])
    parameter = torch.nn.Parameter(torch.tensor([1.0, math.nan]))
    other = torch.tensor([1.0, -math.nan])
    other.view(torch.int32)[1] |= 1
    assert tensor_checksum([parameter]) != tensor_checksum([other])
    assert tensor_facts(parameter)[0] == tensor_facts(other)[0]
    assert tensor_facts(parameter)[2] and not tensor_facts(other)[2]

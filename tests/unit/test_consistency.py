"""What decides on checks of parameters, what they compare, and what they say."""

import math

import numpy
import pytest
import torch

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
from ringleader.engine.operations import ReduceOp
from ringleader.torch.c10d.process_group import InnerReduction, inner_reduction, nccl_too_old


def test_a_check_costs_at_most_a_thousandth_of_the_steps():
    for check, step, every in (
        (1e-6, 1.0, FEWEST),  # never more often, however cheap
        (0.008, 1.0, 16),
        (0.0081, 1.0, 32),
        (0.03, 0.004, 16384),
        (1.0, math.inf, FEWEST),  # nothing is known of steps yet
        (1.0, 0.0, 1 << 20),
    ):
        assert interval(check, step) == every
        assert every in (FEWEST, 1 << 20) or check <= MOST_COST * step * every < 2 * check


def facts(*checksums, trained=True):
    return [(one, float(one), trained) for one in checksums]


def test_the_rarer_ranks_are_named():
    for of_ranks, numbers, ranks, usual, parameters in (
        ([(1, 2), (1, 3), (1, 2), (1, 2)], (0, 1, 2, 3), (1,), (0, 2, 3), ("b",)),
        ([(9, 2), (1, 2), (1, 2)], (0, 1, 2), (0,), (1, 2), ("a",)),
        ([(1, 2), (3, 4), (5, 6)], (0, 1, 2), (1, 2), (0,), ("a", "b")),
        ([(1, 2), (1, 3)], (4, 7), (7,), (4,), ("b",)),  # a process set
    ):
        found = difference("SGD", 7, ["a", "b"], [facts(*one) for one in of_ranks], numbers)
        assert (found.ranks, found.usual, found.parameters) == (ranks, usual, parameters)
        assert found.norms.endswith(f" on rank {usual[0]}") and f" on rank {ranks[0]}, " in found.norms


def test_what_is_frozen_everywhere_or_equal_does_not_count():
    assert difference("SGD", 7, ["a", "b"], [facts(1, 2), facts(1, 2)], (0, 1)) is None
    frozen = [facts(1, trained=False) + facts(2), facts(3, trained=False) + facts(2)]
    assert difference("SGD", 7, ["a", "b"], frozen, (0, 1)) is None
    one_trains = [facts(1, trained=False), facts(3)]
    assert difference("SGD", 7, ["a"], one_trains, (0, 1)) is not None


def test_the_warning():
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


def test_any_bit_and_any_place_changes_the_checksum():
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


def test_where_checksums_differ_one_nan_is_as_good_as_another():
    kind = array_kind(lambda array: array, "")
    nan, other = numpy.array([1, 0x7FC00000], "uint32"), numpy.array([1, 0xFFC00001], "uint32")
    mine, theirs = nan.view("float32"), other.view("float32")
    assert kind.checksum([mine]) != kind.checksum([theirs])
    assert kind.facts(mine)[0] == kind.facts(theirs)[0]
    assert numpy.array_equal(theirs.view("uint32"), other), "values were changed"


def test_a_device_packs_parameters_and_sees_any_bit():
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


def test_the_environment_says_what_is_done():
    for word, mode in ((None, "warn"), ("", "warn"), ("ERROR", "error"), ("off", "off")):
        environ = {} if word is None else {"RINGLEADER_CONSISTENCY_CHECK": word}
        assert read_settings(environ).consistency == mode
    with pytest.raises(ValueError, match="RINGLEADER_CONSISTENCY_CHECK is 'on': use one of warn, error, off"):
        read_settings({"RINGLEADER_CONSISTENCY_CHECK": "on"})


def test_all_types_and_sizes():
    for dtype in ("float16", "float64", "int8", "bool"):
        for count in (0, 1, 3, 8, 17):
            ones = numpy.ones(count, dtype)
            assert count == 0 or checksum([ones]) != checksum([numpy.zeros(count, dtype)])
            assert checksum([ones]) == checksum([ones.copy()])
        assert array_kind(numpy.asarray, "").facts(numpy.array(3, dtype))[2] is True
        values = numpy.arange(24).reshape(2, 3, 4)
        assert checksum([values]) == checksum([numpy.asfortranarray(values)]) != checksum([values.T])


HALF = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", HALF)
def test_nccl_averages_and_scales_sums_of_floats_itself(dtype):
    def inner(op, factor):
        return inner_reduction(op, factor, dtype, size=4, scales=True)

    assert inner(ReduceOp.SUM, 0.25) == InnerReduction(name="AVG")
    inside = InnerReduction(name="PREMUL_SUM", factor=0.5)
    # PyTorch before 2.14 reads a power of two as 0 there.
    after = InnerReduction(name="SUM", left=0.5)
    assert inner(ReduceOp.SUM, 0.5) == (after if dtype is torch.bfloat16 else inside)
    assert inner(ReduceOp.SUM, 1.0) == InnerReduction(name="SUM")
    assert inner(ReduceOp.MAX, 0.25) == InnerReduction(name="MAX", left=0.25)


def test_an_nccl_that_is_too_old_is_named_with_the_cure():
    for version, said in (((2, 27, 3), ""), ((2, 11, 1), ""), ((2, 9, 6), "NCCL 2.9.6 is loaded and 2.11.1")):
        found = nccl_too_old(version)
        assert found.startswith(said) and bool(found) == bool(said)
        assert not found or "LD_LIBRARY_PATH" in found


def test_what_the_backend_cannot_scale_is_left_to_us():
    def inner(dtype, factor=0.25, *, size=4, scales=True):
        return inner_reduction(ReduceOp.SUM, factor, dtype, size=size, scales=scales)

    ours = InnerReduction(name="SUM", left=0.25)
    assert inner(torch.int32) == inner(torch.uint8) == inner(torch.float32, scales=False) == ours
    # A factor that would lose digits in the element type is, too, and a rank alone has no average.
    assert inner(torch.float16, 1e-5) == InnerReduction(name="SUM", left=1e-5)
    assert inner(torch.float32, 1.0, size=1).name == "SUM"


def test_tensors_of_all_layouts_and_types():
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

"""Descriptions of reductions that come again: taken only for what they describe, and never with a tensor."""

import pytest
import torch

from ringleader.collectives.operations import ReduceOp, Signature, Work, signature_digest
from ringleader.common.handles import CAPACITY, DONE_WORKS, keep_work
from ringleader.torch.ops.allreduce import take_work


@pytest.fixture(autouse=True)
def no_works():
    DONE_WORKS.clear()
    yield
    DONE_WORKS.clear()


def done(name, tensor, op=ReduceOp.MAX, prescale=1.0):
    signature = Signature(
        kind="allreduce", dtype="float32", shape=tuple(tensor.shape), op=op, prescale=prescale
    )
    return Work(signature, signature_digest(signature), name=name, serial=0, array=tensor, out=tensor)


def test_a_like_reduction_gets_the_description_of_the_one_before():
    work = done("w", torch.zeros(3))
    keep_work(work)
    assert work.array is None and work.out is None  # the tensor may go
    tensor = torch.ones(3)
    assert take_work("w", tensor, ReduceOp.MAX, 1.0, 1.0) is work
    assert work.array is tensor and work.out is tensor
    assert take_work("w", tensor, ReduceOp.MAX, 1.0, 1.0) is None, "it is under way"


@pytest.mark.parametrize(
    ("tensor", "op", "prescale", "postscale"),
    [
        (torch.ones(4), ReduceOp.MAX, 1.0, 1.0),
        (torch.ones(3, 1), ReduceOp.MAX, 1.0, 1.0),
        (torch.ones(3, dtype=torch.int32), ReduceOp.MAX, 1.0, 1.0),
        (torch.ones(3), ReduceOp.MIN, 1.0, 1.0),
        (torch.ones(3), ReduceOp.MAX, 0.5, 1.0),
        (torch.ones(3), ReduceOp.MAX, 1.0, 2.0),
        (torch.ones(6)[::2], ReduceOp.MAX, 1.0, 1.0),
        (torch.ones(3, requires_grad=True), ReduceOp.MAX, 1.0, 1.0),
        (torch.ones(3).to_sparse(), ReduceOp.MAX, 1.0, 1.0),
        (torch._neg_view(torch.ones(3)), ReduceOp.MAX, 1.0, 1.0),
    ],
    ids=[
        "length", "shape", "type", "op", "before", "after", "strided", "graph", "sparse", "negative view",
    ],
)  # fmt: skip
def test_whatever_differs_is_described_anew(tensor, op, prescale, postscale):
    keep_work(done("w", torch.zeros(3)))
    assert take_work("w", tensor, op, prescale, postscale) is None


def test_only_named_ones_are_kept_and_not_too_many():
    for work in (done(None, torch.zeros(3)), done("a", torch.zeros(3), op=ReduceOp.ADASUM)):
        keep_work(work)
        assert work.array is not None
    assert take_work(None, torch.zeros(3), ReduceOp.MAX, 1.0, 1.0) is None
    assert take_work("a", torch.zeros(3), ReduceOp.ADASUM, 1.0, 1.0) is None
    for number in range(CAPACITY + 1):
        keep_work(done(f"w{number}", torch.zeros(3)))
    assert take_work("w0", torch.zeros(3), ReduceOp.MAX, 1.0, 1.0) is None
    assert take_work(f"w{CAPACITY}", torch.zeros(3), ReduceOp.MAX, 1.0, 1.0) is not None

"""What scripts do between wrap and step, in random sequences on living ranks, against plain PyTorch.

Drawn by `tests.sequences.generator`; `tests/campaigns/sequences.py` repeats one by its seed or from the JSON
that a failure prints.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.collectives.sequence_ranks import SequenceRanks
from tests.sequences.generator import LAYOUTS
from tests.sequences.judge import Trials

pytestmark = [pytest.mark.mpi, pytest.mark.torch, pytest.mark.timeout(1800)]

FEW, MANY = 6, 2000


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)], ids=["few", "many"])
def test_training_is_that_of_plain_pytorch(jobs: Any, tmp_path: Path, count: int) -> None:
    """Parameters, gradients and learning rates are the reference's, and all ranks have the same bits."""
    ranks = SequenceRanks(tmp_path, jobs.environment())
    try:
        outcome = Trials(ranks.answers).run(range(count))
        ranks.close()
    finally:
        ranks.kill()
    assert [str(failure) for failure in outcome.failures] == []
    if count == MANY:
        # All that a sequence can be made of came up, or this test has shown less than it says.
        assert min(outcome.used[one] for one in EVERY_USE) > 0


EVERY_USE = [
    *(f"size={size}" for size, _per_host in LAYOUTS),
    *("convert bfloat16", "convert half", "convert double", "convert channels_last", "share memory"),
    *("replace data", "replace grad data", "edit new", "edit data", "edit drop", "edit clip norm"),
    *("update skip clip norm", "update skip new", "update closure", "update scaler", "update unscale"),
    *("update clip shard", "update twice", "zero first none", "zero last zeros", "zero first never"),
    *("backward no_sync plain", "backward sync two losses", "backward sync penalty"),
    *(
        "backward sync create graph",
        "backward sync autograd.grad",
        "start scheduler step",
        "start keep group",
    ),
    *("add group wrapped", "add group plain", "keep one", "keep view", "keep list", "flat buffer"),
    *("deepcopy drop", "load", "rewrap keep", "local step", "broadcast optimizer", "hook tensor"),
    *("optimizers=disjoint", "optimizers=alternate", "compression=topk", "compression=powersgd"),
    *("compression=fp16", "op=Sum", "op=Adasum", "shard=True", "process_set=[0, 1]", "groups=lists"),
    *("sparse_as_dense=True", "embedding=sparse", "embedding=tied", "branch=turns", "branch=nobody"),
]
"""Operations and arguments that the 2,000 sequences must have."""
